"""The books of deliveries: who has which record, what was said of it, and what was answered.

There is a book for each share partition. It is told every decision of the share partition that serves, and
knows each offset by itself: nothing of it is taken from the one that decides. What was answered it keeps
beyond every restart.

    held        nobody gets what another one has, and nobody gets what was acknowledged
    counted     each delivery counts one more than the one before, and there are not more than may be
    refused     who has a record may say what became of it, and nobody else
    kept        what was acknowledged and answered is so in whatever is loaded later
    moved on    the start passes over nothing but what is done, given up, gone from the log, or aborted
    altered     whoever is loaded first after an administrator altered the offset begins there, knows of
                nothing, and gives out again what is behind it: of that alone, and only then, nothing is kept
    committed   a group that reads what is committed gets nothing that was aborted, or is not decided yet
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from konvene.delivery.contract import (
    Acknowledged,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    Change,
    DeliveryError,
    InFlight,
    RecordState,
    Terms,
)
from konvene.errors import Errors
from konvene.share_state.requests import Initialize, SharePartitionKey, StateAnswer
from konvene.sim.share.logs import MOST_IN_A_BATCH, ReadLog
from konvene.sim.world.event import InvariantViolation

FREE, HELD, SAID, DONE = "free", "held", "said", "done"
GAP, ACCEPT, RELEASE, REJECT, RENEW = (int(kind) for kind in AcknowledgeType)
FINAL = (GAP, ACCEPT, REJECT)


class Entry:
    """What is known of an offset."""

    __slots__ = ("count", "end_ms", "holder", "lapsed", "said", "state")

    def __init__(self, state: str = FREE, count: int = 0) -> None:
        self.state = state
        self.count = count
        self.holder = ""
        self.end_ms = -1
        """When its lock ends."""
        self.said = -1
        """What is being written of it."""
        self.lapsed = False
        """Whether its lock ended while that is being written."""

    def __repr__(self) -> str:
        return f"<{self.state} {self.count} {self.holder}>"


class Book:
    """One share partition. See the top of this file."""

    def __init__(
        self, key: SharePartitionKey, broken: Callable[[InvariantViolation], None], counts: Counter[str]
    ) -> None:
        self.key = key
        self.start = 0
        self.owner: object = None
        """The share partition that was loaded last: nobody else may give out anything."""
        self.entries: dict[int, Entry] = {}
        self.answered: dict[int, int] = {}
        """Offsets that were acknowledged for good and answered so, and how."""
        self.terms = Terms()
        self.released_last = ""
        """Whose records were taken back last. Where that cannot be written they are the member's, until their
        locks end."""
        self.altered: Initialize | None = None
        """What an administrator had written, and nobody was loaded since."""
        self.log: ReadLog | None = None
        """What is read, if it is known."""
        self._pending: dict[int, tuple[Any, str, list[int]]] = {}
        """By the ticket of a change: the ticket, whose records it is about, and which."""
        self._most = 0
        self._largest = MOST_IN_A_BATCH
        """What was acquired as one stays one, whoever asks for less later."""
        self._broken = broken
        self._counts = counts

    def __repr__(self) -> str:
        return f"<book of {self.key}: from {self.start}, {len(self.answered)} acknowledged>"

    def _wrong(self, invariant: str, why: str) -> None:
        self._broken(InvariantViolation(invariant, f"{self.key}: {why}"))

    def _between(self, first: int, last: int) -> Iterator[tuple[int, Entry]]:
        for offset in range(first, last + 1):
            yield offset, self.entries.setdefault(offset, Entry())

    # --- what is decided ---

    def loaded(self, owner: object, read: StateAnswer, start: int) -> None:
        """It begins anew with what was written: nobody has anything."""
        self._begins_elsewhere(read)
        self.owner = owner
        self.entries, self._pending = {}, {}
        self.start = start
        self._largest = max([self._largest, *(b.last_offset - b.first_offset + 1 for b in read.batches)])
        for first, last, state, count in read.batches:
            done = state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED, RecordState.ARCHIVING)
            for offset in range(first, last + 1):
                self.entries[offset] = Entry(DONE if done else FREE, count)
        for offset, said in self.answered.items():
            known = self.entries.get(offset)
            if offset >= start and (known is None or known.state != DONE):
                self._wrong("AcknowledgedStays", f"{offset} was answered {said}, and is loaded as {known}")
                return

    def _begins_elsewhere(self, read: StateAnswer) -> None:
        """By what an administrator had written. Who read it before serves for a moment only."""
        wanted = self.altered
        if wanted is None or read.state_epoch < wanted.state_epoch:
            return
        self.altered = None
        as_wanted = read.start_offset == wanted.start_offset and not read.batches
        if read.state_epoch == wanted.state_epoch and not as_wanted:
            self._wrong("AlteredOffsetsHold", f"it was altered by {wanted}, and is loaded as {read}")
        self.answered = {o: said for o, said in self.answered.items() if o < wanted.start_offset}
        self._counts["altered offsets"] += 1

    def acquired(
        self, owner: object, member: str, got: Sequence[Acquired], *, now_ms: int, mode: AcquireMode,
        max_records: int, ends: tuple[int, int], cut_from: int = 0,
    ) -> None:  # fmt: skip
        """A member was given these; the log has what lies between the ends. `cut_from`: as one of how many
        they are known, where what was aborted was taken out."""
        if owner is not self.owner and got:
            self._wrong("RecordsAreHeldOnce", f"{member} got {got} of one that was replaced")
        total = 0
        for first, last, count in got:
            total += last - first + 1
            if first < self.start or last >= ends[1]:
                self._wrong("RecordsAreHeldOnce", f"{member} got {first}-{last} of {self.start}-{ends[1]}")
            self._most = max(
                self._most, self.terms.delivery_count_limit
            )  # A lower one is for what is to come.
            if count > self._most:
                self._wrong("DeliveriesAreCounted", f"{first}-{last} is delivered for the {count}. time")
            self._may_be_read(member, first, last)
            for offset, entry in self._between(first, last):
                self._acquire(member, offset, entry, count)
                entry.end_ms = now_ms + self.terms.lock_ms
        if mode is AcquireMode.RECORD_LIMIT and total > max_records:
            self._wrong("InFlightIsBounded", f"{member} asked for {max_records} and got {total}")
        self._largest = max([self._largest, cut_from, *(last - first + 1 for first, last, _ in got)])
        if total >= max_records + self._largest + MOST_IN_A_BATCH:
            self._wrong("InFlightIsBounded", f"{member} asked for {max_records} and got {total}")
        held = sum(entry.state == HELD for entry in self.entries.values()) if total else 0
        if held >= self.terms.max_record_locks + self._largest:
            self._wrong("InFlightIsBounded", f"{held} records are held")
        self._counts["acquired"] += total

    def _may_be_read(self, member: str, first: int, last: int) -> None:
        """TX4, for share groups."""
        log = self.log
        if log is None or not self.terms.read_committed:
            return
        if last >= log.last_stable_offset(log.end_offset):
            self._wrong("AbortedIsForNobody", f"{member} got {first}-{last} of {log!r}, which is not decided")
        for offset in range(first, last + 1):
            if offset in log.aborted_offsets:
                self._wrong("AbortedIsForNobody", f"{member} got {offset}, which was aborted")
                return

    def _acquire(self, member: str, offset: int, entry: Entry, count: int) -> None:
        if offset in self.answered:
            said = self.answered[offset]
            self._wrong("AcknowledgedStays", f"{member} gets {offset}, which was answered {said}")
        if entry.state != FREE:
            self._wrong("RecordsAreHeldOnce", f"{member} gets {offset}, which is {entry!r}")
        if count != entry.count + 1:
            self._wrong("DeliveriesAreCounted", f"{offset} has count {count}, and was {entry!r}")
        entry.state, entry.holder, entry.count = HELD, member, count

    def acknowledged(
        self, owner: object, member: str, acks: Iterable[Acknowledged], change: Change | None, now_ms: int
    ) -> None:
        """A member said what became of records, and it holds as far as anybody knows."""
        if owner is not self.owner:
            self._wrong("OnlyHoldersAcknowledge", f"{member} was taken at its word by one that was replaced")
            return
        touched: list[int] = []
        for offset, said in each(acks):
            if offset < self.start:
                continue
            entry = self.entries.get(offset, Entry())
            if entry.state != HELD or entry.holder != member:
                why = f"{member} says {said} of {offset}, which is {entry!r}"
                self._wrong("OnlyHoldersAcknowledge", why)
            elif said == RENEW:
                entry.end_ms = now_ms + self.terms.lock_ms
            else:
                entry.state, entry.said = SAID, said
                touched.append(offset)
        self._note(change, member, touched)

    def refused(self, member: str, acks: Iterable[Acknowledged], error: DeliveryError) -> None:
        """Nothing of it holds. There has to be a reason."""
        if error.error is Errors.INVALID_RECORD_STATE and self.terms.renew:
            for offset, _ in each(acks):
                entry = self.entries.get(offset)
                if offset < self.start or entry is None or entry.state != HELD or entry.holder != member:
                    return
            self._wrong("OnlyHoldersAcknowledge", f"{member} has all it spoke of, and is refused: {error}")

    def released(self, member: str, change: Change | None) -> None:
        """All that a member has is taken back."""
        self.released_last = member
        touched = [o for o, e in self.entries.items() if e.state == HELD and e.holder == member]
        for offset in touched:
            self.entries[offset].state, self.entries[offset].said = SAID, RELEASE
        self._note(change, member, touched)

    def expired(self, now_ms: int) -> None:
        """Locks end, whatever is being written."""
        for entry in self.entries.values():
            if 0 <= entry.end_ms <= now_ms and entry.state in (HELD, SAID):
                if entry.state == HELD:
                    self._free(entry)
                else:
                    entry.lapsed = True

    def late(self, now_ms: int) -> int | None:
        """The first offset whose lock is over for some time, and that is held all the same."""
        for offset, entry in self.entries.items():
            if entry.state == HELD and entry.end_ms < now_ms:
                return offset
        return None

    def differs(self, rows: Iterable[InFlight]) -> str | None:
        """Where somebody has what, by the books, another one has, or nobody."""
        for row in rows:
            if row.state is not RecordState.ACQUIRED:
                continue
            for offset in range(row.first_offset, row.last_offset + 1):
                entry = self.entries.get(offset)
                if entry is None or entry.state != HELD or entry.holder != row.member_id:
                    return f"{offset} is {row.member_id}'s, by the books {entry!r}"
        return None

    def held_by(self, member: str) -> int | None:
        """The first offset that a member has."""
        for offset, entry in self.entries.items():
            if entry.state == HELD and entry.holder == member:
                return offset
        return None

    def _note(self, change: Change | None, member: str, touched: list[int]) -> None:
        if change is not None:
            self._pending[id(change.ticket)] = (change.ticket, member, touched)
        elif touched:
            self._wrong("AcknowledgedStays", f"nothing is written of {touched[:5]}, of which {member} spoke")

    def finished(self, change: Change, error: Errors) -> None:
        """What was decided is written, or is not."""
        _, member, touched = self._pending.pop(id(change.ticket), (None, "", []))
        for offset in touched:
            entry = self.entries.get(offset)
            if entry is None or entry.state != SAID:
                continue
            if not error:
                self._take_effect(entry)
            elif entry.lapsed:
                self._free(entry)
            else:
                entry.state, entry.holder, entry.said = HELD, member, -1
            entry.lapsed = False

    def _take_effect(self, entry: Entry) -> None:
        if entry.said == RELEASE:
            self._free(entry)
        else:
            entry.state, entry.holder, entry.end_ms = DONE, "", -1

    def _free(self, entry: Entry) -> None:
        """Available again, unless it was delivered too often."""
        given_up = entry.count >= self.terms.delivery_count_limit
        entry.state, entry.holder, entry.end_ms, entry.said = DONE if given_up else FREE, "", -1, -1

    # --- what is answered ---

    def told(self, member: str, acks: Iterable[Acknowledged], start: int, error: Errors) -> None:
        """A member hears what came of its acknowledgement, of which `start` was the start."""
        if error:
            return
        for offset, said in each(acks):
            if said in FINAL and offset >= start:
                if offset in self.answered:
                    self._wrong("AcknowledgedStays", f"{offset} is acknowledged twice, now by {member}")
                self.answered[offset] = said
                self._counts[f"answered {AcknowledgeType(said).name}"] += 1

    # --- where it is ---

    def moved(self, start: int, log_start: int) -> None:
        """The share partition begins there now."""
        if start < self.start:
            self._wrong("TheStartNeverGoesBack", f"from {self.start} to {start}")
        for offset in range(self.start, start):
            entry = self.entries.pop(offset, None)
            if self._is_for_nobody(offset):
                self._counts["aborted"] += 1
            elif offset >= log_start and (entry is None or entry.state != DONE):
                self._wrong("NothingIsLost", f"the start moved to {start}, and {offset} is {entry!r}")
        self.start = start

    def _is_for_nobody(self, offset: int) -> bool:
        log = self.log
        return log is not None and self.terms.read_committed and offset in log.aborted_offsets


def each(acks: Iterable[Acknowledged]) -> Iterator[tuple[int, int]]:
    """Offset by offset what is said of it."""
    for first, last, types in acks:
        for at, offset in enumerate(range(first, last + 1)):
            yield offset, types[0] if len(types) == 1 else types[at]
