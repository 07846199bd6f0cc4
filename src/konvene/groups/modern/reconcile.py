"""How the assignment of a member becomes its target, one step at a time.

A member owns units and has a target. It keeps the units that are in both, and revokes the others that it
owns. The other units of the target are granted if they are free; the member waits for units that another
member still owns.

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
    """The units of one step."""

    kept: Set[U]
    revoked: Set[U]
    granted: Set[U]
    """In the target, not owned yet, and free."""
    waits: bool
    """Whether a unit of the target is not free."""


def reconcile(owned: Set[U], target: Set[U], free: Callable[[U], bool]) -> Parts[U]:
    """Return which units are kept, revoked and granted, and whether the member waits for others."""
    kept = owned & target
    wanted = target - kept
    granted = {unit for unit in wanted if free(unit)}
    return Parts(kept, owned - kept, granted, len(granted) < len(wanted))
