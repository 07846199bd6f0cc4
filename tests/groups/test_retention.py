"""Retention in bulk: what expires at once is let go of in batches that a log takes."""

from __future__ import annotations

from tests.groups.world import World

from konvene.groups.offsets.expiry import KEY, MOST_BYTES, SOON_MS
from konvene.records.commits import Committed, OffsetCommitted
from konvene.shard.contract import Context

COUNT = 30_000


def test_what_expires_at_once_goes_in_batches_that_fit() -> None:
    """No batch is larger than its bound, one follows the other, and the group goes with its last offset."""
    world = World({"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "60000"})
    for partition in range(COUNT):
        committed = Committed(partition, commit_ms=world.now_ms)
        world.shard.replay(OffsetCommitted("g", "orders", partition, committed))
    world.carry_out(world.shard.load(Context(world.now_ms, world.config)))
    world.advance(60_000)
    sizes = [sum(len(key) for key, _ in batch) for batch in world.log]
    assert len(sizes) == 1
    assert world.timers[KEY] == world.now_ms + SOON_MS
    world.advance(SOON_MS * COUNT)
    sizes = [sum(len(key) for key, _ in batch) for batch in world.log]
    assert max(sizes) <= MOST_BYTES
    assert sum(map(len, world.log)) == COUNT + 1
    assert not world.shard.offsets
    assert not world.shard.groups
    assert world.timers[KEY] > world.now_ms + SOON_MS
