"""How what a member holds becomes what it is meant to have, one step at a time.

A member holds units and is given a target. What is in both it keeps. The rest of what it holds has to be
revoked; the rest of the target is wanted. A wanted unit that somebody else still holds has to wait.

The three protocols that assign on the server differ in what a unit is, in when a wanted one is free, and in
whether giving one up must be confirmed; not in this.

    kind       unit                             free                          confirmed
    consumer   (topic id, partition)            nobody else holds it          yes
    share      (topic id, partition)            always                        no
    streams    (role, subtopology, partition)   depends on role and process   yes
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import Generic, NamedTuple, TypeVar

U = TypeVar("U", bound=Hashable)


class Parts(NamedTuple, Generic[U]):
    """What becomes of the units."""

    kept: Set[U]
    revoked: Set[U]
    granted: Set[U]
    """Wanted, and free."""
    waits: bool
    """Whether something wanted is not free."""


def reconcile(held: Set[U], target: Set[U], free: Callable[[U], bool]) -> Parts[U]:
    """Part what is held and what is wanted."""
    kept = held & target
    wanted = target - kept
    granted = {unit for unit in wanted if free(unit)}
    return Parts(kept, held - kept, granted, len(granted) < len(wanted))
