"""A share group (KIP-932), its members and its states.

    state    what it means                 leaves for
    Empty    no members                    Stable: a member joins
    Stable   it has members                Empty: the last one leaves
    Dead     not a state here: a deleted group no longer exists

The epochs are those of a consumer group. A member reaches the assignment epoch with its next heartbeat, since
it waits for no other member. There are no static members and no regular expressions.

A `ShareGroup` is changed by the replay of records alone (`log`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self

from konvene.codec.uuid import Uuid
from konvene.groups.modern.group import ModernGroup, ModernSoftState
from konvene.groups.share.current_assignment import CurrentAssignment, Partitions
from konvene.groups.share.state_topics import StateTopics


class State(StrEnum):
    """Kafka's names, as ListGroups and ShareGroupDescribe return them."""

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
        """None: share groups have no static members."""
        return None

    @property
    def rebalance_timeout_ms(self) -> int:
        """-1: a member has no time limit, for it need not acknowledge a revocation."""
        return -1

    @property
    def classic(self) -> None:
        """None: members of the classic protocol cannot join."""
        return None

    def having(self, current: CurrentAssignment) -> Member:
        """Return the member with this current assignment."""
        return Member(self.member_id, self.rack_id, self.client_id, self.client_host, self.topics, current)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member owns its whole target of this epoch."""
        return self.current.is_at(epoch)


@dataclass(frozen=True, slots=True)
class SoftState(ModernSoftState):
    """State of a group that is not in its log, and lost by a restart."""

    requested_ms: Mapping[Uuid, int] = field(default_factory=dict)
    """When the initialization of a topic's share partitions was requested, while it is pending."""


@dataclass(slots=True, repr=False)
class ShareGroup(ModernGroup[Member]):
    """A share group. Changed by the replay of records (`log`) alone."""

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
        """Whether the group is empty, and has no share partitions that are not being deleted: a member may
        have joined and left since the deletion began."""
        return self.is_empty and not self.state_topics.has_some

    def copy(self, **indexes: Any) -> Self:
        return ModernGroup.copy(self, subscribers=self.subscribers.copy(), **indexes)

    def names_with(self, departed: Iterable[Member], joined: Iterable[Member] = ()) -> set[str]:
        """Return the topics that the group subscribes to without some members, and with others."""
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

    def _same(self, old: Any, new: Any) -> bool:
        """True: partitions are shared, so no owners are indexed."""
        return True

    def _claim(self, member_id: str, current: CurrentAssignment) -> None:
        """Partitions have no owners."""

    def _release(self, member_id: str, current: CurrentAssignment) -> None:
        """Partitions have no owners."""
