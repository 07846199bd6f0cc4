"""Classic groups: one rebalance per generation.

The log has one record at the end of each rebalance: the members and their assignments. Only the audit has
when it began and when members rejoined; it also has generations that were superseded before any assignment
was sent, since these leave no record.

While an eager group rebalances no member reads: all units are revoked before the members rejoin. So each
partition that had an owner before and has one again has a gap, from the time at which its owner sent
JoinGroup (for departed members: from the start) to the end. Without the audit that time is not known and no
gap is reported. Members of a cooperative group keep their remaining units; units revoked in one generation
and assigned in the next have no owner in between.

The states of a classic group's members are in no record: `states` is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from konvene.pipeline.reduce.connect import CONNECT
from konvene.pipeline.reduce.diagnosis import (
    Audit,
    AuditRow,
    Diagnosis,
    departure_causes_of_generation,
    inferred,
    observed,
)
from konvene.pipeline.reduce.epochs import AnyGroup, emit_skipped_epochs, end_group
from konvene.pipeline.reduce.open_rebalance import End, OpenRebalance
from konvene.pipeline.reduce.ownership import ACTIVE, Gap, RebalanceRef, Tenure, Unit
from konvene.pipeline.reduce.position import (
    INFERRED,
    NOT_KNOWN,
    OBSERVED,
    MemberIdentity,
    Position,
    identity_of,
)
from konvene.pipeline.reduce.silence import Held
from konvene.pipeline.reduce.track import GroupTracker, Put
from konvene.pipeline.reduce.units import classic_units
from konvene.records.audit import RebalanceValue
from konvene.records.classic import GroupMetadataValue

__all__ = ["apply_generation"]

EAGER = ("range", "roundrobin", "sticky")
COOPERATIVE = ("cooperative-sticky",)
"""Assignors of Kafka's clients by what members revoke before they rejoin. For other assignors it is not
known.
"""
CONNECT_EAGER, CONNECT_COOPERATIVE = ("default",), ("compatible", "sessioned")
"""Protocols of Kafka Connect by what workers stop before they rejoin."""


def apply_generation(
    track: GroupTracker, before: AnyGroup | None, now: GroupMetadataValue | None, row: RebalanceValue | None,
    audit: Audit,
    at: Position, put: Put,
) -> None:  # fmt: skip
    """Apply a record of a classic group, with the rebalance that it ends.

    `before` is the group before the record, `now` the record's value (None for a tombstone), and `row` the
    rebalance that `groups.history` found in it, None if there is none."""
    previous = before if isinstance(before, GroupMetadataValue) else None
    if now is None:
        end_group(track, at, put)
        return
    owners_before = dict(track.ownership.owners)
    audit_row = None if row is None else audit.of(track.group_id, row.epoch, at.offset)
    from_epoch = _emit_skipped(track, now, row, audit_row, audit, at, put)
    track.epoch = now.generation
    identities = {
        m.member_id: identity_of(m.member_id, m.group_instance_id, m.client_id, m.client_host)
        for m in now.members
    }
    if row is None:
        _apply_assignment(track, now, identities, at, put)
        if track.ended_as("streams"):
            _switch_to_partitions(track, at, put)
        elif track.ended_as("consumer"):
            track.released.clear()  # Their gaps are due to the downgrade, whose generation follows.
        return
    rebalance = _rebalance(track, previous, now, row, from_epoch, audit_row)
    track.last = RebalanceRef(rebalance.epoch, rebalance.base_offset, rebalance.diagnosis.kind, True)
    rebalance.unavailable_ms = 0 if rebalance.start_ms is not None else None
    track.open = rebalance  # Gaps that end with this record are attributed to it.
    _apply_assignment(track, now, identities, at, put)
    rebalance.joined, rebalance.departed, track.joined, track.departed = track.joined, track.departed, {}, {}
    _emit_eager_gaps(track, rebalance, previous, owners_before, audit_row, at, put)
    track.set_silence(rebalance, [*track.held, *_held(previous, owners_before, at)])
    track.held.clear()
    for identity in (*identities.values(), *rebalance.departed.values()):
        rebalance.progress(identity)
    _record_rejoins(rebalance, audit_row)
    track.close(
        End(row.state, at.ms, len(identities), converged=True, last_member_id=_last_to_rejoin(rebalance,
        audit_row)), at, put,
        OBSERVED if audit_row is not None else INFERRED, awaited=_awaited(track, now),
    )  # fmt: skip


def _switch_to_partitions(track: GroupTracker, at: Position, put: Put) -> None:
    """Continue with partitions instead of tasks, after a streams group became a classic one.

    Partitions without an owner were last owned by the owner of the task."""
    left = list(track.released)
    track.switch_units(put)
    for (name, partition, role), tenure in left:
        for topic in track.source_topics.get(name, ()):
            unit = (topic, partition, ACTIVE)
            if role == ACTIVE and unit not in track.ownership.owners:
                track.ownership.gaps[unit] = Gap(tenure.identity, "streams", at)


def _emit_skipped(
    track: GroupTracker, now: GroupMetadataValue, row: RebalanceValue | None, audit_row: AuditRow | None,
    audit: Audit, at: Position, put: Put,
) -> int:  # fmt: skip
    """Emit rows of `rebalance` for the generations between the tracker's last one and this record's, which
    left no record, and return the generation from which the record's own rebalance starts.

    If no rebalance was found in this record (`row` is None), its own generation is among them. If the audit
    has none of them, they are part of the record's rebalance: any of them may have made its changes."""
    known = now.generation if row is None else row.epoch - 1
    unwritten = audit.unwritten(track.group_id, at.ms)
    is_behind = track.epoch > known > 0 and row is None  # It was deleted and created again.
    if track.epoch >= known and not is_behind:
        track.emit_skipped(known + 1, known, unwritten, at, put)
        return known
    if not track.is_first:
        track.epoch = max(track.epoch, 0)  # A new group has no epoch before.
    if known > 0:
        observed_rows = [*unwritten, *audit.lost(track.group_id, max(track.epoch + 1, 0), known, at.offset)]
        if row is not None and audit_row is None and track.epoch >= 0 and not observed_rows:
            return track.epoch
        emit_skipped_epochs(track, known, audit, at, put, observed_rows)
    track.generation_ms = NOT_KNOWN
    return known


def _rebalance(
    track: GroupTracker, previous: GroupMetadataValue | None, now: GroupMetadataValue, row: RebalanceValue,
    from_epoch: int, audit_row: AuditRow | None,
) -> OpenRebalance:  # fmt: skip
    """Return the rebalance that a record ends, with its causes and times."""
    target_ms = row.joined_ms if row.joined_ms >= 0 else row.ended_ms
    start_ms: int | None = None
    if audit_row is not None:
        diagnosis: Diagnosis = observed(audit_row)
        start_ms = audit_row["started_ms"] if audit_row["started_ms"] >= 0 else None
    else:
        departures = dict(track.departure_causes)
        if previous is not None:
            departures |= departure_causes_of_generation(
                previous, track.generation_ms, target_ms, now.members, row.epoch - from_epoch
            )
        diagnosis = inferred(row, departures)
    track.departure_causes.clear()
    track.generation_ms = row.joined_ms
    known = row.joined_ms if row.joined_ms >= 0 else None
    if audit_row is not None and audit_row["joined_ms"] >= 0:
        known = audit_row["joined_ms"]
    return OpenRebalance(
        "classic",
        from_epoch,
        row.epoch,
        diagnosis,
        row.base_offset,
        row.last_offset,
        start_ms,
        known,
        None,
        protocol_type=now.protocol_type,
    )


def _apply_assignment(
    track: GroupTracker,
    now: GroupMetadataValue,
    identities: Mapping[str, MemberIdentity],
    at: Position,
    put: Put,
) -> None:
    """Update the group's members and the owners of its units to those in the record."""
    remaining = {identity.member_key for identity in identities.values()}
    for member_key in [member_key for member_key in track.present if member_key not in remaining]:
        track.remove(track.present[member_key])
    for identity in identities.values():
        track.add(identity)
    assigned: dict[Unit, MemberIdentity] = {}
    for m in now.members:
        assigned.update(dict.fromkeys(classic_units(now, m), identities[m.member_id]))
    owners = track.ownership.owners
    for unit in sorted(unit for unit in owners if unit not in assigned):
        track.transfer(owners[unit].identity, (unit,), (), at, put)
    for unit in sorted(assigned):
        tenure = owners.get(unit)
        if tenure is None or tenure.identity.member_id != assigned[unit].member_id:
            track.transfer(assigned[unit], (), (unit,), at, put)


def _emit_eager_gaps(
    track: GroupTracker, rebalance: OpenRebalance, previous: GroupMetadataValue | None,
    owners_before: Mapping[Unit, Tenure],
    audit_row: AuditRow | None, at: Position, put: Put,
) -> None:  # fmt: skip
    """Emit a gap for each partition that an eager group revoked and assigned again in a rebalance."""
    if previous is None or _is_cooperative(previous) or not owners_before:
        return
    if not _is_eager(previous) or rebalance.start_ms is None or audit_row is None:
        rebalance.unavailable_ms = None
        return
    rejoined_ms = {m["member_id"]: m["joined_ms"] for m in audit_row["members"]}
    for unit in sorted(owners_before):
        tenure, now = owners_before[unit], track.ownership.owners.get(unit)
        if now is None:
            continue
        since_ms = max(rejoined_ms.get(tenure.identity.member_id, rebalance.start_ms), rebalance.start_ms)
        if since_ms >= at.ms:
            continue
        gap = Gap(tenure.identity, "classic", tenure.at._replace(ms=since_ms, whole=at.whole), track.last)
        row = track.ownership.gap_row(
            track.log, unit, gap, at._replace(stretch=tenure.at.stretch), now.identity.member_id
        )
        put("unavailability", (*row[:-1], OBSERVED))
        rebalance.add_gap(gap, at.ms)


def _held(
    previous: GroupMetadataValue | None, owners_before: Mapping[Unit, Tenure], at: Position
) -> Iterator[Held]:
    """Yield the units of the generation before, each with the session timeout of its owner."""
    timeouts_ms = {m.member_id: m.session_timeout for m in (previous.members if previous is not None else ())}
    for unit in sorted(owners_before):
        tenure = owners_before[unit]
        yield Held(tenure, at.ms, timeouts_ms.get(tenure.identity.member_id, NOT_KNOWN))


def _is_eager(group: GroupMetadataValue) -> bool:
    return group.protocol in (CONNECT_EAGER if group.protocol_type == CONNECT else EAGER)


def _is_cooperative(group: GroupMetadataValue) -> bool:
    return group.protocol in (CONNECT_COOPERATIVE if group.protocol_type == CONNECT else COOPERATIVE)


def _awaited(track: GroupTracker, now: GroupMetadataValue) -> set[Unit]:
    """Return the units that the generation after `now` is going to assign.

    In a cooperative group these are the units that a member of this generation has just revoked."""
    if _is_eager(now):
        return set()
    return {
        unit
        for unit, gap in track.ownership.gaps.items()
        if gap.owner.member_key in track.present
        and gap.rebalance is not None
        and gap.rebalance.epoch == now.generation
    }


def _record_rejoins(rebalance: OpenRebalance, audit_row: AuditRow | None) -> None:
    """Set the time at which each member sent JoinGroup, as the audit row has it."""
    for m in audit_row["members"] if audit_row is not None else ():
        identity = identity_of(m["member_id"], m["instance_id"], m["client_id"], m["client_host"])
        if m["joined_ms"] >= 0 and identity.member_key in rebalance.progress_by_member:
            rebalance.progress_by_member[identity.member_key].acknowledged_ms = m["joined_ms"]


def _last_to_rejoin(rebalance: OpenRebalance, audit_row: AuditRow | None) -> str | None:
    """Return the id of the member that sent JoinGroup last; None if the audit has no time for any member."""
    known = [
        (m["joined_ms"], m["member_id"]) for m in (audit_row["members"] if audit_row is not None else ())
    ]
    known = [each for each in known if each[0] >= 0]
    return max(known)[1] if known else None
