"""Rebalances of streams groups inferred from a coordinator's log are those that the coordinator reported."""

from __future__ import annotations

from random import Random

import pytest
from tests.groups.history.logs import compacted, contradictions, infer_rebalances
from tests.groups.history.walking import STATELESS, SUMS, Walk, Walker, comparable, offset


@pytest.mark.parametrize("seed", range(60))
def test_inferred_rebalances_are_the_reported_ones(seed: int) -> None:
    """Each row, in order: causes, times, members, and the number of moved tasks."""
    walk = Walk(seed)
    walk.walk(60)
    assert comparable(infer_rebalances(walk.log)) == comparable(walk.reported)


@pytest.mark.parametrize("seed", range(15))
def test_compacted_logs_do_not_contradict_the_whole_log(seed: int) -> None:
    """Prefixes with and without their tombstones, and windows in the middle."""
    walk, random = Walk(seed), Random(seed)
    walk.walk(60)
    log, full = walk.log, infer_rebalances(walk.log)
    for end in range(1, len(log) + 1, 3):
        assert contradictions(infer_rebalances(compacted(log, 0, end)), full) == []
        assert contradictions(infer_rebalances(compacted(log, 0, end, tombstones=False)), full) == []
        begin = random.randrange(end)
        assert contradictions(infer_rebalances(compacted(log, begin, end)), full) == []


def test_the_caught_up_task_is_listed_if_it_is_unambiguous() -> None:
    """For an updated topology the changes are listed."""
    walk = Walk(0)
    walk.life.set_config(("konvene.streams.mode", "kip"), ("group.streams.num.warmup.replicas", "1"))
    walk.sizes = {"orders": 2, "sums": 2}
    walk._topics()
    ann, bob = (Walker(name, "g", SUMS, process=name, member_id=f"{name}-1") for name in ("ann", "bob"))
    walk.walkers = [ann, bob]
    walk._heartbeat_with(ann, 0, **walk.introduction(ann))
    walk.life.advance(5_000)
    for _ in range(3):
        walk.beat()
        walk.life.advance(2_000)
    (warming,) = [each for each in bob.owned["warmup_tasks"] if each.partitions]
    task = warming.subtopology_id, warming.partitions[0]
    for at in (0, 50_000):
        walk._heartbeat_with(bob, bob.epoch, **bob.owned, task_offsets=(offset(*task, at),),
                  task_end_offsets=(offset(*task, 50_000),))  # fmt: skip
        walk.life.advance(2_000)
    bob.topology, bob.topology_epoch, bob.epoch = STATELESS, 1, 0
    walk._beat(bob)
    causes = [
        (row.epoch, c)
        for _, row in infer_rebalances(walk.log)
        if row.state == "Assigning"
        for c in row.causes
    ]
    caught_up, updated = (c for _, c in causes if c.kind in ("warmup-caught-up", "topology-updated"))
    assert (caught_up.member_id, caught_up.reason) == ("bob-1", f"{task[0]}_{task[1]}")
    assert (updated.member_id, updated.reason) == (
        "bob-1", "epoch 0 to 1: subtopology 0 - changelog sums",
    )  # fmt: skip
    assert comparable(infer_rebalances(walk.log)) == comparable(walk.reported)
