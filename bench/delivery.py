"""Share partitions: CPU microseconds per decision and memory in MiB, without a broker or disk.

A batch is acquired and later accepted as a whole, or record by record; in a full window a member acquires
records among the locks of others. Memory is that of full windows whose records were acquired one by one,
which is the maximum per record.
"""

from __future__ import annotations

import time
import tracemalloc

from bench.figures import Figure, less
from bench.systems import Lab
from konvene.codec.batches import BatchHeader
from konvene.codec.uuid import Uuid
from konvene.delivery.contract import Acknowledged, AcquireMode, Terms
from konvene.delivery.partition import SharePartition
from konvene.errors import Errors
from konvene.share_state.requests import SharePartitionKey, StateAnswer

WINDOWS = 5
BATCHES = 5_000
BATCH = 100
LOCKS = 2_000
PARTITIONS = 100
ACCEPT, RELEASE = (1,), (2,)
MIB = 1 << 20
AT_ONCE = 10
"""Number of batches that are acquired at the same time."""

Costs = dict[str, float]


def figures(lab: Lab) -> list[Figure]:
    batches, partitions = lab.of(BATCHES), lab.of(PARTITIONS)
    costs: dict[str, list[float]] = {}
    for _ in range(WINDOWS):
        for story in (_batches, _singles, _parts, _crowded):
            for what, cost in story(batches).items():
                costs.setdefault(what, []).append(cost)
    found = [less(f"{what}, us", values) for what, values in costs.items()]
    found.append(less(f"{LOCKS:,} locks in each of {partitions} partitions, MiB", [_memory(partitions)]))
    return found


def _partition() -> SharePartition:
    partition = SharePartition(SharePartitionKey("bench", Uuid(bytes(16)), 0), Terms())
    partition.load(StateAnswer(), 0, 0)
    return partition


def _header(base: int, count: int) -> BatchHeader:
    return BatchHeader(base, 100, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)


def _acquire(partition: SharePartition, member: str, base: int, count: int, now_ms: int) -> None:
    partition.acquire(
        member,
        [_header(base, count)],
        (),
        fetch_offset=base,
        mode=AcquireMode.BATCH_OPTIMIZED,
        max_records=BATCH,
        batch_size=BATCH,
        now_ms=now_ms,
    )


def _acknowledge(partition: SharePartition, acks: list[Acknowledged], now_ms: int) -> None:
    change = partition.acknowledge("a", acks, now_ms)
    assert change is not None
    partition.finished(change, Errors.NONE)


def _batches(batches: int) -> Costs:
    """Measure whole batches, each acknowledged while nine others are acquired."""
    partition = _partition()
    return _both(partition, range(0, batches * BATCH, BATCH), BATCH, ACCEPT, f"batch of {BATCH}")


def _singles(batches: int) -> Costs:
    """Measure batches of one record."""
    return _both(_partition(), range(batches), 1, ACCEPT, "single")


def _both(partition: SharePartition, bases: range, count: int, types: tuple[int, ...], what: str) -> Costs:
    acquiring = accepting = 0.0
    for now_ms in range(0, len(bases), AT_ONCE):
        some = bases[now_ms : now_ms + AT_ONCE]
        began = time.process_time()
        for base in some:
            _acquire(partition, "a", base, count, now_ms)
        acquired = time.process_time()
        for base in some:
            _acknowledge(partition, [Acknowledged(base, base + count - 1, types)], now_ms)
        acquiring += acquired - began
        accepting += time.process_time() - acquired
    return {f"{what} acquired": _each(acquiring, bases), f"{what} accepted": _each(accepting, bases)}


def _parts(batches: int) -> Costs:
    """Measure batches of many records that are acknowledged one by one."""
    partition = _partition()
    bases = range(0, max(1, batches // BATCH) * BATCH, BATCH)
    accepting = 0.0
    for base in bases:
        _acquire(partition, "a", base, BATCH, 0)
        began = time.process_time()
        for offset in range(base, base + BATCH):
            _acknowledge(partition, [Acknowledged(offset, offset, ACCEPT)], 0)
        accepting += time.process_time() - began
    return {f"record of a batch of {BATCH} accepted": _each(accepting, range(len(bases) * BATCH))}


def _crowded(batches: int) -> Costs:
    """Measure releasing and acquiring again a record in the middle of a full window of locks."""
    partition = _full()
    again = 0.0
    for turn in range(batches):
        offset = LOCKS // 2 + turn % (LOCKS // 4)
        began = time.process_time()
        _acknowledge(partition, [Acknowledged(offset, offset, RELEASE)], turn)
        assert partition.next_fetch_offset == offset
        _acquire(partition, "a", offset, 1, turn)
        assert partition.lock_end_ms is not None
        again += time.process_time() - began
        if (turn + 1) % (LOCKS // 4) == 0:
            partition = _full()
    return {f"record among {LOCKS:,} locks given back and acquired again": _each(again, range(batches))}


def _full() -> SharePartition:
    """Return a window full of single-record locks."""
    partition = _partition()
    for offset in range(LOCKS):
        _acquire(partition, "a", offset, 1, offset)
    return partition


def _each(spent: float, times: range) -> float:
    return spent / len(times) * 1e6


def _memory(partitions: int) -> float:
    tracemalloc.start()
    kept = [_full() for _ in range(partitions)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(partition.in_flight_records == LOCKS for partition in kept)
    return size / MIB
