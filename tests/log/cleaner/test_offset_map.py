"""The map of keys: exact, bounded, and honest about what it takes."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from konvene.log.cleaner.offset_map import OffsetMap


def test_the_last_offset_of_each_key_is_found() -> None:
    offsets = OffsetMap(1 << 20)
    assert offsets.put(b"a", 1) and offsets.put(b"b", 2, tombstone=True) and offsets.put(b"a", 3)
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.get(b"c")) == (3, 2, -1)
    assert offsets.latest_offset == 3
    assert offsets.sorted_values() == [2 << 1 | 1, 3 << 1]
    assert repr(offsets).startswith("OffsetMap(2 keys up to 3")


def test_a_full_map_refuses_every_key_and_stays_as_it_was() -> None:
    offsets = OffsetMap(10_000)
    taken = 0
    while offsets.put(b"key-%d" % taken, taken):
        taken += 1
    assert 20 < taken < 100
    assert not offsets.put(b"key-0", 1000)
    assert (offsets.get(b"key-0"), offsets.latest_offset, len(offsets)) == (0, taken - 1, taken)
    assert offsets.used_bytes <= 10_000
    assert 0 < offsets.utilization <= 1


def test_the_first_key_is_taken_whatever_its_size() -> None:
    offsets = OffsetMap(100)
    assert offsets.put(b"k" * 5000, 7)
    assert not offsets.put(b"l", 8)
    assert (offsets.latest_offset, offsets.utilization) == (7, 1.0)


@pytest.mark.parametrize("keys", [30, 1000, 43_000, 100_000])
@pytest.mark.parametrize("length", [8, 60, 700])
def test_the_map_holds_its_stated_capacity(keys: int, length: int) -> None:
    """Also while it grows, and with the sorted list of its offsets."""
    if keys * length > 30_000_000:
        keys //= 10
    gc.collect()
    tracemalloc.start()
    try:
        offsets = OffsetMap(1 << 30)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(keys):
            offsets.put(b"%0*d" % (length, number), number + (1 << 40))
        last = offsets.sorted_values()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(last) == keys
    assert (after - before) / 1.15 < offsets.used_bytes < (after - before) * 1.15


def test_it_never_takes_more_than_it_may() -> None:
    for most in (20_000, 300_000, 2_000_000):
        gc.collect()
        tracemalloc.start()
        try:
            offsets = OffsetMap(most)
            number = 0
            while offsets.put(b"a key of some length %d" % number, number + (1 << 40)):
                number += 1
            offsets.sorted_values()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most / 3 < peak < most * 1.05
