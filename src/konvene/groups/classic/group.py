"""A classic group, its members and its states.

The states, with the responses to Heartbeat and SyncGroup:

    state                Heartbeat              SyncGroup              leaves for
    Empty                UNKNOWN_MEMBER_ID      UNKNOWN_MEMBER_ID      PreparingRebalance: a member joins
    PreparingRebalance   REBALANCE_IN_PROGRESS  REBALANCE_IN_PROGRESS  CompletingRebalance: all joined, or
                                                                       timed out; Empty: no member is left
    CompletingRebalance  NONE                   waits for the leader   Stable: the assignment is stored;
                                                                       PreparingRebalance: members change
    Stable               NONE                   the assignment         PreparingRebalance
    Dead                 not a state here: a deleted group no longer exists

A restart restores a group from its record (`log.from_record`). As in Kafka it loses pending requests, member
ids that were assigned but not used yet, and the causes of the rebalance in progress.

`Member` is a frozen value. A `ClassicGroup` is changed only as the private copy of a decision, which then
replaces the group by the soft record `ClassicGroupSnapshot`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum

from konvene.errors import Errors
from konvene.groups.java_hash_map import hash_map_order
from konvene.records.audit import Cause
from konvene.shard.contract import Waiter
from konvene.shard.errors import GroupError


class State(StrEnum):
    """The states of a classic group, by the names that ListGroups and DescribeGroups return."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


CAN_REBALANCE = frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE})
"""The states from which a rebalance starts."""

Protocols = tuple[tuple[str, bytes], ...]
"""The assignors of a member by name, each with the member's metadata, in order of preference."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a classic group, and the waiters of its pending JoinGroup and SyncGroup."""

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
    """When it sent the JoinGroup for the current generation."""
    is_new: bool = False
    """Whether it has not been in a generation yet, and so cannot send heartbeats."""

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        """Return the member's preferred protocol among the candidates, which all members support."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(frozen=True, slots=True)
class RebalanceTrace:
    """The causes and times of the rebalance in progress, for its row in the audit."""

    started_ms: int
    causes: tuple[Cause, ...]
    joined_ms: int = -1


@dataclass(slots=True)
class ClassicGroup:
    """A classic group. Equal by content; to be changed only as a `copy`, never in place."""

    group_id: str
    state: State = State.EMPTY
    state_timestamp_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Static members: member id by instance id."""
    pending_joins: set[str] = field(default_factory=set)
    """Member ids that were assigned with MEMBER_ID_REQUIRED and have not joined yet."""
    pending_syncs: set[str] = field(default_factory=set)
    subscribed: frozenset[str] | None = field(default=None, compare=False)
    """Topics that members of the last generation subscribe to; None if they are unknown."""
    was_empty: bool = False
    """Whether the rebalance in progress is the first, which waits for more members
    (`group.initial.rebalance.delay.ms`)."""
    accepts_earlier_epochs: bool = False
    """Whether the group was a streams group until now: members at earlier epochs than its generation are
    accepted while the first rebalance is in progress."""
    member_added: bool = False
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    trace: RebalanceTrace | None = None
    protocol_counts: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    """The number of members with a pending JoinGroup."""

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
        """Add or replace a member."""
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
        """Remove and return a member, or remove an assigned member id that has not joined (return None).

        If the member was the leader, the first of the others becomes the leader.
        """
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

    def _count(self, member: Member, delta: int) -> None:
        self.waiting += delta * (member.join_waiter is not None)
        for name, _ in member.protocols:
            self.protocol_counts[name] += delta
            if not self.protocol_counts[name]:
                del self.protocol_counts[name]

    def check_generation(self, generation: int) -> None:
        """Raise ILLEGAL_GENERATION if a member's request has another generation than the group."""
        accepts_earlier_epochs = self.accepts_earlier_epochs and self.state is State.PREPARING_REBALANCE
        if generation != self.generation and not (
            accepts_earlier_epochs and 0 < generation < self.generation
        ):
            raise GroupError(Errors.ILLEGAL_GENERATION)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with these ids.

        Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the instance id belongs to another member id.
        """
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

    # --- derived from the members ---

    @property
    def all_joined(self) -> bool:
        return self.waiting == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Return whether a member with these protocols may join: all members support one of them."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(names)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.protocol_counts.get(name, 0) == size for name in names
        )

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all support.

        At a tie it is the first one in the iteration order of Java's HashMap.
        """
        size = len(self.members)
        candidates = frozenset(name for name, n in self.protocol_counts.items() if n == size)
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(hash_map_order(votes), key=lambda name: votes[name])

    @property
    def is_simple(self) -> bool:
        """Return whether the group has only committed offsets, and never had members."""
        return self.protocol_type is None


@dataclass(frozen=True, slots=True)
class ClassicGroupSnapshot:
    """The soft record (a change outside the log) that replaces a classic group by its changed copy."""

    group: ClassicGroup
