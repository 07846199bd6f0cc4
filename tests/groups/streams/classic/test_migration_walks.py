"""Threads change their protocol in random order: no task ever runs twice, and in the end all tasks run."""

from __future__ import annotations

import os

import pytest
from tests.groups.streams.topology.rolling import World

STEPS = 400
SHARES = (0, 0.5, 1, 0.5, 0, 0, 0.6, 1, 0)
"""Share of new threads that speak the streams protocol over time: upgrade, downgrade, and both again."""

SEEDS = range(int(os.environ.get("KONVENE_ROLLS", "25")))


def random_walk(seed: int, **settings: str) -> World:
    world = World(seed, **settings)
    for _ in range(world.random.randint(1, 3)):
        world.new()
    for n in range(STEPS):
        world.share = SHARES[n * len(SHARES) // STEPS]
        world.step()
    world.stop_faults()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_each_task_runs_once(seed: int) -> None:
    random_walk(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_task_runs_once_with_standbys(seed: int) -> None:
    random_walk(seed, group_streams_num_standby_replicas="1")


def test_the_walks_upgrade_and_downgrade() -> None:
    """Otherwise the random runs above would prove nothing."""
    became = [kind for seed in range(5) for kind in random_walk(seed).became]
    assert became.count("StreamsGroup") > 5 < became.count("ClassicGroup")
