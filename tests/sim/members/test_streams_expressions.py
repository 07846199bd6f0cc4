"""Streams groups whose topologies subscribe by regular expressions uphold every invariant under faults.

The expressions match the same source topics as the names that they replace.
"""

from __future__ import annotations

from typing import Any

import pytest

from konvene.client.streams.membership import StreamsMembership
from konvene.sim.members.streams import member
from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate

EXPRESSIONS = {"orders": "or.ers", "extra": "[e-f]xtr."}
"""For each topic of the catalogue, a regular expression that matches this topic only."""

SEEDS = (2, 5, 8, 11, 13)
STEPS = 2_000


class ExpressionMembership(StreamsMembership):
    """A member whose topology has regular expressions in place of source topic names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._topology_message = self._topology_message.replace(
            subtopologies=tuple(
                subtopology.replace(
                    source_topics=(),
                    source_topic_regex=tuple(map(EXPRESSIONS.__getitem__, subtopology.source_topics)),
                )
                for subtopology in self._topology_message.subtopologies
            )
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "StreamsMembership", ExpressionMembership)
    with quiet():
        report = simulate(Run(seed, ("streams",), STEPS, (("streams.mode", "kip"),)))
    assert report.violation is None, "\n".join(report.violation.lines())
    assert report.counts["request"] > 100, "the run has too few requests"
