"""One group on its way through the log: who is in it, who has what, and the rebalance under way.

`Track` turns what a record changed into rows; what it changed is for `epochs` and `classic` to find out. A
group keeps its track when its type changes, so that who had what is still known.

Members that go leave a mark until the batch is over: a record of a new epoch behind it in the batch is due to
that, and what they had counts as lost in the new rebalance, not in the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from konvene.pipeline.reduce.open_rebalance import (
    End,
    Open,
    counted,
    member_row,
    rebalance_row,
    row_without_records,
    still_without,
)
from konvene.pipeline.reduce.ownership import READ, Belongs, Gap, Held, Holdings, Unit
from konvene.pipeline.reduce.position import MISSING, NOT_KNOWN, OBSERVED, At, Person, Place
from konvene.pipeline.reduce.why import NOTHING_KNOWN, Why

__all__ = ["Track"]

Row = tuple[Any, ...]
SUPERSEDED = "Superseded"
"""Of a generation that came to its end before anybody was given anything."""
NO_REBALANCE = Belongs()
Put = Callable[[str, Row], None]
"""Takes a row of a table."""


@dataclass(slots=True)
class Track:
    """See the top of this file."""

    group_id: str
    place: Place
    holdings: Holdings
    group_type: str = ""
    """As of the last record; empty where the group is gone."""
    epoch: int = NOT_KNOWN
    """The last one that a row was made of, or that is known to have been."""
    present: dict[str, Person] = field(default_factory=dict)
    people: dict[str, Person] = field(default_factory=dict)
    """The same by member id."""
    joined: dict[str, Person] = field(default_factory=dict)
    """Since the last epoch."""
    gone: dict[str, Person] = field(default_factory=dict)
    open: Open | None = None
    last: Belongs = NO_REBALANCE
    """The last rebalance."""
    era: int = 0
    """When it was last looked at: rises each time that all is known again."""
    is_sure: bool = True
    """Whether nothing was under way when the log became whole, or it has come to rest since."""
    is_first: bool = False
    """Whether no rebalance was told since."""
    batch: int = -1
    size: int = 0
    """How many members there were when this batch began, or with the last epoch in it."""
    departed: list[tuple[Unit, Held]] = field(default_factory=list)
    """What members had that went in this batch."""
    heard_ms: dict[str, int] = field(default_factory=dict)
    """By member id, when a record said last what it has."""
    ways: dict[str, str] = field(default_factory=dict)
    """By member id, how it may have gone."""
    made_ms: int = NOT_KNOWN
    """When the classic generation was made."""
    ended: tuple[int, str] = (-1, "")
    """The batch in which the group came to its end last, and its type until then."""
    reads: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """Of a streams group that came to its end: the topics that each subtopology read."""
    translated: int = -1
    """The batch in which the group came to have other units: tasks for partitions, or the other way round."""

    def __repr__(self) -> str:
        return f"<track of {self.group_type or 'former'} group {self.group_id} at epoch {self.epoch}>"

    # --- members ---

    def add(self, person: Person) -> None:
        """Somebody is a member."""
        who = person.who
        if who not in self.present and self.gone.pop(who, None) is None:
            self.joined[who] = person
        self.present[who] = person
        self.people[person.member_id] = person

    def drop(self, person: Person) -> None:
        """A member id is gone; its instance id may be another member's by now."""
        self.people.pop(person.member_id, None)
        known = self.present.get(person.who)
        if known is None or known.member_id != person.member_id:
            return
        del self.present[person.who]
        if self.joined.pop(person.who, None) is None:
            self.gone[person.who] = person

    # --- units ---

    def moves(self, person: Person, lost: Iterable[Unit], gained: Iterable[Unit], at: At, put: Put) -> None:
        """What a member has is something else now."""
        for unit in lost:
            self._lose(unit, person, at, put)
        for unit in gained:
            self._gain(unit, person, at, put)

    def leaves(self, person: Person, units: Iterable[Unit], at: At, put: Put) -> None:
        """A member has nothing any more, for it goes."""
        for unit in units:
            held = self._lose(unit, person, at, put, named=False)
            if held is not None:
                self.departed.append((unit, held))

    def _lose(self, unit: Unit, person: Person, at: At, put: Put, *, named: bool = True) -> Held | None:
        held = self.holdings.lose(unit, person)
        if held is None:
            return None
        self._told(unit, held, at, put)
        if unit[2] in READ and at.whole and not self.holdings.is_read(unit):
            gap = Gap(person, held.group_type, at)
            self.holdings.gaps[unit] = gap
            if named:
                gap.belongs_to(self.last)
        return held

    def _gain(self, unit: Unit, person: Person, at: At, put: Put) -> None:
        before = self.holdings.gain(unit, person, self.group_type, self.epoch, at)
        if before is not None:
            self._told(unit, before, at, put)
        gap = self.holdings.has_again(unit) if unit[2] in READ else None
        if gap is None or at.ms <= gap.at.ms:
            return
        gap.belongs_to(self.last)
        put("unavailability", self.holdings.gap_row(self.place, unit, gap, at, person.member_id))
        if self.open is not None:
            self.open.closes(gap, at.ms)

    def _told(self, unit: Unit, held: Held, at: At, put: Put) -> None:
        put("ownership", self.holdings.interval(self.place, unit, held, at, self.epoch))

    def was(self, group_type: str) -> bool:
        """Whether it was of this type before this batch, and is not any more."""
        return self.ended == (self.batch, group_type)

    def translate(self) -> None:
        """What members have goes by other names from here on. Nobody lost anything by that, or gained it."""
        self.translated = self.batch
        self.departed.clear()
        self.holdings.gaps.clear()
        self.holdings.begin_anew()

    # --- batches and gaps in the log ---

    def begin_batch(self, batch: int) -> None:
        """The group's first record of a batch."""
        self.batch = batch
        self.size = len(self.present)
        if self.departed:
            self._name_gaps()

    def begin_anew(self, *, is_sure: bool, is_new: bool = False, epoch: int = NOT_KNOWN) -> None:
        """The group is read from here on as it is; nothing is known of how it came to that.

        `is_sure`: whether nothing was under way; `epoch`: that of a group that assigns. What changes until
        the next one is due to it, and is not told. `is_new`: the group has no past."""
        self.is_sure, self.is_first = is_sure, not is_new
        self.holdings.begin_anew()
        self.joined.clear()
        self.gone.clear()
        self.open = None
        if epoch >= 0:
            self.untold(epoch)

    def untold(self, epoch: int) -> None:
        """A rebalance of which it is not known how it began."""
        self.joined.clear()
        self.gone.clear()
        self.open = Open(self.group_type, epoch, epoch, NOTHING_KNOWN, NOT_KNOWN, NOT_KNOWN, None)
        self.open.is_told = False
        self.last = Belongs(epoch)

    def lose_sight(self, put: Put) -> None:
        """Something may be missing from here on: what is under way cannot be told to its end."""
        it, self.open = self.open, None
        if it is not None and it.is_told:
            put(
                "rebalance",
                row_without_records(self.place, self.group_id, it, End(self._state_of(it), None, 0), MISSING),
            )
        for unit, gap in self.holdings.gaps.items():
            row = self.holdings.gap_row(self.place, unit, gap, None, None)
            put("unavailability", (*row[:-1], MISSING))
        self.holdings.gaps.clear()
        self.departed.clear()
        self.begin_anew(is_sure=False)
        self.last, self.made_ms = NO_REBALANCE, NOT_KNOWN

    # --- rebalances ---

    def skip(
        self, first: int, last: int, audit: Iterable[Any], why_of: Callable[[Any], Why], at: At, put: Put
    ) -> None:
        """Epochs from `first` to `last` were, and left no record: a row for all, and one for each that the
        audit knows of."""
        for row in audit:
            if first < row["epoch"] <= last + 1:
                self._missing(first, row["epoch"] - 1, NOTHING_KNOWN, at, put)
            self._missing(row["epoch"], row["epoch"], why_of(row), at, put, row)
            first = max(first, row["epoch"] + 1)
        if first <= last:
            self._missing(first, last, NOTHING_KNOWN, at, put)

    def _missing(
        self, first: int, last: int, why: Why, at: At, put: Put, said: Mapping[str, Any] | None = None
    ) -> None:
        known = first - 1 if first > 0 else NOT_KNOWN
        it = Open(self.group_type, known, last, why, at.offset, at.offset, None)
        end, evidence = End("Unknown", None, 0), MISSING
        if said is not None:
            it.group_type = said["group_type"]
            it.start_ms, it.target_ms = _known(said["started_ms"]), _known(said["joined_ms"])
            end_ms, count = _known(said["ended_ms"]), len(said["members"]) + said["members_left_out"]
            end = End(said["state"], end_ms, count)
            if said["state"] == SUPERSEDED:  # Nobody was given anything: no record of it is missing.
                end, evidence = end._replace(superseded_by=last + 1), why.evidence
        put("rebalance", row_without_records(self.place, self.group_id, it, end, evidence))

    def begin(self, it: Open) -> None:
        """A rebalance begins: what changed since the last one belongs to it."""
        it.joined, it.gone = self.joined, self.gone
        self.joined, self.gone = {}, {}
        if not self.is_sure:
            it.why = it.why._replace(evidence=MISSING)
        self.epoch = it.epoch
        self.open = it
        self.last = Belongs(it.epoch, it.base_offset, it.why.kind, it.why.evidence != MISSING)
        self.size = len(self.present)
        self._name_gaps()

    def _name_gaps(self) -> None:
        """What those had that went in this batch is missed because of the last rebalance."""
        self.holdings.name_gaps((unit for unit, _ in self.departed), self.last)
        self.departed.clear()

    def supersede(self, epoch: int | None, behind: Iterable[Person], state: str, at: At, put: Put) -> None:
        """The next epoch came before all had followed; or the group ended so."""
        it = self.open
        if it is None:
            return
        back = [each for each in self.departed if not self.holdings.has(*each)]
        for unit, held in back:
            self.holdings.gain(unit, held.person, held.group_type, held.epoch, held.at)
        if it.unavailable_ms is not None:
            it.unavailable_ms += still_without(self.holdings, it.start_ms, at.ms)
        for person in behind:
            it.part(person)
        self.close(End(state, at.ms, self.size, superseded_by=epoch), at, put)
        for unit, held in back:
            self.holdings.lose(unit, held.person)

    def close(self, end: End, at: At, put: Put, evidence: str = OBSERVED) -> None:
        """The rebalance under way is over."""
        it, self.open = self.open, None
        if it is not None:
            it.last_offset = at.offset
            if it.is_told:
                self.tell(it, end, put, evidence)
                self.is_first = False
            self.holdings.begin_anew()
            if end.state == "Stable":
                self.is_sure = True
            elif end.converged:
                self.holdings.idle()

    def tell(self, it: Open, end: End, put: Put, evidence: str = OBSERVED) -> None:
        """Its rows; `evidence` is that of what is said of members."""
        counts = counted(self.holdings)
        if self.is_first and it.group_type == "classic" and counts.added:
            it.why = it.why._replace(evidence=MISSING)  # Somebody may have had to give it up before.
        if it.why.evidence == MISSING:
            evidence = MISSING
        put("rebalance", rebalance_row(self.place, self.group_id, it, end, counts, it.why.evidence))
        for who in counts.got.keys() | counts.lost.keys() | it.joined.keys() | it.gone.keys():
            person = self.present.get(who) or it.gone.get(who) or self.gone.get(who)
            if who not in it.parts and person is not None:
                it.part(person)
        for who in sorted(it.parts):
            role = "stayed"
            if who in it.gone:
                role = "gone"
            elif who in it.joined or who in self.joined:
                role = "joined"
            after = self.holdings.counts.get(who, 0)
            row = member_row(self.place, self.group_id, it, it.parts[who], counts, after, role, evidence)
            put("rebalance_member", row)

    def _state_of(self, it: Open) -> str:
        return "Assigning" if it.target_ms is None else "Reconciling"

    # --- the end of the log ---

    def finish(self, stretch: int, put: Put) -> None:
        """What is not over yet, as far as it is known. Changes nothing."""
        it = self.open
        if it is not None and it.is_told:
            self.tell(replace(it, unavailable_ms=None), End(self._state_of(it), None, len(self.present)), put)
        has = [(unit, self.holdings.owners[unit]) for unit in sorted(self.holdings.owners)]
        has += [(key[0], self.holdings.copies[key]) for key in sorted(self.holdings.copies)]
        for unit, held in has:
            put("ownership", self.holdings.interval(self.place, unit, held, None, self.epoch, stretch))
        for unit in sorted(self.holdings.gaps):
            gap = self.holdings.gaps[unit]
            put("unavailability", self.holdings.gap_row(self.place, unit, gap, None, None))


def _known(ms: int) -> int | None:
    return ms if ms >= 0 else None
