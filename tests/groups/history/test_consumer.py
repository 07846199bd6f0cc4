"""Rows of consumer groups, from logs that were written at random, whole and compacted, and from odd ones."""

from __future__ import annotations

from random import Random

import pytest
from tests.groups.history.logs import compacted, contradictions, told
from tests.groups.history.writing import Writer


def written(seed: int, steps: int = 120) -> Writer:
    writer = Writer(seed)
    writer.write(steps)
    return writer


@pytest.mark.parametrize("seed", range(200))
def test_each_epoch_has_the_causes_that_it_had(seed: int) -> None:
    """And each time the group is stable again there is one row, with the causes of all epochs since."""
    writer = written(seed)
    raised, settled = {}, {}
    for group, row in told(writer.log):
        why = frozenset((c.kind, c.member_id) for c in row.causes)
        if row.state == "Stable":
            settled[group, row.last_offset] = (row.started_ms, why)
        else:
            raised[group, row.last_offset] = why
    assert raised == writer.raised
    assert settled == writer.settled


@pytest.mark.parametrize("seed", range(60))
def test_no_compaction_makes_it_tell_otherwise(seed: int) -> None:
    """Prefixes with their tombstones and without, and windows in the middle."""
    log, random = written(seed).log, Random(seed)
    full = told(log)
    for end in range(1, len(log) + 1, 4):
        assert contradictions(told(compacted(log, 0, end)), full) == []
        assert contradictions(told(compacted(log, 0, end, tombstones=False)), full) == []
        begin = random.randrange(end)
        assert contradictions(told(compacted(log, begin, end)), full) == []


def test_half_of_a_group_may_look_stable() -> None:
    """In a compacted part the records of some members stand before those of others: nobody is done there."""
    writer = Writer(144, groups=1)
    writer.write(184)
    assert contradictions(told(compacted(writer.log, 0, 58)), told(writer.log)) == []


def test_an_expression_that_matches_nothing_is_no_cause() -> None:
    """Who waited for it is not named when, in the same batch, the epoch is raised for something else."""
    writer = Writer(7949, groups=2)
    writer.write(189)
    raised = {
        (group, row.last_offset): frozenset((c.kind, c.member_id) for c in row.causes)
        for group, row in told(writer.log)
        if row.state != "Stable"
    }
    assert raised == writer.raised
