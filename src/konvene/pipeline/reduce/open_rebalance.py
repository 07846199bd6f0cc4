"""A rebalance that is being reduced, and the rows that come of it.

The counts of a row, from what changed hands between the beginning and the end (`Holdings.changed`):

    units          active units that members have at the end; a shared one counts for each that has it
    moved          of these, those that another member had at the beginning; or had last, if nobody had them
                   then because it had given them up
    added          of these, those that nobody had had before
    kept           units - moved - added
    revoked        units that a member had at the beginning and that the same one does not have at the end
    least_moves    the sum over members of what they have more at the end than at the beginning, less `added`,
                   and not below 0: so many had to come from others for these sizes
    churn_ratio    moved / units at the beginning, with those that somebody had given up by then
    unavailable_ms the sum over units of the time between start and end in which nobody had them, not counting
                   what nobody has when the group is stable: nobody is meant to have that

Of a shared unit, as many as there were that gave it up are taken to have moved to those that got it; any more
are added.

A static member that came back under another id is the member that it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from konvene.pipeline.reduce.ownership import READ, SHARED, Gap, Holdings, Unit
from konvene.pipeline.reduce.position import Person, Place
from konvene.pipeline.reduce.why import Why

__all__ = [
    "Counts",
    "End",
    "Open",
    "Part",
    "counted",
    "member_row",
    "rebalance_row",
    "row_without_records",
    "still_without",
]

Row = tuple[Any, ...]


@dataclass(slots=True)
class Part:
    """What a rebalance is for a member."""

    person: Person
    states: list[str] = field(default_factory=list)
    acknowledged_ms: int | None = None
    """At that time."""
    waited_for: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Open:
    """A rebalance under way."""

    group_type: str
    from_epoch: int
    epoch: int
    why: Why
    base_offset: int
    last_offset: int
    start_ms: int | None
    target_ms: int | None = None
    unavailable_ms: int | None = 0
    """As far as it is over."""
    is_told: bool = True
    """Whether a row comes of it: not where the log has lost how it began."""
    joined: dict[str, Person] = field(default_factory=dict)
    gone: dict[str, Person] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)

    def part(self, person: Person) -> Part:
        known = self.parts.get(person.who)
        if known is None:
            known = self.parts[person.who] = Part(person)
        known.person = person
        return known

    def closes(self, gap: Gap, end_ms: int) -> None:
        """A unit has an owner again."""
        if self.unavailable_ms is not None and self.start_ms is not None:
            self.unavailable_ms += max(end_ms - max(gap.at.ms, self.start_ms), 0)


class End(NamedTuple):
    """How a rebalance ended, or did not."""

    state: str
    ms: int | None
    members: int
    converged: bool = False
    superseded_by: int | None = None
    last_member_id: str | None = None


class Counts(NamedTuple):
    """What changed hands."""

    units: int
    before: int
    """Those at the beginning, and those that somebody had given up by then and that have an owner now."""
    moved: int
    revoked: int
    added: int
    standby: int
    warmup: int
    least_moves: int
    got: dict[str, int]
    """By whom, units that it has and had not."""
    lost: dict[str, int]
    """By whom, units that it had and has not."""


def counted(holdings: Holdings) -> Counts:
    """What changed hands since it was last counted."""
    moved = added = 0
    got: dict[str, int] = {}
    lost: dict[str, int] = {}
    its_own: dict[str, int] = {}
    owners = holdings.owners
    for unit, before in holdings.changed.items():
        held = owners.get(unit)
        if before is not None:
            lost[before] = lost.get(before, 0) + 1
        if held is not None:
            who = held.person.who
            got[who] = got.get(who, 0) + 1
            last = holdings.handed_on.get(unit) if before is None else before
            if last == who:
                its_own[who] = its_own.get(who, 0) + 1
            moved += last not in (None, who)
            added += last is None
    shared = _shared(holdings, got, lost, its_own)
    moved, added = moved + shared.moved, added + shared.added
    revoked, now = sum(lost.values()), sum(got.values())
    more = sum(max(count - its_own.get(who, 0) - lost.get(who, 0), 0) for who, count in got.items())
    roles = [unit[2] for (unit, _), was in holdings.copied.items() if not was]
    return Counts(
        units=len(owners) + holdings.pairs,
        before=len(owners) + holdings.pairs - now + revoked + len(holdings.handed_on),
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
    holdings: Holdings, got: dict[str, int], lost: dict[str, int], its_own: dict[str, int]
) -> _Shared:
    """The same of what is shared; what members got and lost is added to theirs."""
    gained: dict[Unit, int] = {}
    for (unit, who), was in holdings.copied.items():
        if unit[2] != SHARED:
            continue
        if was:
            lost[who] = lost.get(who, 0) + 1
            continue
        got[who] = got.get(who, 0) + 1
        if holdings.handed_on.get(unit) == who:
            its_own[who] = its_own.get(who, 0) + 1
        else:
            gained[unit] = gained.get(unit, 0) + 1
    moved = 0
    for unit, count in gained.items():
        last = holdings.handed_on.get(unit)
        to_others = last is not None and (unit, last) not in holdings.copied
        moved += min(count, holdings.given_up.get(unit, 0) + to_others)
    return _Shared(moved, sum(gained.values()) - moved)


def rebalance_row(place: Place, group_id: str, it: Open, end: End, counts: Counts, evidence: str) -> Row:
    """A row of `rebalance`."""
    first = it.why.causes[0] if it.why.causes else {}
    took_ms = None if it.start_ms is None or end.ms is None else end.ms - it.start_ms
    return (
        place.cluster, group_id, it.group_type, it.from_epoch, it.epoch, end.state, it.why.kind,
        first.get("member_id"), first.get("instance_id"), first.get("client_id"), first.get("client_host"),
        first.get("reason"), first.get("topic"), list(it.why.causes), it.why.left_out, evidence,
        it.start_ms, it.target_ms, end.ms, took_ms if took_ms is None or took_ms >= 0 else None,
        end.converged, end.superseded_by, end.members, len(it.joined), len(it.gone), counts.units,
        counts.units - counts.moved - counts.added, counts.moved, counts.revoked, counts.added,
        counts.standby, counts.warmup, counts.least_moves,
        counts.moved / counts.before if counts.before else None, it.unavailable_ms, end.last_member_id,
        place.partition, it.base_offset, it.last_offset, it.why.audit_offset,
    )  # fmt: skip


def row_without_records(place: Place, group_id: str, it: Open, end: End, evidence: str) -> Row:
    """A row of epochs of which the log says no more than that they were: what changed hands is not known, and
    counted as nothing."""
    it.unavailable_ms = None
    it.joined, it.gone = {}, {}
    nothing = Counts(0, 0, 0, 0, 0, 0, 0, 0, {}, {})
    return rebalance_row(place, group_id, it, end, nothing, evidence)


def member_row(
    place: Place, group_id: str, it: Open, part: Part, counts: Counts, after: int, role: str, evidence: str
) -> Row:
    """A row of `rebalance_member`; `after`: how many units it has, `role`: its part."""
    person = part.person
    got, lost = counts.got.get(person.who, 0), counts.lost.get(person.who, 0)
    since_ms = None
    if part.acknowledged_ms is not None and it.start_ms is not None:
        since_ms = max(part.acknowledged_ms - it.start_ms, 0)
    return (
        place.cluster, group_id, it.group_type, it.epoch, place.partition, it.base_offset, person.member_id,
        person.instance_id, person.client_id, person.client_host, role, since_ms, part.states,
        sorted(part.waited_for), after - got + lost, after, lost, got, evidence,
    )  # fmt: skip


def still_without(holdings: Holdings, start_ms: int | None, end_ms: int) -> int:
    """How long units have had no owner that have none yet, since the start."""
    return sum(
        max(end_ms - max(gap.at.ms, start_ms if start_ms is not None else gap.at.ms), 0)
        for unit, gap in holdings.gaps.items()
        if unit[2] in READ
    )
