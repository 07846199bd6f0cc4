"""Streams groups whose members send expressions, under the faults of seeds: every invariant holds as if they
named their topics. What members read is the same; only how they say it is another."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.client.streams.membership import StreamsMembership
from konvene.sim.members.streams import member
from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate

SAID = {"orders": "or.ers", "extra": "[e-f]xtr."}
"""The topics of the catalogue, and an expression that matches no other."""

SEEDS = (2, 5, 8, 11, 13)
STEPS = 2_000


class Expressing(StreamsMembership):
    """A member that says expressions instead of names."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._topology_message = self._topology_message.replace(
            subtopologies=tuple(
                each.replace(
                    source_topics=(), source_topic_regex=tuple(map(SAID.__getitem__, each.source_topics))
                )
                for each in self._topology_message.subtopologies
            )
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "StreamsMembership", Expressing)
    with quiet():
        report = simulate(Run(seed, ("streams",), STEPS, (("streams.mode", "kip"),)))
    assert report.violation is None, "\n".join(report.violation.lines())
    assert report.counts["request"] > 100, "hardly anything happened"
