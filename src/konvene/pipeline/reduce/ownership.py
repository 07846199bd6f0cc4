"""Who of a group has what: intervals of ownership, and gaps between them.

A unit is a partition of a topic or a task, in a role. An active one has one owner at a time; copies (standby
and warm-up tasks) and what is shared (partitions of a share group) have as many holders as there are. What a
member is told to give up is its own until the log says that it has.

`changed` says of each unit that changed hands since somebody last cleared it who had it then: what changed
back is not in it. What a rebalance moved is counted from that alone, so no rebalance costs more than what it
changes. A unit that nobody had for a while comes from who had it last (`handed_on`). `copied` says the same
of copies and of what is shared, for each holder.

A gap begins when an active unit loses its owner, or a shared one its last holder, and is told when it has one
again at a later time. Gaps that are open when a group is stable are forgotten (`at_rest`): nobody is meant to
have these units.

In a log that was compacted a record of an earlier owner may stand behind its successor's; the later record
wins, and what comes of it is marked missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from konvene.pipeline.reduce.position import INFERRED, MISSING, NOT_KNOWN, OBSERVED, At, Person, Place

__all__ = ["ACTIVE", "READ", "SHARED", "Belongs", "Gap", "Holdings", "Unit"]

ACTIVE, SHARED = "active", "shared"
READ = (ACTIVE, SHARED)
"""Roles in which who has a unit reads it."""

Unit = tuple[str, int, str]
"""The topic (of a task its subtopology), the partition, the role."""
Row = tuple[Any, ...]


class Held(NamedTuple):
    """That somebody has something, and since when."""

    person: Person
    group_type: str
    epoch: int
    at: At


class Belongs(NamedTuple):
    """The rebalance that a gap belongs to."""

    epoch: int = NOT_KNOWN
    base_offset: int = NOT_KNOWN
    cause: str = ""
    is_sure: bool = False


@dataclass(slots=True)
class Gap:
    """Nobody has what somebody had."""

    owner: Person
    """Who had it last."""
    group_type: str
    at: At
    of: Belongs | None = None
    """None: that is to be seen."""
    is_handed_on: bool = True
    """Whether who has it next has it from the last owner: not if the group was at rest without it."""

    def belongs_to(self, rebalance: Belongs) -> None:
        if self.of is None:
            self.of = rebalance


@dataclass(slots=True)
class Holdings:
    """What the members of one group have."""

    group_id: str
    owners: dict[Unit, Held] = field(default_factory=dict)
    copies: dict[tuple[Unit, str], Held] = field(default_factory=dict)
    """By unit and by whom (`Person.who`)."""
    counts: dict[str, int] = field(default_factory=dict)
    """Active and shared units by whom; nobody with none."""
    holders: dict[Unit, int] = field(default_factory=dict)
    """How many have a shared unit; none that nobody has."""
    pairs: int = 0
    """Those, all together."""
    changed: dict[Unit, str | None] = field(default_factory=dict)
    """Who had it before; None: nobody."""
    handed_on: dict[Unit, str] = field(default_factory=dict)
    """Of units that nobody had, and somebody got: who had had them last."""
    copied: dict[tuple[Unit, str], bool] = field(default_factory=dict)
    """Copies, and holders of what is shared, that came or went, with whether they were there before."""
    given_up: dict[Unit, int] = field(default_factory=dict)
    """Of shared units, how many of those went."""
    gaps: dict[Unit, Gap] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<holdings of {self.group_id}: {len(self.owners)} units, {len(self.gaps)} without an owner>"

    # --- what changes ---

    def gain(self, unit: Unit, person: Person, group_type: str, epoch: int, at: At) -> Held | None:
        """Somebody has something now; who had it until now, if somebody else did."""
        held = Held(person, group_type, epoch, at)
        if unit[2] != ACTIVE:
            key = (unit, person.who)
            before = self.copies.get(key)
            self.copies[key] = held
            if before is None:
                self._note_copy(key, False)
                self._hold(key, 1)
            return before
        before = self.owners.get(unit)
        self.owners[unit] = held
        who = None if before is None else before.person.who
        if who != person.who:
            self._note(unit, who, person.who)
            self._count(person.who, 1)
            if who is not None:
                self._count(who, -1)
        return before

    def lose(self, unit: Unit, person: Person) -> Held | None:
        """Somebody has something no more; None where it was another's already."""
        if unit[2] != ACTIVE:
            key = (unit, person.who)
            copy = self.copies.get(key)
            if copy is None or copy.person.member_id != person.member_id:
                return None
            del self.copies[key]
            self._note_copy(key, True)
            self._hold(key, -1)
            return copy
        held = self.owners.get(unit)
        if held is None or held.person.member_id != person.member_id:
            return None
        del self.owners[unit]
        self._note(unit, held.person.who, None)
        self._count(held.person.who, -1)
        return held

    def has(self, unit: Unit, held: Held) -> bool:
        """Whether somebody has the unit; of a copy and of what is shared, whether that member has."""
        return unit in self.owners if unit[2] == ACTIVE else (unit, held.person.who) in self.copies

    def units_of(self, person: Person) -> list[Unit]:
        """All that somebody has, in order. Looks at everything: only where a group ends."""
        owned = [unit for unit, held in self.owners.items() if held.person.member_id == person.member_id]
        copies = [unit for unit, who in self.copies if who == person.who]
        return sorted(owned + copies)

    def _note(self, unit: Unit, before: str | None, now: str | None) -> None:
        if unit not in self.changed:
            self.changed[unit] = before
        elif self.changed[unit] == now:
            del self.changed[unit]

    def _note_copy(self, key: tuple[Unit, str], before: bool) -> None:
        step = -1 if key in self.copied else 1
        was = self.copied.pop(key) if step < 0 else before
        if step > 0:
            self.copied[key] = before
        if was and key[0][2] == SHARED:
            _step(self.given_up, key[0], step)

    def _hold(self, key: tuple[Unit, str], step: int) -> None:
        unit, who = key
        if unit[2] == SHARED:
            _step(self.holders, unit, step)
            self.pairs += step
            self._count(who, step)

    def _count(self, who: str, step: int) -> None:
        _step(self.counts, who, step)

    def is_read(self, unit: Unit) -> bool:
        """Whether somebody reads it."""
        return unit in self.owners or unit in self.holders

    def rename(self, old: Person, new: Person) -> None:
        """Who somebody is became known after what it has."""
        for unit in self.units_of(old):
            held = self.lose(unit, old)
            if held is not None:
                self.gain(unit, new, held.group_type, held.epoch, held.at)

    def begin_anew(self) -> None:
        """Changes are counted from here on."""
        self.changed = {}
        self.handed_on = {}
        self.copied = {}
        self.given_up = {}

    # --- rows ---

    def interval(
        self, place: Place, unit: Unit, held: Held, end: At | None, epoch: int, stretch: int = NOT_KNOWN
    ) -> Row:
        """A row of `ownership`; without `end` it has it still, in this stretch."""
        person = held.person
        sure = held.at.whole and (stretch if end is None else end.stretch) == held.at.stretch
        return (
            place.cluster, self.group_id, held.group_type, *unit, person.member_id, person.instance_id,
            person.client_id, held.at.ms, None if end is None else end.ms, held.epoch,
            None if end is None else epoch, place.partition, held.at.offset,
            None if end is None else end.offset, OBSERVED if sure else MISSING,
        )  # fmt: skip

    def gap_row(self, place: Place, unit: Unit, gap: Gap, end: At | None, to: str | None) -> Row:
        """A row of `unavailability`; without `end` it lasts."""
        sure = gap.at.whole and (end is None or end.stretch == gap.at.stretch)
        of = gap.of or Belongs()
        sure = sure and of.is_sure
        evidence = INFERRED if gap.group_type == "classic" else OBSERVED
        return (
            place.cluster, self.group_id, gap.group_type, *unit, gap.at.ms, None if end is None else end.ms,
            None if end is None else end.ms - gap.at.ms, gap.owner.member_id, to, of.epoch, place.partition,
            of.base_offset, of.cause, evidence if sure else MISSING,
        )  # fmt: skip

    # --- gaps ---

    def has_again(self, unit: Unit) -> Gap | None:
        """A unit has an owner again: the gap that was there."""
        gap = self.gaps.pop(unit, None)
        if gap is not None and gap.is_handed_on and self._nobody_had(unit):
            self.handed_on[unit] = gap.owner.who
        return gap

    def _nobody_had(self, unit: Unit) -> bool:
        """When changes began to be counted. It is asked for when somebody has just got it again."""
        if unit[2] == SHARED:
            return unit not in self.given_up
        return self.changed.get(unit, "") is None

    def name_gaps(self, units: Iterable[Unit], belongs_to: Belongs) -> None:
        """The rebalance that these gaps belong to is known."""
        for unit in units:
            gap = self.gaps.get(unit)
            if gap is not None:
                gap.belongs_to(belongs_to)

    def at_rest(self) -> None:
        """All members have what they are meant to have: what nobody has, nobody is meant to have."""
        self.gaps.clear()

    def idle(self) -> None:
        """The group has nobody to have anything, or cannot run. What comes next begins anew."""
        for gap in self.gaps.values():
            gap.is_handed_on = False


def _step(counts: dict[Any, int], key: Any, step: int) -> None:
    """One more, or less; what is zero is not there."""
    count = counts.get(key, 0) + step
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
