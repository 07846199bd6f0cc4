"""Combining state batches: the cases of the tests of Kafka's combiner, and random batches against a model.

A batch is written FIRST-LAST:STATE*COUNT. The model keeps the state of each offset by itself.
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
    for token in text.split():
        offsets, delivery = token.split(":")
        first, _, last = offsets.partition("-")
        state, _, count = delivery.partition("*")
        made.append(StateBatch(int(first), int(last or first), int(state), int(count)))
    return tuple(made)


CASES = [
    # (description, current batches, updates, start offset, combined batches)
    ("all current offsets are below the start", "100-110:0*1", "", 150, ""),
    ("all updates are below the start", "", "100-110:0*1", 150, ""),
    ("the current batch is trimmed", "100-130:0*1", "", 120, "120-130:0*1"),
    ("the update is trimmed", "", "100-130:0*1", 120, "120-130:0*1"),
    ("nothing", "", "", 120, ""),
    ("nothing, unknown start offset", "", "", -1, ""),
    ("repeated, a gap stays", "100-110:0*1", "100-110:0*1 120-130:2*1", -1, "100-110:0*1 120-130:2*1"),
    ("repeated, another gap", "0-5:2*1", "0-5:2*1 11-15:0*1", -1, "0-5:2*1 11-15:0*1"),
    ("repeated, of one state", "0-5:0*1", "0-5:0*1 11-15:0*1", -1, "0-5:0*1 11-15:0*1"),
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
    ("updates that overlap", "100-110:0*1 121-130:0*1", "111-119:2*2 116-123:2*2", -1,
     "100-110:0*1 111-123:2*2 124-130:0*1"),
    ("updates that disagree", "100-110:0*1", "101-105:1*2 101-115:2*2 101-120:3*2", -1,
     "100:0*1 101-120:3*2"),
    ("some offsets are below the start", "100-110:0*1 121-130:0*1", "111-119:2*2 116-123:2*2", 120,
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
    # bug 84: both batches were kept, and the state of offset 105 was ambiguous
    ("one of many", "100-109:0*1", "105:2*1", -1, "100-104:0*1 105:2*1 106-109:0*1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("current", "updates", "start", "combined"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_cases_of_kafkas_combiner(current: str, updates: str, start: int, combined: str) -> None:
    assert combine(batches(current), batches(updates), start) == batches(combined)


MAX_OFFSET = 24

any_batch = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, MAX_OFFSET),
    st.integers(0, 6),
    st.sampled_from((0, 2, 3, 4)),
    st.integers(1, 3),
)
batch_lists = st.lists(any_batch, max_size=8).map(tuple)
starts = st.integers(-1, MAX_OFFSET)


def by_offset(state_batches: Batches, start_offset: int) -> dict[int, tuple[int, int]]:
    """Return delivery count and state of each offset from the start offset on."""
    states: dict[int, tuple[int, int]] = {}
    for first, last, state, count in state_batches:
        for offset in range(first, last + 1):
            if offset >= start_offset:
                states[offset] = max(states.get(offset, (0, 0)), (count, state))
    return states


@given(batch_lists, batch_lists, starts)
@example(batches("0-3:0*1 4-9:0*2"), batches("0-3:0*2"), -1)
@example(batches("0-3:0*1 5-9:0*1"), batches("4:0*1"), -1)
@example(batches("0-9:0*1"), batches("3-4:2*1"), 4)
def test_combined_batches_are_normalized_and_keep_the_state_of_each_offset(
    before: Batches, updates: Batches, start_offset: int
) -> None:
    """SH10: each offset has one state, and the list of batches is the shortest possible."""
    current = normalized(before)
    combined = combine(current, updates, start_offset)
    assert is_normalized(combined)
    assert by_offset(combined, -1) == by_offset(current + updates, start_offset)


@given(batch_lists, batch_lists, batch_lists, starts)
def test_combining_is_independent_of_order_and_repetition(
    before: Batches, one: Batches, other: Batches, start: int
) -> None:
    """Writes may arrive together, one by one, or twice, because a leader retries them."""
    current = normalized(before)
    together = combine(current, one + other, start)
    assert combine(combine(current, one, start), other, start) == together
    assert combine(combine(current, other, start), one, start) == together
    assert combine(together, one, start) == together


@given(batch_lists, starts, starts)
def test_two_moves_of_the_start_offset_equal_one(state_batches: Batches, one: int, other: int) -> None:
    combined = normalized(state_batches)
    moved_twice = combine(combine(combined, (), one), (), max(one, other))
    assert moved_twice == combine(combined, (), max(one, other)) == drop_below(combined, max(one, other))
