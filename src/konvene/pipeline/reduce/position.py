"""Where a record stands, and what that makes of a row: values that all of the reducer passes along."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["INFERRED", "MISSING", "NOT_KNOWN", "OBSERVED", "At", "Person", "Place", "person_of"]

OBSERVED, INFERRED, MISSING = "observed", "inferred", "missing"
"""Of rows: see the column `evidence`."""

NOT_KNOWN = -1
"""An epoch or offset that nothing tells."""


class Place(NamedTuple):
    """Where all rows of a reducer come from."""

    cluster: str
    partition: int


class At(NamedTuple):
    """Where a record stands."""

    ms: int
    offset: int
    stretch: int
    """Rises where something may be missing: what began in another stretch may have ended in between."""
    whole: bool
    """Whether nothing that was written before it can be missing."""


class Person(NamedTuple):
    """A member, as rows name it. One that is static is the same under each of its member ids."""

    who: str
    """By which it is known again: the instance id, else the member id."""
    member_id: str
    instance_id: str | None
    client_id: str | None
    client_host: str | None


def person_of(
    member_id: str, instance_id: str | None, client_id: str | None, client_host: str | None
) -> Person:
    """A name that is a member's id and another's instance id must not be the same."""
    who = member_id if instance_id is None else f"\0{instance_id}"
    return Person(who, member_id, instance_id, client_id or None, client_host or None)
