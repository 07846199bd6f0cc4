"""Long run of share partitions: every record is done in the end, and none was acquired twice."""

from __future__ import annotations

from collections import Counter

import pytest

from konvene.sim.share import marathon
from konvene.sim.share.marathon import SharePartitionRun
from konvene.sim.world.event import InvariantViolation


def test_no_record_is_lost_or_acquired_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With expired locks, failed writes and restarts."""
    monkeypatch.setattr(marathon, "RECORDS", 20_000)
    counts: Counter[str] = Counter()
    for seed in range(5):
        SharePartitionRun(seed, counts).run()
    assert counts["acquired"] > 100_000
    assert counts["redelivered"] > 500
    assert counts["restarts"] > 0


def test_record_acquired_twice_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acquiring a record that another member has raises a violation."""
    monkeypatch.setattr(marathon, "RECORDS", 20_000)
    run = SharePartitionRun(1, Counter())
    run.owners[5] = 2
    with pytest.raises(InvariantViolation, match="RecordsAreAcquiredOnce"):
        run.run()
