"""Log ends by minute, computed from batch headers alone."""

from __future__ import annotations

import random

from bench.coordinator_log import segment
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.pipeline.codec.made import log, sealed

from konvene.codec.batches import Record, TimestampType, build, read_header
from konvene.pipeline.codec.ends import ENDS, MAX_BATCHES, log_ends

MINUTE = 60_000


def ends(data: bytes, **options: int) -> list[tuple[int, int, int, int, int]]:
    found = list(log_ends(data, **options))
    assert all(each.schema == ENDS for each in found)
    return [tuple(row.values()) for each in found for row in each.to_pylist()]


def batch(offset: int, *times: int, **options: object) -> bytes:
    return build([Record(offset + i, t, b"k", b"v") for i, t in enumerate(times)], **options)  # type: ignore[arg-type]


def test_stretches_end_with_the_minute() -> None:
    """Each stretch has its largest and smallest time, first offset, end offset and batch count."""
    data = (
        batch(10, 5, 9)
        + batch(12, 7, 59_999)
        + batch(14, 60_000)
        + batch(20, 61_000, 50_000)
        + batch(22, 180_000)
    )
    assert ends(data) == [
        (59_999, 5, 10, 14, 2),
        (61_000, 60_000, 14, 22, 2),
        (180_000, 180_000, 22, 23, 1),
    ]


def test_stretches_end_after_a_thousand_batches() -> None:
    data = b"".join(batch(i, 0) for i in range(2 * MAX_BATCHES + 5))
    assert [(row[2], row[3], row[4]) for row in ends(data)] == [
        (0, 1000, 1000),
        (1000, 2000, 1000),
        (2000, 2005, 5),
    ]


def test_backward_clock_starts_no_new_stretch() -> None:
    data = batch(0, 5 * MINUTE) + batch(1, 0) + batch(2, 5 * MINUTE + 1)
    assert ends(data) == [(5 * MINUTE + 1, 0, 0, 3, 3)]


def test_log_append_time_and_delete_horizon() -> None:
    """With log-append time the producer's time is ignored; a delete horizon replaces the base timestamp."""
    stamped = batch(0, 5, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=50)
    horizon = batch(1, 60, delete_horizon=10)
    assert ends(stamped + horizon) == [(60, 50, 0, 2, 2)]


def test_records_are_not_decoded() -> None:
    """The records may be any bytes, as long as the header leads to the next batch."""
    data = bytearray(batch(0, 1) + batch(1, 2) + batch(2, 3))
    data[65] ^= 0xFF
    assert ends(bytes(data)) == [(3, 1, 0, 3, 3)]


def test_damage_is_skipped() -> None:
    parts = [batch(i, i) for i in range(4)]
    parts[1] = b"\xff" * len(parts[1])
    assert ends(b"".join(parts)) == [(3, 0, 0, 4, 3)]
    assert ends(b"".join(parts)[:-1]) == [(2, 0, 0, 3, 2)]
    assert ends(b"") == ends(bytes(1000)) == ends(b"\x02" * 1000) == []


def test_batch_with_falling_offset_is_ignored() -> None:
    for base in (0, 1, 1 << 40):
        parts = [batch(i, i) for i in range(4)]
        parts[2] = base.to_bytes(8, "big") + parts[2][8:]
        assert ends(b"".join(parts)) == [(3, 0, 0, 4, 3)]


def test_implausible_header_is_ignored() -> None:
    parts = [batch(i, i) for i in range(3)]
    parts[1] = sealed(parts[1][:57] + b"\x7f\xff\xff\xff" + parts[1][61:])
    assert ends(b"".join(parts)) == [(2, 0, 0, 3, 2)]


@settings(max_examples=depth.examples(25), deadline=None)
@given(log(), st.integers(0, 1 << 30))
def test_end_offset_is_that_of_the_last_batch(batches: list[bytes], seed: int) -> None:
    """Read in pieces, the log has the same number of batches."""
    data = b"".join(batches)
    found = ends(data)
    assert found[-1][3] == read_header(batches[-1]).next_offset
    assert sum(row[4] for row in found) == len(batches)
    cut = sum(map(len, batches[: random.Random(seed).randrange(len(batches))]))
    pieces = ends(data, end=cut) + ends(data, position=cut)
    assert sum(row[4] for row in pieces) == len(batches)


def test_a_large_log() -> None:
    found = ends(segment(50_000))
    assert found[-1][3] == 50_000
    assert [row[2] for row in found[1:]] == [row[3] for row in found[:-1]]
