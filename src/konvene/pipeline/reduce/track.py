"""State of one group while its log is read: members, ownership, and the rebalance in progress.

`GroupTracker` turns the changes of a record into rows; `epochs` and `classic` find out what a record changed.
A group keeps its tracker when its type changes, so that ownership is not lost.

Units of members that depart are kept until the batch ends: a record of a new epoch later in the batch is due
to the departure, so these units count as lost in the new rebalance, not in the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from konvene.pipeline.reduce.diagnosis import UNKNOWN_DIAGNOSIS, AuditRow, Diagnosis, observed
from konvene.pipeline.reduce.left_open import LeftOpen
from konvene.pipeline.reduce.open_rebalance import (
    End,
    OpenRebalance,
    count_changes,
    member_row,
    open_gap_ms,
    rebalance_row,
    row_without_records,
)
from konvene.pipeline.reduce.ownership import (
    NO_REBALANCE,
    READING_ROLES,
    Gap,
    Ownership,
    RebalanceRef,
    Row,
    Tenure,
    Unit,
)
from konvene.pipeline.reduce.position import (
    MISSING,
    NOT_KNOWN,
    OBSERVED,
    LogPartition,
    MemberIdentity,
    Position,
)
from konvene.pipeline.reduce.silence import Held, silence_of

__all__ = ["GroupTracker"]

SUPERSEDED = "Superseded"
"""State of a generation that ended before any assignment was sent."""
Put = Callable[[str, Row], None]
"""Receives a row of a table."""


@dataclass(slots=True)
class GroupTracker:
    """The state of one group while its log is read; see the module docstring."""

    group_id: str
    log: LogPartition
    ownership: Ownership
    group_type: str = ""
    """The group's type after the last record; empty if the group was deleted."""
    epoch: int = NOT_KNOWN
    """The largest epoch for which a row was emitted or a rebalance is open."""
    present: dict[str, MemberIdentity] = field(default_factory=dict)
    by_member_id: dict[str, MemberIdentity] = field(default_factory=dict)
    """The present members by member id."""
    joined: dict[str, MemberIdentity] = field(default_factory=dict)
    """Members that joined since the last epoch."""
    departed: dict[str, MemberIdentity] = field(default_factory=dict)
    open: OpenRebalance | None = None
    last: RebalanceRef = NO_REBALANCE
    """The last rebalance, to which gaps that begin now are attributed."""
    era: int = 0
    """The era of its last record; an era begins each time the log is complete again."""
    is_settled: bool = True
    """Whether no rebalance was in progress when the log became complete, or the group has been stable
    since."""
    is_first: bool = False
    """Whether no rebalance was reported since then."""
    batch: int = -1
    size: int = 0
    """Number of members before the changes that belong to the next epoch."""
    released: list[tuple[Unit, Tenure]] = field(default_factory=list)
    """Units of members that departed in this batch."""
    held: list[Held] = field(default_factory=list)
    """Units of members that departed since the last epoch, and that no other member has."""
    seen_ms: dict[str, int] = field(default_factory=dict)
    """By member id, the time of the last record with its assignment."""
    departure_causes: dict[str, str] = field(default_factory=dict)
    """By member id, its possible departure causes."""
    generation_ms: int = NOT_KNOWN
    """When the classic generation was created."""
    last_end: tuple[int, str] = (-1, "")
    """The batch in which the group ended last, and its type until then."""
    source_topics: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """For a streams group that ended: the source topics of each subtopology."""
    left_open: LeftOpen = field(default_factory=LeftOpen)
    """Rows of completed rebalances that wait for the gaps that they left open."""
    switched_in_batch: int = -1
    """The batch in which the group's units changed between partitions and tasks."""

    def __repr__(self) -> str:
        return f"<track of {self.group_type or 'former'} group {self.group_id} at epoch {self.epoch}>"

    # --- members ---

    def add(self, identity: MemberIdentity) -> None:
        """Record that a member is present; it counts as joined unless it departed since the last epoch."""
        member_key = identity.member_key
        if member_key not in self.present and self.departed.pop(member_key, None) is None:
            self.joined[member_key] = identity
        self.present[member_key] = identity
        self.by_member_id[identity.member_id] = identity

    def remove(self, identity: MemberIdentity) -> None:
        """Record that a member departed, unless another member has its instance id by now."""
        self.by_member_id.pop(identity.member_id, None)
        known = self.present.get(identity.member_key)
        if known is None or known.member_id != identity.member_id:
            return
        del self.present[identity.member_key]
        if self.joined.pop(identity.member_key, None) is None:
            self.departed[identity.member_key] = identity

    # --- units ---

    def transfer(
        self, identity: MemberIdentity, lost: Iterable[Unit], gained: Iterable[Unit], at: Position, put: Put
    ) -> None:
        """Apply a changed assignment of a member: end and begin intervals of ownership, and gaps."""
        for unit in lost:
            self._lose(unit, identity, at, put)
        tenure = Tenure(identity, self.group_type, self.epoch, at)
        for unit in gained:
            self._gain(unit, tenure, put)

    def release(
        self, identity: MemberIdentity, units: Iterable[Unit], at: Position, put: Put,
        session_timeout_ms: int = NOT_KNOWN,
    ) -> None:  # fmt: skip
        """Take units from a departing member, and remember them until the batch ends.

        `session_timeout_ms` is the member's own, if its record has one."""
        for unit in units:
            tenure = self._lose(unit, identity, at, put, named=False)
            if tenure is None:
                continue
            self.released.append((unit, tenure))
            if unit[2] in READING_ROLES and not self.ownership.has_reader(unit):
                self.held.append(Held(tenure, at.ms, session_timeout_ms))

    def _lose(
        self, unit: Unit, identity: MemberIdentity, at: Position, put: Put, *, named: bool = True
    ) -> Tenure | None:
        ownership = self.ownership
        tenure = ownership.lose(unit, identity)
        if tenure is None:
            return None
        put("ownership", ownership.interval(self.log, unit, tenure, at, self.epoch))
        if at.whole and unit[2] in READING_ROLES and not ownership.has_reader(unit):
            rebalance = self.last if named else None
            ownership.gaps[unit] = Gap(identity, tenure.group_type, at, rebalance)
        return tenure

    def _gain(self, unit: Unit, tenure: Tenure, put: Put) -> None:
        ownership, at = self.ownership, tenure.at
        before = ownership.gain(unit, tenure)
        if before is not None:
            put("ownership", ownership.interval(self.log, unit, before, at, self.epoch))
        gap = ownership.end_gap(unit) if unit in ownership.gaps else None
        if gap is None:
            return
        if at.ms > gap.at.ms:
            gap.attribute_to(self.last)
            to = tenure.identity.member_id
            put("unavailability", ownership.gap_row(self.log, unit, gap, at, to))
        if gap.left_open_by >= 0:
            complete = self.left_open.end_gap(gap, at.ms)
            if complete is not None:
                put("rebalance", complete)
        elif self.open is not None:
            self.open.add_gap(gap, at.ms)

    def ended_as(self, group_type: str) -> bool:
        """Return True if the group had this type and ended in the current batch."""
        return self.last_end == (self.batch, group_type)

    def switch_units(self, put: Put) -> None:
        """Forget changes and gaps, because the group's units become tasks instead of partitions or vice
        versa."""
        self.switched_in_batch = self.batch
        self.released.clear()
        self.held.clear()
        self.drop_gaps(put)
        self.ownership.reset()

    def drop_gaps(self, put: Put) -> None:
        """Forget all gaps, because their units cannot get an owner any more, and emit the rows that wait for
        them."""
        self.ownership.gaps.clear()
        for row in self.left_open.clear():
            put("rebalance", row)

    # --- batches and gaps in the log ---

    def begin_batch(self, batch: int) -> None:
        """Begin a batch that has a record of this group.

        The gaps of members that departed in its previous batch are attributed to the last rebalance."""
        self.batch = batch
        self.size = len(self.present)
        if self.released:
            self._attribute_gaps()

    def reset(self, *, is_settled: bool, is_new: bool = False, epoch: int = NOT_KNOWN) -> None:
        """Restart from the group's current state, without history.

        `is_settled`: no rebalance was in progress. `epoch`: the epoch of a group whose coordinator assigns;
        changes until the next epoch are due to it and are not reported. `is_new`: the group has no past."""
        self.is_settled, self.is_first = is_settled, not is_new
        self.ownership.reset()
        self.held.clear()
        self.joined.clear()
        self.departed.clear()
        self.open = None
        if epoch >= 0:
            self.begin_unknown(epoch)

    def begin_unknown(self, epoch: int) -> None:
        """Begin a rebalance whose start is unknown; it yields no row."""
        self.joined.clear()
        self.departed.clear()
        self.open = OpenRebalance(
            self.group_type, epoch, epoch, UNKNOWN_DIAGNOSIS, NOT_KNOWN, NOT_KNOWN, None
        )
        self.open.is_reported = False
        self.last = RebalanceRef(epoch)

    def lose_history(self, put: Put) -> None:
        """Report the rebalance and the gaps in progress as missing and forget them, because records may be
        missing here."""
        rebalance, self.open = self.open, None
        if rebalance is not None and rebalance.is_reported:
            put(
                "rebalance",
                row_without_records(
                    self.log, self.group_id, rebalance, End(self._state_of(rebalance), None, 0), MISSING
                ),
            )
        for unit, gap in self.ownership.gaps.items():
            if gap.left_open_by < 0:
                row = self.ownership.gap_row(self.log, unit, gap, None, None)
                put("unavailability", (*row[:-1], MISSING))
        for row in self.left_open.clear(is_missing=True):
            put("rebalance", row)
        self.ownership.gaps.clear()
        self.released.clear()
        self.reset(is_settled=False)
        self.last, self.generation_ms = NO_REBALANCE, NOT_KNOWN

    # --- rebalances ---

    def emit_skipped(
        self,
        first: int,
        last: int,
        audit: Iterable[AuditRow],
        at: Position,
        put: Put,
    ) -> None:
        """Emit rows for the epochs from `first` to `last`, which left no records: one for each that the audit
        has, and one for each range in between."""
        for row in audit:
            if first < row["epoch"] <= last + 1:
                self._emit_missing(first, row["epoch"] - 1, UNKNOWN_DIAGNOSIS, at, put)
            self._emit_missing(row["epoch"], row["epoch"], observed(row), at, put, row)
            first = max(first, row["epoch"] + 1)
        if first <= last:
            self._emit_missing(first, last, UNKNOWN_DIAGNOSIS, at, put)

    def _emit_missing(
        self,
        first: int,
        last: int,
        diagnosis: Diagnosis,
        at: Position,
        put: Put,
        audit_row: AuditRow | None = None,
    ) -> None:
        known = first - 1 if first > 0 else NOT_KNOWN
        rebalance = OpenRebalance(self.group_type, known, last, diagnosis, at.offset, at.offset, None)
        end, evidence = End("Unknown", None, 0), MISSING
        if audit_row is not None:
            rebalance.group_type = audit_row["group_type"]
            rebalance.start_ms, rebalance.target_ms = (
                _none_if_unknown(audit_row["started_ms"]),
                _none_if_unknown(audit_row["joined_ms"]),
            )
            end_ms, count = (
                _none_if_unknown(audit_row["ended_ms"]),
                len(audit_row["members"]) + audit_row["members_left_out"],
            )
            end = End(audit_row["state"], end_ms, count)
            if audit_row["state"] == SUPERSEDED:  # No assignment was sent: no record of it is missing.
                end, evidence = end._replace(superseded_by=last + 1), diagnosis.evidence
        put("rebalance", row_without_records(self.log, self.group_id, rebalance, end, evidence))

    def begin(self, rebalance: OpenRebalance) -> None:
        """Begin a rebalance: changes since the last one belong to it."""
        rebalance.joined, rebalance.departed = self.joined, self.departed
        self.joined, self.departed = {}, {}
        self.set_silence(rebalance, self.held)
        self.held.clear()
        if not self.is_settled:
            rebalance.diagnosis = rebalance.diagnosis._replace(evidence=MISSING)
        self.epoch = rebalance.epoch
        self.open = rebalance
        self.last = RebalanceRef(
            rebalance.epoch,
            rebalance.base_offset,
            rebalance.diagnosis.kind,
            rebalance.diagnosis.evidence != MISSING,
        )
        self.size = len(self.present)
        self._attribute_gaps()

    def set_silence(self, rebalance: OpenRebalance, held: Iterable[Held]) -> None:
        """Set the bounds for the silence of departed members, which owned the units `held` until then."""
        departed = rebalance.departed
        rebalance.silence = silence_of(
            (each for each in held if each.tenure.identity.member_key in departed),
            rebalance.diagnosis,
            rebalance.start_ms,
            classic=rebalance.group_type == "classic",
        )

    def _attribute_gaps(self) -> None:
        """Attribute the gaps in units of members that departed in the batch to the last rebalance."""
        self.ownership.attribute_gaps((unit for unit, _ in self.released), self.last)
        self.released.clear()

    def supersede(
        self, epoch: int | None, unconverged: Iterable[MemberIdentity], state: str, at: Position, put: Put
    ) -> None:
        """End the rebalance in progress, because the next epoch came first or the group ended (`epoch` is
        None).

        `unconverged` are the members that had not reached their target, `state` is the rebalance's last
        state."""
        rebalance = self.open
        if rebalance is None:
            return
        back = [each for each in self.released if not self.ownership.has(*each)]
        for unit, tenure in back:
            self.ownership.gain(unit, tenure)
        if rebalance.unavailable_ms is not None:
            rebalance.unavailable_ms += open_gap_ms(self.ownership, rebalance.start_ms, at.ms)
        for identity in unconverged:
            rebalance.progress(identity)
        self.close(End(state, at.ms, self.size, superseded_by=epoch), at, put)
        for unit, tenure in back:
            self.ownership.lose(unit, tenure.identity)

    def close(
        self, end: End, at: Position, put: Put, evidence: str = OBSERVED, *, awaited: Container[Unit] = ()
    ) -> None:
        """End the rebalance in progress and emit its rows, if its start is known.

        `evidence` is that of its rows of `rebalance_member`; `awaited` are the units that the next rebalance
        is going to assign. If units of departed members remain without an owner, the row of `rebalance` is
        emitted later (`left_open`)."""
        rebalance, self.open = self.open, None
        if rebalance is not None:
            rebalance.last_offset = at.offset
            count = 0
            if end.state == "Stable":
                units = [unit for unit in self.ownership.gaps if unit not in awaited]
                count = self.ownership.leave_gaps_open(units, rebalance.epoch, self.present)
            if rebalance.is_reported:
                self.emit(rebalance, end, self._waiting(rebalance, count, put) if count else put, evidence)
                self.is_first = False
            self.ownership.reset()
            if end.state == "Stable":
                self.is_settled = True
            elif end.converged:
                self.ownership.detach_gaps()

    def _waiting(self, rebalance: OpenRebalance, gaps: int, put: Put) -> Put:
        """Return a `put` that lets the row of this rebalance wait for the gaps that it left open."""

        def put_or_wait(table: str, row: Row) -> None:
            if table == "rebalance":
                self.left_open.add(rebalance.epoch, row, rebalance.start_ms, gaps)
            else:
                put(table, row)

        return put_or_wait

    def emit(self, rebalance: OpenRebalance, end: End, put: Put, evidence: str = OBSERVED) -> None:
        """Emit the row of `rebalance` for a rebalance, and its rows of `rebalance_member`.

        `evidence` is that of the latter, unless the rebalance's own is missing."""
        counts = count_changes(self.ownership)
        if self.is_first and rebalance.group_type == "classic" and counts.added:
            rebalance.diagnosis = rebalance.diagnosis._replace(
                evidence=MISSING
            )  # An unknown member may have owned it before.
        if rebalance.diagnosis.evidence == MISSING:
            evidence = MISSING
        put(
            "rebalance",
            rebalance_row(self.log, self.group_id, rebalance, end, counts, rebalance.diagnosis.evidence),
        )
        for member_key in (
            counts.got.keys() | counts.lost.keys() | rebalance.joined.keys() | rebalance.departed.keys()
        ):
            identity = (
                self.present.get(member_key)
                or rebalance.departed.get(member_key)
                or self.departed.get(member_key)
            )
            if member_key not in rebalance.progress_by_member and identity is not None:
                rebalance.progress(identity)
        for member_key in sorted(rebalance.progress_by_member):
            role = "stayed"
            if member_key in rebalance.departed:
                role = "gone"
            elif member_key in rebalance.joined or member_key in self.joined:
                role = "joined"
            after = self.ownership.counts.get(member_key, 0)
            row = member_row(
                self.log,
                self.group_id,
                rebalance,
                rebalance.progress_by_member[member_key],
                counts,
                after,
                role,
                evidence,
            )
            put("rebalance_member", row)

    def _state_of(self, rebalance: OpenRebalance) -> str:
        return "Assigning" if rebalance.target_ms is None else "Reconciling"

    # --- the end of the log ---

    def finish(self, stretch: int, put: Put) -> None:
        """Emit the rows of what is open at the end of the log, without changing any state."""
        for row in self.left_open.rows():
            put("rebalance", row)
        rebalance = self.open
        if rebalance is not None and rebalance.is_reported:
            self.emit(
                replace(rebalance, unavailable_ms=None),
                End(self._state_of(rebalance), None, len(self.present)),
                put,
            )
        open_ = [(unit, self.ownership.owners[unit]) for unit in sorted(self.ownership.owners)]
        open_ += [(key[0], self.ownership.copies[key]) for key in sorted(self.ownership.copies)]
        for unit, tenure in open_:
            put("ownership", self.ownership.interval(self.log, unit, tenure, None, self.epoch, stretch))
        for unit in sorted(self.ownership.gaps):
            gap = self.ownership.gaps[unit]
            if gap.left_open_by < 0:
                put("unavailability", self.ownership.gap_row(self.log, unit, gap, None, None))


def _none_if_unknown(ms: int) -> int | None:
    return ms if ms >= 0 else None
