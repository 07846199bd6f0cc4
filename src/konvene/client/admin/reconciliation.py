"""Progress of members towards their targets: what consumer and streams groups have in common.

`pending_partitions` and `pending_tasks` compute from a group description which units (partitions, tasks) each
member still has to revoke, and which it waits for. This module holds the resulting value and words it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

__all__ = [
    "MemberProgress", "behind_line", "by_urgency", "member_label", "owned_by_others", "pending_revocations",
    "short_label",
]  # fmt: skip

TEMPORARILY_LEFT_EPOCH = -2
"""Epoch of a static member that has left the group temporarily."""


class DescribedMember(Protocol):
    """The attributes that descriptions of members of all group types have."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def epoch(self) -> int | None: ...


M = TypeVar("M", bound=DescribedMember)
U = TypeVar("U")


class MemberProgress(NamedTuple, Generic[M, U]):
    """The progress of a member towards its target: the units (partitions or tasks) that it has to revoke, and
    those that it waits for."""

    member: M
    revocations: Mapping[U, tuple[M, ...]]
    """Units that it has still to revoke, each with the members that wait for it."""
    waits: Mapping[U, tuple[M, ...]]
    """Units that it waits for, each with the members that own it."""
    is_behind: bool
    """Whether its epoch is below the target assignment epoch."""
    unit_name: str
    """`PARTITIONS` or `TASKS`: the end of the names of states."""

    @property
    def is_blocking(self) -> bool:
        """Return True if other members wait for a unit that this member has to revoke."""
        return any(self.revocations.values())

    @property
    def has_left_temporarily(self) -> bool:
        return self.member.epoch == TEMPORARILY_LEFT_EPOCH

    @property
    def state(self) -> str:
        """Return the member's reconciliation state by Kafka's name, or AWAY if it has left temporarily.

        Descriptions do not contain the state; it is derived from the other fields."""
        if self.has_left_temporarily:
            return "AWAY"
        if self.revocations:
            return f"UNREVOKED_{self.unit_name}"
        return f"UNRELEASED_{self.unit_name}" if self.waits and not self.is_behind else "STABLE"


def by_urgency(progress: Iterable[MemberProgress[M, U]]) -> list[MemberProgress[M, U]]:
    """Sort members: first those that block others, then those with revocations, then those that wait.

    Within each of these classes the coordinator's order is kept."""
    return sorted(progress, key=lambda p: (not p.is_blocking, not p.revocations, not p.waits))


def member_label(member: DescribedMember) -> str:
    """Return the text for a member in messages: its id, its client id and its host."""
    return f"{member.instance_id or member.member_id} (client {member.client_id} at {member.client_host})"


def short_label(member: DescribedMember) -> str:
    """Return the instance id of a member, or its member id with its client id if it is dynamic."""
    return member.instance_id or f"{member.member_id} ({member.client_id})"


def pending_revocations(progress: MemberProgress[M, U], format_units: Callable[[list[U]], str]) -> str:
    """Return what the member still has to revoke: `still owns orders:0,1 (revocation pending); bob is waiting
    for them`."""
    parts = []
    for names, units in _by_members(progress.revocations):
        part = f"{format_units(units)} (revocation pending)"
        if names:
            verb, pronoun = "is" if len(names) == 1 else "are", "it" if len(units) == 1 else "them"
            part += f"; {' and '.join(names)} {verb} waiting for {pronoun}"
        parts.append(part)
    return f"still owns {'; and '.join(parts)}"


def owned_by_others(waits: Mapping[U, tuple[M, ...]], format_units: Callable[[list[U]], str]) -> str:
    """Return what the member waits for: `is waiting for orders:0,1, owned by bob; orders:2, owned by ann`."""
    parts = [f"{format_units(units)}, owned by {' and '.join(names)}" for names, units in _by_members(waits)]
    return f"is waiting for {'; '.join(parts)}"


def behind_line(progress: MemberProgress[M, U], assignment_epoch: int | None) -> str:
    return f"is at epoch {progress.member.epoch}; the target assignment has epoch {assignment_epoch}"


def _by_members(units: Mapping[U, tuple[M, ...]]) -> list[tuple[list[str], list[U]]]:
    """Group units by the members that own or await them: pairs of member names and units, those without
    members last."""
    grouped: dict[tuple[str, ...], list[U]] = {}
    for unit, members in units.items():
        grouped.setdefault(tuple(sorted(map(short_label, members))), []).append(unit)
    return [(list(names), grouped[names]) for names in sorted(grouped, key=lambda names: (not names, names))]
