"""Runs the broker's own log cleaner on a list of batches.

The batches are written to segments on an in-memory disk, cleaned as a broker cleans them, and read again. So
the invariants that `sim.world.compaction` asserts for a model of compaction are asserted for the real cleaner
as well, on logs of the simulator and of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from konvene.codec.batches import NO_PRODUCER_ID, read_end_marker, read_header, records
from konvene.codec.batches import batches as read_batches
from konvene.log.cleaner.cleaning import clean
from konvene.log.cleaner.contract import CleanedSegment, CleaningTask, LastProducerRecord, SourceSegment
from konvene.log.disk.memory import MemoryDisk
from konvene.log.producers import AbortedTransaction, Producers

__all__ = ["cleaned", "cleaned_at_random"]

FOLDER = "/topic-0"
DAY_MS = 24 * 3600 * 1000
PLENTY = 1 << 24


def cleaned_at_random(batches: Sequence[bytes], random: Random, *, drop_tombstones: bool) -> list[bytes]:
    """Return the batches after cleaning a random range of them, in segments of random size.

    The range begins at the first batch if tombstones are dropped."""
    if not batches:
        return []
    begin = 0 if drop_tombstones else random.choice((0, random.randrange(len(batches))))
    return cleaned(
        batches, begin=begin, end=random.randrange(begin, len(batches)) + 1,
        segment=random.choice((1, 2, 7, 50)), drop_tombstones=drop_tombstones,
        map_bytes=random.choice((PLENTY, 2_000)),
    )  # fmt: skip


def cleaned(
    batches: Sequence[bytes],
    *,
    begin: int = 0,
    end: int | None = None,
    segment: int = 1,
    drop_tombstones: bool = False,
    map_bytes: int = PLENTY,
) -> list[bytes]:
    """Return the batches after cleaning those from number `begin` up to `end`.

    `segment` is the number of batches per file, `map_bytes` the size of the cleaner's offset map. With
    `drop_tombstones`, a second cleaning follows, after the tombstones' retention has passed. It covers the
    log from the beginning, since a tombstone must stay while an earlier record has its key. Open transactions
    and everything behind the first record of one stay as they are."""
    stop = len(batches) if end is None else end
    cleaned_batches = _clean(
        batches, begin, stop, segment, DAY_MS, 0 if drop_tombstones else DAY_MS, map_bytes
    )
    if drop_tombstones:
        cleaned_batches = _clean(
            cleaned_batches,
            0,
            _index_after(cleaned_batches, batches, stop),
            segment,
            2 * DAY_MS,
            0,
            map_bytes,
        )
    return cleaned_batches


def _index_after(cleaned_batches: Sequence[bytes], batches: Sequence[bytes], stop: int) -> int:
    """Return how many of the cleaned batches lie before batch number `stop` of the original ones."""
    end = read_header(batches[stop - 1]).next_offset if stop else 0
    return sum(read_header(batch).base_offset < end for batch in cleaned_batches)


def _clean(
    batches: Sequence[bytes],
    begin: int,
    end: int,
    segment: int,
    now_ms: int,
    retention_ms: int,
    map_bytes: int,
) -> list[bytes]:
    headers = [read_header(batch) for batch in batches]
    if not headers:
        return []
    after = headers[-1].next_offset
    producers, aborted = _producers(batches)
    stable = producers.last_stable_offset(after)
    limit = headers[end].base_offset if end < len(headers) else after
    disk = MemoryDisk()
    disk.mkdir(FOLDER)
    sources: list[SourceSegment] = []
    for index in range(0, len(batches), segment):
        data = b"".join(batches[index : index + segment])
        next_base = headers[index + segment].base_offset if index + segment < len(headers) else after
        base = headers[index].base_offset
        path = f"{FOLDER}/{base:020d}.log"
        disk.open(path, create=True).append(data)
        sources.append(SourceSegment(base, next_base, path, len(data), 0, 0, 0))
    uncleanable = min(limit, stable)
    cleanable = tuple(source for source in sources if source.base_offset < uncleanable)
    task = CleaningTask(
        FOLDER, cleanable, headers[begin].base_offset if begin < len(headers) else after, uncleanable,
        high_watermark=after, aborted=tuple(aborted),
        last_records={
            producer_id: LastProducerRecord(
                state.batches[-1].last_offset if state.batches else None, state.epoch
            )
            for producer_id, state in producers.by_id.items()
        },
        now_ms=now_ms, segment_bytes=4_000, segment_index_bytes=PLENTY, index_interval_bytes=4096,
        max_message_bytes=PLENTY, delete_retention_ms=retention_ms, map_bytes=map_bytes,
    )  # fmt: skip
    groups_by_base = {
        result.base_offset: result for result in clean(disk, task) if isinstance(result, CleanedSegment)
    }
    replaced = {base for group in groups_by_base.values() for base in group.replaces}
    batches_left: list[bytes] = []
    for source in sources:
        path = source.path
        if source.base_offset in groups_by_base:
            path += ".cleaned"
        elif source.base_offset in replaced:
            continue
        batches_left += [bytes(batch) for _, batch in read_batches(disk.read(path))]
    return batches_left


def _producers(batches: Sequence[bytes]) -> tuple[Producers, list[AbortedTransaction]]:
    """Return the producers' state after a whole log, and its aborted transactions."""
    producers, aborted = Producers(), []
    for batch in batches:
        header = read_header(batch)
        if header.producer_id == NO_PRODUCER_ID:
            continue
        if not header.is_control:
            producers.note(header)
            continue
        marker = next(map(read_end_marker, records(batch, header)), None)
        transaction = producers.note_marker(header, marker) if marker is not None else None
        aborted += [transaction] if transaction is not None else []
    return producers, aborted
