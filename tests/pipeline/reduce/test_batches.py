"""A batch of Kafka's log may have several decisions, written one after the other: the rows stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.groups.history.logs import Batch, golden
from tests.pipeline.reduce.playing import Played
from tests.pipeline.reduce.reading import Rows, named, names_of, reduced

from konvene.pipeline.reduce import PartitionReducer


def in_larger_batches(played: Played, size: int, *, audit: bool) -> Rows:
    """Return the rows of a simulated log with this many decisions in each batch."""
    reducer = PartitionReducer("c", 0, played.audit if audit else ())
    batches = [each for each in zip(played.batches, played.first, strict=False) if each[0].size]
    for at in range(0, len(batches), size):
        some = batches[at : at + size]
        last, begins = some[-1]
        reducer.batch(some[0][1], begins + last.size - 1, sum(len(batch.pairs) for batch, _ in some))
        for batch, base in some:
            for offset, (key, value) in enumerate(batch.pairs, base):
                reducer.take(offset, batch.timestamp_ms, key, value)
    reducer.finish()
    return named(reducer.drain())


@pytest.mark.parametrize("kind", ["classic", "consumer", "share"])
@pytest.mark.parametrize("audit", [True, False])
def test_several_decisions_in_a_batch_change_no_row(kind: str, audit: bool) -> None:
    """Not even the offset at which a rebalance begins."""
    played = Played(kind, 1)
    one_each = in_larger_batches(played, 1, audit=audit)
    for size in (2, 5):
        assert in_larger_batches(played, size, audit=audit) == one_each


def merged(log: list[Batch], size: int) -> Iterator[Batch]:
    for at in range(0, len(log), size):
        some = log[at : at + size]
        entries = tuple(entry for batch in some for entry in batch.entries)
        yield Batch(some[0].base_offset, some[-1].last_offset, entries)


IN_ANOTHER_DECISION = {"base_offset": "a change of a member before it in the batch, which bumped no epoch"}


@pytest.mark.parametrize("name", ["consumer", "share", "streams"])
def test_golden_logs_in_larger_batches(name: str) -> None:
    for partition, log in golden(name).items():
        expected = reduced(log, partition, (), names_of(name))
        rows = reduced(list(merged(log, 3)), partition, (), names_of(name))
        for table in expected:
            assert _comparable(rows[table]) == _comparable(expected[table])


def _comparable(rows: list[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    """Return rows in a fixed order: those of a deleted group may come a batch later."""
    found = [
        [(name, value) for name, value in row.items() if name not in IN_ANOTHER_DECISION] for row in rows
    ]
    return sorted(found, key=str)
