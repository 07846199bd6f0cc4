"""Offset spans and ledgers match a model of plain sets of offsets."""

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
    """Let four complete offsets make a span, so that small logs have some."""
    patch = pytest.MonkeyPatch()
    patch.setattr(offset_spans, "WORTH", FEW)
    yield
    patch.undo()


def offsets_of(spans: list[Span]) -> list[int]:
    return [offset for span in spans for offset in range(span.first, span.last + 1)]


@given(st.sets(st.integers(0, 40)), st.integers(0, 20), st.integers(20, 40))
def test_spans_cover_their_range_with_kinds_and_counts(
    present_offsets: set[int], first: int, last: int
) -> None:
    """A span is whole if it has every offset, each longer complete range is a whole span, and record
    counts are right."""
    inside = sorted(offset for offset in present_offsets if first <= offset <= last)
    spans = spans_of(np.array(inside, np.int64), Range(first, last))
    assert offsets_of(spans) == list(range(first, last + 1))
    for span in spans:
        present = [offset for offset in inside if span.first <= offset <= span.last]
        assert span.records == len(present)
        if span.kind == WHOLE:
            assert len(present) == span.last - span.first + 1
            assert len(present) >= FEW or inside == list(range(first, last + 1))
        else:
            run = longest = 0
            for offset in range(span.first, span.last + 1):
                run = run + 1 if offset in present_offsets else 0
                longest = max(longest, run)
            assert longest < FEW


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.sets(st.integers(0, 40)))))
def test_ledger_has_no_overlaps_and_knows_its_gaps(reads: list[tuple[int, int, set[int]]]) -> None:
    """For reads in any order only missing offsets are added, and no offset twice."""
    covered, known = Covered(), set[int]()
    for first, length, present_offsets in reads:
        wanted = Range(first, first + length - 1)
        parts = covered.open(wanted)
        assert [o for r in parts for o in range(r.first, r.last + 1)] == sorted(
            set(range(wanted.first, wanted.last + 1)) - known
        )
        for part in parts:
            here = np.array(sorted(o for o in present_offsets if part.first <= o <= part.last), np.int64)
            covered.put(part, spans_of(here, part))
            known |= set(range(part.first, part.last + 1))
        assert offsets_of(covered.spans) == sorted(known)
        assert Covered.from_json(covered.to_json()) == covered
        rows = covered.with_missing()
        assert offsets_of(rows) == list(range(max(known, default=-1) + 1))
        assert set(offsets_of([s for s in rows if s.kind == MISSING])).isdisjoint(known)


def test_adjacent_whole_spans_are_merged() -> None:
    covered = Covered()
    covered.put(Range(0, 9), [Span(0, 9, WHOLE, 10)])
    covered.put(Range(20, 29), [Span(20, 29, COMPACTED, 3)])
    covered.put(Range(10, 19), [Span(10, 19, WHOLE, 10)])
    assert covered.spans == [Span(0, 19, WHOLE, 20), Span(20, 29, COMPACTED, 3)]


def test_compacted_span_is_replaced_by_its_filled_parts() -> None:
    covered = Covered([Span(0, 9, WHOLE, 10), Span(10, 19, COMPACTED, 2), Span(20, 29, WHOLE, 10)])
    assert covered.doubtful(Range(5, 25)) == [Span(10, 19, COMPACTED, 2)]
    covered.put(Range(10, 19), [Span(10, 19, WHOLE, 10)])
    assert covered.spans == [Span(0, 29, WHOLE, 30)]
    assert covered.doubtful(Range(0, 29)) == []


def test_overlapping_span_is_an_error() -> None:
    covered = Covered([Span(0, 9, WHOLE, 10)])
    with pytest.raises(ValueError, match="overlaps"):
        covered.put(Range(5, 14), [Span(5, 14, WHOLE, 10)])


def test_parts_of_a_range() -> None:
    assert without(Range(0, 9), []) == [Range(0, 9)]
    assert without(Range(0, 9), [Range(0, 3), Range(5, 5)]) == [Range(4, 4), Range(6, 9)]
    assert without(Range(3, 5), [Range(0, 9)]) == []
