"""The current assignment of a member of a share group, and its next step towards the target.

Several members may share a partition, so none has to wait for another, or to acknowledge a revocation. With
its next heartbeat a member gets its target assignment, without topics that it no longer subscribes to.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from konvene.codec.uuid import Uuid

Partitions = Mapping[Uuid, tuple[int, ...]]

STABLE = 0
"""The only state of a member in the log."""


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The partitions that are assigned to a member, and its epochs."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=dict)
    state: int = STABLE

    def is_at(self, epoch: int) -> bool:
        """Return whether the member has reached its target assignment of this epoch."""
        return self.epoch == epoch and self.state == STABLE


def next_assignment(
    current: CurrentAssignment,
    epoch: int,
    target: Partitions,
    subscribed: Container[Uuid],
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """Return the assignment after the next step towards the target; `current` itself if there is none.

    `epoch`: epoch of the target. `subscribed`: ids of existing topics to which the member subscribes; all
    others are left out. `subscription_changed`: whether a step is due even if the epoch is the same.
    """
    if epoch != current.epoch:
        return CurrentAssignment(epoch, current.epoch, _restricted_to(target, subscribed))
    if subscription_changed:
        return replace(current, assigned=_restricted_to(target, subscribed))
    return current


def _restricted_to(target: Partitions, topics: Container[Uuid]) -> Partitions:
    """Return the target without topics that are not in `topics`; the same object if there are none."""
    if all(topic in topics for topic in target):
        return target
    return {topic: partitions for topic, partitions in target.items() if topic in topics}
