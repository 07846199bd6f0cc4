"""Classic groups: a rebalance for each generation.

All that the log says of one is the record at its end: who is in it, and what each was given. When it began,
and when members were back, only the audit says; so does it of generations that were superseded before anybody
was given anything, for they leave no record.

While an eager group rebalances nobody reads: its members give up all that they have before they join again.
So there is a gap for each partition that somebody had before and has again, from the time at which its owner
asked to join (of who is gone: from the start) to the end. Without the audit that time is not known, and no
gap is told. A cooperative group goes on with what its members keep; what is given up in one generation and
handed out in the next has no owner between them.

The states of a classic group's members are in no record: `states` is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from konvene.pipeline.reduce.epochs import group_ended, skipped
from konvene.pipeline.reduce.open_rebalance import End, Open
from konvene.pipeline.reduce.ownership import ACTIVE, Belongs, Gap, Held, Unit
from konvene.pipeline.reduce.position import INFERRED, NOT_KNOWN, OBSERVED, At, Person, person_of
from konvene.pipeline.reduce.track import Put, Track
from konvene.pipeline.reduce.units import classic_units
from konvene.pipeline.reduce.why import Audit, Why, inferred, observed, ways_from_generation
from konvene.records.audit import RebalanceValue
from konvene.records.classic import GroupMetadataValue

__all__ = ["take_generation"]

EAGER = ("range", "roundrobin", "sticky")
COOPERATIVE = ("cooperative-sticky",)
"""Assignors of Kafka's clients, by what members do before they join again. Of others it is not known."""


def take_generation(
    track: Track, before: Any, now: GroupMetadataValue | None, row: RebalanceValue | None, audit: Audit,
    at: At, put: Put,
) -> None:  # fmt: skip
    """The record of a classic group; `before` is the group that was there, `row` what the history says."""
    previous = before if isinstance(before, GroupMetadataValue) else None
    if now is None:
        group_ended(track, at, put)
        return
    had = dict(track.holdings.owners)
    _see_what_was_skipped(track, now, row, audit, at, put)
    track.epoch = now.generation
    people = {
        m.member_id: person_of(m.member_id, m.group_instance_id, m.client_id, m.client_host)
        for m in now.members
    }
    if row is None:
        _hand_out(track, now, people, at, put)
        if track.was("streams"):
            _goes_back(track, at)
        return
    said = audit.of(track.group_id, row.epoch, at.offset)
    it = _rebalance(track, previous, now, row, said)
    track.last = Belongs(it.epoch, it.base_offset, it.why.kind, True)
    it.unavailable_ms = 0 if it.start_ms is not None else None
    track.open = it  # Gaps that end with this record belong to it.
    _hand_out(track, now, people, at, put)
    it.joined, it.gone, track.joined, track.gone = track.joined, track.gone, {}, {}
    _stood_still(track, it, previous, had, said, at, put)
    _forget_gaps(track, now)
    for person in (*people.values(), *it.gone.values()):
        it.part(person)
    _acknowledged(it, said)
    track.close(
        End(row.state, at.ms, len(people), converged=True, last_member_id=_last(it, said)), at, put,
        OBSERVED if said is not None else INFERRED,
    )  # fmt: skip


def _goes_back(track: Track, at: At) -> None:
    """Tasks are partitions again. What nobody has of them now was last had by who ran the task."""
    left = list(track.departed)
    track.translate()
    for (name, partition, role), held in left:
        for topic in track.reads.get(name, ()):
            unit = (topic, partition, ACTIVE)
            if role == ACTIVE and unit not in track.holdings.owners:
                track.holdings.gaps[unit] = Gap(held.person, "streams", at)


def _see_what_was_skipped(
    track: Track, now: GroupMetadataValue, row: RebalanceValue | None, audit: Audit, at: At, put: Put
) -> None:
    """Generations before the one that is told; and this one, if it is not told."""
    known = now.generation if row is None else row.epoch - 1
    unwritten = audit.unwritten(track.group_id, at.ms)
    is_behind = track.epoch > known > 0 and row is None  # It was deleted and made anew.
    if track.epoch >= known and not is_behind:
        track.skip(known + 1, known, unwritten, observed, at, put)
        return
    if not track.is_first:
        track.epoch = max(track.epoch, 0)  # A group begins with none.
    if known > 0:
        skipped(track, known, audit, at, put, unwritten)
    track.made_ms = NOT_KNOWN


def _rebalance(
    track: Track, previous: GroupMetadataValue | None, now: GroupMetadataValue, row: RebalanceValue,
    said: Mapping[str, Any] | None,
) -> Open:  # fmt: skip
    """The rebalance that a record ends, and why it came."""
    target_ms = row.joined_ms if row.joined_ms >= 0 else row.ended_ms
    start_ms: int | None = None
    if said is not None:
        why: Why = observed(said)
        start_ms = said["started_ms"] if said["started_ms"] >= 0 else None
    else:
        ways = dict(track.ways)
        if previous is not None:
            ways |= ways_from_generation(previous, track.made_ms, target_ms, now.members)
        why = inferred(row, ways)
    track.ways.clear()
    track.made_ms = row.joined_ms
    known = row.joined_ms if row.joined_ms >= 0 else None
    if said is not None and said["joined_ms"] >= 0:
        known = said["joined_ms"]
    return Open(
        "classic", row.epoch - 1, row.epoch, why, row.base_offset, row.last_offset, start_ms, known, None
    )


def _hand_out(track: Track, now: GroupMetadataValue, people: Mapping[str, Person], at: At, put: Put) -> None:
    """Members and what they have are those of the record."""
    there = {person.who for person in people.values()}
    for who in [who for who in track.present if who not in there]:
        track.drop(track.present[who])
    for person in people.values():
        track.add(person)
    given: dict[Unit, Person] = {}
    for m in now.members:
        given.update(dict.fromkeys(classic_units(now, m), people[m.member_id]))
    owners = track.holdings.owners
    for unit in sorted(unit for unit in owners if unit not in given):
        track.moves(owners[unit].person, (unit,), (), at, put)
    for unit in sorted(given):
        held = owners.get(unit)
        if held is None or held.person.member_id != given[unit].member_id:
            track.moves(given[unit], (), (unit,), at, put)


def _stood_still(
    track: Track, it: Open, previous: GroupMetadataValue | None, had: Mapping[Unit, Held],
    said: Mapping[str, Any] | None, at: At, put: Put,
) -> None:  # fmt: skip
    """What an eager group did not read while it rebalanced."""
    protocol = previous.protocol if previous is not None else ""
    if previous is None or protocol in COOPERATIVE or not had:
        return
    if protocol not in EAGER or it.start_ms is None or said is None:
        it.unavailable_ms = None
        return
    back = {m["member_id"]: m["joined_ms"] for m in said["members"]}
    for unit in sorted(had):
        held, now = had[unit], track.holdings.owners.get(unit)
        if now is None:
            continue
        since_ms = max(back.get(held.person.member_id, it.start_ms), it.start_ms)
        if since_ms >= at.ms:
            continue
        gap = Gap(held.person, "classic", held.at._replace(ms=since_ms, whole=at.whole), track.last)
        row = track.holdings.gap_row(
            track.place, unit, gap, at._replace(stretch=held.at.stretch), now.person.member_id
        )
        put("unavailability", (*row[:-1], OBSERVED))
        it.closes(gap, at.ms)


def _forget_gaps(track: Track, now: GroupMetadataValue) -> None:
    """What an eager group hands to nobody, nobody is meant to have; nor what a cooperative one does not hand
    out when it can, in the generation behind the one in which it was given up."""
    if not now.members:
        return
    gaps = track.holdings.gaps
    eager = now.protocol in EAGER
    for unit in [
        unit for unit, gap in gaps.items() if eager or gap.of is None or gap.of.epoch != now.generation
    ]:
        del gaps[unit]


def _acknowledged(it: Open, said: Mapping[str, Any] | None) -> None:
    """When members had joined again."""
    for m in said["members"] if said is not None else ():
        person = person_of(m["member_id"], m["instance_id"], m["client_id"], m["client_host"])
        if m["joined_ms"] >= 0 and person.who in it.parts:
            it.parts[person.who].acknowledged_ms = m["joined_ms"]


def _last(it: Open, said: Mapping[str, Any] | None) -> str | None:
    """The member that was the last to join, of those whose time is known."""
    known = [(m["joined_ms"], m["member_id"]) for m in (said["members"] if said is not None else ())]
    known = [each for each in known if each[0] >= 0]
    return max(known)[1] if known else None
