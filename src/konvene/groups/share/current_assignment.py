"""What a member of a share group has, and its next step towards what it is meant to have.

There is nothing to give up and nothing to wait for: a partition may have many members. So a member has its
target as soon as it hears of it, less the topics that it does not subscribe to any more.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from konvene.codec.uuid import Uuid

Partitions = Mapping[Uuid, tuple[int, ...]]

STABLE = 0
"""The one state of a member, as the log has it."""


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member has, and since which epoch."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=dict)
    state: int = STABLE

    def is_at(self, epoch: int) -> bool:
        """Whether it has all that it was meant to have at this epoch."""
        return self.epoch == epoch and self.state == STABLE


def next_assignment(
    current: CurrentAssignment,
    epoch: int,
    target: Partitions,
    reads: Container[Uuid],
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """What the member has next; `reads`: the topics that exist and to which it subscribes."""
    if epoch != current.epoch:
        return CurrentAssignment(epoch, current.epoch, _of_these(target, reads))
    if subscription_changed:
        return replace(current, assigned=_of_these(target, reads))
    return current


def _of_these(target: Partitions, topics: Container[Uuid]) -> Partitions:
    """The same mapping where nothing is left out."""
    if all(topic in topics for topic in target):
        return target
    return {topic: partitions for topic, partitions in target.items() if topic in topics}
