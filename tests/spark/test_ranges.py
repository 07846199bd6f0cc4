"""Division of offsets among micro-batches and tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.client.net.cluster import TopicPartition
from konvene.spark.ranges import OffsetRange, divided, is_too_early, limited, ranges

P = [TopicPartition("t", n) for n in range(8)]
BOUNDS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=8)


def offsets(bounds: list[tuple[int, int]]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    return (
        {P[n]: start for n, (start, _) in enumerate(bounds)},
        {P[n]: start + size for n, (start, size) in enumerate(bounds)},
    )


@given(BOUNDS, st.integers(1, 3000))
def test_a_limited_batch_advances_and_stays_near_its_limit(bounds: list[tuple[int, int]], most: int) -> None:
    start, end = offsets(bounds)
    reached = limited(start, end, most)
    assert all(start[tp] <= reached[tp] <= end[tp] for tp in end)
    taken = sum(reached[tp] - start[tp] for tp in end)
    assert taken <= most + len(bounds)
    assert taken > 0 or start == end


def test_a_limit_is_divided_in_proportion() -> None:
    assert limited({P[0]: 0, P[1]: 0}, {P[0]: 900, P[1]: 100}, 100) == {P[0]: 90, P[1]: 10}
    assert limited({P[0]: 0, P[1]: 0}, {P[0]: 900, P[1]: 1}, 100) == {P[0]: 99, P[1]: 1}


@given(BOUNDS, st.none() | st.integers(1, 40), st.none() | st.integers(1, 500))
def test_parts_cover_each_offset_once(
    bounds: list[tuple[int, int]], least: int | None, most: int | None
) -> None:
    start, end = offsets(bounds)
    parts = divided(ranges(start, end), least, most)
    assert all(part.size > 0 and (most is None or part.size <= most) for part in parts)
    covered = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert sorted(covered) == [(tp, n) for tp in sorted(end) for n in range(start[tp], end[tp])]


def test_more_parts_go_to_larger_ranges() -> None:
    parts = divided([OffsetRange(P[0], 0, 900), OffsetRange(P[1], 0, 100)], least_parts=10)
    assert [(part.partition.partition, part.size) for part in parts] == [(0, 100)] * 9 + [(1, 100)]


@pytest.mark.parametrize(
    "available, waited_ms, expected", [(4, 0, True), (5, 0, False), (4, 1_000, False), (0, 999, True)]
)
def test_a_batch_waits_for_enough_records_or_long_enough(
    available: int, waited_ms: int, expected: bool
) -> None:
    assert is_too_early(available, 5, waited_ms, 1_000) is expected
