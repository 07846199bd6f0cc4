"""Threads change their protocol in any order, and no task is run twice; in the end all are run."""

from __future__ import annotations

import os

import pytest
from tests.groups.streams.topology.rolling import World

STEPS = 400
SHARES = (0, 0.5, 1, 0.5, 0, 0, 0.6, 1, 0)
"""Of new threads, how many speak the streams protocol, as time goes by: there, back, and once more."""

SEEDS = range(int(os.environ.get("KONVENE_ROLLS", "25")))


def walked(seed: int, **settings: str) -> World:
    world = World(seed, **settings)
    for _ in range(world.random.randint(1, 3)):
        world.new()
    for n in range(STEPS):
        world.share = SHARES[n * len(SHARES) // STEPS]
        world.step()
    world.calm_down()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_is_run_once(seed: int) -> None:
    walked(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_is_run_once_where_there_are_standbys(seed: int) -> None:
    walked(seed, group_streams_num_standby_replicas="1")


def test_both_ways_are_gone() -> None:
    """The walks above would be worth nothing without it."""
    became = [kind for seed in range(5) for kind in walked(seed).became]
    assert became.count("StreamsGroup") > 5 < became.count("ClassicGroup")
