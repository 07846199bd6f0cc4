"""What clients may expect of their offsets, whatever happened in between.

A record is known by its topic, partition and offset, so each is there once. What must not happen:

    lost        somebody goes on behind a record that nobody has read
    gone back   an offset is fetched that is below one whose commit was acknowledged before it was asked for
    doubled     two members were given the same partition in the generation that stands; or two members of a
                streams group run the same task, or have the same state of a process open
    reordered   a member goes on elsewhere than where it stopped

Reading a record twice is no fault, after a crash or a rebalance: commits are behind.

What makes an offset go back rightly: it was deleted or expired; or a commit came late, on a connection that
was no more, and was accepted because its member and generation still stand; or a member of the classic
protocol was thrown out of a consumer group while it waited for an answer, and is in again without having
noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.sim.world.event import Event, InvariantViolation, OffsetKey

if TYPE_CHECKING:
    from konvene.sim.members.member import Member
    from konvene.sim.members.streams.application import Application
    from konvene.sim.world.process import Process

TopicPartition = tuple[str, int]


class Oracle:
    """Keeps the books of all members. `off` where some of them are not honest."""

    def __init__(self, is_current: Callable[[Member], bool], *, off: bool) -> None:
        self.off = off
        self._is_current = is_current
        self._read_upto: dict[OffsetKey, int] = {}
        self._acknowledged: dict[OffsetKey, int] = {}
        self._age: dict[OffsetKey, int] = {}
        """Rises when an offset goes back rightly."""
        self._owners: dict[str, Member] = {}
        self._runs: dict[str, Application] = {}
        self._without: set[str] = set()
        self._doubtful: dict[str, int] = {}
        """Members of which the coordinator may think that they own nothing, in which life of theirs."""
        self._unaware: set[str] = set()
        """Members that were thrown out while they waited, and were let in again before they noticed."""
        self.reads = self.repeated = 0

    def __repr__(self) -> str:
        return f"<oracle: {self.reads} records read, {self.repeated} of them again>"

    # --- what members tell ---

    def owns(self, member: Member, owned: set[TopicPartition]) -> None:
        """It owns these from now on."""
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
                both = ", ".join(f"{t}-{p}" for t, p in sorted(owned & other.owned))
                why = f"{member.name} and {other.name} own {both} in {member.epoch}"
                raise InvariantViolation("PartitionsAreExclusive", why)

    def runs(self, member: Application) -> None:
        """It has other tasks than before, or none. T1: of those who are members nobody else runs them,
        restored or not. T2: nobody else of its process has the same state open; but who speaks the classic
        protocol waits for a lock."""
        self._unaware.discard(member.name)
        if self.off:
            return
        if not member.tasks:
            self._runs.pop(member.name, None)
            return
        self._runs[member.name] = member
        if not self._is_current(member):
            return
        for other in self._runs.values():
            if other is member or other.group != member.group or not self._is_current(other):
                continue
            both = other.tasks.active & member.tasks.active
            if both and self._is_sure(member) and self._is_sure(other):
                told = ", ".join(sorted(map(str, both)))
                raise InvariantViolation("TasksAreExclusive", f"{member.name} and {other.name} run {told}")
            both = other.opened & member.opened
            if (
                both
                and other.process_id == member.process_id
                and other.locks_state is member.locks_state is False
            ):
                told = ", ".join(sorted(map(str, both)))
                why = f"{member.name} and {other.name} of {member.process_id} have the state of {told} open"
                raise InvariantViolation("TasksAreExclusive", why)

    def mark_uncertain(self, client: Process) -> None:
        """Somebody was told late what it owned then, so that it may seem to have given up what it has."""
        self._doubtful[client.name] = client.life

    def member_readmitted(self, client_id: str) -> None:
        """It was no member any more when it joined under the id that it had. What it runs may be somebody
        else's, until it hears what it has now."""
        self._unaware.add(client_id)

    def _is_sure(self, member: Member) -> bool:
        return self._doubtful.get(member.name) != member.life and member.name not in self._unaware

    def floors(self, group: str, wanted: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """What a fetch that is sent now must at least find."""
        return {
            tp: (self._age.get((group, *tp), 0), self._acknowledged.get((group, *tp), -1)) for tp in wanted
        }

    def fetched(self, member: Member, tp: TopicPartition, offset: int, floor: tuple[int, int]) -> None:
        """It was told to go on there."""
        age, least = floor
        key = (member.group, *tp)
        if self.off or tp[0] in self._without or age != self._age.get(key, 0):
            return
        where = f"{tp[0]}-{tp[1]}"
        if offset < least:
            why = f"{member.name} fetched {offset} of {where}, and {least} was acknowledged before"
            raise InvariantViolation("CommittedOffsetsNeverRegress", why)
        if offset > self._read_upto.get(key, 0):
            raise InvariantViolation(
                "NoRecordIsSkipped", f"{member.name} goes on at {offset} of {where}, read by nobody"
            )

    def read(self, member: Member, tp: TopicPartition, begin: int, end: int) -> None:
        """It read these records."""
        key = (member.group, *tp)
        upto = self._read_upto.get(key, 0)
        if begin > upto and not self.off and tp[0] not in self._without:
            why = f"{member.name} reads {tp[0]}-{tp[1]} from {begin}, {upto} is next"
            raise InvariantViolation("NoRecordIsSkipped", why)
        self.reads += end - begin
        self.repeated += max(0, min(end, upto) - begin)
        if end > upto:
            self._read_upto[key] = end

    def ages(self, group: str, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How often offsets went back by now, for a commit that is sent."""
        return {tp: self._age.get((group, *tp), 0) for tp in wanted}

    def commit_accepted(self, member: Member, tp: TopicPartition, offset: int, age: int) -> None:
        """It was told that its commit is stored. What went back since it was sent may have been it."""
        key = (member.group, *tp)
        if age == self._age.get(key, 0) and offset > self._acknowledged.get(key, -1):
            self._acknowledged[key] = offset

    # --- what the world tells ---

    def offset_may_regress(self, key: OffsetKey) -> None:
        """An offset is gone, or was overwritten, and rightly so."""
        self._age[key] = self._age.get(key, 0) + 1
        self._acknowledged.pop(key, None)

    def is_doubtful(self, key: OffsetKey) -> bool:
        """Whether nobody can tell where its offset has to be: it went back, or somebody is not honest."""
        return self.off or key[1] in self._without or key in self._age

    def topic_recreated(self, topic: str) -> None:
        """A topic is another one under the same name: what was committed for it before says nothing."""
        self._without.add(topic)


def of_others(event: Event) -> Iterator[OffsetKey]:
    """What a member of the classic protocol committed in a consumer group, and does not have.

    Such a group takes a member id that it does not know for somebody new, where a classic one answers
    UNKNOWN_MEMBER_ID; and a commit at the group's epoch is taken for any partition. So does Kafka."""
    group = event.after.groups.get(event.request.group_id)
    if not isinstance(group, ConsumerGroup | StreamsGroup):
        return
    member = group.members.get(event.request.member_id)
    if member is None or member.classic is None:
        return
    if isinstance(group, StreamsGroup):
        for key in event.after.offsets:
            if group.active.get(group.reader_of(key[1]) or "", {}).get(key[2]) != member.member_id:
                yield key
        return
    topics = event.runtime.topics.by_name
    for key in event.after.offsets:
        topic = topics.get(key[1])
        owners = group.owners.get(topic.id, {}) if topic is not None else {}
        if owners.get(key[2]) != member.member_id:
            yield key
