"""Oracle of committed offsets: what clients may expect of their offsets, whatever faults occurred.

A record is identified by topic, partition and offset. The oracle rejects:

    skipped     a member continues beyond a record that no member of the group has read
    regressed   a fetched offset is below one whose commit was acknowledged before the fetch was sent
    shared      two members own a partition in the current generation; or two members of a streams group run a
                task, or two members of a process have the same task state open

Reading a record twice after a crash or a rebalance is allowed: commits lag behind reads.

An offset may regress if it was deleted or expired; if a commit arrived late, on a closed connection, and was
accepted because its member and generation are still current; or if a member of the classic protocol was
removed from a consumer group while its request was pending, and rejoined without noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.shard.image import Topics
from konvene.sim.world.event import Event, InvariantViolation, OffsetKey

if TYPE_CHECKING:
    from konvene.sim.members.member import Member
    from konvene.sim.members.streams.application import Application
    from konvene.sim.world.process import Process

TopicPartition = tuple[str, int]


class OffsetOracle:
    """Record of what the members of a simulated world own, read and commit, and a check of each report
    against it. With `off` (members are hostile) reports are recorded and not checked."""

    def __init__(self, is_current: Callable[[Member], bool], *, off: bool) -> None:
        self.off = off
        self._is_current = is_current
        self._read_end: dict[OffsetKey, int] = {}
        """First offset that no member has read."""
        self._acknowledged: dict[OffsetKey, int] = {}
        self._regressions: dict[OffsetKey, int] = {}
        """How often an offset was allowed to regress."""
        self._owners: dict[str, Member] = {}
        self._runners: dict[str, Application] = {}
        self._recreated_topics: set[str] = set()
        self._uncertain: dict[str, int] = {}
        """Clients whose ownership the coordinator may not know, and in which of their lives."""
        self._readmitted: set[str] = set()
        """Members that were removed while a request was pending, and rejoined without noticing."""
        self.reads = self.repeated = 0

    def __repr__(self) -> str:
        return f"<oracle: {self.reads} records read, {self.repeated} of them again>"

    # --- reports of members ---

    def record_ownership(self, member: Member, owned: set[TopicPartition]) -> None:
        """Record the partitions that a member owns from now on. Raises `InvariantViolation` if another member
        of the same generation owns one of them."""
        if self.off:
            return
        if not owned:
            self._owners.pop(member.name, None)
            return
        self._owners[member.name] = member
        if not self._is_current(member):
            return
        for other in self._owners.values():
            if other is member or other.group != member.group or not owned & other.owned:
                continue
            if other.is_stable and self._is_current(other) and other.epoch == member.epoch:
                shared = ", ".join(f"{t}-{p}" for t, p in sorted(owned & other.owned))
                why = f"{member.name} and {other.name} own {shared} in {member.epoch}"
                raise InvariantViolation("PartitionsAreExclusive", why)

    def record_tasks(self, member: Application) -> None:
        """Record the tasks that a member has from now on. Raises `InvariantViolation`.

        T1: no other current member runs its active tasks, restored or not. T2: no other member of its process
        has the same task state open; members of the classic protocol, which lock it, are exempt."""
        self._readmitted.discard(member.name)
        if self.off:
            return
        if not member.tasks:
            self._runners.pop(member.name, None)
            return
        self._runners[member.name] = member
        if not self._is_current(member):
            return
        for other in self._runners.values():
            if other is member or other.group != member.group or not self._is_current(other):
                continue
            shared = other.tasks.active & member.tasks.active
            if shared and self._is_certain(member) and self._is_certain(other):
                tasks = ", ".join(sorted(map(str, shared)))
                raise InvariantViolation("TasksAreExclusive", f"{member.name} and {other.name} run {tasks}")
            shared = other.opened & member.opened
            if (
                shared
                and other.process_id == member.process_id
                and other.locks_state is member.locks_state is False
            ):
                tasks = ", ".join(sorted(map(str, shared)))
                why = f"{member.name} and {other.name} of {member.process_id} have the state of {tasks} open"
                raise InvariantViolation("TasksAreExclusive", why)

    def mark_uncertain(self, client: Process) -> None:
        """Record that a JoinGroup of the client arrived late, and reported partitions that the client may not
        own any more. What it owns is not checked until it is started again."""
        self._uncertain[client.name] = client.life

    def member_readmitted(self, client_id: str) -> None:
        """Record that a member was removed and rejoined under its old member id, without noticing. Others may
        own its tasks until it receives its new assignment."""
        self._readmitted.add(client_id)

    def _is_certain(self, member: Member) -> bool:
        return self._uncertain.get(member.name) != member.life and member.name not in self._readmitted

    def minimum_offsets(
        self, group: str, wanted: list[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the regression count and the lowest valid offset of each partition at the moment, for the
        check of an offset fetch that is sent now. The regression count is the number of times that the offset
        was allowed to regress."""
        return {
            tp: (self._regressions.get((group, *tp), 0), self._acknowledged.get((group, *tp), -1))
            for tp in wanted
        }

    def check_fetched(
        self, member: Member, tp: TopicPartition, offset: int, minimum: tuple[int, int]
    ) -> None:
        """Check a fetched offset against what `minimum_offsets` returned when the fetch was sent. Raises
        `InvariantViolation`."""
        regressions, lowest = minimum
        key = (member.group, *tp)
        if self.off or tp[0] in self._recreated_topics or regressions != self._regressions.get(key, 0):
            return
        partition = f"{tp[0]}-{tp[1]}"
        if offset < lowest:
            why = f"{member.name} fetched {offset} of {partition}, but {lowest} was acknowledged before"
            raise InvariantViolation("CommittedOffsetsNeverRegress", why)
        if offset > self._read_end.get(key, 0):
            why = f"{member.name} continues at {offset} of {partition}, which no member has read"
            raise InvariantViolation("NoRecordIsSkipped", why)

    def record_read(self, member: Member, tp: TopicPartition, begin: int, end: int) -> None:
        """Record that a member read the records from `begin` to `end`, exclusive. Raises
        `InvariantViolation` if it skipped records."""
        key = (member.group, *tp)
        read_end = self._read_end.get(key, 0)
        if begin > read_end and not self.off and tp[0] not in self._recreated_topics:
            why = f"{member.name} reads {tp[0]}-{tp[1]} from {begin}, but {read_end} is next"
            raise InvariantViolation("NoRecordIsSkipped", why)
        self.reads += end - begin
        self.repeated += max(0, min(end, read_end) - begin)
        if end > read_end:
            self._read_end[key] = end

    def regressions(self, group: str, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how often the offset of each partition was allowed to regress so far, for a commit that is
        sent now."""
        return {tp: self._regressions.get((group, *tp), 0) for tp in wanted}

    def commit_accepted(self, member: Member, tp: TopicPartition, offset: int, regressions: int) -> None:
        """Record an acknowledged commit, unless the offset was allowed to regress since the commit was sent:
        `regressions` is the count at that time."""
        key = (member.group, *tp)
        if regressions == self._regressions.get(key, 0) and offset > self._acknowledged.get(key, -1):
            self._acknowledged[key] = offset

    # --- reports of the simulated world ---

    def offset_may_regress(self, key: OffsetKey) -> None:
        """Record that an offset was deleted, has expired or was validly overwritten: any later value is
        accepted."""
        self._regressions[key] = self._regressions.get(key, 0) + 1
        self._acknowledged.pop(key, None)

    def is_uncertain(self, key: OffsetKey) -> bool:
        """Return True if the offset has no expected value: it may have regressed, or members are hostile."""
        return self.off or key[1] in self._recreated_topics or key in self._regressions

    def topic_recreated(self, topic: str) -> None:
        """Record that a topic was recreated: offsets of its predecessor are not checked any more."""
        self._recreated_topics.add(topic)


def unowned_commits(event: Event) -> Iterator[OffsetKey]:
    """Yield the partitions that a member of the classic protocol committed in a modern group without owning
    them.

    Such a group accepts an unknown member id as a new member, where a classic group answers
    UNKNOWN_MEMBER_ID; and it accepts a commit at the group's epoch for any partition. So does Kafka."""
    group = event.after.groups.get(event.request.group_id)
    owner_of = OWNERS.get(type(group))
    member = group.members.get(event.request.member_id) if group is not None else None
    if owner_of is None or member is None or member.classic is None:
        return
    for key in event.after.offsets:
        if owner_of(group, event.runtime.topics, key) != member.member_id:
            yield key


def _consumer_owner(group: ConsumerGroup, topics: Topics, key: OffsetKey) -> str | None:
    topic = topics.by_name.get(key[1])
    return group.owners.get(topic.id, {}).get(key[2]) if topic is not None else None


def _streams_owner(group: StreamsGroup, topics: Topics, key: OffsetKey) -> str | None:
    return group.active.get(group.reader_of(key[1]) or "", {}).get(key[2])


OWNERS: Final[dict[type, Callable[[Any, Topics, OffsetKey], str | None]]] = {
    ConsumerGroup: _consumer_owner,
    StreamsGroup: _streams_owner,
}
"""Member id of the owner of a partition, by the class of a group that may have members of both protocols."""
