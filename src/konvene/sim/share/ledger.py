"""Ledger of deliveries: owner, delivery count and acknowledgement of each record of a share partition.

Each share partition has a ledger, which receives every decision of the active share partition and tracks each
offset on its own. Confirmed acknowledgements are kept over all restarts. A ledger checks:

    exclusive      no record is delivered while another member has it, or after its acknowledgement
    counted        each delivery counts one more than the one before, up to the limit
    owned          only the member that has a record may acknowledge it
    kept           a confirmed acknowledgement is in every state that is loaded later
    complete       the start offset passes only records that are done, given up, deleted or aborted
    altered        after an administrator altered the start offset, the next load begins there without any
                   in-flight state; only then, and only from there on, acknowledgements are dropped
    committed      a group with isolation level read_committed gets no aborted or undecided records
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

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
from konvene.sim.share.logs import MAX_BATCH_RECORDS, ReadLog
from konvene.sim.world.event import InvariantViolation

AVAILABLE, ACQUIRED, WRITING, DONE = "available", "acquired", "writing", "done"
"""States of a record; `WRITING` while its acknowledgement or release is being written."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = (int(kind) for kind in AcknowledgeType)
FINAL = (GAP, ACCEPT, REJECT)


class Entry:
    """State of one record in a ledger: its owner, delivery count, lock and pending acknowledgement."""

    __slots__ = ("ack_type", "count", "lock_end_ms", "lock_expired", "member_id", "state")

    def __init__(self, state: str = AVAILABLE, count: int = 0) -> None:
        self.state = state
        self.count = count
        self.member_id = ""
        self.lock_end_ms = -1
        """Time at which its lock expires; -1 without a lock."""
        self.ack_type = -1
        """Acknowledgement type that is being written; -1 if none is."""
        self.lock_expired = False
        """Whether its lock expired while that write is pending."""

    def __repr__(self) -> str:
        return f"<{self.state} {self.count} {self.member_id}>"


class DeliveryLedger:
    """The ledger of one share partition: the state of each record, and all confirmed acknowledgements.

    `on_violation` is called with each violation."""

    def __init__(
        self, key: SharePartitionKey, on_violation: Callable[[InvariantViolation], None], counts: Counter[str]
    ) -> None:
        self.key = key
        self.start = 0
        self.owner: object = None
        """The share partition that was loaded last; no other one may deliver records."""
        self.entries: dict[int, Entry] = {}
        self.confirmed: dict[int, int] = {}
        """Offsets whose final acknowledgement was confirmed, with its type."""
        self.terms = Terms()
        self.last_released = ""
        """The member whose records were released last. If that write fails it keeps them until their locks
        expire."""
        self.alteration: Initialize | None = None
        """The alteration by an administrator that was written since the last load."""
        self.log: ReadLog | None = None
        """The log of the partition, if it exists."""
        self._pending: dict[int, tuple[object, str, list[int]]] = {}
        """Pending writes by the id of their ticket: the ticket, the member, and the offsets."""
        self._delivery_limit = 0
        self._largest_batch = MAX_BATCH_RECORDS
        """Size of the largest batch; an acquired batch is not split for a later, smaller request."""
        self._on_violation = on_violation
        self._counts = counts

    def __repr__(self) -> str:
        return f"<DeliveryLedger {self.key}: start {self.start}, {len(self.confirmed)} acknowledged>"

    def _violate(self, invariant: str, why: str) -> None:
        self._on_violation(InvariantViolation(invariant, f"{self.key}: {why}"))

    def _entries_between(self, first: int, last: int) -> Iterator[tuple[int, Entry]]:
        for offset in range(first, last + 1):
            yield offset, self.entries.setdefault(offset, Entry())

    # --- decisions ---

    def loaded(self, owner: object, read: StateAnswer, start: int) -> None:
        """Record that the share partition `owner` loaded its state from `read`, with start offset `start`.

        It is a violation if a confirmed acknowledgement is not in that state."""
        self._apply_alteration(read)
        self.owner = owner
        self.entries, self._pending = {}, {}
        self.start = start
        self._largest_batch = max(
            [self._largest_batch, *(b.last_offset - b.first_offset + 1 for b in read.batches)]
        )
        for first, last, state, count in read.batches:
            done = state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED, RecordState.ARCHIVING)
            for offset in range(first, last + 1):
                self.entries[offset] = Entry(DONE if done else AVAILABLE, count)
        for offset, ack_type in self.confirmed.items():
            loaded = self.entries.get(offset)
            if offset >= start and (loaded is None or loaded.state != DONE):
                self._violate(
                    "AcknowledgementsAreKept", f"{offset} was confirmed as {ack_type}, but loaded as {loaded}"
                )
                return

    def _apply_alteration(self, read: StateAnswer) -> None:
        """If an administrator has altered the start offset since the last load, check that the loaded state
        begins there, and drop the confirmed acknowledgements from that offset on.

        Do nothing if there is no alteration, or if the state was read before it."""
        alteration = self.alteration
        if alteration is None or read.state_epoch < alteration.state_epoch:
            return
        self.alteration = None
        is_applied = read.start_offset == alteration.start_offset and not read.batches
        if read.state_epoch == alteration.state_epoch and not is_applied:
            self._violate("AlteredOffsetsAreApplied", f"altered by {alteration}, but loaded as {read}")
        self.confirmed = {
            offset: ack_type
            for offset, ack_type in self.confirmed.items()
            if offset < alteration.start_offset
        }
        self._counts["altered offsets"] += 1

    def acquired(
        self, owner: object, member: str, rows: Sequence[Acquired], *, now_ms: int, mode: AcquireMode,
        max_records: int, ends: tuple[int, int], cut_from: int = 0,
    ) -> None:  # fmt: skip
        """Record and check that the share partition `owner` let `member` acquire the ranges of records in
        `rows`.

        `max_records` is the number that it requested, which only the mode RECORD_LIMIT keeps exactly;
        otherwise whole batches may exceed it. `ends` are the start and end offset of the log. `cut_from` is
        the number of offsets in the fetched batches if aborted records were removed from them, else 0."""
        if owner is not self.owner and rows:
            self._violate("RecordsAreAcquiredOnce", f"{member} got {rows} from a replaced share partition")
        total = 0
        for first, last, count in rows:
            total += last - first + 1
            if first < self.start or last >= ends[1]:
                self._violate(
                    "RecordsAreAcquiredOnce", f"{member} got {first}-{last} of {self.start}-{ends[1]}"
                )
            # A lower limit applies to later deliveries only.
            self._delivery_limit = max(self._delivery_limit, self.terms.delivery_count_limit)
            if count > self._delivery_limit:
                self._violate(
                    "DeliveriesAreCounted",
                    f"{first}-{last}: delivery {count} of at most {self._delivery_limit}",
                )
            self._check_isolation(member, first, last)
            for offset, entry in self._entries_between(first, last):
                self._acquire(member, offset, entry, count)
                entry.lock_end_ms = now_ms + self.terms.lock_ms
        if mode is AcquireMode.RECORD_LIMIT and total > max_records:
            self._violate("InFlightIsBounded", f"{member} requested {max_records} records and got {total}")
        self._largest_batch = max(
            [self._largest_batch, cut_from, *(last - first + 1 for first, last, _ in rows)]
        )
        if total >= max_records + self._largest_batch + MAX_BATCH_RECORDS:
            self._violate("InFlightIsBounded", f"{member} requested {max_records} records and got {total}")
        acquired = sum(entry.state == ACQUIRED for entry in self.entries.values()) if total else 0
        if acquired >= self.terms.max_record_locks + self._largest_batch:
            self._violate("InFlightIsBounded", f"{acquired} records are acquired")
        self._counts["acquired"] += total

    def _check_isolation(self, member: str, first: int, last: int) -> None:
        """TX4: if the group reads committed records only (isolation level read_committed), check that
        `member` acquired no offset from `first` to `last` of a transaction that is aborted or undecided."""
        log = self.log
        if log is None or not self.terms.read_committed:
            return
        if last >= log.last_stable_offset(log.end_offset):
            self._violate(
                "AbortedRecordsAreNotDelivered", f"{member} got {first}-{last} of {log!r}, which is undecided"
            )
        for offset in range(first, last + 1):
            if offset in log.aborted_offsets:
                self._violate("AbortedRecordsAreNotDelivered", f"{member} got the aborted record {offset}")
                return

    def _acquire(self, member: str, offset: int, entry: Entry, count: int) -> None:
        if offset in self.confirmed:
            ack_type = self.confirmed[offset]
            self._violate(
                "AcknowledgementsAreKept", f"{member} got {offset}, which was confirmed as {ack_type}"
            )
        if entry.state != AVAILABLE:
            self._violate("RecordsAreAcquiredOnce", f"{member} got {offset}, which is {entry!r}")
        if count != entry.count + 1:
            self._violate("DeliveriesAreCounted", f"{offset} has delivery count {count} after {entry!r}")
        entry.state, entry.member_id, entry.count = ACQUIRED, member, count

    def acknowledged(
        self, owner: object, member: str, acks: Iterable[Acknowledged], change: Change | None, now_ms: int
    ) -> None:
        """Record that the share partition `owner` accepted an acknowledgement of a member.

        `change` is the state to be written for it; None if the member only renews locks. It is a violation
        unless the member has acquired every acknowledged record."""
        if owner is not self.owner:
            self._violate("OnlyOwnersAcknowledge", f"a replaced share partition accepted one of {member}")
            return
        offsets: list[int] = []
        for offset, ack_type in each_offset(acks):
            if offset < self.start:
                continue
            entry = self.entries.get(offset, Entry())
            if entry.state != ACQUIRED or entry.member_id != member:
                why = f"{member} acknowledged {offset} as {ack_type}, which is {entry!r}"
                self._violate("OnlyOwnersAcknowledge", why)
            elif ack_type == RENEW:
                entry.lock_end_ms = now_ms + self.terms.lock_ms
            else:
                entry.state, entry.ack_type = WRITING, ack_type
                offsets.append(offset)
        self._record_write(change, member, offsets)

    def acknowledgement_rejected(
        self, member: str, acks: Iterable[Acknowledged], error: DeliveryError
    ) -> None:
        """Check the rejection of an acknowledgement: with INVALID_RECORD_STATE it is a violation if the
        member has acquired all of its records."""
        if error.error is Errors.INVALID_RECORD_STATE and self.terms.renew:
            for offset, _ in each_offset(acks):
                entry = self.entries.get(offset)
                if (
                    offset < self.start
                    or entry is None
                    or entry.state != ACQUIRED
                    or entry.member_id != member
                ):
                    return
            self._violate(
                "OnlyOwnersAcknowledge",
                f"{member} acquired all records that it acknowledged, but was rejected: {error}",
            )

    def released(self, member: str, change: Change | None) -> None:
        """Record that the share partition releases all records that a member has acquired, because the member
        has left or its session has ended; `change` is the state to be written for that, if any."""
        self.last_released = member
        offsets = [o for o, e in self.entries.items() if e.state == ACQUIRED and e.member_id == member]
        for offset in offsets:
            self.entries[offset].state, self.entries[offset].ack_type = WRITING, RELEASE
        self._record_write(change, member, offsets)

    def expired(self, now_ms: int) -> None:
        """Expire all locks that end by `now_ms`: their records become available again.

        A record whose acknowledgement is being written becomes available only if that write fails."""
        for entry in self.entries.values():
            if 0 <= entry.lock_end_ms <= now_ms and entry.state in (ACQUIRED, WRITING):
                if entry.state == ACQUIRED:
                    self._free(entry)
                else:
                    entry.lock_expired = True

    def overdue_lock(self, now_ms: int) -> int | None:
        """Return the offset of a record that is still acquired although its lock expired before `now_ms`;
        None if there is none."""
        for offset, entry in self.entries.items():
            if entry.state == ACQUIRED and entry.lock_end_ms < now_ms:
                return offset
        return None

    def difference(self, rows: Iterable[InFlight]) -> str | None:
        """Compare the acquired records in `rows` with this ledger; return the first difference of their
        owners as text, or None if there is none."""
        for row in rows:
            if row.state is not RecordState.ACQUIRED:
                continue
            for offset in range(row.first_offset, row.last_offset + 1):
                entry = self.entries.get(offset)
                if entry is None or entry.state != ACQUIRED or entry.member_id != row.member_id:
                    return f"{offset} is acquired by {row.member_id}, in the ledger {entry!r}"
        return None

    def first_offset_of(self, member: str) -> int | None:
        """Return the offset of one of the records that a member has acquired; None if it has none."""
        for offset, entry in self.entries.items():
            if entry.state == ACQUIRED and entry.member_id == member:
                return offset
        return None

    def _record_write(self, change: Change | None, member: str, offsets: list[int]) -> None:
        if change is not None:
            self._pending[id(change.ticket)] = (change.ticket, member, offsets)
        elif offsets:
            self._violate(
                "AcknowledgementsAreKept", f"no write for {offsets[:5]}, acknowledged or released by {member}"
            )

    def finished(self, change: Change, error: Errors) -> None:
        """Record the result of writing `change`: if it was written, its records are done or released;
        otherwise they are acquired again, or available if their lock has expired."""
        _, member, offsets = self._pending.pop(id(change.ticket), (None, "", []))
        for offset in offsets:
            entry = self.entries.get(offset)
            if entry is None or entry.state != WRITING:
                continue
            if not error:
                self._complete(entry)
            elif entry.lock_expired:
                self._free(entry)
            else:
                entry.state, entry.member_id, entry.ack_type = ACQUIRED, member, -1
            entry.lock_expired = False

    def _complete(self, entry: Entry) -> None:
        if entry.ack_type == RELEASE:
            self._free(entry)
        else:
            entry.state, entry.member_id, entry.lock_end_ms = DONE, "", -1

    def _free(self, entry: Entry) -> None:
        """Make a record available again; if its delivery count is at the limit it is done."""
        given_up = entry.count >= self.terms.delivery_count_limit
        entry.state, entry.member_id, entry.lock_end_ms, entry.ack_type = (
            DONE if given_up else AVAILABLE,
            "",
            -1,
            -1,
        )

    # --- responses ---

    def confirm(self, member: str, acks: Iterable[Acknowledged], start: int, error: Errors) -> None:
        """Record that a member received the response to an acknowledgement.

        Without `error` its accepted and rejected records from `start` on are confirmed: every state that is
        loaded later must have them. `start` is the start offset at the time of the decision, which ignores
        offsets below it."""
        if error:
            return
        for offset, ack_type in each_offset(acks):
            if ack_type in FINAL and offset >= start:
                if offset in self.confirmed:
                    self._violate("AcknowledgementsAreKept", f"{offset} is confirmed twice, now to {member}")
                self.confirmed[offset] = ack_type
                self._counts[f"acknowledged {AcknowledgeType(ack_type).name}"] += 1

    # --- start offset ---

    def start_moved(self, start: int, log_start: int) -> None:
        """Record that the start offset of the share partition moved to `start`.

        It is a violation if it passes a record that is not done, aborted or below `log_start`."""
        if start < self.start:
            self._violate("StartOffsetsNeverRegress", f"from {self.start} to {start}")
        for offset in range(self.start, start):
            entry = self.entries.pop(offset, None)
            if self._is_aborted(offset):
                self._counts["aborted"] += 1
            elif offset >= log_start and (entry is None or entry.state != DONE):
                self._violate(
                    "NoRecordIsLost", f"the start offset moved to {start}, but {offset} is {entry!r}"
                )
        self.start = start

    def _is_aborted(self, offset: int) -> bool:
        log = self.log
        return log is not None and self.terms.read_committed and offset in log.aborted_offsets


def each_offset(acks: Iterable[Acknowledged]) -> Iterator[tuple[int, int]]:
    """Yield (offset, acknowledgement type) for each offset in the ranges of `acks`."""
    for first, last, types in acks:
        for index, offset in enumerate(range(first, last + 1)):
            yield offset, types[0] if len(types) == 1 else types[index]
