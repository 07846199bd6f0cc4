"""How the assignment of a member becomes its target, one step at a time.

A member owns units (partitions or tasks) and has a target. It keeps the units that are in both, and revokes
the others that it owns. The other units of the target are granted if they are free; the member waits for
units that another member still owns.

    type       unit                             free                          revocations are acknowledged
    consumer   (topic id, partition)            no other member owns it       yes
    share      (topic id, partition)            always                        no
    streams    (role, subtopology, partition)   depends on role and process   yes
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import Generic, NamedTuple, TypeVar

U = TypeVar("U", bound=Hashable)


class Parts(NamedTuple, Generic[U]):
    """The result of one reconciliation step, as sets of units."""

    kept: Set[U]
    revoked: Set[U]
    granted: Set[U]
    """In the target and free, but not owned yet."""
    waits: bool
    """Whether a unit of the target is neither owned nor free."""


def reconcile(owned: Set[U], target: Set[U], free: Callable[[U], bool]) -> Parts[U]:
    """Split a member's owned and target units into kept, revoked and granted ones.

    `free`: whether a unit that the member does not own may be granted to it."""
    kept = owned & target
    wanted = target - kept
    granted = {unit for unit in wanted if free(unit)}
    return Parts(kept, owned - kept, granted, len(granted) < len(wanted))
