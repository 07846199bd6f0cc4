"""The nouns of a consumer group (KIP-848), and its states.

    state         what it means                                           leaves for
    Empty         nobody is a member                                      Assigning: a member joins
    Assigning     the group's epoch is ahead of its assignment's          Reconciling: a target is computed
    Reconciling   a member is not at the assignment's epoch, or waits     Stable: all have what they should;
                  for something, or has yet to give something up          Assigning: something changed
    Stable        all members have their target                           Assigning
    Dead          never kept: a deleted group is gone

Three epochs rise: the group's, when something changed on which the assignment rests; the assignment's, when a
target was computed for it; a member's, when it gave up what was not in the target. A member's epoch is never
ahead of the assignment's, nor that of the group's.

`ConsumerGroup` is changed by the replay of records alone (`log`), record by record and in place, so that a
heartbeat in a group of ten thousand costs what it changes. Who owns a partition is kept by member, not by
epoch: a log that was compacted while it was read tells of an owner after its successor, and that must not
take the partition from the successor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar

from konvene.codec.uuid import Uuid
from konvene.groups.classic.group import in_hash_order
from konvene.groups.consumer.current_assignment import NOBODY, CurrentAssignment, Partitions
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.group import ModernGroup
from konvene.groups.modern.rebalance_trace import RebalanceTrace
from konvene.shard.image import Topic, Topics


class State(StrEnum):
    """Kafka's names, as ListGroups and ConsumerGroupDescribe give them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@lru_cache(maxsize=1024)
def topic_names(names: tuple[str, ...]) -> frozenset[str]:
    """Members that read the same share one set of names."""
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Member:
    """What a member said of itself, and what it has."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    """The names that it subscribes to."""
    regex: str = ""
    """What it subscribes to beside them; empty: nothing."""
    assignor: str | None = None
    classic: ClassicProtocolMetadata | None = None
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    def having(self, current: CurrentAssignment) -> Member:
        """The same member, who has this now."""
        return Member(
            self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host,
            self.rebalance_timeout_ms, self.topics, self.regex, self.assignor, self.classic, current,
        )  # fmt: skip

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all that it was meant to have at this epoch."""
        return self.current.is_at(epoch)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that a regular expression was found to match."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SoftState:
    """What a coordinator knows of a group beside its log; a restart may forget it."""

    seen: Topics | None = None
    """The topics that the group's hash was last compared with."""
    resolving: bool = False
    """Somebody finds out what the expressions match."""
    computing: int = 0
    """The epoch for which a target is being computed elsewhere; 0: none is."""
    story: RebalanceTrace | None = None

    @property
    def basis(self) -> tuple[object, ...]:
        """What the answer to a heartbeat with nothing to say rests on."""
        return (self.seen,)


@dataclass(slots=True, repr=False)
class ConsumerGroup(ModernGroup[Member]):
    """A consumer group. Changed by the replay of records (`log`) alone."""

    group_type: ClassVar[str] = "consumer"

    targets: dict[str, Partitions] = field(default_factory=dict)
    """By member id, what it is meant to have."""
    regexes: dict[str, Resolved] = field(default_factory=dict)
    subscribers: Counter[str] = field(default_factory=Counter)
    """How many members subscribe to a topic by its name."""
    regex_users: Counter[str] = field(default_factory=Counter)
    owners: dict[Uuid, dict[int, str]] = field(default_factory=dict)
    """By topic id and partition, the member that has it or has yet to give it up."""
    assignors: Counter[str] = field(default_factory=Counter)
    """How many members prefer which."""
    classic_members: int = 0
    classic_protocols: Counter[str] = field(default_factory=Counter)
    """How many members of the classic protocol support which of its assignors."""
    soft: SoftState = field(default_factory=SoftState)

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        return State.RECONCILING if self.behind else State.STABLE

    def copy(self) -> ConsumerGroup:
        """As it is now; its members and all else in it are values."""
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
            subscribers=self.subscribers.copy(),
            regex_users=self.regex_users.copy(),
            owners={topic: dict(owners) for topic, owners in self.owners.items()},
            behind=set(self.behind),
            assignors=self.assignors.copy(),
            classic_protocols=self.classic_protocols.copy(),
            reached_ms=dict(self.reached_ms),
        )

    def preferred_assignor(self, old: Member | None = None, new: Member | None = None) -> str | None:
        """What most members prefer, at a tie the first in Java's hash map; None where nobody prefers any.

        With `new` in the place of `old`, where these are given."""
        counts = self.assignors.copy()
        for member, step in ((old, -1), (new, 1)):
            if member is not None and member.assignor is not None:
                self._add(counts, (member.assignor,), step)
        return max(in_hash_order(counts), key=lambda name: counts[name]) if counts else None

    def owner_epoch(self, topic: Uuid, partition: int) -> int:
        """The epoch of whoever has a partition; `NOBODY` if it is free."""
        owner = self.owners.get(topic, {}).get(partition)
        return NOBODY if owner is None else self.members[owner].current.epoch

    def target_of(self, member_id: str) -> Partitions:
        """Return the target assignment of a member."""
        return self.targets.get(member_id, {})

    def assigned_since(self, member: Member, topic: Topic, partition: int) -> int | None:
        """Return the epoch since which a member has a partition, or has yet to revoke it; None if it has
        not."""
        current = member.current
        since = current.assigned.get(topic.id, {}).get(partition)
        if since is None:
            since = current.pending_revocation.get(topic.id, {}).get(partition)
        return since

    def topics_of(self, member: Member) -> frozenset[str]:
        """The names that a member reads: its own, and those that its expression was found to match."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    @property
    def topics(self) -> set[str]:
        """The names that anybody reads."""
        found = set(self.subscribers)
        for regex in self.regex_users:
            resolved = self.regexes.get(regex)
            if resolved is not None:
                found |= resolved.topics
        return found

    # --- taken in by replay ---

    def _count(self, member: Member, step: int) -> None:
        self._add(self.subscribers, member.topics, step)
        if member.regex:
            self._add(self.regex_users, (member.regex,), step)
        if member.assignor is not None:
            self._add(self.assignors, (member.assignor,), step)
        if member.classic is not None:
            self.classic_members += step
            self._add(self.classic_protocols, (name for name, _ in member.classic.protocols), step)

    @staticmethod
    def _add(counter: Counter[str], names: Iterable[str], step: int) -> None:
        for name in names:
            counter[name] += step
            if not counter[name]:
                del counter[name]

    def _claim(self, member_id: str, current: CurrentAssignment) -> None:
        for epochs in (current.assigned, current.pending_revocation):
            for topic, partitions in epochs.items():
                self.owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member_id: str, current: CurrentAssignment) -> None:
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
