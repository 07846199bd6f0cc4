"""A long way with share partitions: each record is done in the end, and nobody held what another one had."""

from __future__ import annotations

from collections import Counter

import pytest

from konvene.sim.share import marathon
from konvene.sim.share.marathon import Way
from konvene.sim.world.event import InvariantViolation


def test_none_is_lost_and_none_is_held_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With locks that end, writes that fail and restarts."""
    monkeypatch.setattr(marathon, "RECORDS", 20_000)
    counts: Counter[str] = Counter()
    for seed in range(5):
        Way(seed, counts).go()
    assert counts["acquired"] > 100_000
    assert counts["again"] > 500
    assert counts["restarts"] > 0


def test_it_sees_what_is_held_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that somebody has, and that is given out again, ends it."""
    monkeypatch.setattr(marathon, "RECORDS", 20_000)
    way = Way(1, Counter())
    way.fates[5] = 2
    with pytest.raises(InvariantViolation, match="RecordsAreHeldOnce"):
        way.go()
