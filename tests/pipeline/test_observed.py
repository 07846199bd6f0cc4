"""Causes of random simulated runs that are polled; `python -m bench.observed` measures many more."""

from __future__ import annotations

import pytest
from bench.observed import measure
from bench.truth import KINDS, SETS

from konvene.sim.runs.run import Run


@pytest.mark.parametrize("ages", [False, True], ids=["Kafka", "konvene"])
@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
def test_descriptions_leave_the_actual_causes(kinds: tuple[str, ...], ages: bool) -> None:
    """No cause that is left alone is wrong, and no actual one is removed."""
    alone, described = measure(Run(1, kinds, 1_500, SETS), 1_000, ages=ages)
    assert described.rebalances > 10
    assert described.right == alone.right
    assert described.invented == alone.invented
    assert described.alone_wrong == alone.alone_wrong
    assert described.ambiguous <= alone.ambiguous
    if ages and kinds in (("consumer",), ("streams",), ("share",)):
        assert described.ambiguous < alone.ambiguous
