"""A share group (KIP-932), its members and its states.

    state    what it means                 leaves for
    Empty    no members                    Stable: a member joins
    Stable   it has members                Empty: the last one leaves
    Dead     not a state here: a deleted group no longer exists

The epochs are those of a consumer group. A member reaches the assignment epoch with its next heartbeat, since
it waits for no other member. There are no static members and no regular expressions.

A `ShareGroup` changes only by the replay of records (`log`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from konvene.codec.uuid import Uuid
from konvene.groups.modern.group import ModernGroup, ModernSoftState
from konvene.groups.share.current_assignment import CurrentAssignment, Partitions
from konvene.groups.share.state_topics import StateTopics


class State(StrEnum):
    """The states of a share group, by the names that ListGroups and ShareGroupDescribe return."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Member:
    """A member: its last subscription, and its current assignment."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """Topic names that it subscribes to."""
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    @property
    def instance_id(self) -> None:
        """Return None: share groups have no static members."""
        return None

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return -1 (none): members do not acknowledge revocations, so there is no time limit for that."""
        return -1

    @property
    def classic(self) -> None:
        """Return None: members of the classic protocol cannot join a share group."""
        return None

    def having(self, current: CurrentAssignment) -> Member:
        """Return the member with this current assignment."""
        return Member(self.member_id, self.rack_id, self.client_id, self.client_host, self.topics, current)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member has its target assignment of this epoch."""
        return self.current.is_at(epoch)


@dataclass(frozen=True, slots=True)
class SoftState(ModernSoftState):
    """State of a group that is not in its log and is lost by a restart."""

    requested_ms: Mapping[Uuid, int] = field(default_factory=dict)
    """When the initialization of a topic's share partitions was requested, while it is pending."""
    has_new_partitions: bool = False
    """Whether share partitions were initialized since the last target was computed."""


@dataclass(slots=True, repr=False)
class ShareGroup(ModernGroup[Member]):
    """A share group: its members, target assignments and share partitions."""

    group_type: ClassVar[str] = "share"

    targets: dict[str, Partitions] = field(default_factory=dict)
    """Target assignments by member id."""
    subscribers: Counter[str] = field(default_factory=Counter)
    """The number of members that subscribe to a topic."""
    state_topics: StateTopics = field(default_factory=StateTopics)
    soft: SoftState = field(default_factory=SoftState)

    @property
    def state(self) -> State:
        return State.STABLE if self.members else State.EMPTY

    @property
    def may_delete(self) -> bool:
        """Return whether the group is empty and the deletion of all its share partitions was requested.

        The latter is not certain even after `BeginDeletion`: a member may have joined and left since.
        """
        return self.is_empty and not self.state_topics.has_state

    def copy(self, **indexes: object) -> Self:
        return ModernGroup.copy(self, subscribers=self.subscribers.copy(), **indexes)

    def names_with(self, departed: Iterable[Member], joined: Iterable[Member] = ()) -> set[str]:
        """Return the topics the group would subscribe to without `departed` and with `joined` members."""
        counts = self.subscribers.copy()
        for members, delta in ((departed, -1), (joined, 1)):
            for member in members:
                for name in member.topics:
                    counts[name] += delta
        return {name for name, count in counts.items() if count > 0}

    # --- replay ---

    def _count(self, member: Member, delta: int) -> None:
        for name in member.topics:
            self.subscribers[name] += delta
            if not self.subscribers[name]:
                del self.subscribers[name]

    def _same(self, old: Member, new: Member) -> bool:
        """Return True: both own the same, nothing, so the caller never updates the index of owners."""
        return True

    def _claim(self, member: Member) -> None:
        """Do nothing: partitions of share groups have no owners."""

    def _release(self, member: Member) -> None:
        """Do nothing: partitions of share groups have no owners."""
