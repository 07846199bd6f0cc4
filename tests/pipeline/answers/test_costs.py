"""The parts of gaps within a rebalance add up to the column `unavailable_ms`, and never to more than fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bench.truth import life
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.answers.sample import day

from konvene.pipeline.answers.cost import Ends, costs, gap_part
from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.sweeps.simulated_log import tables_of
from konvene.sim.runs.run import Run

PARTITIONS = 3
A_REBALANCE = day().rebalances[-1]


@st.composite
def rebalances_and_gaps(draw: st.DrawFn) -> tuple[list[Rebalance], list[dict[str, Any]]]:
    """Return successive rebalances of a group, and gaps of its partitions that begin and end at any time."""
    times = sorted(draw(st.lists(st.integers(0, 200), min_size=2, max_size=12)))
    rebalances = [
        replace(
            A_REBALANCE, start_ms=start, end_ms=end, to_epoch=epoch, base_offset=epoch,
            converged=draw(st.booleans()),
        )
        for epoch, (start, end) in enumerate(zip(times[::2], times[1::2], strict=False))
    ]  # fmt: skip
    gaps = []
    for partition in range(PARTITIONS):
        edges = sorted(draw(st.lists(st.integers(0, 220), max_size=8, unique=True)))
        for i in range(0, len(edges), 2):
            gaps.append({
                "cluster": A_REBALANCE.cluster, "group_id": A_REBALANCE.group_id, "topic": "orders",
                "partition": partition, "log_partition": A_REBALANCE.log_partition, "from_ms": edges[i],
                "to_ms": edges[i + 1] if i + 1 < len(edges) else None,
            })  # fmt: skip
    return rebalances, gaps


@given(rebalances_and_gaps())
def test_no_sum_exceeds_partitions_times_duration(
    drawn: tuple[list[Rebalance], list[dict[str, Any]]],
) -> None:
    rebalances, gaps = drawn
    cost = costs(rebalances, gaps, Ends([]))
    for r in rebalances:
        parts = [part for gap in gaps if (part := gap_part(gap, r)) is not None]
        assert r.end_ms is not None and r.start_ms is not None
        assert all(part.to_ms is not None and part.from_ms < part.to_ms for part in parts)
        assert sum(part.ms for part in parts) <= PARTITIONS * (r.end_ms - r.start_ms)
        stopped = {part.gap["partition"] for part in parts}
        assert (cost[r.key].stopped if r.key in cost else 0) == len(stopped)


@pytest.mark.parametrize(
    "kinds",
    [("classic",), ("consumer",), ("consumer-static",), ("migration",), ("streams",), ("share",)],
    ids="+".join,
)
def test_parts_add_up_to_the_unavailability_of_a_rebalance(kinds: tuple[str, ...]) -> None:
    """Simulated groups rebalance again before they have converged, so their gaps span rebalances."""
    world, _, audits = life(Run(12, kinds, 1_500))
    gold = Gold(tables_of("sim", world.log.batches, audits.explanations))
    gaps = gold.rows("unavailability")
    known = [r for r in gold.rebalances if r.unavailable_ms is not None and r.duration_ms is not None]
    assert known
    for r in known:
        parts = [part for gap in gaps if (part := gap_part(gap, r)) is not None]
        assert r.unavailable_ms == sum(part.ms for part in parts), r
        partitions = {(part.gap["topic"], part.gap["partition"]) for part in parts}
        assert r.duration_ms is not None and r.unavailable_ms <= len(partitions) * r.duration_ms
