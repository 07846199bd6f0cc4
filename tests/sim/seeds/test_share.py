"""Members of share groups (KIP-932) under the faults of each seed uphold every invariant.

These runs have fewer seeds and steps, because each step checks every record.
"""

from __future__ import annotations

from collections import Counter

import pytest

from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate


@pytest.mark.parametrize("seed", range(25))
def test_every_invariant_holds(seed: int) -> None:
    with quiet():
        report = simulate(Run(seed, ("share",), 3_000))
    assert report.violation is None, "\n".join(report.violation.lines())
    assert report.counts["acquired"] > 50, "the run has too few acquired records"


FREQUENT_FAULTS = (
    ("transactional", "0.5"), ("read.committed", "1"), ("share.sessions", "2"), ("prune.ms", "2000"),
    ("fault.offsets_altered", "9"),
)  # fmt: skip


def test_every_drawn_event_happens() -> None:
    """Altered offsets, aborted transactions, rejected members and pruned share state logs occur."""
    counts: Counter[str] = Counter()
    with quiet():
        for seed in range(4):
            report = simulate(Run(seed, ("share",), 2_000, sets=FREQUENT_FAULTS))
            assert report.violation is None, "\n".join(report.violation.lines())
            counts.update(report.counts)
    for event in ("altered offsets", "aborted", "acknowledged GAP", "share sessions rejected", "log cut"):
        assert counts[event], f"{event}: {counts}"
