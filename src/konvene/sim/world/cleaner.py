"""What the broker's own cleaner leaves of a log that is a row of batches.

The batches are put into segments on a disk in memory, cleaned as a broker would clean them, and read again.
So that what a model of compaction promises (`sim.world.compaction`) is asked of the real one as well: on
logs that
the simulator made, and on Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from konvene.codec.batches import NO_PRODUCER_ID, read_end_marker, read_header, records
from konvene.codec.batches import batches as read_batches
from konvene.log.cleaner.cleaning import clean
from konvene.log.cleaner.contract import Group, LastRecord, Source, Task
from konvene.log.disk.memory import MemoryDisk
from konvene.log.producers import AbortedTransaction, Producers

__all__ = ["cleaned", "cleaned_by_chance"]

FOLDER = "/topic-0"
DAY_MS = 24 * 3600 * 1000
PLENTY = 1 << 24


def cleaned_by_chance(batches: Sequence[bytes], random: Random, *, tombstones_go: bool) -> list[bytes]:
    """A cleaning that ends anywhere, of segments of any size; with tombstones kept it begins anywhere too."""
    if not batches:
        return []
    begin = 0 if tombstones_go else random.choice((0, random.randrange(len(batches))))
    return cleaned(
        batches, begin=begin, end=random.randrange(begin, len(batches)) + 1,
        segment=random.choice((1, 2, 7, 50)), tombstones_go=tombstones_go,
        map_bytes=random.choice((PLENTY, 2_000)),
    )  # fmt: skip


def cleaned(
    batches: Sequence[bytes],
    *,
    begin: int = 0,
    end: int | None = None,
    segment: int = 1,
    tombstones_go: bool = False,
    map_bytes: int = PLENTY,
) -> list[bytes]:
    """The batches after a cleaning of those from number `begin` on; from `end` on they are not touched.

    There are `segment` batches in each file. `tombstones_go`: a second cleaning follows, when those that the
    first one found have been there for long enough; it is of the whole log, for a tombstone that hides
    something must stay. What is open, or behind the beginning of what is open, stays as it is."""
    stop = len(batches) if end is None else end
    left = _clean(batches, begin, stop, segment, DAY_MS, 0 if tombstones_go else DAY_MS, map_bytes)
    if tombstones_go:
        left = _clean(left, 0, _place(left, batches, stop), segment, 2 * DAY_MS, 0, map_bytes)
    return left


def _place(left: Sequence[bytes], batches: Sequence[bytes], stop: int) -> int:
    """How many of the batches that are left stand before what was batch `stop`."""
    end = read_header(batches[stop - 1]).next_offset if stop else 0
    return sum(read_header(batch).base_offset < end for batch in left)


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
    sources: list[Source] = []
    for at in range(0, len(batches), segment):
        data = b"".join(batches[at : at + segment])
        behind = headers[at + segment].base_offset if at + segment < len(headers) else after
        base = headers[at].base_offset
        path = f"{FOLDER}/{base:020d}.log"
        disk.open(path, create=True).append(data)
        sources.append(Source(base, behind, path, len(data), 0, 0, 0))
    uncleanable = min(limit, stable)
    touched = tuple(source for source in sources if source.base_offset < uncleanable)
    task = Task(
        FOLDER, touched, headers[begin].base_offset if begin < len(headers) else after, uncleanable,
        high_watermark=after, aborted=tuple(aborted),
        last_records={
            who: LastRecord(known.batches[-1].last_offset if known.batches else None, known.epoch)
            for who, known in producers.by_id.items()
        },
        now_ms=now_ms, segment_bytes=4_000, segment_index_bytes=PLENTY, index_interval_bytes=4096,
        max_message_bytes=PLENTY, delete_retention_ms=retention_ms, map_bytes=map_bytes,
    )  # fmt: skip
    made = {told.base_offset: told for told in clean(disk, task) if isinstance(told, Group)}
    replaced = {base for group in made.values() for base in group.replaces}
    found: list[bytes] = []
    for source in sources:
        path = source.path
        if source.base_offset in made:
            path += ".cleaned"
        elif source.base_offset in replaced:
            continue
        found += [bytes(batch) for _, batch in read_batches(disk.read(path))]
    return found


def _producers(batches: Sequence[bytes]) -> tuple[Producers, list[AbortedTransaction]]:
    """What a log knows of its producers, having read all of it."""
    producers, aborted = Producers(), []
    for batch in batches:
        header = read_header(batch)
        if header.producer_id == NO_PRODUCER_ID:
            continue
        if not header.is_control:
            producers.note(header)
            continue
        marker = next(map(read_end_marker, records(batch, header)), None)
        gone = producers.note_marker(header, marker) if marker is not None else None
        aborted += [gone] if gone is not None else []
    return producers, aborted
