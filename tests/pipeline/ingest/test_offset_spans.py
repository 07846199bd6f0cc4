"""Spans against the plainest thing that can be right: sets of offsets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.pipeline.ingest import offset_spans
from konvene.pipeline.ingest.offset_spans import (
    COMPACTED,
    MISSING,
    WHOLE,
    Covered,
    Range,
    Span,
    spans_of,
    without,
)

FEW = 4


@pytest.fixture(autouse=True, scope="module")
def worth_few() -> object:
    """A stretch of four is worth a span, so that small logs have some."""
    patch = pytest.MonkeyPatch()
    patch.setattr(offset_spans, "WORTH", FEW)
    yield
    patch.undo()


def spelled(spans: list[Span]) -> list[int]:
    return [offset for span in spans for offset in range(span.first, span.last + 1)]


@given(st.sets(st.integers(0, 40)), st.integers(0, 20), st.integers(20, 40))
def test_spans_cover_their_range_and_say_what_they_are_worth(there: set[int], first: int, last: int) -> None:
    """Whole is what has every offset; every longer stretch that is whole is said to be; counts are right."""
    inside = sorted(offset for offset in there if first <= offset <= last)
    spans = spans_of(np.array(inside, np.int64), Range(first, last))
    assert spelled(spans) == list(range(first, last + 1))
    for span in spans:
        present = [offset for offset in inside if span.first <= offset <= span.last]
        assert span.records == len(present)
        if span.kind == WHOLE:
            assert len(present) == span.last - span.first + 1
            assert len(present) >= FEW or inside == list(range(first, last + 1))
        else:
            run = longest = 0
            for offset in range(span.first, span.last + 1):
                run = run + 1 if offset in there else 0
                longest = max(longest, run)
            assert longest < FEW


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.sets(st.integers(0, 40)))))
def test_a_ledger_never_overlaps_and_knows_what_is_open(reads: list[tuple[int, int, set[int]]]) -> None:
    """Whatever is read in whatever order: only what was open is put, and nothing is open twice."""
    covered, known = Covered(), set[int]()
    for first, length, there in reads:
        wanted = Range(first, first + length - 1)
        parts = covered.open(wanted)
        assert [o for r in parts for o in range(r.first, r.last + 1)] == sorted(
            set(range(wanted.first, wanted.last + 1)) - known
        )
        for part in parts:
            here = np.array(sorted(o for o in there if part.first <= o <= part.last), np.int64)
            covered.put(part, spans_of(here, part))
            known |= set(range(part.first, part.last + 1))
        assert spelled(covered.spans) == sorted(known)
        assert Covered.from_json(covered.to_json()) == covered
        rows = covered.with_missing()
        assert spelled(rows) == list(range(max(known, default=-1) + 1))
        assert set(spelled([s for s in rows if s.kind == MISSING])).isdisjoint(known)


def test_whole_spans_that_touch_are_one() -> None:
    covered = Covered()
    covered.put(Range(0, 9), [Span(0, 9, WHOLE, 10)])
    covered.put(Range(20, 29), [Span(20, 29, COMPACTED, 3)])
    covered.put(Range(10, 19), [Span(10, 19, WHOLE, 10)])
    assert covered.spans == [Span(0, 19, WHOLE, 20), Span(20, 29, COMPACTED, 3)]


def test_a_compacted_span_gives_way_to_what_was_found_of_it() -> None:
    covered = Covered([Span(0, 9, WHOLE, 10), Span(10, 19, COMPACTED, 2), Span(20, 29, WHOLE, 10)])
    assert covered.doubtful(Range(5, 25)) == [Span(10, 19, COMPACTED, 2)]
    covered.put(Range(10, 19), [Span(10, 19, WHOLE, 10)])
    assert covered.spans == [Span(0, 29, WHOLE, 30)]
    assert covered.doubtful(Range(0, 29)) == []


def test_what_would_overlap_is_a_mistake() -> None:
    covered = Covered([Span(0, 9, WHOLE, 10)])
    with pytest.raises(ValueError, match="overlaps"):
        covered.put(Range(5, 14), [Span(5, 14, WHOLE, 10)])


def test_parts_of_a_range() -> None:
    assert without(Range(0, 9), []) == [Range(0, 9)]
    assert without(Range(0, 9), [Range(0, 3), Range(5, 5)]) == [Range(4, 4), Range(6, 9)]
    assert without(Range(3, 5), [Range(0, 9)]) == []
