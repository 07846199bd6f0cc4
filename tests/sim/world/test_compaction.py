"""Compaction of a log does not change the replayed state; a replay that depends on more is detected."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.sim.invariants.test_invariants import STABLE

from konvene.groups import shard as shard_module
from konvene.records.commits import Committed, OffsetCommitted
from konvene.sim.journal import replayed
from konvene.sim.transcript.scenario import Scenario
from konvene.sim.world import compaction
from konvene.sim.world.compaction import (
    assert_compaction_changes_nothing,
    assert_every_prefix_loads,
    compacted,
)


def first_commit_stays(offsets: Any, record: OffsetCommitted) -> None:
    partitions = offsets.setdefault(record.group, {}).setdefault(record.topic, {})
    partitions.setdefault(record.partition, record.committed)


def commits_are_counted(offsets: Any, record: OffsetCommitted) -> None:
    partitions = offsets.setdefault(record.group, {}).setdefault(record.topic, {})
    known, committed = partitions.get(record.partition), record.committed or Committed(-1)
    partitions[record.partition] = committed._replace(leader_epoch=known.leader_epoch + 1 if known else 0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [(first_commit_stays, "the compacted log shows"), (commits_are_counted, "replaying every batch twice")],
)
def test_replay_that_depends_on_older_records_is_detected(
    wrong: Callable[[Any, OffsetCommitted], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay may depend on the last record of a key only, not on older records or on their number."""
    scenario = Scenario()
    scenario.run([*STABLE, "commit ann orders-0:8", "commit tool audit-1:1 group=s", "delete s", "restart"])
    runtime = scenario.life.runtime
    assert_compaction_changes_nothing(runtime)
    assert_compaction_changes_nothing(runtime, Random(1), most=3)
    assert_every_prefix_loads(runtime)
    monkeypatch.setattr(shard_module, "replay", wrong)
    monkeypatch.setattr(compaction, "read_in_bulk", replayed)
    with pytest.raises(AssertionError, match=why):
        assert_compaction_changes_nothing(runtime)


def test_compacted_log_keeps_its_batches() -> None:
    """The last record of each key keeps its position; tombstones are removed only if allowed."""
    scenario = Scenario()
    scenario.run(["commit a orders-0:1", "commit a orders-0:2", "commit a audit-0:3 group=s", "delete s"])
    batches = scenario.life.log.batches
    sizes = [len(batch.pairs) for batch in batches]
    assert sizes == [1, 1, 1, 2]
    assert [len(b.pairs) for b in compacted(batches, 4, True)] == [0, 1, 0, 2]
    assert [len(b.pairs) for b in compacted(batches, 4, False)] == [0, 1, 0, 0]
    assert [len(b.pairs) for b in compacted(batches, 2, False)] == [0, 1, 1, 2]
    assert [len(b.pairs) for b in compacted(batches, 4, True, begin=2)] == [1, 1, 0, 2]
    with pytest.raises(AssertionError, match="a tombstone is needed"):
        compacted(batches, 4, False, begin=2)
