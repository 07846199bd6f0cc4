"""Batches of states become one row, in each of the cases that Kafka's own combiner was held to, and in any.

A batch is written FIRST-LAST:STATE*COUNT. The model that any case is held against knows offsets one by one.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from konvene.share_state.combine import combine, drop_below, is_normalized, normalized
from konvene.share_state.requests import StateBatch

Batches = tuple[StateBatch, ...]


def batches(text: str) -> Batches:
    made = []
    for word in text.split():
        offsets, said = word.split(":")
        first, _, last = offsets.partition("-")
        state, _, count = said.partition("*")
        made.append(StateBatch(int(first), int(last or first), int(state), int(count)))
    return tuple(made)


CASES = [
    # (what it is, known, news, start offset, row)
    ("all of it is over", "100-110:0*1", "", 150, ""),
    ("all news are over", "", "100-110:0*1", 150, ""),
    ("the known one begins later", "100-130:0*1", "", 120, "120-130:0*1"),
    ("the news begin later", "", "100-130:0*1", 120, "120-130:0*1"),
    ("nothing", "", "", 120, ""),
    ("nothing, and nobody knows where it starts", "", "", -1, ""),
    ("told again, a gap stays", "100-110:0*1", "100-110:0*1 120-130:2*1", -1, "100-110:0*1 120-130:2*1"),
    ("told again, another gap", "0-5:2*1", "0-5:2*1 11-15:0*1", -1, "0-5:2*1 11-15:0*1"),
    ("told again, of one state", "0-5:0*1", "0-5:0*1 11-15:0*1", -1, "0-5:0*1 11-15:0*1"),
    # the same state
    ("the same", "100-110:0*1", "100-110:0*1", -1, "100-110:0*1"),
    ("the same, shorter", "100-110:0*1", "100-105:0*1", -1, "100-110:0*1"),
    ("the same, longer", "100-110:0*1", "100-115:0*1", -1, "100-115:0*1"),
    ("the same, within", "100-110:0*1", "105-108:0*1", -1, "100-110:0*1"),
    ("the same, its end", "100-110:0*1", "105-110:0*1", -1, "100-110:0*1"),
    ("the same, over its end", "100-110:0*1", "105-115:0*1", -1, "100-115:0*1"),
    ("the same, right behind", "100-110:0*1", "111-115:0*1", -1, "100-115:0*1"),
    ("the same, right before", "111-115:0*1", "100-110:0*1", -1, "100-115:0*1"),
    # more than that
    ("news that overlap", "100-110:0*1 121-130:0*1", "111-119:2*2 116-123:2*2", -1,
     "100-110:0*1 111-123:2*2 124-130:0*1"),
    ("news that disagree", "100-110:0*1", "101-105:1*2 101-115:2*2 101-120:3*2", -1, "100:0*1 101-120:3*2"),
    ("some of it is over", "100-110:0*1 121-130:0*1", "111-119:2*2 116-123:2*2", 120,
     "120-123:2*2 124-130:0*1"),
    ("one after another", "111-120:0*1", "111-113:0*2 114:2*1 115-119:0*2", -1,
     "111-113:0*2 114:2*1 115-119:0*2 120:0*1"),
    # other states
    ("a higher count", "100-110:0*1", "100-110:0*2", -1, "100-110:0*2"),
    ("a lower count", "100-110:0*3", "100-110:0*1", -1, "100-110:0*3"),
    ("a higher count, of its beginning", "100-110:0*1", "100-105:0*2", -1, "100-105:0*2 106-110:0*1"),
    ("a lower count, of its beginning", "100-110:0*3", "100-105:0*1", -1, "100-110:0*3"),
    ("a higher count, of more", "100-110:0*1", "100-115:0*2", -1, "100-115:0*2"),
    ("a lower count, of more", "100-110:0*3", "100-115:0*1", -1, "100-110:0*3 111-115:0*1"),
    ("a higher state, within", "100-115:0*1", "105-110:1*1", -1, "100-104:0*1 105-110:1*1 111-115:0*1"),
    ("a lower state, within", "100-115:1*1", "105-110:0*1", -1, "100-115:1*1"),
    ("a higher count, of its end", "100-110:0*1", "105-110:0*2", -1, "100-104:0*1 105-110:0*2"),
    ("a lower count, of its end", "100-110:0*2", "105-110:0*1", -1, "100-110:0*2"),
    ("a higher count, over its end", "100-110:0*1", "105-115:0*2", -1, "100-104:0*1 105-115:0*2"),
    ("a lower count, over its end", "100-110:0*2", "105-115:0*1", -1, "100-110:0*2 111-115:0*1"),
    # bug 84: both of these were kept, and nobody could say of 105 what became of it
    ("one of many", "100-109:0*1", "105:2*1", -1, "100-104:0*1 105:2*1 106-109:0*1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("known", "news", "start", "row"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_kafkas_cases(known: str, news: str, start: int, row: str) -> None:
    assert combine(batches(known), batches(news), start) == batches(row)


MOST = 24

any_batch = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, MOST),
    st.integers(0, 6),
    st.sampled_from((0, 2, 3, 4)),
    st.integers(1, 3),
)
some = st.lists(any_batch, max_size=8).map(tuple)
starts = st.integers(-1, MOST)


def by_offset(told: Batches, start_offset: int) -> dict[int, tuple[int, int]]:
    """What holds for each offset, and nothing about batches."""
    holds: dict[int, tuple[int, int]] = {}
    for first, last, state, count in told:
        for offset in range(first, last + 1):
            if offset >= start_offset:
                holds[offset] = max(holds.get(offset, (0, 0)), (count, state))
    return holds


@given(some, some, starts)
@example(batches("0-3:0*1 4-9:0*2"), batches("0-3:0*2"), -1)
@example(batches("0-3:0*1 5-9:0*1"), batches("4:0*1"), -1)
@example(batches("0-9:0*1"), batches("3-4:2*1"), 4)
def test_any_batches_become_the_shortest_row_that_says_the_same(
    before: Batches, news: Batches, start_offset: int
) -> None:
    """SH10: of every offset it is known what became of it, once, and not a batch is written in vain."""
    known = normalized(before)
    row = combine(known, news, start_offset)
    assert is_normalized(row)
    assert by_offset(row, -1) == by_offset(known + news, start_offset)


@given(some, some, some, starts)
def test_the_order_of_news_does_not_matter(before: Batches, one: Batches, other: Batches, start: int) -> None:
    """Nor whether they come together, nor twice: a write can be asked again."""
    known = normalized(before)
    together = combine(known, one + other, start)
    assert combine(combine(known, one, start), other, start) == together
    assert combine(combine(known, other, start), one, start) == together
    assert combine(together, one, start) == together


@given(some, starts, starts)
def test_a_start_offset_that_moves_on_twice_moved_on_once(told: Batches, one: int, other: int) -> None:
    row = normalized(told)
    there = combine(combine(row, (), one), (), max(one, other))
    assert there == combine(row, (), max(one, other)) == drop_below(row, max(one, other))
