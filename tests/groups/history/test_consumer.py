"""Inferred rebalances of consumer groups, from random logs, whole and compacted, and from special ones."""

from __future__ import annotations

from random import Random

import pytest
from tests.groups.history.logs import compacted, contradictions, infer_rebalances
from tests.groups.history.writing import Writer


def random_log(seed: int, steps: int = 120) -> Writer:
    writer = Writer(seed)
    writer.write(steps)
    return writer


@pytest.mark.parametrize("seed", range(200))
def test_each_epoch_has_its_causes(seed: int) -> None:
    """And each return to Stable has one row, with the causes of all epochs since the last one."""
    writer = random_log(seed)
    raised, stable = {}, {}
    for group, row in infer_rebalances(writer.log):
        causes = frozenset((c.kind, c.member_id) for c in row.causes)
        if row.state == "Stable":
            stable[group, row.last_offset] = (row.started_ms, causes)
        else:
            raised[group, row.last_offset] = causes
    assert raised == writer.raised
    assert stable == writer.stable


@pytest.mark.parametrize("seed", range(60))
def test_compacted_logs_do_not_contradict_the_whole_log(seed: int) -> None:
    """Prefixes with and without their tombstones, and windows in the middle."""
    log, random = random_log(seed).log, Random(seed)
    full = infer_rebalances(log)
    for end in range(1, len(log) + 1, 4):
        assert contradictions(infer_rebalances(compacted(log, 0, end)), full) == []
        assert contradictions(infer_rebalances(compacted(log, 0, end, tombstones=False)), full) == []
        begin = random.randrange(end)
        assert contradictions(infer_rebalances(compacted(log, begin, end)), full) == []


def test_a_compacted_group_may_look_stable() -> None:
    """In a compacted part the records of some members precede those of others: no member has converged
    there."""
    writer = Writer(144, groups=1)
    writer.write(184)
    assert contradictions(infer_rebalances(compacted(writer.log, 0, 58)), infer_rebalances(writer.log)) == []


def test_an_expression_without_a_match_is_no_cause() -> None:
    """Its member is not listed when the epoch is bumped for another cause in the same batch."""
    writer = Writer(7949, groups=2)
    writer.write(189)
    raised = {
        (group, row.last_offset): frozenset((c.kind, c.member_id) for c in row.causes)
        for group, row in infer_rebalances(writer.log)
        if row.state != "Stable"
    }
    assert raised == writer.raised
