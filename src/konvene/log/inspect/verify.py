"""Verifies a log's files against each other, without changing them.

In a segment, each batch's checksum, counts, offsets and records must be valid. Offsets ascend from segment to
segment and leader epochs never descend, which no checksum protects. An index must never lead past the
requested offset, the epoch checkpoint must match each batch's epoch, and a snapshot must be complete.

Each finding has one of these kinds, which call for different actions of the operator:

`torn-tail`  the last bytes are no batch and no valid batch follows. A crash leaves this, and a broker
             truncates it at start; a broker that is writing has one for a moment.
`damage`     valid batches follow: acknowledged records are lost. Use another replica, or a backup.
`records`    the batch is as it was written, but its records cannot be read.
`order`      offsets descend, segments overlap, or the log ends before an offset that was durable.
`epochs`     leader epochs descend, or differ from the checkpoint.
`index`      a derived file disagrees with the log. A broker rebuilds it if it is deleted.
A `note` is no damage: compaction leaves gaps, and an active segment has no index yet.

Index files are read before the log, so that a broker that writes meanwhile causes no finding.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from konvene.codec.batches import BatchHeader, control_type, records
from konvene.codec.batches import ControlType as Control
from konvene.codec.errors import CodecError, Malformed, TooLarge
from konvene.log.cleaner.contract import CLEANED, DELETED, SWAP
from konvene.log.cleaner.recovery import segment_end
from konvene.log.disk.files import Disk
from konvene.log.epochs import FILE_NAME as EPOCHS_NAME
from konvene.log.epochs import LeaderEpochs
from konvene.log.errors import DamagedLog
from konvene.log.index import BadIndex, OffsetIndex, TimeIndex
from konvene.log.inspect.dump import CUT, Batch, Damage, Folder, base_offset_of, walk
from konvene.log.producers import AbortedTransaction, Producers, read_aborted

__all__ = ["Finding", "Verification", "verify"]

_LEFTOVERS = {
    DELETED: "deleted or compacted away: a broker that runs removes it in a minute",
    SWAP: "from a compaction that is about to take effect: a broker that starts finishes it",
    CLEANED: "from a compaction that runs, or was interrupted: a broker that starts removes it",
    CUT: "what a repair cut away: no broker reads it",
    ".tmp": "a file that is being written, or was when its writer ended",
}
"""Other files beside a log, by suffix."""

OnBytesRead = Callable[[int], None]


class Finding(NamedTuple):
    """Something that the verification found; a `note` is information, every other kind is damage."""

    kind: str
    path: str
    position: int | None
    """Position in the file; None for the whole file."""
    offset: int | None
    """Offset in the log, if known."""
    message: str

    @property
    def is_damage(self) -> bool:
        return self.kind != "note"

    def __str__(self) -> str:
        at = "" if self.position is None else f", byte {self.position}"
        offset = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.kind}: {self.path.rpartition('/')[2]}{at}{offset}: {self.message}"


class Verification(NamedTuple):
    """The result of verifying one partition: what was read, the range of offsets, and the findings."""

    folder: Folder
    segments: int
    batches: int
    records: int
    bytes: int
    first_offset: int | None
    """First record's offset; None in an empty log."""
    next_offset: int
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        return not any(finding.is_damage for finding in self.findings)


def verify(
    disk: Disk, folder: Folder, *, with_records: bool = True, durable: int | None = None,
    on_read: OnBytesRead = lambda _bytes: None,
) -> Verification:  # fmt: skip
    """Verify one partition (or the segments of it that `folder` names).

    With `with_records` the records of each batch are decoded too. `durable` is an offset that the log must
    reach (a recovery point); `on_read` is called with the size of each range that was read. Raises `OSError`
    if files cannot be read.
    """
    return _Verifying(disk, folder, with_records, on_read).run(durable)


class _Verifying:
    """A verification of one partition in progress, with its counts and findings so far."""

    def __init__(self, disk: Disk, folder: Folder, with_records: bool, on_read: OnBytesRead) -> None:
        self._disk = disk
        self._folder = folder
        self._with_records = with_records
        self._on_read = on_read
        self._findings: list[Finding] = []
        self._batches = self._records = self._bytes = 0
        self._first: int | None = None
        self._expected: int | None = None
        self._epoch = -1
        self._epochs: _Epochs | None = None
        self._open_end: int | None = None
        """Index of the torn-tail finding, which becomes damage if a valid batch follows."""

    def run(self, durable: int | None) -> Verification:
        self._read_epochs()
        for at, name in enumerate(self._folder.logs):
            self._segment(f"{self._folder.path}/{name}", base_offset_of(name), at)
        self._check_leftovers()
        end = self._expected or 0
        if durable is not None and end < durable:
            message = f"the log ends at offset {end}, but {durable} was durable"
            self._add("order", self._folder.path, None, end, message)
        return Verification(
            self._folder, len(self._folder.logs), self._batches, self._records, self._bytes, self._first, end,
            tuple(self._findings),
        )  # fmt: skip

    def _add(self, kind: str, path: str, position: int | None, offset: int | None, message: str) -> None:
        self._findings.append(Finding(kind, path, position, offset, message))

    # one segment -------------------------------------------------------------------------------

    def _segment(self, path: str, base_offset: int, at: int) -> None:
        self._follows(path, base_offset)
        indexes = [] if path.endswith(".checkpoint") else self._indexes(path, base_offset, at)
        size = self._disk.size(path)
        file = self._disk.open(path)
        seen = 0
        try:
            for part in walk(file, size, base_offset):
                if isinstance(part, Damage):
                    self._damage(path, part, size)
                    indexes = []
                    continue
                self._batch(path, part)
                for index in indexes:
                    index.check(part)
                self._on_read(part.position + part.header.size - seen)
                seen = part.position + part.header.size
        finally:
            file.close()
        self._on_read(size - seen)
        self._bytes += size
        for index in indexes:
            index.end(self._expected or base_offset)
            if index.fault is not None:
                position, message = index.fault
                self._add("index", index.path, position, None, message)

    def _follows(self, path: str, base_offset: int) -> None:
        expected = self._expected
        if expected is not None and base_offset < expected:
            self._add("order", path, 0, base_offset, f"the segment before it ends only at offset {expected}")
        elif expected is not None and base_offset > expected and self._open_end is None:
            message = f"nothing between offset {expected} and this segment: compacted, or a file is missing"
            self._add("note", path, 0, expected, message)
        self._expected = base_offset

    def _damage(self, path: str, part: Damage, size: int) -> None:
        if part.resumes_at is None:
            self._open_end = len(self._findings)
            message = f"{part.why} ({size - part.position} bytes to the end of the file)"
            self._add("torn-tail", path, part.position, part.offset, message)
        elif part.resumes_at == part.position:
            self._add("order", path, part.position, part.offset, part.why)
        else:
            message = f"{part.why}; a sound batch follows at byte {part.resumes_at}"
            self._add("damage", path, part.position, part.offset, message)

    def _batch(self, path: str, batch: Batch) -> None:
        header = batch.header
        if self._open_end is not None:
            torn = self._findings[self._open_end]
            message = f"{torn.message}; sound batches follow in {path.rpartition('/')[2]}"
            self._findings[self._open_end] = torn._replace(kind="damage", message=message)
            self._open_end = None
        self._batches += 1
        self._records += header.record_count
        if self._first is None:
            self._first = header.base_offset
        self._expected = header.next_offset
        self._check_epoch(path, batch.position, header)
        if self._with_records:
            try:
                records(batch.view, header)
            except TooLarge as error:
                self._add("note", path, batch.position, header.base_offset, f"records not read: {error}")
            except CodecError as error:
                self._add("records", path, batch.position, header.base_offset, str(error))

    # leader epochs -----------------------------------------------------------------------------

    def _read_epochs(self) -> None:
        path = f"{self._folder.path}/{EPOCHS_NAME}"
        if not self._disk.exists(path):
            return
        data = self._disk.read(path)
        if not data:
            return  # Kafka creates it empty and fills it later.
        try:
            starts = LeaderEpochs.decode(data).starts
        except Malformed as error:
            self._add("epochs", path, None, None, str(error))
            return
        for (epoch, offset), (later, begins) in pairwise(starts):
            if later <= epoch or begins <= offset:
                message = f"epoch {later} begins at {begins}, behind epoch {epoch} at {offset}"
                self._add("epochs", path, None, begins, message)
                return
        self._epochs = _Epochs(path, [offset for _, offset in starts], [epoch for epoch, _ in starts])

    def _check_epoch(self, path: str, position: int, header: BatchHeader) -> None:
        epoch, offset = header.partition_leader_epoch, header.base_offset
        if epoch < 0:
            return
        if epoch < self._epoch:
            message = f"leader epoch {epoch} behind epoch {self._epoch}"
            self._add("epochs", path, position, offset, message)
        self._epoch = max(epoch, self._epoch)
        known = self._epochs
        if known is None or not known.epochs or offset < known.offsets[0]:
            return
        expected_epoch = known.epochs[bisect_right(known.offsets, offset) - 1]
        if expected_epoch == epoch:
            return
        self._epochs = None  # Report only the first mismatch: the following ones have the same cause.
        message = f"{EPOCHS_NAME} expected_epoch epoch {expected_epoch}, the batch expected_epoch {epoch}"
        newer = epoch > known.epochs[-1]
        if newer:
            message += " (newer than the file: a broker that starts adds it)"
        self._add("note" if newer else "epochs", path, position, offset, message)

    # other files --------------------------------------------------------------------------

    def _indexes(self, path: str, base_offset: int, at: int) -> list[_IndexCheck]:
        """Return a check for each index file of segment number `at`; report those that cannot be decoded."""
        found: list[_IndexCheck] = []
        last = at == len(self._folder.logs) - 1
        stem = path.removesuffix(".log")
        for suffix, kind in _KINDS.items():
            if not self._disk.exists(stem + suffix):
                if suffix == ".index" and not last and len(self._folder.logs) > 1:
                    self._add("note", stem + suffix, None, None, "missing: a broker that starts makes it")
                continue
            try:
                found.append(kind(stem + suffix, base_offset, self._disk.read(stem + suffix)))
            except (BadIndex, CodecError) as error:
                self._add("index", stem + suffix, None, None, str(error))
        return found

    def _check_leftovers(self) -> None:
        if not self._disk.is_directory(self._folder.path):
            return
        names = self._disk.listdir(self._folder.path)
        for ending, message in _LEFTOVERS.items():
            left = [name for name in names if name.endswith(ending)]
            if left:
                more = f" (and {len(left) - 1} more of this kind)" if len(left) > 1 else ""
                self._add("note", f"{self._folder.path}/{left[0]}", None, None, message + more)
        for name in names:
            if name.endswith(".log" + SWAP) and name[:20].isdigit():
                path = f"{self._folder.path}/{name}"
                try:
                    segment_end(self._disk, path, base_offset_of(name))
                except DamagedLog as damage:
                    self._add("damage", path, damage.position, None, "not whole: no broker can finish it")
            if name.endswith(".snapshot") and name[:20].isdigit():
                path = f"{self._folder.path}/{name}"
                try:
                    Producers.restore(self._disk.read(path))
                except Malformed as error:
                    self._add("index", path, None, None, str(error))


class _Epochs(NamedTuple):
    """The rows of `leader-epoch-checkpoint`, as two ascending columns: epochs and their start offsets."""

    path: str
    offsets: list[int]
    epochs: list[int]


# index checks ------------------------------------------------------------------------------------


class _IndexCheck:
    """A check of an index against each batch of its segment, which keeps the first fault."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fault: tuple[int | None, str] | None = None

    def check(self, batch: Batch) -> None:
        raise NotImplementedError

    def end(self, next_offset: int) -> None:
        raise NotImplementedError

    def _report(self, position: int | None, message: str) -> None:
        if self.fault is None:
            self.fault = position, message


class _Offsets(_IndexCheck):
    """Checks that each entry of an offset index points to a batch that begins at or before its offset."""

    def __init__(self, path: str, base_offset: int, data: bytes) -> None:
        super().__init__(path)
        index = OffsetIndex.load(base_offset, data, 1 << 62)
        rows = struct.iter_unpack(">iI", index.data)
        # An entry of zeros is space taken in advance: the first batch of a file has no entry.
        self._entries = [(base_offset + relative, position) for relative, position in rows if position]
        self._next = 0

    def check(self, batch: Batch) -> None:
        while self._next < len(self._entries):
            offset, position = self._entries[self._next]
            if position > batch.position:
                return
            found = batch.header.base_offset if position == batch.position else None
            if found is None or offset < found:
                self._misplaced(found)
            self._next += 1

    def end(self, next_offset: int) -> None:
        if self._next < len(self._entries):
            self._misplaced(None)
        if self._entries and self._entries[-1][0] >= next_offset:
            message = f"offset {self._entries[-1][0]} is behind the segment's end {next_offset}"
            self._report(len(self._entries) * 8 - 8, message)

    def _misplaced(self, found: int | None) -> None:
        offset, position = self._entries[self._next]
        instead = "no batch begins" if found is None else f"offset {found} is"
        self._report(self._next * 8, f"the index has offset {offset} at byte {position}, where {instead}")


class _Times(_IndexCheck):
    """Checks the entries of a time index: each has the largest timestamp up to the batch of its offset.

    That batch must have this timestamp itself.
    """

    def __init__(self, path: str, base_offset: int, data: bytes) -> None:
        super().__init__(path)
        index = TimeIndex.load(base_offset, data)
        rows = struct.iter_unpack(">qi", index.data)
        self._entries = [(time, base_offset + relative) for time, relative in rows]
        self._next = 0
        self._largest = -1

    def check(self, batch: Batch) -> None:
        header = batch.header
        while self._next < len(self._entries) and self._entries[self._next][1] <= header.last_offset:
            time, offset = self._entries[self._next]
            if self._largest > time or header.max_timestamp != time:
                largest = max(self._largest, header.max_timestamp)
                self._report(
                    self._next * 12,
                    f"the index has {time} as maximum up to offset {offset}, which is {largest}",
                )
            self._next += 1
        self._largest = max(self._largest, header.max_timestamp)

    def end(self, next_offset: int) -> None:
        if self._next < len(self._entries):
            offset = self._entries[self._next][1]
            self._report(self._next * 12, f"offset {offset} is behind the segment's end {next_offset}")


class _Aborted(_IndexCheck):
    """Checks that each entry of a transaction index ends at a marker that aborts this producer's transaction.

    A marker that compaction has removed is no fault.
    """

    def __init__(self, path: str, _base_offset: int, data: bytes) -> None:
        super().__init__(path)
        self._entries: dict[int, list[tuple[int, AbortedTransaction]]] = {}
        for slot, aborted in enumerate(read_aborted(data)):
            if aborted.first_offset > aborted.last_offset:
                self._report(
                    slot * 34, f"a transaction from offset {aborted.first_offset} to {aborted.last_offset}"
                )
            self._entries.setdefault(aborted.last_offset, []).append((slot, aborted))
        self._last = max(self._entries, default=-1)

    def check(self, batch: Batch) -> None:
        header = batch.header
        for slot, aborted in self._entries.get(header.last_offset, ()):
            aborts = header.is_control and header.producer_id == aborted.producer_id
            try:
                aborts = aborts and control_type(records(batch.view, header)[0]) is Control.ABORT
            except (CodecError, IndexError):
                continue  # The invalid batch is reported itself.
            if not aborts:
                message = f"no marker at offset {aborted.last_offset} aborts producer {aborted.producer_id}"
                self._report(slot * 34, message)

    def end(self, next_offset: int) -> None:
        if self._last >= next_offset:
            self._report(None, f"offset {self._last} is behind the segment's end {next_offset}")


_KINDS: dict[str, Callable[[str, int, bytes], _IndexCheck]] = {
    ".index": _Offsets,
    ".timeindex": _Times,
    ".txnindex": _Aborted,
}
