"""Locks of records expire on time in a simulated world."""

from __future__ import annotations

from random import Random

import pytest

from konvene.broker.shares.share_partition import SharePartitionServer
from konvene.codec.uuid import Uuid
from konvene.delivery.contract import AcquireMode
from konvene.share_state.requests import Initialize, SharePartitionKey
from konvene.sim.share.node import ShareNode
from konvene.sim.world.faults import Options
from konvene.sim.world.world import World


def _served(lock_ms: int) -> tuple[World, SharePartitionServer]:
    """Return a world with a loaded share partition and 16 records."""
    world = World(Random(1), Options.without_faults().with_set([("lock.ms", str(lock_ms))]), kinds=("share",))
    node = world.share
    assert isinstance(node, ShareNode)
    node.start()
    topic_id: Uuid = world.topics.by_name["orders"].id
    key = SharePartitionKey("g1", topic_id, 0)
    node.deliveries.share_coordinators.submit(Initialize(key, 1, 0))
    world.ends["orders", 0] = 16
    node.grow()
    served = node.deliveries.share_partitions.serve(key, "orders")
    assert isinstance(served, SharePartitionServer)
    for _ in range(200):
        world.step()
        if served.loaded:
            break
    assert served.loaded
    return world, served


def _acquire(served: SharePartitionServer, member: str) -> list[int]:
    acquired, _ = served.acquire(member, AcquireMode.RECORD_LIMIT, 4, 4, 1_000)
    return [row.first_offset for row in acquired]


@pytest.mark.parametrize("off_ms", range(69))
def test_lock_expires_although_float_seconds_are_inexact(off_ms: int) -> None:
    """A time in float seconds may be slightly less than the whole millisecond."""
    world, served = _served(1_000)
    world.run_for(off_ms)
    assert _acquire(served, "m1") == [0]
    world.run_for(1_001)
    assert _acquire(served, "m2") == [0]


def test_shorter_lock_expires_before_an_older_longer_one() -> None:
    """The lock duration was lowered after the first records were acquired."""
    world, served = _served(15_000)
    assert _acquire(served, "m1") == [0]
    world.set("group.share.record.lock.duration.ms", "1000")
    served.invalidate_terms()
    assert _acquire(served, "m2") == [4]
    world.run_for(1_100)
    assert _acquire(served, "m3") == [4]
