"""A consumer group (KIP-848), its members and its states.

    state         meaning                                                 changes to
    Empty         no members                                              Assigning: a member joins
    Assigning     the group's epoch is ahead of its assignment's          Reconciling: a target is computed
    Reconciling   a member is not at the assignment's epoch, waits for    Stable: all have their target;
                  a partition, or has yet to revoke one                   Assigning: something changed
    Stable        all members have their target                           Assigning
    Dead          not a state here: a deleted group no longer exists

There are three epochs. The group's is bumped when an input of the assignment changed; the assignment's
follows when a target was computed for it; a member's follows when the member has revoked what is not in the
target. A member's epoch is never ahead of the assignment's, which is never ahead of the group's.

A `ConsumerGroup` is changed in place and by the replay of records alone (`log`), so the cost of a heartbeat
in a group of ten thousand members is that of its changes. Partitions are indexed by owner, not by epoch: a
log that was compacted while it was read may have the record of an earlier owner after that of its successor,
which must keep the partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Self

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.current_assignment import NO_OWNER, CurrentAssignment, Partitions
from konvene.groups.java_hash_map import hash_map_order
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.group import ModernGroup, ModernSoftState
from konvene.shard.image import Topic


class State(StrEnum):
    """The states of a consumer group, by the names that ListGroups and ConsumerGroupDescribe return."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@lru_cache(maxsize=1024)
def topic_names(names: tuple[str, ...]) -> frozenset[str]:
    """Return the names as a set; members with the same subscription share one object."""
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a consumer group: its last subscription, and its current assignment."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    """Topic names that it subscribes to."""
    regex: str = ""
    """Regular expression that it subscribes to; empty: none."""
    assignor: str | None = None
    classic: ClassicProtocolMetadata | None = None
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    def having(self, current: CurrentAssignment) -> Member:
        """Return the member with this current assignment."""
        return Member(
            self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host,
            self.rebalance_timeout_ms, self.topics, self.regex, self.assignor, self.classic, current,
        )  # fmt: skip

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member owns its whole target of this epoch."""
        return self.current.is_at(epoch)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that a regular expression matched when it was last resolved.

    `version` is that of all topics at that time (`Topics.version`)."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SoftState(ModernSoftState):
    """The soft state of a consumer group: it is not in the log, and is lost by a restart."""

    resolving: bool = False
    """Whether the expressions are being resolved."""


@dataclass(slots=True, repr=False)
class ConsumerGroup(ModernGroup[Member]):
    """A consumer group. Only the replay of records (module `log`) changes it."""

    group_type: ClassVar[str] = "consumer"

    targets: dict[str, Partitions] = field(default_factory=dict)
    """Target assignments by member id."""
    regexes: dict[str, Resolved] = field(default_factory=dict)
    subscribers: Counter[str] = field(default_factory=Counter)
    """The number of members that subscribe to each topic by name."""
    regex_users: Counter[str] = field(default_factory=Counter)
    """The number of members that subscribe to each regular expression."""
    owners: dict[Uuid, dict[int, str]] = field(default_factory=dict)
    """By topic id and partition, the member that owns it or has yet to revoke it."""
    assignors: Counter[str] = field(default_factory=Counter)
    """The number of members that prefer each assignor."""
    classic_members: int = 0
    classic_protocols: Counter[str] = field(default_factory=Counter)
    """The number of classic members that support each assignor of the classic protocol."""
    soft: SoftState = field(default_factory=SoftState)

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        return State.RECONCILING if self.behind else State.STABLE

    def copy(self, **indexes: Any) -> Self:
        return ModernGroup.copy(
            self,
            regexes=dict(self.regexes),
            subscribers=self.subscribers.copy(),
            regex_users=self.regex_users.copy(),
            owners={topic: dict(owners) for topic, owners in self.owners.items()},
            assignors=self.assignors.copy(),
            classic_protocols=self.classic_protocols.copy(),
            **indexes,
        )

    def preferred_assignor(self, old: Member | None = None, new: Member | None = None) -> str | None:
        """Return the assignor that most members prefer, or None if no member prefers one.

        At a tie it is the first in the order of Java's hash map. `new` is counted in place of `old`, where
        given."""
        counts = self.assignors.copy()
        for member, delta in ((old, -1), (new, 1)):
            if member is not None and member.assignor is not None:
                self._add(counts, (member.assignor,), delta)
        return max(hash_map_order(counts), key=lambda name: counts[name]) if counts else None

    def owner_epoch(self, topic: Uuid, partition: int) -> int:
        """Return the member epoch of a partition's owner; `NO_OWNER` if it is free."""
        owner = self.owners.get(topic, {}).get(partition)
        return NO_OWNER if owner is None else self.members[owner].current.epoch

    def target_of(self, member_id: str) -> Partitions:
        """Return the target assignment of a member; empty if there is none."""
        return self.targets.get(member_id, {})

    def assigned_since(self, member: Member, topic: Topic, partition: int) -> int | None:
        """Return the epoch in which a partition was assigned to the member; None if it does not have it.

        A partition that the member has yet to revoke counts as assigned."""
        current = member.current
        since = current.assigned.get(topic.id, {}).get(partition)
        if since is None:
            since = current.pending_revocation.get(topic.id, {}).get(partition)
        return since

    def topics_of(self, member: Member) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name and by expression."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    @property
    def topics(self) -> set[str]:
        """Return the topics that any member subscribes to, by name or by expression."""
        found = set(self.subscribers)
        for regex in self.regex_users:
            resolved = self.regexes.get(regex)
            if resolved is not None:
                found |= resolved.topics
        return found

    # --- replay ---

    def _count(self, member: Member, delta: int) -> None:
        self._add(self.subscribers, member.topics, delta)
        if member.regex:
            self._add(self.regex_users, (member.regex,), delta)
        if member.assignor is not None:
            self._add(self.assignors, (member.assignor,), delta)
        if member.classic is not None:
            self.classic_members += delta
            self._add(self.classic_protocols, (name for name, _ in member.classic.protocols), delta)

    @staticmethod
    def _add(counter: Counter[str], names: Iterable[str], delta: int) -> None:
        for name in names:
            counter[name] += delta
            if not counter[name]:
                del counter[name]

    def _claim(self, member: Member) -> None:
        member_id, current = member.member_id, member.current
        for epochs in (current.assigned, current.pending_revocation):
            for topic, partitions in epochs.items():
                self.owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member: Member) -> None:
        member_id, current = member.member_id, member.current
        for epochs in (current.assigned, current.pending_revocation):
            for topic, partitions in epochs.items():
                held = self.owners.get(topic)
                if held is None:
                    continue
                for partition in partitions:
                    if held.get(partition) == member_id:
                        del held[partition]
                if not held:
                    del self.owners[topic]
