"""The nouns of a share group (KIP-932), and its states.

    state    what it means                 leaves for
    Empty    nobody is a member            Stable: a member joins
    Stable   it has members                Empty: the last one leaves
    Dead     never kept: a deleted group is gone

The epochs are those of a consumer group, and nobody waits for anybody: a member is at the assignment's epoch
once it has spoken. There are no static members and no expressions.

`ShareGroup` is changed by the replay of records alone (`log`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from konvene.codec.uuid import Uuid
from konvene.groups.modern.group import ModernGroup
from konvene.groups.modern.rebalance_trace import RebalanceTrace
from konvene.groups.share.current_assignment import CurrentAssignment, Partitions
from konvene.groups.share.state_topics import StateTopics
from konvene.shard.image import Topics


class State(StrEnum):
    """Kafka's names, as ListGroups and ShareGroupDescribe give them."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Member:
    """What a member said of itself, and what it has."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The names that it subscribes to."""
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
        """The same member, who has this now."""
        return Member(self.member_id, self.rack_id, self.client_id, self.client_host, self.topics, current)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all that it was meant to have at this epoch."""
        return self.current.is_at(epoch)


@dataclass(frozen=True, slots=True)
class SoftState:
    """What a coordinator knows of a group beside its log; a restart may forget it."""

    seen: Topics | None = None
    """The topics that the group's hash was last compared with."""
    asked_ms: Mapping[Uuid, int] = field(default_factory=dict)
    """When the share coordinator was asked to begin with partitions of a topic, where no answer is there."""
    computing: int = 0
    """The epoch for which a target is being computed elsewhere; 0: none is."""
    story: RebalanceTrace | None = None

    @property
    def basis(self) -> tuple[object, ...]:
        """What the answer to a heartbeat with nothing to say rests on."""
        return (self.seen,)


@dataclass(slots=True, repr=False)
class ShareGroup(ModernGroup[Member]):
    """A share group. Changed by the replay of records (`log`) alone."""

    group_type: ClassVar[str] = "share"

    targets: dict[str, Partitions] = field(default_factory=dict)
    """By member id, what it is meant to have."""
    subscribers: Counter[str] = field(default_factory=Counter)
    """How many members subscribe to a topic."""
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

    def copy(self) -> ShareGroup:
        """As it is now; its members and all else in it are values."""
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            targets=dict(self.targets),
            subscribers=self.subscribers.copy(),
            behind=set(self.behind),
            reached_ms=dict(self.reached_ms),
        )

    def names_with(self, gone: Iterable[Member], come: Iterable[Member] = ()) -> set[str]:
        """The names that the group reads with members gone and others come."""
        counts = self.subscribers.copy()
        for members, step in ((gone, -1), (come, 1)):
            for member in members:
                for name in member.topics:
                    counts[name] += step
        return {name for name, count in counts.items() if count > 0}

    # --- taken in by replay ---

    def _count(self, member: Member, delta: int) -> None:
        for name in member.topics:
            self.subscribers[name] += delta
            if not self.subscribers[name]:
                del self.subscribers[name]

    def _same(self, old: Any, new: Any) -> bool:
        """What one has, others may have as well: nothing is counted of it."""
        return True

    def _claim(self, member_id: str, current: CurrentAssignment) -> None:
        """Nothing is anybody's alone."""

    def _release(self, member_id: str, current: CurrentAssignment) -> None:
        """Nothing was."""
