"""Groups whose coordinator assigns (consumer, share and streams groups): one rebalance per epoch.

A rebalance begins with the record that bumps the epoch, and ends with the record with which every member has
reconciled to that epoch's assignment; `groups.history` finds both. The record of the next epoch supersedes it
if it comes first.

A member has acknowledged when a record shows that it owns all of its target. It waits for members that own,
or still have to revoke, units of its target; in a streams group also for another member of its process that
has the task in any role. This is what describing the group would show at that time. Members of a share group
do not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from konvene.groups.consumer.current_assignment import MemberState as ConsumerState
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.group import Member as ConsumerMember
from konvene.groups.share.current_assignment import STABLE
from konvene.groups.share.group import Member as ShareMember
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.current_assignment import MemberState as StreamsState
from konvene.groups.streams.decision import settled_state
from konvene.groups.streams.group import Member as StreamsMember
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.topology import sources
from konvene.pipeline.reduce.diagnosis import Audit, AuditRow, inferred, observed, possible_departure_causes
from konvene.pipeline.reduce.open_rebalance import End, OpenRebalance
from konvene.pipeline.reduce.position import NOT_KNOWN, MemberIdentity, Position, identity_of
from konvene.pipeline.reduce.track import GroupTracker, Put
from konvene.pipeline.reduce.units import Names, changes, owners_of_missing
from konvene.records.audit import RebalanceValue
from konvene.records.classic import GroupMetadataValue

__all__ = [
    "AnyGroup",
    "Group",
    "Member",
    "apply_convergence",
    "apply_current",
    "apply_epoch",
    "apply_member",
    "apply_target",
    "emit_skipped_epochs",
    "end_group",
    "is_settled",
    "members_waited_for",
    "source_topics_of",
]

Group = ConsumerGroup | ShareGroup | StreamsGroup
Member = ConsumerMember | ShareMember | StreamsMember
AnyGroup = Group | GroupMetadataValue
"""A group as `groups.history` returns it; a classic group is its last record."""

_STATES: Mapping[type, Mapping[int, str]] = {  # The numbers overlap.
    ConsumerGroup: {state: state.name for state in ConsumerState},
    ShareGroup: {STABLE: "STABLE"},
    StreamsGroup: {state: state.name for state in StreamsState},
}
"""Names of member states, by type of group."""
WAITING_STATES = ("UNRELEASED_PARTITIONS", "UNRELEASED_TASKS")
REVOKING_STATES = ("UNREVOKED_PARTITIONS", "UNREVOKED_TASKS")

MAX_UNCONVERGED_REPORTED = 100
"""Members without any record in a superseded rebalance are reported, and so count as stuck, if there are at
most this many.
"""


def identity_of_member(member: Member) -> MemberIdentity:
    return identity_of(member.member_id, member.instance_id, member.client_id, member.client_host)


def is_settled(group: AnyGroup | None) -> bool:
    """Return True if no rebalance is in progress in a group that is seen for the first time: its members have
    reached their targets and no epoch bump is pending; or it is new."""
    if group is None or isinstance(group, GroupMetadataValue):
        return True
    if (
        isinstance(group, StreamsGroup)
        and settled_state(group.topology, group.validated_topology_epoch) != "Stable"
    ):
        return False
    if not group.members:
        return False
    waits_for_regex = isinstance(group, ConsumerGroup) and any(
        name not in group.regexes for name in group.regex_users
    )
    return not (group.behind or group.epoch > group.assignment_epoch or waits_for_regex)


def apply_member(
    track: GroupTracker, before: Member | None, after: Member | None, names: Names, at: Position, put: Put
) -> None:
    """Apply a member's metadata record or tombstone, given the member before and after it."""
    if after is not None:
        identity = identity_of_member(after)
        known = identity if before is None else identity_of_member(before)
        if (
            known.member_key != identity.member_key
        ):  # In a compacted log its assignment may precede its metadata.
            track.ownership.rename(known, identity)
            track.remove(known)
        track.add(identity)
        return
    if before is not None:
        _release_all(track, before, names, at, put)
        _remove(track, before, at)


def apply_current(
    track: GroupTracker,
    group: Group | None,
    before: Member | None,
    after: Member | None,
    is_tombstone: bool,
    names: Names,
    at: Position,
    put: Put,
) -> None:
    """Apply a record of a member's current assignment: what it gained and lost, its state, the members it
    waits for.

    `before` and `after` are the member before and after the record."""
    if is_tombstone:
        if before is not None:
            _release_all(track, before, names, at, put)
        return
    if after is None or group is None:
        return
    identity = track.by_member_id.get(after.member_id)
    if identity is None:  # In a compacted log no other record of it may be left.
        identity = identity_of_member(after)
        track.add(identity)
    track.size = len(track.present)  # A decision writes this after its changes of members.
    lost, gained = changes(before.current if before is not None else None, after.current, names)
    if lost or gained:
        track.transfer(identity, lost, gained, at, put)
        if _inherits_classic_assignment(track, group, after):
            track.ownership.reset()
    state = state_of(group, after)
    if state in REVOKING_STATES or after.classic is not None:  # Other states do not affect the result.
        track.seen_ms[after.member_id] = at.ms
    rebalance = track.open
    if rebalance is None:
        return
    progress = rebalance.progress(identity)
    if not progress.states or progress.states[-1] != state:
        progress.states.append(state)
    has_target = group.assignment_epoch == rebalance.epoch and after.is_reconciled_to(rebalance.epoch)
    if has_target and progress.acknowledged_ms is None:
        progress.acknowledged_ms = at.ms
    if state in WAITING_STATES and not isinstance(group, ShareGroup):
        progress.waited_for.update(dict.fromkeys(members_waited_for(group, after.member_id)))


def _inherits_classic_assignment(track: GroupTracker, group: Group, member: Member) -> bool:
    """Return True if this is the assignment of the former classic group, which the conversion to a streams
    group wrote as tasks."""
    return (
        track.switched_in_batch == track.batch
        and isinstance(group, StreamsGroup)
        and track.open is None
        and member.classic is not None
    )


def state_of(group: Group, member: Member) -> str:
    """Return the name of a member's state, or its number if it is unknown."""
    state = member.current.state
    return _STATES[type(group)].get(state) or str(state)


def members_waited_for(group: ConsumerGroup | StreamsGroup, member_id: str) -> Iterator[str]:
    """Yield the ids of the members that a member waits for."""
    return (name for name in owners_of_missing(group, member_id) if name != member_id)


def apply_target(track: GroupTracker, group: Group, at: Position) -> None:
    """Record when the target of the rebalance in progress was computed, if the group now has it."""
    rebalance = track.open
    if rebalance is not None and rebalance.target_ms is None and group.assignment_epoch == rebalance.epoch:
        rebalance.target_ms = at.ms


def apply_epoch(
    track: GroupTracker, group: Group, row: RebalanceValue | None, audit: Audit, at: Position, put: Put
) -> None:
    """Apply the record of an epoch.

    `row` is the rebalance that `groups.history` found in it, None if the record does not bump the epoch."""
    if row is None:
        if isinstance(group, StreamsGroup) and group.members and track.ended_as("classic"):
            track.switch_units(put)
        if group.epoch != track.epoch:
            emit_skipped_epochs(track, group.epoch, audit, at, put)
            if not at.whole:
                track.begin_unknown(group.epoch)
                track.is_settled = False
            track.epoch = group.epoch
        return
    track.supersede(row.epoch, _unconverged(track, group), _state_of_rebalance(track), at, put)
    known = row.epoch - 1
    if 0 <= track.epoch < known or (track.is_first and not 0 <= track.epoch <= known):
        emit_skipped_epochs(track, known, audit, at, put)
    audit_row = audit.of(track.group_id, row.epoch, at.offset)
    diagnosis = observed(audit_row) if audit_row is not None else inferred(row, track.departure_causes)
    track.departure_causes.clear()
    rebalance = OpenRebalance(
        row.group_type, known, row.epoch, diagnosis, row.base_offset, row.last_offset, row.started_ms
    )  # fmt: skip
    track.begin(rebalance)
    if row.state == "Empty":
        track.close(End("Empty", at.ms, 0, converged=True), at, put)


def apply_convergence(
    track: GroupTracker, row: RebalanceValue, audit: Audit, member_id: str, at: Position, put: Put
) -> None:
    """End the rebalance, because all members have reached their targets; `member_id` did so last."""
    audit.of(track.group_id, row.epoch, at.offset, completed=True)
    rebalance = track.open
    if rebalance is None or rebalance.epoch != row.epoch:
        return
    end = End(row.state, at.ms, len(track.present), converged=True, last_member_id=member_id)
    track.close(end, at, put)


def source_topics_of(group: AnyGroup | None) -> Mapping[str, tuple[str, ...]]:
    """Return the source topics of each subtopology of a streams group."""
    if not isinstance(group, StreamsGroup) or group.topology is None:
        return {}
    return {name: tuple(sources(each)) for name, each in group.topology.subtopologies.items()}


def end_group(track: GroupTracker, at: Position, put: Put) -> None:
    """End the rebalance in progress and release all members, because the group was deleted or changed its
    type."""
    track.supersede(None, (), _state_of_rebalance(track), at, put)
    for identity in sorted(track.present.values()):  # In a compacted log their own tombstones may be missing.
        track.release(identity, track.ownership.units_of(identity), at, put)
        track.remove(identity)
    if track.group_type:
        track.last_end = track.batch, track.group_type
    track.group_type = ""


def _release_all(track: GroupTracker, member: Member, names: Names, at: Position, put: Put) -> None:
    lost, _ = changes(member.current, None, names)
    if lost:
        timeout_ms = NOT_KNOWN if member.classic is None else member.classic.session_timeout_ms
        track.release(identity_of_member(member), lost, at, put, timeout_ms)
    if member.member_id not in track.departure_causes:
        track.departure_causes[member.member_id] = _departure_causes(track, member, at)


def _remove(track: GroupTracker, member: Member, at: Position) -> None:
    track.seen_ms.pop(member.member_id, None)
    track.remove(identity_of_member(member))


def _departure_causes(track: GroupTracker, member: Member, at: Position) -> str:
    classic = member.classic
    return possible_departure_causes(
        session_timeout_ms=NOT_KNOWN if classic is None else classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        seen_ms=track.seen_ms.get(member.member_id, NOT_KNOWN),
        absent_ms=at.ms,
        may_time_out=classic is not None or getattr(member.current.state, "name", "") in REVOKING_STATES,
        may_miss_sync=classic is not None,
    )


def _unconverged(track: GroupTracker, group: Group) -> list[MemberIdentity]:
    """Return the members of the rebalance in progress that have not reached their target, without new ones.

    Returns none if the target is not computed yet, or for more than `MAX_UNCONVERGED_REPORTED`."""
    rebalance = track.open
    if rebalance is None or rebalance.target_ms is None or len(group.behind) > MAX_UNCONVERGED_REPORTED:
        return []
    members = (identity_of_member(group.members[name]) for name in sorted(group.behind))
    return [identity for identity in members if identity.member_key not in track.joined]


def _state_of_rebalance(track: GroupTracker) -> str:
    rebalance = track.open
    return "Assigning" if rebalance is None or rebalance.target_ms is None else "Reconciling"


def emit_skipped_epochs(
    track: GroupTracker,
    epoch: int,
    audit: Audit,
    at: Position,
    put: Put,
    unwritten: Iterable[AuditRow] = (),
) -> None:
    """Emit rows for the epochs after the tracker's last one up to `epoch`, which left no record.

    `unwritten` are audit rows about generations that left no record."""
    first = track.epoch + 1 if 0 <= track.epoch < epoch else NOT_KNOWN
    audit_rows = [*unwritten, *audit.lost(track.group_id, max(first, 0), epoch, at.offset)]
    audit_rows.sort(key=lambda row: row["audit_offset"])
    track.emit_skipped(first, epoch, audit_rows, at, put)
