"""Members that consume, transform and produce: they write output and commit offsets in one transaction.

They are members of classic or consumer groups like any other, except that a transaction replaces each commit.
While a transaction is under way they read nothing. They fetch committed offsets with `require_stable`, and
fetch them again after an aborted transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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
from konvene.sim.members.member import CommitRequest, Member
from konvene.sim.transactions.ledger import Output
from konvene.sim.transactions.producer import Producer
from konvene.sim.world.process import REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    from konvene.sim.world.world import World

Ranges = dict[TopicPartition, tuple[int, int]]


class TransactionalMember(Member):
    """The base class of transactional members of both protocols."""

    require_stable = True
    waits_for_transaction = False
    """Whether a revocation waits for the end of the transaction, however long that takes."""
    producer: Producer | None = None

    def start(self) -> None:
        self.producer = Producer(self, self.transactional_id, self._fenced)
        super().start()
        self.schedule(0, self.producer.play, self.producer.begin())

    @property
    def transactional_id(self) -> str:
        """The member's transactional id; with `twins` two members share one and fence each other."""
        number = int(self.name.removeprefix("c"))
        return f"x-{(number + 1) // 2}" if self.world.options["twins"] else f"x-{self.name}"

    def die(self) -> None:
        self.producer = None
        super().die()

    def _fenced(self, error: Errors) -> None:
        """Stop because another producer uses the same transactional id."""
        self.world.log_event(self.name, f"is fenced: {error.name}", None)
        self.die()
        if self.world.faults_disabled:  # No other client can take its id any more.
            self.start()
        else:
            self.world.member_stopped(self)

    # --- transactions instead of commits ---

    def read(self) -> None:
        if self.producer is not None and self.producer.is_ready:
            super().read()

    def commit_request(self, generation: int, instance_id: str | None) -> TxnOffsetCommitRequest | None:
        """Return a TxnOffsetCommit request with all uncommitted positions.

        Return None if there are none, or if the producer is not ready, as during a transaction."""
        if self.producer is None or not self.producer.is_ready:
            return None
        label = self.producer.label()
        by_topic = self.uncommitted()
        if not by_topic:
            return None
        return TxnOffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=instance_id,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=position, committed_metadata=label
                        )
                        for index, position in positions
                    ),
                )
                for topic, positions in by_topic.items()
            ),
        )

    def send_commit(
        self,
        request: CommitRequest,
        done: Callable[[Errors | None], None],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Commit the offsets in `request` and write output records in one transaction.

        `done` is called once: with the error of the transaction, or with None after `timeout_ms`."""
        assert self.producer is not None
        assert isinstance(request, TxnOffsetCommitRequest)
        ranges = self._ranges(request)
        label = request.topics[0].partitions[0].committed_metadata or ""
        values: dict[int, list[bytes]] = {}
        for tp, (begin, end) in ranges.items():
            count = self.world.options["output.partitions"]
            index = (java_string_hash(tp[0]) + tp[1]) % count
            values.setdefault(index, []).append(Output(label, (self.group, *tp), begin, end).value())
        regressions = self.world.oracle.regressions(self.group, ranges)
        callbacks = [done]

        def complete(error: Errors | None) -> None:
            if callbacks:
                callbacks.pop()(error)

        life = self.life

        def ended(error: Errors | None) -> None:
            if life == self.life:
                self._transaction_ended(ranges, regressions, error)
                complete(error)

        if not self.waits_for_transaction:
            self.schedule(timeout_ms, complete, None)
        self.producer.play(self.producer.transaction(values, request, ended))

    def _ranges(self, request: TxnOffsetCommitRequest) -> Ranges:
        """Return the (first, next) offsets of each partition's records since the last commit."""
        ranges: Ranges = {}
        for topic in request.topics:
            for p in topic.partitions:
                tp, position = (topic.name, p.partition_index), p.committed_offset
                ranges[tp] = (min(self.committed.get(tp, 0), position), position)
        return ranges

    def _transaction_ended(
        self, ranges: Ranges, regressions: dict[TopicPartition, int], error: Errors | None
    ) -> None:
        for tp, (_, end) in ranges.items():
            if error is Errors.NONE:
                self.world.oracle.commit_accepted(self, tp, end, regressions[tp])
                if tp in self.positions:
                    self.committed[tp] = end
            elif tp in self.positions:
                del self.positions[tp]
                self.committed.pop(tp, None)
        self.schedule(0, self.fetch_positions)


class TransactionalClassicMember(TransactionalMember, ClassicMember):
    """A transactional member of a classic group."""


class TransactionalConsumerMember(TransactionalMember, ConsumerMember):
    """A transactional member of a consumer group.

    At its current epoch it may commit for partitions that it has already revoked, so a revocation waits for
    the transaction."""

    waits_for_transaction = True


def _classic(world: World, name: str, group: str) -> Member:
    """Make a classic member; every third one is static."""
    return TransactionalClassicMember(world, name, group, static=int(name.removeprefix("c")) % 3 == 0)


def _consumer(world: World, name: str, group: str) -> Member:
    return TransactionalConsumerMember(world, name, group, static=int(name.removeprefix("c")) % 3 == 0)


KINDS = (
    Kind("transactional", _classic, HostileClassic, transacts=True),
    Kind("transactional-consumer", _consumer, HostileConsumer, assigned=True, transacts=True),
)
