"""Random logs with several cleanings each, run by Kafka's Cleaner and by ours.

Both get the same batches, byte by byte. Kafka's side reports the active producers and the first
uncleanable offset; the resulting offsets, counts and files are compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.log.cleaner.written import DAY, Log

from konvene.codec import batches
from konvene.codec.batches import Record, TimestampType
from konvene.codec.compression import Compression
from konvene.log.cleaner import cleaning
from konvene.log.cleaner.contract import LastProducerRecord
from konvene.log.cleaner.offset_map import OffsetMap
from konvene.log.producers import read_aborted

SendCommand = Callable[[str], str]
"""A line to Kafka's side; its answer."""

STEPS = 60
WIDE = 10_000


class Apart(Exception):
    """Here Kafka does something else, and we know why."""


class Slots(OffsetMap):
    """A map that counts keys, as Kafka's does."""

    slots = WIDE

    def fits(self, keys: int, size: int) -> bool:
        return len(self.entries) + keys <= self.slots

    @property
    def free_space(self) -> tuple[int, int]:
        return self.slots, 1 << 40


class Story:
    """See the top of this file."""

    def __init__(self, seed: int, send_command: SendCommand) -> None:
        self.random = random.Random(seed)
        self.send_command = send_command
        self.log = Log()
        self.keys = self.random.choice((3, 12, 60))
        self.packed = self.random.random() < 0.4
        self.retention = self.random.choice((0, 1000, DAY))
        self.cleanings = 0
        self.apart = False

    def run(self) -> None:
        try:
            self._run()
        except Apart:
            self.apart = True

    def _run(self) -> None:
        for _ in range(STEPS):
            step = self.random.random()
            if step < 0.55:
                self._batch()
            elif step < 0.7:
                self._end()
            elif step < 0.85:
                self._roll()
            elif step < 0.93:
                self._clean()
            else:
                self.log.clock += self.random.choice((10, 2000, 2 * DAY))
        while self.log._open:
            self._end()
        self._roll()
        self._clean()

    def _batch(self) -> None:
        chance, log = self.random, self.log
        before = len(log.segments[-1].data)
        kind = chance.random()
        producer = chance.randrange(4) if kind < 0.6 else -1
        transactional = producer in (2, 3)
        records = [
            Record(
                log.next_offset + at,
                log.clock + chance.choice((0, 0, 0, 1, -3, 400)),
                None
                if chance.random() < 0.03 and not transactional
                else b"k%d" % chance.randrange(self.keys),
                None
                if chance.random() < 0.2
                else b"v" * (5000 if chance.random() < 0.005 else chance.choice((0, 1, 60, 90))),
                (("h", b"w"), ("n", None)) if chance.random() < 0.1 else (),
            )
            for at in range(chance.choice((1, 1, 2, 2, 5, 70)))
        ]
        if chance.random() < 0.1:
            log.add(
                batches.build(
                    records,
                    leader_epoch=0,
                    timestamp_type=TimestampType.LOG_APPEND_TIME,
                    log_append_time_ms=log.clock + 7,
                )
            )
        else:
            packed = chance.choice(list(Compression)) if self.packed else 0
            log.put_records(records, compression=packed, producer=producer, transactional=transactional)
        self._check_append(before)

    def _end(self) -> None:
        if self.log._open:
            before = len(self.log.segments[-1].data)
            self.log.end(self.random.choice(sorted(self.log._open)), self.random.random() < 0.5)
            self._check_append(before)

    def _check_append(self, before: int) -> None:
        answer = self.send_command(f"append {self.log.segments[-1].data[before:].hex()}")
        assert answer == str(self.log.next_offset)

    def _roll(self) -> None:
        if self.log.segments[-1].data:
            self.log.roll()
            assert self.send_command("roll") == str(self.log.next_offset)

    def _clean(self) -> None:
        log, chance = self.log, self.random
        if log.first_dirty >= log.segments[-1].base_offset:
            return
        self._look_for_stale_ones()
        slots = chance.choice((WIDE, WIDE, 4, 30))
        segment_bytes = chance.choice((2000, 20_000, 1 << 30))
        if chance.random() < 0.5 and not log._open:
            log.high_watermark = log.segments[-1].base_offset
        else:
            log.high_watermark = log.next_offset
        last = {}
        for entry in self.send_command("last").split():
            producer, offset, epoch = map(int, entry.split(":"))
            last[producer] = LastProducerRecord(None if offset < 0 else offset, epoch)
        line = f"{log.clock} {log.first_dirty} {log.high_watermark} {segment_bytes} {self.retention} {slots}"
        answer = self.send_command(f"clean {line}").split()
        end, uncleanable, read, written, invalid = map(int, answer[:5])
        if end == 0:
            return  # There was nothing that could be cleaned.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaning, "OffsetMap", Slots)
            patch.setattr(Slots, "slots", slots)
            patch.setattr(cleaning, "CHUNK_BYTES", chance.choice((100, 5000, 256 * 1024)))
            task = replace(
                log.task(),
                first_uncleanable_offset=uncleanable,
                last_records=last,
                segment_bytes=segment_bytes,
                delete_retention_ms=self.retention,
                index_interval_bytes=200,
            )
            kept = tuple(source for source in task.sources if source.base_offset < uncleanable)
            stats = log.clean_task(replace(task, sources=kept))
        # Of what goes as a whole batch Kafka does not count the records as read.
        assert stats.messages_read >= read
        assert (stats.end_offset, stats.messages_written, stats.invalid_messages_read) == (
            end,
            written,
            invalid,
        )
        self._compare(answer[5:])
        self.cleanings += 1

    def _look_for_stale_ones(self) -> None:
        """Kafka starts its map inside a segment with all aborted transactions of that segment's index. One
        that ended before never ends again, so later commits of its producer are not in the map.
        """
        dirty = self.log.first_dirty
        for segment in self.log.segments:
            if segment.base_offset < dirty < segment.next_offset and any(
                transaction.last_offset < dirty for transaction in segment.aborted
            ):
                raise Apart

    def _compare(self, files: list[str]) -> None:
        """All files of the log, byte by byte; of packed ones what is in them."""
        log = self.log
        assert [int(file.split(":")[0]) for file in files] == [
            segment.base_offset for segment in log.segments
        ]
        for segment, file in zip(log.segments, files, strict=True):
            data, index, times, aborted = (bytes.fromhex(part) for part in file.split(":")[1:])
            assert read_aborted(aborted) == segment.aborted
            if bytes(segment.data) == data:
                assert segment.indexes in (None, (index, times)) or segment is log.segments[-1]
            else:
                assert self.packed and unpacked(bytes(segment.data)) == unpacked(data)


def unpacked(data: bytes) -> list[object]:
    """Return the content of batches without their compression."""
    return [
        (header._replace(batch_length=0, crc=0), batches.records(batch, header))
        for header, batch in batches.batches(data)
    ]
