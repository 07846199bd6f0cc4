"""The base class of honest group members: it reads partitions and commits its positions.

Records are numbers: a partition's records are its offsets, so every value occurs once. The world's
`OffsetOracle` observes everything that a member owns, reads, commits and fetches, and checks it.
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
from konvene.messages.txn_offset_commit import TxnOffsetCommitRequest
from konvene.sim.invariants.offset_oracle import TopicPartition
from konvene.sim.world.process import REQUEST_TIMEOUT_MS, Answer, Process

if TYPE_CHECKING:
    from konvene.sim.world.world import World

RETRY_BACKOFF_MS = 100
MAX_POLL_RECORDS = 50
"""Maximum number of records that a member reads from a partition at a time."""


CommitRequest = OffsetCommitRequest | TxnOffsetCommitRequest
"""A commit request, without or within a transaction."""


class Member(Process):
    """A group member that owns partitions. A subclass implements the group's protocol."""

    require_stable = False
    """The field `require_stable` of OffsetFetch: the response waits for open transactions."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name)
        self.group = group
        self.topics: tuple[str, ...] = world.subscription()
        """Topics to which the member subscribes."""
        self.owned: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, Uuid] = {}
        self._fetching = False

    # --- state ---

    @property
    def is_stable(self) -> bool:
        """True if the client is a member and no change of its assignment is in progress."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """The generation or member epoch."""
        raise NotImplementedError

    @property
    def member_id(self) -> str:
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the group and stop, as a client that is closed."""
        raise NotImplementedError

    def die(self) -> None:
        super().die()
        self.lose_all()

    # --- ownership ---

    def own(self, partitions: set[TopicPartition]) -> None:
        """Replace the owned partitions, and fetch positions for the new ones."""
        removed = self.owned - partitions
        for tp in removed:
            self.positions.pop(tp, None)
            self.committed.pop(tp, None)
        added = partitions - self.owned
        self.owned = set(partitions)
        self.world.oracle.record_ownership(self, self.owned)
        self.world.measure.owned(self, len(added), len(removed))
        self.fetch_positions()

    def lose_all(self) -> None:
        """Drop all owned partitions without a request to the coordinator."""
        if self.owned:
            self.own(set())
        self._fetching = False

    def fetch_positions(self) -> None:
        """Fetch the committed offsets of owned partitions that have no position yet."""
        wanted = sorted(tp for tp in self.owned if tp not in self.positions)
        if not wanted or self._fetching or not self.alive:
            return
        self._fetching = True
        minimums = self.world.oracle.minimum_offsets(self.group, wanted)
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
        self.send(request, 9, lambda answer: self._positions_fetched(minimums, answer))

    def _positions_fetched(self, minimums: dict[TopicPartition, tuple[int, int]], answer: Answer) -> None:
        self._fetching = False
        if not isinstance(answer, OffsetFetchResponse) or answer.groups[0].error_code:
            self.schedule(RETRY_BACKOFF_MS, self.fetch_positions)
            return
        unstable = False
        for topic in answer.groups[0].topics:
            for partition in topic.partitions:
                tp = (topic.name, partition.partition_index)
                if tp in self.owned and tp not in self.positions and not partition.error_code:
                    self.world.oracle.check_fetched(self, tp, partition.committed_offset, minimums[tp])
                    self.positions[tp] = self.committed[tp] = max(0, partition.committed_offset)
                unstable |= partition.error_code == Errors.UNSTABLE_OFFSET_COMMIT
        if unstable:
            self.schedule(RETRY_BACKOFF_MS, self.fetch_positions)
        else:
            self.fetch_positions()

    # --- reading and committing ---

    def read(self) -> None:
        """Read some records of each partition that has a position; without faults, all of them."""
        random, oracle, ends = self.world.random, self.world.oracle, self.world.ends
        self._forget_recreated_topics()
        for tp in sorted(self.positions):
            position, end = self.positions[tp], ends.get(tp, 0)
            if position > end:  # OFFSET_OUT_OF_RANGE with auto.offset.reset=earliest.
                self.positions[tp] = 0
            elif position < end:
                end_position = (
                    end
                    if self.world.faults_disabled
                    else min(end, position + random.randint(1, MAX_POLL_RECORDS))
                )
                oracle.record_read(self, tp, position, end_position)
                self.positions[tp] = end_position

    def _forget_recreated_topics(self) -> None:
        """Drop positions of topics that were deleted and recreated."""
        for name, topic in self.world.topics.by_name.items():
            if self._topic_ids.get(name, topic.id) != topic.id:
                for tp in [tp for tp in self.positions if tp[0] == name]:
                    del self.positions[tp], self.committed[tp]
                self.schedule(0, self.fetch_positions)
            self._topic_ids[name] = topic.id

    def commit_request(self, generation: int, instance_id: str | None) -> CommitRequest | None:
        """Return an OffsetCommit request with all uncommitted positions; None if there are none."""
        by_topic = self.uncommitted()
        if not by_topic:
            return None
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=instance_id,
            topics=tuple(
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=position,
                            committed_metadata=f"{self.name}@{position}",
                        )
                        for index, position in positions
                    ),
                )
                for topic, positions in by_topic.items()
            ),
        )

    def uncommitted(self) -> dict[str, list[tuple[int, int]]]:
        """Return the positions that are not committed yet, as (partition, position) by topic."""
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for (topic, index), position in sorted(self.positions.items()):
            if self.committed.get((topic, index)) != position:
                by_topic.setdefault(topic, []).append((index, position))
        return by_topic

    def send_commit(
        self,
        request: CommitRequest,
        done: Callable[[Errors | None], None],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Send a commit; `done` is called with an error of the response, or None if there was no response."""
        sent = {
            (topic.name, p.partition_index): p.committed_offset
            for topic in request.topics
            for p in topic.partitions
        }
        regressions = self.world.oracle.regressions(self.group, sent)
        self.send(request, 9, lambda answer: done(self._commit_errors(sent, regressions, answer)), timeout_ms)

    def _commit_errors(
        self, sent: dict[TopicPartition, int], regressions: dict[TopicPartition, int], answer: Answer
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
                self.world.oracle.commit_accepted(self, tp, sent[tp], regressions[tp])
                if tp in self.positions:
                    self.committed[tp] = sent[tp]
        return worst
