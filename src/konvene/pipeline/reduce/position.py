"""Positions and identities that all parts of the reducer pass along."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "INFERRED",
    "MISSING",
    "NOT_KNOWN",
    "OBSERVED",
    "LogPartition",
    "MemberIdentity",
    "Position",
    "identity_of",
]

OBSERVED, INFERRED, MISSING = "observed", "inferred", "missing"
"""Values of the column `evidence`."""

NOT_KNOWN = -1
"""An epoch or offset that no record contains."""


class LogPartition(NamedTuple):
    """The log partition that all rows of a reducer come from."""

    cluster: str
    partition: int


class Position(NamedTuple):
    """Time and offset of a record, and how complete the log is up to it."""

    ms: int
    offset: int
    stretch: int
    """Incremented where records may be missing: what began in an earlier stretch may have ended in
    between."""
    whole: bool
    """True if no record before this one can be missing."""


class MemberIdentity(NamedTuple):
    """A member as rows name it. A static member has the same key under each of its member ids."""

    member_key: str
    """The key by which it is recognised: the instance id, else the member id."""
    member_id: str
    instance_id: str | None
    client_id: str | None
    client_host: str | None


def identity_of(
    member_id: str, instance_id: str | None, client_id: str | None, client_host: str | None
) -> MemberIdentity:
    """Return the identity of a member. Member ids and instance ids never collide."""
    member_key = member_id if instance_id is None else f"\0{instance_id}"
    return MemberIdentity(member_key, member_id, instance_id, client_id or None, client_host or None)
