"""Members that consume, transform and produce: what they read they write to the output, and how far they have
come they commit in the same transaction.

They are members of classic groups and of consumer groups like any other; only instead of committing they
transact. While a transaction is under way they read nothing. What they begin with they fetch where it is
stable, and after a transaction that came to nothing they fetch it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.codec.hashes import java_string_hash
from konvene.errors import Errors
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from konvene.sim.invariants.offset_oracle import TopicPartition
from konvene.sim.members import Kind
from konvene.sim.members.classic import ClassicMember
from konvene.sim.members.consumer import ConsumerMember
from konvene.sim.members.hostile.classic import HostileClassic
from konvene.sim.members.hostile.consumer import HostileConsumer
from konvene.sim.members.member import Member
from konvene.sim.transactions.ledger import Output
from konvene.sim.transactions.producer import Producer
from konvene.sim.world.process import REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    from konvene.sim.world.world import World

Ranges = dict[TopicPartition, tuple[int, int]]


class Transacting(Member):
    """What is common to them, whichever protocol they speak."""

    require_stable = True
    waits_for_the_end = False
    """Whether it gives nothing up before its transaction is over, however long that takes."""
    producer: Producer | None = None

    def start(self) -> None:
        self.producer = Producer(self, self.transactional_id, self._followed)
        super().start()
        self.schedule(0, self.producer.play, self.producer.begin())

    @property
    def transactional_id(self) -> str:
        """Its own; where there are twins two of them have the same, and fence one another."""
        number = int(self.name.removeprefix("c"))
        return f"x-{(number + 1) // 2}" if self.world.options["twins"] else f"x-{self.name}"

    def die(self) -> None:
        self.producer = None
        super().die()

    def _followed(self, error: Errors) -> None:
        """Somebody else has its transactional id: there is nothing that it could do."""
        self.world.log_event(self.name, f"is fenced: {error.name}", None)
        self.die()
        if self.world.faults_disabled:  # Nobody is there any more who could have its id.
            self.start()
        else:
            self.world.member_stopped(self)

    # --- in place of committing ---

    def read(self) -> None:
        if self.producer is not None and self.producer.is_ready:
            super().read()

    def commit_request(self, generation: int, instance_id: str | None) -> Any:
        """What there is to transact; None if nothing is, or one is under way."""
        if self.producer is None or not self.producer.is_ready:
            return None
        label = self.producer.label()
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), at in sorted(self.positions.items()):
            if self.committed.get((topic, partition)) != at:
                told = TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=at, committed_metadata=label
                )
                by_topic.setdefault(topic, []).append(told)
        if not by_topic:
            return None
        return TxnOffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=instance_id,
            topics=tuple(
                TxnOffsetCommitRequestTopic(name=topic, partitions=tuple(partitions))
                for topic, partitions in by_topic.items()
            ),
        )

    def send_commit(
        self,
        request: Any,
        done: Callable[[Errors | None], None],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Transact; `done` is told how it ended, or None when that takes longer than somebody waits."""
        assert self.producer is not None
        ranges = self._ranges(request)
        label = request.topics[0].partitions[0].committed_metadata
        values: dict[int, list[bytes]] = {}
        for tp, (begin, end) in ranges.items():
            count = self.world.options["output.partitions"]
            index = (java_string_hash(tp[0]) + tp[1]) % count
            values.setdefault(index, []).append(Output(label, (self.group, *tp), begin, end).value())
        ages = self.world.oracle.ages(self.group, ranges)
        waiting = [done]

        def tell(error: Errors | None) -> None:
            if waiting:
                waiting.pop()(error)

        life = self.life

        def over(error: Errors | None) -> None:
            if life == self.life:
                self._over(ranges, ages, error)
                tell(error)

        if not self.waits_for_the_end:
            self.schedule(timeout_ms, tell, None)
        self.producer.play(self.producer.transaction(values, request, over))

    def _ranges(self, request: Any) -> Ranges:
        """Which records are in it: those since the last commit."""
        ranges: Ranges = {}
        for topic in request.topics:
            for p in topic.partitions:
                tp, at = (topic.name, p.partition_index), p.committed_offset
                ranges[tp] = (min(self.committed.get(tp, 0), at), at)
        return ranges

    def _over(self, ranges: Ranges, ages: dict[TopicPartition, int], error: Errors | None) -> None:
        for tp, (_, end) in ranges.items():
            if error is Errors.NONE:
                self.world.oracle.commit_accepted(self, tp, end, ages[tp])
                if tp in self.positions:
                    self.committed[tp] = end
            elif tp in self.positions:
                del self.positions[tp]
                self.committed.pop(tp, None)
        self.schedule(0, self.fetch_positions)


class ClassicTransactor(Transacting, ClassicMember):
    """In a classic group."""


class ConsumerTransactor(Transacting, ConsumerMember):
    """In a consumer group. At its present epoch it may commit for partitions that it has given up already."""

    waits_for_the_end = True


def _classic(world: World, name: str, group: str) -> Member:
    """Each third one is static."""
    return ClassicTransactor(world, name, group, static=int(name.removeprefix("c")) % 3 == 0)


def _consumer(world: World, name: str, group: str) -> Member:
    return ConsumerTransactor(world, name, group, static=int(name.removeprefix("c")) % 3 == 0)


KINDS = (
    Kind("transactional", _classic, HostileClassic, transacts=True),
    Kind("transactional-consumer", _consumer, HostileConsumer, assigned=True, transacts=True),
)
