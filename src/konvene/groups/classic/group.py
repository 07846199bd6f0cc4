"""The nouns of a classic group, and its states by their answers and exits.

    state                Heartbeat              SyncGroup              leaves for
    Empty                UNKNOWN_MEMBER_ID      UNKNOWN_MEMBER_ID      PreparingRebalance: a member joins
    PreparingRebalance   REBALANCE_IN_PROGRESS  REBALANCE_IN_PROGRESS  CompletingRebalance: all are in, or
                                                                       time is up; Empty: nobody is left
    CompletingRebalance  NONE                   waits for the leader   Stable: the assignment is stored;
                                                                       PreparingRebalance: members change
    Stable               NONE                   the assignment         PreparingRebalance
    Dead                 never kept: a deleted group is gone

A group's live state is what the log says of it (`log.from_record`) plus the waiting room: who waits for
which answer, who has been handed a member id and not used it, which causes have piled up. A restart
forgets the waiting room, as Kafka's does.

`Member` is a value. `ClassicGroup` is changed only as a private copy within a decision; the copy then
becomes the state by way of `ClassicGroupSnapshot`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

from konvene.codec.hashes import java_string_hash
from konvene.errors import Errors
from konvene.records.audit import Cause
from konvene.shard.contract import Waiter
from konvene.shard.errors import GroupError


class State(StrEnum):
    """Kafka's names, as ListGroups and DescribeGroups give them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


CAN_REBALANCE = frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE})
"""The states from which a rebalance starts."""

Protocols = tuple[tuple[str, bytes], ...]
"""Assignors by name with the member's metadata for each, best liked first."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member and what it waits for."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None
    joined_ms: int = -1
    """When it asked to be in the generation at hand."""
    is_new: bool = False
    """It has not been in a generation yet, and so cannot send heartbeats."""

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        """The first of its protocols that all members have."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(frozen=True, slots=True)
class RebalanceTrace:
    """What is to be told of a rebalance under way."""

    started_ms: int
    causes: tuple[Cause, ...]
    joined_ms: int = -1


@dataclass(slots=True)
class ClassicGroup:
    """A group. Equal by content; `copy` before changing."""

    group_id: str
    state: State = State.EMPTY
    state_timestamp_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Static members: instance id to member id."""
    pending_joins: set[str] = field(default_factory=set)
    """Member ids that were handed out (MEMBER_ID_REQUIRED) and have not joined."""
    pending_syncs: set[str] = field(default_factory=set)
    subscribed: frozenset[str] | None = field(default=None, compare=False)
    """What the members of the last generation read, if they are consumers and it can be told."""
    was_empty: bool = False
    """The rebalance under way is the first, and waits for more (`group.initial.rebalance.delay.ms`)."""
    hears_earlier: bool = False
    """It was a streams group until now: members at an epoch before its generation are heard while the first
    rebalance is under way."""
    member_added: bool = False
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    story: RebalanceTrace | None = None
    protocol_counts: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    """How many members wait for the answer to their JoinGroup."""

    def __repr__(self) -> str:
        size = len(self.members)
        return f"<classic {self.group_id} {self.state} generation {self.generation}, {size} members>"

    def copy(self) -> ClassicGroup:
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            pending_joins=set(self.pending_joins),
            pending_syncs=set(self.pending_syncs),
            protocol_counts=self.protocol_counts.copy(),
        )

    # --- membership ---

    def put(self, member: Member) -> None:
        """Add a member or set one anew."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
        if not self.members:
            self.protocol_type = member.protocol_type
        self._count(member, 1)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending_joins.discard(member.member_id)

    def drop(self, member_id: str) -> Member | None:
        """Remove a member, or a member id that was handed out; a leader is followed by the next in line."""
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def _count(self, member: Member, step: int) -> None:
        self.waiting += step * (member.join_waiter is not None)
        for name, _ in member.protocols:
            self.protocol_counts[name] += step
            if not self.protocol_counts[name]:
                del self.protocol_counts[name]

    def check_generation(self, generation: int) -> None:
        """Whether a member may be in this one. Raises ILLEGAL_GENERATION."""
        hears_earlier = self.hears_earlier and self.state is State.PREPARING_REBALANCE
        if generation != self.generation and not (hears_earlier and 0 < generation < self.generation):
            raise GroupError(Errors.ILLEGAL_GENERATION)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member, or UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where its instance id moved on."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                raise GroupError(Errors.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise GroupError(Errors.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise GroupError(Errors.UNKNOWN_MEMBER_ID)
        return member

    # --- what follows from membership ---

    @property
    def all_joined(self) -> bool:
        return self.waiting == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these protocols can be one of the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(names)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.protocol_counts.get(name, 0) == everyone for name in names
        )

    def vote(self) -> str:
        """The protocol that all members have and most like best; at a tie the first in Java's hash map."""
        everyone = len(self.members)
        candidates = frozenset(name for name, n in self.protocol_counts.items() if n == everyone)
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(in_hash_order(votes), key=lambda name: votes[name])

    @property
    def is_simple(self) -> bool:
        """Only there because somebody commits offsets under its name."""
        return self.protocol_type is None


def in_hash_order(names: Collection[str]) -> list[str]:
    """Names in the order in which Java's HashMap gives them: by the bucket of their hash."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        code = java_string_hash(name) & 0xFFFF_FFFF
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(names, key=bucket)


@dataclass(frozen=True, slots=True)
class ClassicGroupSnapshot:
    """The soft record of classic groups: the group is now this, waiting room included."""

    group: ClassicGroup
