"""A rebalance in progress, and the rows that result from it.

The counts of a row, from what changed hands between start and end (`Ownership.changed`):

    units          active units that members own at the end; a shared one counts once per member
    moved          of these, those that another member owned at the start, or owned last if they had no
                   owner then
    added          of these, those that had no owner before
    kept           units - moved - added
    revoked        units that a member owned at the start and does not own at the end
    least_moves    the sum over members of what they own more at the end than at the start, less `added`,
                   and not below 0: the number of moves that these sizes require
    churn_ratio    moved / units at the start, including those that had been revoked by then
    unavailable_ms the sum over units of the time between start and end without an owner. A unit that has none
                   when the group is stable counts from the start until it has an owner again, if its last
                   owner departed; otherwise it is not assigned and does not count
    silent_units, silent_ms
                   bounds for the time before the start, see `konvene.pipeline.reduce.silence`

Of a shared unit, as many members as lost it count as moved to those that gained it; any more are added.

A static member that returns with another member id is the same member.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from konvene.pipeline.reduce.diagnosis import CauseRow, Diagnosis
from konvene.pipeline.reduce.ownership import READING_ROLES, SHARED, Gap, Ownership, Row, Unit
from konvene.pipeline.reduce.position import LogPartition, MemberIdentity
from konvene.pipeline.reduce.silence import NO_SILENCE, UNKNOWN_SILENCE, Silence

__all__ = [
    "Counts",
    "End",
    "MemberProgress",
    "OpenRebalance",
    "count_changes",
    "member_row",
    "open_gap_ms",
    "rebalance_row",
    "row_without_records",
]

_NO_CAUSE: CauseRow = {
    "kind": "", "at_ms": -1, "member_id": None, "instance_id": None, "client_id": None, "client_host": None,
    "reason": None, "topic": None,
}  # fmt: skip


@dataclass(slots=True)
class MemberProgress:
    """A member's part in a rebalance: the states that it was in, and the members that it waited for."""

    identity: MemberIdentity
    states: list[str] = field(default_factory=list)
    acknowledged_ms: int | None = None
    """Time at which the member reached its target assignment."""
    waited_for: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class OpenRebalance:
    """A rebalance in progress: its causes, times, and the progress of its members."""

    group_type: str
    from_epoch: int
    epoch: int
    diagnosis: Diagnosis
    base_offset: int
    last_offset: int
    start_ms: int | None
    target_ms: int | None = None
    unavailable_ms: int | None = 0
    """Total time without an owner, of the gaps that have ended; None if unknown."""
    protocol_type: str | None = None
    """The protocol type of a classic group."""
    is_reported: bool = True
    """Whether it yields a row: not if the log has lost its start."""
    silence: Silence = NO_SILENCE
    joined: dict[str, MemberIdentity] = field(default_factory=dict)
    departed: dict[str, MemberIdentity] = field(default_factory=dict)
    progress_by_member: dict[str, MemberProgress] = field(default_factory=dict)

    def progress(self, identity: MemberIdentity) -> MemberProgress:
        known = self.progress_by_member.get(identity.member_key)
        if known is None:
            known = self.progress_by_member[identity.member_key] = MemberProgress(identity)
        known.identity = identity
        return known

    def add_gap(self, gap: Gap, end_ms: int) -> None:
        """Add a gap that ends at `end_ms`."""
        if self.unavailable_ms is not None and self.start_ms is not None:
            self.unavailable_ms += max(end_ms - max(gap.at.ms, self.start_ms), 0)


class End(NamedTuple):
    """How a rebalance ended; without `ms` it has not ended, or the time is unknown."""

    state: str
    ms: int | None
    members: int
    converged: bool = False
    superseded_by: int | None = None
    last_member_id: str | None = None


class Counts(NamedTuple):
    """Numbers of units that changed hands between start and end of a rebalance."""

    units: int
    before: int
    """Units at the start, including those revoked by then that have an owner now."""
    moved: int
    revoked: int
    added: int
    standby: int
    warmup: int
    least_moves: int
    got: dict[str, int]
    """Newly owned units by member key."""
    lost: dict[str, int]
    """Lost units by member key."""


def count_changes(ownership: Ownership) -> Counts:
    """Count the units that changed hands since `Ownership.reset`."""
    moved = added = 0
    got: dict[str, int] = {}
    lost: dict[str, int] = {}
    regained: dict[str, int] = {}
    owners = ownership.owners
    for unit, before in ownership.changed.items():
        tenure = owners.get(unit)
        if before is not None:
            lost[before] = lost.get(before, 0) + 1
        if tenure is not None:
            member_key = tenure.identity.member_key
            got[member_key] = got.get(member_key, 0) + 1
            last = ownership.previous_owners.get(unit) if before is None else before
            if last == member_key:
                regained[member_key] = regained.get(member_key, 0) + 1
            moved += last not in (None, member_key)
            added += last is None
    shared = _shared(ownership, got, lost, regained)
    moved, added = moved + shared.moved, added + shared.added
    revoked, now = sum(lost.values()), sum(got.values())
    more = sum(
        max(count - regained.get(member_key, 0) - lost.get(member_key, 0), 0)
        for member_key, count in got.items()
    )
    roles = [unit[2] for (unit, _), was in ownership.copied.items() if not was]
    return Counts(
        units=len(owners) + ownership.pairs,
        before=len(owners) + ownership.pairs - now + revoked + len(ownership.previous_owners),
        moved=moved,
        revoked=revoked,
        added=added,
        standby=roles.count("standby"),
        warmup=roles.count("warmup"),
        least_moves=max(more - added, 0),
        got=got,
        lost=lost,
    )


class _Shared(NamedTuple):
    moved: int
    added: int


def _shared(
    ownership: Ownership, got: dict[str, int], lost: dict[str, int], regained: dict[str, int]
) -> _Shared:
    """Count the shared units that moved and that were added; adds what members gained and lost to `got` and
    `lost`."""
    gained: dict[Unit, int] = {}
    for (unit, member_key), was in ownership.copied.items():
        if unit[2] != SHARED:
            continue
        if was:
            lost[member_key] = lost.get(member_key, 0) + 1
            continue
        got[member_key] = got.get(member_key, 0) + 1
        if ownership.previous_owners.get(unit) == member_key:
            regained[member_key] = regained.get(member_key, 0) + 1
        else:
            gained[unit] = gained.get(unit, 0) + 1
    moved = 0
    for unit, count in gained.items():
        last = ownership.previous_owners.get(unit)
        to_others = last is not None and (unit, last) not in ownership.copied
        moved += min(count, ownership.released_shared.get(unit, 0) + to_others)
    return _Shared(moved, sum(gained.values()) - moved)


def rebalance_row(
    log: LogPartition, group_id: str, rebalance: OpenRebalance, end: End, counts: Counts, evidence: str
) -> Row:
    """Return the row of the table `rebalance` for this rebalance.

    `end` is how it ended, `counts` the units that changed hands, `evidence` the value of that column."""
    first = rebalance.diagnosis.causes[0] if rebalance.diagnosis.causes else _NO_CAUSE
    duration_ms = None if rebalance.start_ms is None or end.ms is None else end.ms - rebalance.start_ms
    return (
        log.cluster, group_id, rebalance.group_type, rebalance.protocol_type,
        rebalance.from_epoch, rebalance.epoch, end.state,
        rebalance.diagnosis.kind,
        first["member_id"], first["instance_id"], first["client_id"], first["client_host"],
        first["reason"], first["topic"], list(rebalance.diagnosis.causes),
        rebalance.diagnosis.left_out, evidence,
        rebalance.start_ms, rebalance.target_ms, end.ms,
        duration_ms if duration_ms is None or duration_ms >= 0 else None,
        end.converged, end.superseded_by, end.members, len(rebalance.joined), len(rebalance.departed),
        counts.units,
        counts.units - counts.moved - counts.added, counts.moved, counts.revoked, counts.added,
        counts.standby, counts.warmup, counts.least_moves,
        counts.moved / counts.before if counts.before else None, rebalance.unavailable_ms,
        rebalance.silence.units, rebalance.silence.ms, rebalance.silence.session_timeout_ms,
        end.last_member_id,
        log.partition, rebalance.base_offset, rebalance.last_offset, rebalance.diagnosis.audit_offset,
    )  # fmt: skip


def row_without_records(
    log: LogPartition, group_id: str, rebalance: OpenRebalance, end: End, evidence: str
) -> Row:
    """Return a row of `rebalance` for epochs of which the log has no records: all counts of changes are
    zero."""
    rebalance.unavailable_ms, rebalance.silence = None, UNKNOWN_SILENCE
    rebalance.joined, rebalance.departed = {}, {}
    nothing = Counts(0, 0, 0, 0, 0, 0, 0, 0, {}, {})
    return rebalance_row(log, group_id, rebalance, end, nothing, evidence)


def member_row(
    log: LogPartition,
    group_id: str,
    rebalance: OpenRebalance,
    progress: MemberProgress,
    counts: Counts,
    after: int,
    role: str,
    evidence: str,
) -> Row:
    """Return the row of the table `rebalance_member` for one member of this rebalance.

    `after` is the number of units that the member owns at the end, `role` is whether it
    stayed, joined or departed."""
    identity = progress.identity
    got, lost = counts.got.get(identity.member_key, 0), counts.lost.get(identity.member_key, 0)
    since_ms = None
    if progress.acknowledged_ms is not None and rebalance.start_ms is not None:
        since_ms = max(progress.acknowledged_ms - rebalance.start_ms, 0)
    return (
        log.cluster, group_id, rebalance.group_type, rebalance.epoch, log.partition, rebalance.base_offset,
        identity.member_id,
        identity.instance_id, identity.client_id, identity.client_host, role, since_ms, progress.states,
        sorted(progress.waited_for), after - got + lost, after, lost, got, evidence,
    )  # fmt: skip


def open_gap_ms(ownership: Ownership, start_ms: int | None, end_ms: int) -> int:
    """Return the total time until `end_ms` for which units have had no owner, counted from `start_ms` on.

    Gaps that an earlier rebalance left open count for that one."""
    return sum(
        max(end_ms - max(gap.at.ms, start_ms if start_ms is not None else gap.at.ms), 0)
        for unit, gap in ownership.gaps.items()
        if unit[2] in READING_ROLES and gap.left_open_by < 0
    )
