"""Opens the log of one partition: loads its files, recovers it if needed, and returns a writable
`PartitionLog`.

The steps:

1. complete or undo an interrupted cleaning (`cleaner.recovery`), and delete leftovers of a deletion;
2. read the leader epochs;
3. find the log's end: from the last index after a clean shutdown, otherwise by reading every batch from the
   recovery point on, with checksums; truncate a torn tail;
4. rebuild the producers from the newest trusted snapshot and the batches after it.

Damage that truncation would hide is never repaired here, see `recovery`. Bytes read after a crash may exist
only in the page cache, so they are synced before they count as durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from konvene.codec.batches import NO_PRODUCER_ID, BatchHeader
from konvene.codec.errors import CodecError, Malformed
from konvene.log.cleaner.recovery import complete_swap, is_interrupted
from konvene.log.config import LogConfig
from konvene.log.disk.files import Disk
from konvene.log.epochs import FILE_NAME as EPOCHS_NAME
from konvene.log.epochs import LeaderEpochs
from konvene.log.errors import DamagedLog
from konvene.log.partition import Health, PartitionLog
from konvene.log.producers import AbortedTransaction, Producers, read_aborted
from konvene.log.recovery import OnBatch, RecoveryResult, ScanEnd, raise_unless_torn, scan
from konvene.log.segment import Segment
from konvene.log.summary import LogSummary, restore_log

_LEFTOVERS = frozenset({".deleted", ".cleaned", ".tmp"})
_BESIDE_A_LOG = frozenset({".index", ".timeindex", ".txnindex"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCheckpoints:
    """What the data directory recorded about one log when it was open before."""

    start_offset: int = 0
    recovery_point: int = 0
    """Everything below this offset was durable."""
    cleaned_to: int = 0
    """Cleaning may have left gaps below this offset."""
    settled: bool = False
    """Whether all bytes in the files are durable already, so that what is read needs no sync."""
    summary: LogSummary | None = None
    """Written by a clean shutdown; spares reading the indexes."""


NO_CHECKPOINTS: Final = LogCheckpoints()


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    clean: bool,
    now_ms: int,
    checkpoints: LogCheckpoints = NO_CHECKPOINTS,
    health: Health | None = None,
) -> tuple[PartitionLog, RecoveryResult]:
    """Open the log in `directory`, creating it if missing, and return it with the result of the recovery.

    `clean` means that the last process shut down cleanly: then only the last segment is searched for the
    log's end, or with a valid summary none. Otherwise every batch from the recovery point's segment on is
    read, with checksums. Gaps below the recovery point are no damage, because a cleaning may have left them.
    `checkpoints` is what the data directory stored about the log, and `health` the state that it shares with
    the directory's other logs. Raises `DamagedLog` if more than a torn tail would be lost and `LogOffline` if
    the disk fails.
    """
    log = PartitionLog(disk, directory, config, health or Health())
    try:
        found = Opening(log, checkpoints).open(clean, now_ms)
    except OSError as error:
        log.health.fail(f"cannot open {directory}", error)
    return log, found


class Opening:
    """The procedure that opens one log, with what it has found so far; `open_log` creates and runs it."""

    def __init__(self, log: PartitionLog, checkpoints: LogCheckpoints) -> None:
        self._log = log
        self._disk = log._disk
        self._directory = log.directory
        self._interval = log.config.index_interval_bytes
        self._start_offset = checkpoints.start_offset
        self._recovery_point = checkpoints.recovery_point
        self._cleaned_to = checkpoints.cleaned_to
        self._settled = checkpoints.settled
        self._summary = checkpoints.summary
        #: True if offsets are missing in the last segment that was read, as after a cleaning.
        self._has_gaps = False
        #: True if a batch of an idempotent producer was read, or may be among the batches that were not read.
        self._producers_wrote = True

    def open(self, clean: bool, now_ms: int) -> RecoveryResult:
        """Load the log's files and return the result of the recovery; see `open_log`."""
        log, start_offset, summary = self._log, self._start_offset, self._summary
        if clean and summary is not None and summary.end_offset >= self._recovery_point:
            if restore_log(log, summary, self._disk, start_offset):
                log._active = log.segments[-1]
                log.synced_offset = log.end_offset
                return RecoveryResult(clean)
            log.segments = []
        names = self._remove_leftovers()
        bases = sorted(int(name[:20]) for name in names if name.endswith(".log"))
        log.segments = [Segment.open(self._disk, self._directory, base, self._interval) for base in bases]
        self._read_epochs(names)
        self._link_segments(log.segments)
        recovered = RecoveryResult(clean)
        read_from = None
        if log.segments and not (clean and self._load_last_segment()):
            recovered, read_from = self._scan_from_recovery_point(clean)
        end = log.segments[-1].next_offset if log.segments else start_offset
        if end < self._recovery_point:
            why = f"the log ends at offset {end}, but {self._recovery_point} was durable"
            path = log.segments[-1].path if log.segments else self._directory
            raise DamagedLog(path, log.segments[-1].size if log.segments else 0, why)
        if end < start_offset:
            for segment in log.segments:
                segment.remove()
            log.segments, end = [], start_offset
        if not log.segments:
            fresh = Segment.create(self._disk, self._directory, start_offset, self._interval, now_ms)
            log.segments, log._directory_unsynced, end = [fresh], True, start_offset
        log._active = log.segments[-1]
        log.start_offset = max(start_offset, log.segments[0].base_offset)
        log.end_offset = log.synced_offset = end
        log.epochs.truncate_end(end)
        log.epochs.truncate_start(log.start_offset)
        self._rebuild_producers(names, end if read_from is None else read_from)
        return recovered

    def _remove_leftovers(self) -> list[str]:
        """Create the directory or delete leftovers in it; return the names of the remaining files.

        An index without its `.log` file is a leftover too. An interrupted cleaning is completed or undone
        first.
        """
        disk, directory = self._disk, self._directory
        try:
            names = disk.listdir(directory)
        except FileNotFoundError:
            disk.mkdir(directory)
            names = []
        if is_interrupted(names):
            self._cleaned_to = max(self._cleaned_to, complete_swap(disk, directory, names) or 0)
            names = disk.listdir(directory)
        kept = []
        logs = {name[:20] for name in names if name.endswith(".log")}
        for name in names:
            ending = name[name.rfind(".") :]
            if ending in _LEFTOVERS or (ending in _BESIDE_A_LOG and name[:20] not in logs):
                disk.remove(f"{directory}/{name}")
            else:
                kept.append(name)
        return kept

    # finding the end -------------------------------------------------------------------------

    def _load_last_segment(self) -> bool:
        """Find the end of the last segment from its indexes, after a clean shutdown.

        Returns False if they are missing or invalid: then the segment has to be read from its first batch.
        """
        last = self._log.segments[-1]
        if not last.load_indexes():
            return False
        start = last.offsets.batch_before(last.size)
        next_offset = last.base_offset
        try:
            for header, _ in last.scan(start):
                next_offset = header.next_offset
            if last.size:
                last.first_timestamp = next(last.scan(0))[0].max_timestamp
        except (DamagedLog, CodecError):
            return False
        last.next_offset = next_offset
        last._unindexed = last.size - start
        return True

    def _scan_from_recovery_point(self, clean: bool) -> tuple[RecoveryResult, int]:
        """Read all batches from the recovery point's segment on, and truncate a torn tail.

        With `clean` only the last segment is read: the shutdown was clean, but that segment's indexes are
        missing or invalid. Returns the result and the offset at which reading began.
        """
        log = self._log
        segments = log.segments
        point = segments[-1].base_offset if clean else self._recovery_point
        first = max((at for at, segment in enumerate(segments) if segment.base_offset <= point), default=0)
        expected = segments[first].base_offset
        scanned, cut, where = 0, 0, None
        self._producers_wrote = False
        for at in range(first, len(segments)):
            segment = segments[at]
            fault = None
            if at > first and (
                segment.base_offset < expected
                or (segment.base_offset > expected >= point and not self._is_cleaned_gap(expected))
            ):
                # The previous file ends too early or too late: the log ends there.
                at -= 1
                fault = f"{segment.path} begins where offset {expected} was due"
                segment = segments[at]
                end = ScanEnd(segment.size, expected, fault)
            else:
                size = segment.size
                segment.reset_indexes()
                self._has_gaps = not size
                end = scan(segment.file, size, segment.base_offset, self._index_batches_of(segment))
                scanned += end.position
                fault, expected = end.fault, end.next_offset
            if fault is not None:
                raise_unless_torn(segments, at, end, fault, in_order=log.config.sync_on_roll)
                cut = self._cut(segments, at, end.position)
                where = (expected, segment.path, fault)
                break
        if not self._settled or where is not None:
            for segment in segments[first:]:
                segment.file.sync()
            self._disk.sync_directory(self._directory)
        for segment in segments[first:-1]:
            segment.write_indexes()
        self._link_segments(segments[first:])
        found = RecoveryResult(False, scanned)
        if where is not None:
            offset, path, why = where
            found = found._replace(cut_bytes=cut, cut_at_offset=offset, cut_file=path, why=why)
        return found, segments[first].base_offset

    def _is_cleaned_gap(self, offset: int) -> bool:
        """Return True if the gap from `offset` to the next segment comes from a cleaning and not from a loss.

        Either the cleaner's checkpoint covers it, or the previous segment has gaps too: Kafka swaps segments
        before it writes the checkpoint.
        """
        return offset < self._cleaned_to or (self._has_gaps and self._log.config.compacts)

    @staticmethod
    def _link_segments(segments: list[Segment]) -> None:
        """Set each segment's `next_offset` to the base offset of the next segment.

        The last batch of a segment may end before that, because a cleaning has removed batches.
        """
        for segment, following in pairwise(segments):
            segment.next_offset = following.base_offset

    def _cut(self, segments: list[Segment], at: int, position: int) -> int:
        """Truncate segment `at` at `position` and delete the later segments, last first; return the number of
        removed bytes."""
        torn, size = segments[at], segments[at].file.size()
        cut = size - position
        for lost in reversed(segments[at + 1 :]):
            cut += lost.file.size()
            lost.remove()
        del segments[at + 1 :]
        self._disk.sync_directory(self._directory)
        if size > position:
            torn.file.truncate(position)
        return cut

    def _index_batches_of(self, segment: Segment) -> OnBatch:
        epochs = self._log.epochs

        def note(header: BatchHeader, _view: memoryview) -> None:
            if header.base_offset != segment.next_offset:
                self._has_gaps = True
            segment.note(header.last_offset, header.max_timestamp, header.size)
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id > NO_PRODUCER_ID:
                self._producers_wrote = True

        return note

    # epochs and producers --------------------------------------------------------------------

    def _read_epochs(self, names: list[str]) -> None:
        log = self._log
        if EPOCHS_NAME in names:
            try:
                log.epochs = LeaderEpochs.decode(self._disk.read(f"{self._directory}/{EPOCHS_NAME}"))
                return
            except Malformed:
                pass
        for segment in log.segments:
            try:
                for header, _ in segment.scan(0):
                    log.epochs.assign(header.partition_leader_epoch, header.base_offset)
            except (DamagedLog, CodecError):
                return  # what follows is read again, or refused, by the search for the end

    def _rebuild_producers(self, names: list[str], trusted: int) -> None:
        """Rebuild the producers from the newest snapshot up to offset `trusted` and the later batches.

        `names`: the files in the log's folder.
        """
        log = self._log
        begin, log.producers = self._restore(names, trusted)
        known = [entry for entry in self._aborted(names) if entry.last_offset < begin]
        if begin < log.end_offset and (self._producers_wrote or begin < trusted):
            for header, view in log.batches_from(max(begin, log.segments[0].base_offset, log.start_offset)):
                if header.producer_id > NO_PRODUCER_ID:
                    aborted = log._replay_producer(header, view)
                    if aborted is not None:
                        known.append(aborted)
        log.aborted = sorted(known, key=lambda entry: entry.last_offset)
        for segment in log.segments:
            segment.aborted = [
                entry
                for entry in log.aborted
                if segment.base_offset <= entry.last_offset < segment.next_offset
            ]

    def _restore(self, names: list[str], trusted: int) -> tuple[int, Producers]:
        """Return the newest valid snapshot at or below offset `trusted`, with its offset.

        Deletes the snapshots above `trusted`, except one at the log's end, and those at an offset where no
        segment begins. Without a valid snapshot, returns the log's first offset and no producers.
        """
        disk, directory, log = self._disk, self._directory, self._log
        bases = {segment.base_offset for segment in log.segments}
        snapshots = sorted((name for name in names if name.endswith(".snapshot")), reverse=True)
        found: tuple[int, Producers] | None = None
        for name in snapshots:
            offset = int(name[:20])
            if trusted < offset == log.end_offset:
                # Written when the log ended here; nothing was lost or appended since.
                log.snapshot_offset = offset
                continue
            if found is None and log.start_offset <= offset <= trusted:
                try:
                    found = offset, Producers.restore(disk.read(f"{directory}/{name}"))
                    if log.snapshot_offset is None:
                        log.snapshot_offset = offset
                    continue
                except Malformed:
                    pass
            if (offset not in bases or offset > trusted) and disk.exists(f"{directory}/{name}"):
                disk.remove(f"{directory}/{name}")
        return found or (log.segments[0].base_offset, Producers())

    def _aborted(self, names: list[str]) -> list[AbortedTransaction]:
        known: list[AbortedTransaction] = []
        for name in names:
            if name.endswith(".txnindex"):
                try:
                    known += read_aborted(self._disk.read(f"{self._directory}/{name}"))
                except (Malformed, FileNotFoundError):
                    continue  # a damaged index of an old segment: its readers see aborted records
        return known
