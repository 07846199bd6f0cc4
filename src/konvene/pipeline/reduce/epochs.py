"""Groups whose coordinator assigns (consumer, share and streams groups): a rebalance for each epoch.

A rebalance begins with the record that raises the epoch, and is over with the record with which every member
is reconciled to that epoch's assignment: `groups.history` says where both are. The record of the next epoch
supersedes it if it comes first.

A member has acknowledged when a record says that it has all of the target. It waits for those who have, or
have yet to give up, what it is meant to have; in a streams group also for another member of its process that
has the task in whatever role. That is what describing the group would show at that time. In a share group
nobody waits for anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from konvene.groups.consumer.current_assignment import MemberState as ConsumerState
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.share.current_assignment import STABLE
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.current_assignment import MemberState as StreamsState
from konvene.groups.streams.decision import settled_state
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.topology import sources
from konvene.pipeline.reduce.open_rebalance import End, Open
from konvene.pipeline.reduce.position import NOT_KNOWN, At, Person, person_of
from konvene.pipeline.reduce.track import Put, Track
from konvene.pipeline.reduce.units import Names, changes, owners_of_wanted
from konvene.pipeline.reduce.why import Audit, inferred, observed, ways_to_go
from konvene.records.audit import RebalanceValue

__all__ = [
    "converged",
    "group_ended",
    "is_quiet",
    "reads_of",
    "skipped",
    "take_current",
    "take_epoch",
    "take_member",
    "take_target",
    "waits",
]

Group = ConsumerGroup | ShareGroup | StreamsGroup

_STATES: Mapping[type, Mapping[int, str]] = {  # Some numbers are the same.
    ConsumerGroup: {state: state.name for state in ConsumerState},
    ShareGroup: {STABLE: "STABLE"},
    StreamsGroup: {state: state.name for state in StreamsState},
}
"""How rows call the states of members, by the kind of group."""
WAITS = ("UNRELEASED_PARTITIONS", "UNRELEASED_TASKS")
OWES = ("UNREVOKED_PARTITIONS", "UNREVOKED_TASKS")

MOST_BEHIND = 100
"""Members of which no record says anything in a rebalance that was superseded are told, and so are stuck, if
there are no more than this."""


def named(member: Any) -> Person:
    return person_of(member.member_id, member.instance_id, member.client_id, member.client_host)


def is_quiet(group: Any) -> bool:
    """Whether nothing is under way in a group that is seen for the first time: it has members that have what
    they are to have, and nobody for whom an epoch is still to be raised; or it is new."""
    if group is None or not hasattr(group, "behind"):
        return True
    if (
        isinstance(group, StreamsGroup)
        and settled_state(group.topology, group.validated_topology_epoch) != "Stable"
    ):
        return False
    if not group.members:
        return False
    waits_for_regex = any(name not in group.regexes for name in getattr(group, "regex_users", ()))
    return not (group.behind or group.epoch > group.assignment_epoch or waits_for_regex)


def take_member(track: Track, before: Any, after: Any, names: Names, at: At, put: Put) -> None:
    """What a member said of itself, or its end; as it was before and as it is now."""
    if after is not None:
        person = named(after)
        known = person if before is None else named(before)
        if known.who != person.who:  # In a compacted log what it has may stand before who it is.
            track.holdings.rename(known, person)
            track.drop(known)
        track.add(person)
        return
    if before is not None:
        _lets_go(track, before, names, at, put)
        _goes(track, before, at)


def take_current(
    track: Track, group: Group | None, before: Any, after: Any, is_gone: bool, names: Names, at: At, put: Put
) -> None:
    """What a member has."""
    if is_gone:
        if before is not None:
            _lets_go(track, before, names, at, put)
        return
    if after is None or group is None:
        return
    person = track.people.get(after.member_id)
    if person is None:  # In a compacted log this may be all that is left of it.
        person = named(after)
        track.add(person)
    lost, gained = changes(before.current if before is not None else None, after.current, names)
    if lost or gained:
        track.moves(person, lost, gained, at, put)
        if _is_taken_over(track, group, after):
            track.holdings.begin_anew()
    state = state_of(group, after)
    if state in OWES or getattr(after, "classic", None) is not None:  # Else it makes no difference.
        track.heard_ms[after.member_id] = at.ms
    it = track.open
    if it is None:
        return
    part = it.part(person)
    if not part.states or part.states[-1] != state:
        part.states.append(state)
    has_it = group.assignment_epoch == it.epoch and after.is_reconciled_to(it.epoch)
    if has_it and part.acknowledged_ms is None:
        part.acknowledged_ms = at.ms
    if state in WAITS and not isinstance(group, ShareGroup):
        part.waited_for.update(dict.fromkeys(waits(group, after.member_id)))


def _is_taken_over(track: Track, group: Group, member: Any) -> bool:
    """Whether what a member has is what it was given in the classic group, in the words of the streams group:
    it stands before the first epoch."""
    return (
        track.translated == track.batch
        and isinstance(group, StreamsGroup)
        and track.open is None
        and member.classic is not None
    )


def state_of(group: Group, member: Any) -> str:
    """How rows call the state of a member. Where it has none that is known, by its number."""
    state = member.current.state
    return _STATES[type(group)].get(state, str(state))


def waits(group: ConsumerGroup | StreamsGroup, member_id: str) -> Iterator[str]:
    """For whom a member waits."""
    return (name for name in owners_of_wanted(group, member_id) if name != member_id)


def take_target(track: Track, group: Group, at: At) -> None:
    """The target of an epoch was made."""
    it = track.open
    if it is not None and it.target_ms is None and group.assignment_epoch == it.epoch:
        it.target_ms = at.ms


def take_epoch(
    track: Track, group: Group, row: RebalanceValue | None, audit: Audit, at: At, put: Put
) -> None:
    """The record of an epoch; `row`: what the history says, if it raises it."""
    if row is None:
        if isinstance(group, StreamsGroup) and group.members and track.was("classic"):
            track.translate()
        if group.epoch != track.epoch:
            skipped(track, group.epoch, audit, at, put)
            if not at.whole:
                track.untold(group.epoch)
                track.is_sure = False
            track.epoch = group.epoch
        return
    track.supersede(row.epoch, _behind(track, group), _state(track), at, put)
    known = row.epoch - 1
    if 0 <= track.epoch < known or (track.is_first and not 0 <= track.epoch <= known):
        skipped(track, known, audit, at, put)
    said = audit.of(track.group_id, row.epoch, at.offset)
    why = observed(said) if said is not None else inferred(row, track.ways)
    track.ways.clear()
    it = Open(
        row.group_type, known, row.epoch, why, row.base_offset, row.last_offset, row.started_ms
    )  # fmt: skip
    track.begin(it)
    if row.state == "Empty":
        track.close(End("Empty", at.ms, 0, converged=True), at, put)


def converged(track: Track, row: RebalanceValue, audit: Audit, member_id: str, at: At, put: Put) -> None:
    """All members have what they are meant to have."""
    audit.of(track.group_id, row.epoch, at.offset, over=True)
    it = track.open
    if it is None or it.epoch != row.epoch:
        return
    if row.state == "Stable":
        track.holdings.at_rest()
    end = End(row.state, at.ms, len(track.present), converged=True, last_member_id=member_id)
    track.close(end, at, put)


def reads_of(group: Any) -> Mapping[str, tuple[str, ...]]:
    """The topics that each subtopology of a streams group reads."""
    if not isinstance(group, StreamsGroup) or group.topology is None:
        return {}
    return {name: tuple(sources(each)) for name, each in group.topology.subtopologies.items()}


def group_ended(track: Track, at: At, put: Put) -> None:
    """The group is deleted, or goes on as one of another type."""
    track.supersede(None, (), _state(track), at, put)
    for person in sorted(track.present.values()):  # In a compacted log their own tombstones may be gone.
        track.leaves(person, track.holdings.units_of(person), at, put)
        track.drop(person)
    if track.group_type:
        track.ended = track.batch, track.group_type
    track.group_type = ""


def _lets_go(track: Track, member: Any, names: Names, at: At, put: Put) -> None:
    lost, _ = changes(member.current, None, names)
    if lost:
        track.leaves(named(member), lost, at, put)
    if member.member_id not in track.ways:
        track.ways[member.member_id] = _ways(track, member, at)


def _goes(track: Track, member: Any, at: At) -> None:
    track.heard_ms.pop(member.member_id, None)
    track.drop(named(member))


def _ways(track: Track, member: Any, at: At) -> str:
    classic = getattr(member, "classic", None)
    return ways_to_go(
        session_timeout_ms=NOT_KNOWN if classic is None else classic.session_timeout_ms,
        rebalance_timeout_ms=getattr(member, "rebalance_timeout_ms", NOT_KNOWN),
        heard_ms=track.heard_ms.get(member.member_id, NOT_KNOWN),
        gone_ms=at.ms,
        may_be_late=classic is not None or getattr(member.current.state, "name", "") in OWES,
        may_not_sync=classic is not None,
    )


def _behind(track: Track, group: Group) -> list[Person]:
    """Members that have not followed a target, where they are few."""
    it = track.open
    if it is None or it.target_ms is None or len(group.behind) > MOST_BEHIND:
        return []
    there = (named(group.members[name]) for name in sorted(group.behind))
    return [person for person in there if person.who not in track.joined]


def _state(track: Track) -> str:
    it = track.open
    return "Assigning" if it is None or it.target_ms is None else "Reconciling"


def skipped(
    track: Track, epoch: int, audit: Audit, at: At, put: Put, unwritten: Iterable[Mapping[str, Any]] = ()
) -> None:
    """The last epoch that is known from before a record is this one: those up to it left no row.

    `unwritten` are rows of the audit about generations that left no record."""
    first = track.epoch + 1 if 0 <= track.epoch < epoch else NOT_KNOWN
    said = [*unwritten, *audit.lost(track.group_id, max(first, 0), epoch, at.offset)]
    said.sort(key=lambda row: int(row["audit_offset"]))
    track.skip(first, epoch, said, observed, at, put)
