"""Ownership of units in a group: intervals of ownership, and the gaps between them.

A unit is a partition of a topic or a task, in a role. An active unit has one owner at a time, as has a
connector or task of Kafka Connect; copies (standby
and warm-up tasks) and shared units (partitions of a share group) may have several. A unit that a member has
to revoke is still its own until the log records the revocation.

The moves of a rebalance are counted from three mappings, so that it costs no more than what it changes.
`changed` has, for every active unit that changed hands since the last reset, the owner at that reset; a unit
that changed back is not in it. For units without an owner at the reset that have one again, `previous_owners`
has the last owner before. `copied` has the copies and the holders of shared units that came or went.

A gap begins when an active unit loses its owner, or a shared one its last holder, and is reported when it has
an owner again at a later time. If the group completes a rebalance without assigning the unit, it depends on
the last owner: one that is still a member gave the unit up, for example because it unsubscribed, and the gap
is forgotten; if it departed, the rebalance leaves the gap open (`left_open_by`) until a member reads the unit
again.

In a compacted log a record of an earlier owner may stand behind its successor's; the later record wins, and
the resulting rows are marked missing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from konvene.pipeline.reduce.position import (
    INFERRED,
    MISSING,
    NOT_KNOWN,
    OBSERVED,
    LogPartition,
    MemberIdentity,
    Position,
)

__all__ = [
    "ACTIVE", "CONNECTOR", "NO_REBALANCE", "READING_ROLES", "SHARED", "TASK", "Gap", "Ownership",
    "RebalanceRef", "Row", "Unit", "marked_topic", "topic_name",
]  # fmt: skip

ACTIVE, SHARED, CONNECTOR, TASK = "active", "shared", "connector", "task"
EXCLUSIVE_ROLES = (ACTIVE, CONNECTOR, TASK)
"""Roles in which a unit has one owner at a time."""
READING_ROLES = (*EXCLUSIVE_ROLES, SHARED)
"""Roles whose owner reads the unit."""

Unit = tuple[str, int, str]
"""The topic (for a task its subtopology or connector), the partition (or number of the task), the role."""
Row = tuple[object, ...]
"""A row of a table, in the order of its columns."""
_K = TypeVar("_K")


class Tenure(NamedTuple):
    """A member's ownership of a unit, and since when."""

    identity: MemberIdentity
    group_type: str
    epoch: int
    at: Position


class RebalanceRef(NamedTuple):
    """The rebalance that a gap is attributed to."""

    epoch: int = NOT_KNOWN
    base_offset: int = NOT_KNOWN
    cause: str = ""
    is_sure: bool = False


NO_REBALANCE = RebalanceRef()


def marked_topic(name: str, topic_id: str) -> str:
    """Return the name of a topic, marked with its id, because another topic had that name before."""
    return f"{name}\0{topic_id}"


@lru_cache(maxsize=4096)
def topic_name(name: str) -> str:
    """Return a topic's name without its mark."""
    return name.partition("\0")[0]


@dataclass(slots=True)
class Gap:
    """The interval in which a unit has no owner: when it began, the owner until then, and the cause."""

    owner: MemberIdentity
    """The last owner."""
    group_type: str
    at: Position
    rebalance: RebalanceRef | None = None
    """None until the rebalance is known."""
    keeps_last_owner: bool = True
    """Whether the next owner takes the unit over from the last one: not if the group was at rest without
    it."""
    left_open_by: int = NOT_KNOWN
    """Epoch of the rebalance that completed without assigning the unit; `NOT_KNOWN` if none did."""

    def attribute_to(self, rebalance: RebalanceRef) -> None:
        if self.rebalance is None:
            self.rebalance = rebalance


@dataclass(slots=True)
class Ownership:
    """The units that the members of one group own."""

    group_id: str
    owners: dict[Unit, Tenure] = field(default_factory=dict)
    copies: dict[tuple[Unit, str], Tenure] = field(default_factory=dict)
    """Tenures of copies and shared units, by unit and member key."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of active and shared units by member key, without zeros."""
    holders: dict[Unit, int] = field(default_factory=dict)
    """Number of members that have a shared unit, without zeros."""
    pairs: int = 0
    """The sum of `holders`."""
    changed: dict[Unit, str | None] = field(default_factory=dict)
    """For each unit that changed hands since the last reset, its owner then; None if it had none."""
    previous_owners: dict[Unit, str] = field(default_factory=dict)
    """For units without an owner at the last reset that have one now: the last owner before."""
    copied: dict[tuple[Unit, str], bool] = field(default_factory=dict)
    """Copies and holders of shared units that came or went, with whether they existed before."""
    released_shared: dict[Unit, int] = field(default_factory=dict)
    """For shared units, the number of holders that lost them."""
    gaps: dict[Unit, Gap] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<holdings of {self.group_id}: {len(self.owners)} units, {len(self.gaps)} without an owner>"

    # --- what changes ---

    def gain(self, unit: Unit, tenure: Tenure) -> Tenure | None:
        """Assign a unit to a member; return the tenure that this replaces, if there was one."""
        member_key = tenure.identity.member_key
        if unit[2] not in EXCLUSIVE_ROLES:
            key = (unit, member_key)
            before = self.copies.get(key)
            self.copies[key] = tenure
            if before is None:
                self._record_copy_change(key, False)
                self._count_holder(key, 1)
            return before
        before = self.owners.get(unit)
        self.owners[unit] = tenure
        last = None if before is None else before.identity.member_key
        if last != member_key:
            self._record_change(unit, last, member_key)
            self.counts[member_key] = self.counts.get(member_key, 0) + 1
            if last is not None:
                _step(self.counts, last, -1)
        return before

    def lose(self, unit: Unit, identity: MemberIdentity) -> Tenure | None:
        """Take a unit from a member and return its tenure; None if that member does not own it."""
        if unit[2] not in EXCLUSIVE_ROLES:
            key = (unit, identity.member_key)
            copy = self.copies.get(key)
            if copy is None or copy.identity.member_id != identity.member_id:
                return None
            del self.copies[key]
            self._record_copy_change(key, True)
            self._count_holder(key, -1)
            return copy
        tenure = self.owners.get(unit)
        if tenure is None or tenure.identity.member_id != identity.member_id:
            return None
        del self.owners[unit]
        self._record_change(unit, tenure.identity.member_key, None)
        _step(self.counts, tenure.identity.member_key, -1)
        return tenure

    def has(self, unit: Unit, tenure: Tenure) -> bool:
        """Return True if the unit has an owner; for a copy or shared unit, if the tenure's member has it."""
        if unit[2] in EXCLUSIVE_ROLES:
            return unit in self.owners
        return (unit, tenure.identity.member_key) in self.copies

    def units_of(self, identity: MemberIdentity) -> list[Unit]:
        """Return all units of a member, sorted. Scans the whole group, so call it rarely."""
        owned = [
            unit for unit, tenure in self.owners.items() if tenure.identity.member_id == identity.member_id
        ]
        copies = [unit for unit, member_key in self.copies if member_key == identity.member_key]
        return sorted(owned + copies)

    def _record_change(self, unit: Unit, before: str | None, now: str | None) -> None:
        if unit not in self.changed:
            self.changed[unit] = before
        elif self.changed[unit] == now:
            del self.changed[unit]

    def _record_copy_change(self, key: tuple[Unit, str], before: bool) -> None:
        step = -1 if key in self.copied else 1
        was = self.copied.pop(key) if step < 0 else before
        if step > 0:
            self.copied[key] = before
        if was and key[0][2] == SHARED:
            _step(self.released_shared, key[0], step)

    def _count_holder(self, key: tuple[Unit, str], step: int) -> None:
        unit, member_key = key
        if unit[2] == SHARED:
            _step(self.holders, unit, step)
            self.pairs += step
            _step(self.counts, member_key, step)

    def has_reader(self, unit: Unit) -> bool:
        """Return True if the unit is active or shared and a member owns it; copies are not read."""
        return unit in self.owners or unit in self.holders

    def rename(self, old: MemberIdentity, new: MemberIdentity) -> None:
        """Transfer the units of the member `old` to `new`, the same member as a later record shows it."""
        for unit in self.units_of(old):
            tenure = self.lose(unit, old)
            if tenure is not None:
                self.gain(unit, tenure._replace(identity=new))

    def reset(self) -> None:
        """Forget the recorded changes: from here on, changes are relative to the current owners."""
        self.changed = {}
        self.previous_owners = {}
        self.copied = {}
        self.released_shared = {}

    # --- rows ---

    def interval(
        self,
        log: LogPartition,
        unit: Unit,
        tenure: Tenure,
        end: Position | None,
        epoch: int,
        stretch: int = NOT_KNOWN,
    ) -> Row:
        """Return the row of `ownership` for a tenure that ended at `end`, in the epoch `epoch`.

        Without `end` the member owned the unit until the end of the log, whose `Position.stretch` is
        `stretch`."""
        (_, member_id, instance_id, client_id, _), group_type, from_epoch, at = tenure
        to_ms = to_epoch = to_offset = None
        if end is not None:
            to_ms, to_offset, stretch, _ = end
            to_epoch = epoch
        topic, partition, role = unit
        return (
            log.cluster, self.group_id, group_type, topic_name(topic), partition, role,
            member_id, instance_id, client_id, at.ms, to_ms, from_epoch, to_epoch, log.partition, at.offset,
            to_offset, OBSERVED if at.whole and stretch == at.stretch else MISSING,
        )  # fmt: skip

    def gap_row(self, log: LogPartition, unit: Unit, gap: Gap, end: Position | None, to: str | None) -> Row:
        """Return the row of `unavailability` for a gap that ended at `end`; without `end` it is still open.

        `to` is the member id of the next owner."""
        at, group_type = gap.at, gap.group_type
        epoch, base_offset, cause, is_sure = gap.rebalance or NO_REBALANCE
        evidence = MISSING
        if is_sure and at.whole and (end is None or end.stretch == at.stretch):
            evidence = INFERRED if group_type == "classic" else OBSERVED
        to_ms = None if end is None else end.ms
        topic, partition, role = unit
        return (
            log.cluster, self.group_id, group_type, topic_name(topic), partition, role,
            at.ms, to_ms, None if to_ms is None else to_ms - at.ms, gap.owner.member_id, to, epoch,
            log.partition, base_offset, cause, gap.left_open_by if gap.left_open_by >= 0 else None, evidence,
        )  # fmt: skip

    # --- gaps ---

    def end_gap(self, unit: Unit) -> Gap | None:
        """Close and return the gap of a unit that has an owner again."""
        gap = self.gaps.pop(unit, None)
        if gap is not None and gap.keeps_last_owner and self._was_unowned(unit):
            self.previous_owners[unit] = gap.owner.member_key
        return gap

    def _was_unowned(self, unit: Unit) -> bool:
        """Return True if the unit had no owner at the last reset. Called right after it was assigned."""
        if unit[2] == SHARED:
            return unit not in self.released_shared
        return self.changed.get(unit, "") is None

    def attribute_gaps(self, units: Iterable[Unit], attribute_to: RebalanceRef) -> None:
        """Attribute the gaps of these units to a rebalance, unless they are attributed to one already."""
        for unit in units:
            gap = self.gaps.get(unit)
            if gap is not None:
                gap.attribute_to(attribute_to)

    def leave_gaps_open(self, units: Iterable[Unit], epoch: int, present: Container[str]) -> int:
        """Leave the gaps of these units open, because the rebalance to `epoch` completed without assigning
        them.

        Forget those whose last owner is among the keys of the members that are `present`. Return how many
        this rebalance is the first to leave open."""
        count = 0
        for unit in units:
            gap = self.gaps[unit]
            if gap.owner.member_key in present:
                del self.gaps[unit]
            elif gap.left_open_by < 0:
                gap.left_open_by, gap.keeps_last_owner = epoch, False
                count += 1
        return count

    def detach_gaps(self) -> None:
        """Detach all gaps from their last owners, because the group is empty or cannot run: their next owners
        do not take the units over from them."""
        for gap in self.gaps.values():
            gap.keeps_last_owner = False


def _step(counts: dict[_K, int], key: _K, step: int) -> None:
    """Add `step` to the count of a key, and delete the key if its count becomes zero."""
    count = counts.get(key, 0) + step
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
