"""Members of share groups (KIP-932) under the faults of each seed uphold every invariant: fewer steps, and
fewer seeds, since each step is looked at record by record."""

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
    assert report.counts["acquired"] > 50, "hardly anything happened"


DRAWN = (
    ("transactional", "0.5"), ("read.committed", "1"), ("share.sessions", "2"), ("prune.ms", "2000"),
    ("fault.offsets_altered", "9"),
)  # fmt: skip


def test_all_that_is_drawn_happens() -> None:
    """Offsets are altered, transactions aborted, members turned away, the log of share state cut."""
    counts: Counter[str] = Counter()
    with quiet():
        for seed in range(4):
            report = simulate(Run(seed, ("share",), 2_000, sets=DRAWN))
            assert report.violation is None, "\n".join(report.violation.lines())
            counts.update(report.counts)
    for what in ("altered offsets", "aborted", "answered GAP", "turned away", "log cut"):
        assert counts[what], f"{what}: {counts}"
