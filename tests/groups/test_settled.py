"""A heartbeat with nothing to say is answered as before while nothing is there to tell, and no longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konvene.groups.consumer import group as consumer
from konvene.groups.modern.group import CachedHeartbeat
from konvene.groups.modern.rebalance_trace import RebalanceTrace
from konvene.groups.streams import group as streams
from konvene.shard.image import Topics


def of(kind: Any) -> tuple[Any, CachedHeartbeat, dict[str, Any]]:
    """A group of one, what the heartbeat of its member rests on, and all groups."""
    group = kind.ConsumerGroup("g") if kind is consumer else kind.StreamsGroup("g")
    group.put(kind.Member("ann"))
    return group, CachedHeartbeat(group, group.members["ann"]), {"g": group}


@pytest.mark.parametrize("kind", [consumer, streams])
def test_the_story_of_a_rebalance_is_nobodys_news(kind: Any) -> None:
    """When it ends, whoever is settled already goes on as before."""
    group, settled, groups = of(kind)
    group.soft = replace(group.soft, trace=RebalanceTrace(7))
    assert settled.is_current(groups)
    group.soft = replace(group.soft, trace=None, computing=3)
    assert settled.is_current(groups)


@pytest.mark.parametrize(
    ("kind", "news"),
    [
        (consumer, {"seen": Topics()}),
        (streams, {"seen": Topics()}),
        (streams, {"shutdown": "bob"}),
        (streams, {"endpoint_epoch": 1}),
        (streams, {"description": "told"}),
    ],
)
def test_what_members_are_told_is_news(kind: Any, news: dict[str, Any]) -> None:
    """Also if something else has changed before."""
    group, settled, groups = of(kind)
    group.soft = replace(group.soft, trace=RebalanceTrace(7))
    assert settled.is_current(groups)
    group.soft = replace(group.soft, **news)
    assert not settled.is_current(groups)


@pytest.mark.parametrize("kind", [consumer, streams])
def test_a_new_epoch_and_another_group_are_news(kind: Any) -> None:
    """So is the member, if it is another value."""
    group, settled, groups = of(kind)
    assert not settled.is_current({"g": group.copy()})
    group.epoch += 1
    assert not settled.is_current(groups)
    group.epoch -= 1
    group.put(replace(group.members["ann"], rack_id="r"))
    assert not settled.is_current(groups)
