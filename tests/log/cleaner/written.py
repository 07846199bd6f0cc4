"""A log written batch by batch, without a broker: what a cleaning of it reads, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from konvene.codec import batches
from konvene.codec.batches import BatchHeader, Record
from konvene.codec.compression import Compression
from konvene.log.cleaner.cleaning import SUFFIXES, clean
from konvene.log.cleaner.contract import (
    CLEANED,
    CleanedSegment,
    CleanerProgress,
    CleanerStats,
    CleaningTask,
    LastProducerRecord,
    SourceSegment,
)
from konvene.log.disk.files import Disk
from konvene.log.disk.memory import MemoryDisk
from konvene.log.producers import AbortedTransaction, read_aborted, write_aborted
from konvene.log.segment import segment_name

HOME = "/log"
NOW = 1_000_000_000_000
DAY = 24 * 3600 * 1000


@dataclass
class Segment:
    """One file as it is going to be read."""

    base_offset: int
    data: bytearray = field(default_factory=bytearray)
    next_offset: int = 0
    aborted: list[AbortedTransaction] = field(default_factory=list)
    modified_ms: int = NOW
    indexes: tuple[bytes, bytes] | None = None
    """Of a cleaned one: by offset and by time."""


class Log:
    """Batches in segments; `clean` replaces them as the broker would."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.disk.mkdir(HOME)
        self.segments = [Segment(0)]
        self.next_offset = 0
        self.clock = NOW
        self.first_dirty = 0
        self.high_watermark: int | None = None
        self.last: dict[int, LastProducerRecord] = {}
        self._open: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    def put(self, *pairs: tuple[str | None, str | None], compression: int = 0, **more: int | bool) -> int:
        """A batch of these keys and values; its first offset."""
        records = [
            Record(self.next_offset + at, self.clock, _bytes(key), _bytes(value))
            for at, (key, value) in enumerate(pairs)
        ]
        return self.put_records(records, compression=compression, **more)

    def put_records(
        self, records: list[Record], *, compression: int = 0, producer: int = -1, transactional: bool = False
    ) -> int:
        sequence = -1
        if producer >= 0:
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + len(records)
            self.last[producer] = LastProducerRecord(records[-1].offset, 0)
        if transactional:
            self._open.setdefault(producer, self.next_offset)
        return self.add(
            batches.build(
                records,
                compression=Compression(compression),
                leader_epoch=0,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    def end(self, producer: int, committed: bool) -> int:
        """The marker of a transaction."""
        start = self._open.pop(producer, None)
        at = self.next_offset
        if start is not None and not committed:
            stable = min(self._open.values(), default=at + 1)
            self.segments[-1].aborted.append(AbortedTransaction(producer, start, at, stable))
        marker = batches.end_marker(
            committed,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self.clock,
            base_offset=at,
            leader_epoch=0,
        )
        return self.add(marker)

    def add(self, batch: bytes) -> int:
        """Append a batch without validation."""
        header = batches.read_header(batch)
        segment = self.segments[-1]
        segment.data += batch
        self.next_offset = segment.next_offset = header.next_offset
        segment.modified_ms = self.clock
        return header.base_offset

    def roll(self) -> None:
        """What follows goes into another segment."""
        self.segments.append(Segment(self.next_offset, next_offset=self.next_offset))

    @property
    def stable_offset(self) -> int:
        return min(self._open.values(), default=self.next_offset)

    def task(self, **changes: object) -> CleaningTask:
        """All but the last segment, up to the first open transaction."""
        self._write()
        first_uncleanable = max(self.first_dirty, min(self.stable_offset, self.segments[-1].base_offset))
        sources = []
        for at, segment in enumerate(self.segments[:-1]):
            if segment.base_offset < first_uncleanable:
                path = f"{HOME}/{segment_name(segment.base_offset, '.log')}"
                following = self.segments[at + 1].base_offset
                sources.append(
                    SourceSegment(
                        segment.base_offset, following, path, len(segment.data), 0, 0, segment.modified_ms
                    )
                )
        task = CleaningTask(
            HOME,
            tuple(sources),
            self.first_dirty,
            first_uncleanable,
            self.next_offset if self.high_watermark is None else self.high_watermark,
            tuple(transaction for segment in self.segments for transaction in segment.aborted),
            self.last,
            self.clock,
            1 << 30,
            10 << 20,
            4096,
            1 << 20,
            DAY,
            64 << 20,
        )
        return replace(task, **changes)  # type: ignore[arg-type]

    def clean(self, **changes: object) -> CleanerStats:
        """Clean, and put the result in place."""
        return self.clean_task(self.task(**changes))

    def clean_task(self, task: CleaningTask) -> CleanerStats:
        cleaning = clean(self.disk, task)
        while True:
            try:
                result = next(cleaning)
            except StopIteration as done:
                stats: CleanerStats = done.value
                self.first_dirty = stats.end_offset
                return stats
            if isinstance(result, CleanedSegment):
                self._swap(result)

    def _swap(self, group: CleanedSegment) -> None:
        prefix = f"{HOME}/{segment_name(group.base_offset, '')}"
        data = self.disk.read(f"{prefix}.log{CLEANED}")
        assert len(data) == group.size
        aborted = []
        if self.disk.exists(f"{prefix}.txnindex{CLEANED}"):
            aborted = read_aborted(self.disk.read(f"{prefix}.txnindex{CLEANED}"))
        indexes = (
            self.disk.read(f"{prefix}.index{CLEANED}"),
            self.disk.read(f"{prefix}.timeindex{CLEANED}"),
        )
        for suffix in SUFFIXES:
            if self.disk.exists(prefix + suffix + CLEANED):
                self.disk.remove(prefix + suffix + CLEANED)
        fresh = Segment(
            group.base_offset, bytearray(data), group.next_offset, aborted, group.modified_ms, indexes
        )
        at = [segment.base_offset for segment in self.segments].index(group.base_offset)
        assert tuple(s.base_offset for s in self.segments[at : at + len(group.replaces)]) == group.replaces
        self.segments[at : at + len(group.replaces)] = [fresh]

    def _write(self) -> None:
        for name in self.disk.listdir(HOME):
            self.disk.remove(f"{HOME}/{name}")
        for segment in self.segments:
            prefix = f"{HOME}/{segment_name(segment.base_offset, '')}"
            file = self.disk.open(prefix + ".log", create=True)
            if segment.data:
                file.append(bytes(segment.data))
            file.close()
            if segment.aborted:
                index = self.disk.open(prefix + ".txnindex", create=True)
                index.append(write_aborted(segment.aborted))
                index.close()

    # looking ----------------------------------------------------------------------------------

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        return [
            (header, bytes(view))
            for segment in self.segments
            for header, view in batches.batches(bytes(segment.data))
        ]

    def records(self) -> list[Record]:
        """Return all data records, of any transaction."""
        return [
            record
            for header, data in self.batches()
            if not header.is_control
            for record in batches.records(data, header)
        ]

    def batch_lines(self) -> list[str]:
        """Return a line per batch: its offsets, producer, delete horizon and records."""
        lines = []
        for header, data in self.batches():
            batches.check(data, header)
            words = [f"{header.base_offset}-{header.last_offset}"]
            if header.producer_id >= 0:
                words.append(f"P{header.producer_id}")
            if header.delete_horizon is not None:
                words.append(f"until+{header.delete_horizon - NOW}")
            for record in batches.records(data, header):
                if header.is_control:
                    marker = batches.read_end_marker(record)
                    words.append("?" if marker is None else "commit" if marker.committed else "abort")
                else:
                    key = "-" if record.key is None else record.key.decode()
                    value = "x" if record.value is None else record.value.decode()
                    words.append(f"{record.offset}:{key}={value}")
            lines.append(" ".join(words))
        return lines


def run(
    disk: Disk, task: CleaningTask, write: bool = True
) -> tuple[list[CleanerProgress], list[CleanedSegment], CleanerStats]:
    """Run a cleaning to its end; return its progress, cleaned segments and statistics."""
    progress: list[CleanerProgress] = []
    groups: list[CleanedSegment] = []
    cleaning = clean(disk, task, write)
    while True:
        try:
            result = next(cleaning)
        except StopIteration as done:
            return progress, groups, done.value
        if isinstance(result, CleanedSegment):
            groups.append(result)
        else:
            progress.append(result)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
