"""An honest member as far as all kinds are alike: it reads partitions and commits how far it got.

What it reads are numbers: a partition's records are its offsets, so every value is there once. The `Oracle`
of the world is told of everything a member owns, reads, commits and fetches, and knows what must not happen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from konvene.sim.invariants.offset_oracle import TopicPartition
from konvene.sim.world.process import REQUEST_TIMEOUT_MS, Answer, Process

if TYPE_CHECKING:
    from konvene.sim.world.world import World

RETRY_BACKOFF_MS = 100
MOST_RECORDS = 50
"""How many records a member takes from a partition at a time."""


class Member(Process):
    """A member of a group that owns partitions. A subclass knows the group's protocol."""

    require_stable = False
    """Whether it waits for transactions that are open, before it goes on."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name)
        self.group = group
        self.topics: tuple[str, ...] = world.subscription()
        """What it reads."""
        self.owned: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, Uuid] = {}
        self._fetching = False

    # --- what the world asks ---

    @property
    def settled(self) -> bool:
        """Whether it is a member and has nothing to do with its membership."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """The generation or epoch that it is in."""
        raise NotImplementedError

    @property
    def member_id(self) -> str:
        raise NotImplementedError

    def leave(self) -> None:
        """Stop as a client is stopped properly."""
        raise NotImplementedError

    def die(self) -> None:
        super().die()
        self.forget_all()

    # --- owning ---

    def own(self, partitions: set[TopicPartition]) -> None:
        """From now on exactly these."""
        gone = self.owned - partitions
        for tp in gone:
            self.positions.pop(tp, None)
            self.committed.pop(tp, None)
        added = partitions - self.owned
        self.owned = set(partitions)
        self.world.oracle.owns(self, self.owned)
        self.world.measure.owned(self, len(added), len(gone))
        self.fetch_positions()

    def forget_all(self) -> None:
        """What it owned is lost, without a word to anybody."""
        if self.owned:
            self.own(set())
        self._fetching = False

    def fetch_positions(self) -> None:
        """Ask where to go on, for what has no position yet."""
        wanted = sorted(tp for tp in self.owned if tp not in self.positions)
        if not wanted or self._fetching or not self.alive:
            return
        self._fetching = True
        floors = self.world.oracle.floors(self.group, wanted)
        by_topic: dict[str, list[int]] = {}
        for topic, partition in wanted:
            by_topic.setdefault(topic, []).append(partition)
        topics = tuple(
            OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(indexes))
            for topic, indexes in by_topic.items()
        )
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=self.group, topics=topics),),
            require_stable=self.require_stable,
        )
        self.send(request, 9, lambda answer: self._positions(floors, answer))

    def _positions(self, floors: dict[TopicPartition, tuple[int, int]], answer: Answer) -> None:
        self._fetching = False
        if not isinstance(answer, OffsetFetchResponse) or answer.groups[0].error_code:
            self.schedule(RETRY_BACKOFF_MS, self.fetch_positions)
            return
        unstable = False
        for topic in answer.groups[0].topics:
            for told in topic.partitions:
                tp = (topic.name, told.partition_index)
                if tp in self.owned and tp not in self.positions and not told.error_code:
                    self.world.oracle.fetched(self, tp, told.committed_offset, floors[tp])
                    self.positions[tp] = self.committed[tp] = max(0, told.committed_offset)
                unstable |= told.error_code == Errors.UNSTABLE_OFFSET_COMMIT
        if unstable:
            self.schedule(RETRY_BACKOFF_MS, self.fetch_positions)
        else:
            self.fetch_positions()

    # --- reading and committing ---

    def read(self) -> None:
        """Take some records of each partition."""
        random, oracle, ends = self.world.random, self.world.oracle, self.world.ends
        self._forget_topics_made_anew()
        for tp in sorted(self.positions):
            at, end = self.positions[tp], ends.get(tp, 0)
            if at > end:  # OFFSET_OUT_OF_RANGE, and auto.offset.reset=earliest.
                self.positions[tp] = 0
            elif at < end:
                upto = end if self.world.faults_disabled else min(end, at + random.randint(1, MOST_RECORDS))
                oracle.read(self, tp, at, upto)
                self.positions[tp] = upto

    def _forget_topics_made_anew(self) -> None:
        """A topic that is another one by now: what was known of its offsets says nothing."""
        for name, topic in self.world.topics.by_name.items():
            if self._topic_ids.get(name, topic.id) != topic.id:
                for tp in [tp for tp in self.positions if tp[0] == name]:
                    del self.positions[tp], self.committed[tp]
                self.schedule(0, self.fetch_positions)
            self._topic_ids[name] = topic.id

    def commit_request(self, generation: int, instance_id: str | None) -> OffsetCommitRequest | None:
        """What there is to commit; None if nothing is."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), at in sorted(self.positions.items()):
            if self.committed.get((topic, partition)) != at:
                told = OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=at, committed_metadata=f"{self.name}@{at}"
                )
                by_topic.setdefault(topic, []).append(told)
        if not by_topic:
            return None
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=instance_id,
            topics=tuple(
                OffsetCommitRequestTopic(name=topic, partitions=tuple(partitions))
                for topic, partitions in by_topic.items()
            ),
        )

    def send_commit(
        self,
        request: OffsetCommitRequest,
        done: Callable[[Errors | None], None],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Commit; `done` is told the first error of the answer, or None if nothing was heard."""
        sent = {
            (topic.name, p.partition_index): p.committed_offset
            for topic in request.topics
            for p in topic.partitions
        }
        ages = self.world.oracle.ages(self.group, sent)
        self.send(request, 9, lambda answer: done(self._took_commit(sent, ages, answer)), timeout_ms)

    def _took_commit(
        self, sent: dict[TopicPartition, int], ages: dict[TopicPartition, int], answer: Answer
    ) -> Errors | None:
        if not isinstance(answer, OffsetCommitResponse):
            return answer if isinstance(answer, Errors) else None
        worst = Errors.NONE
        for topic in answer.topics:
            for p in topic.partitions:
                tp = (topic.name, p.partition_index)
                error = Errors(p.error_code)
                if error is not Errors.NONE:
                    worst = error
                    continue
                self.world.oracle.commit_accepted(self, tp, sent[tp], ages[tp])
                if tp in self.positions:
                    self.committed[tp] = sent[tp]
        return worst
