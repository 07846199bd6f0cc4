"""A cached heartbeat is valid until the group has something to report to the member."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konvene.groups.consumer import group as consumer
from konvene.groups.modern.group import CachedHeartbeat
from konvene.groups.modern.rebalance_trace import RebalanceTrace
from konvene.groups.streams import group as streams
from konvene.shard.image import Topics


def group_with_cached_heartbeat(kind: Any) -> tuple[Any, CachedHeartbeat, dict[str, Any]]:
    """Return a group of one member, the cached heartbeat of that member, and all groups."""
    group = kind.ConsumerGroup("g") if kind is consumer else kind.StreamsGroup("g")
    group.put(kind.Member("ann"))
    return group, CachedHeartbeat(group, group.members["ann"]), {"g": group}


@pytest.mark.parametrize("kind", [consumer, streams])
def test_the_trace_of_a_rebalance_does_not_invalidate_it(kind: Any) -> None:
    """When a rebalance ends, the cached heartbeats of settled members stay valid."""
    group, cached, groups = group_with_cached_heartbeat(kind)
    group.soft = replace(group.soft, trace=RebalanceTrace(7))
    assert cached.is_current(groups)
    group.soft = replace(group.soft, trace=None, computing=3)
    assert cached.is_current(groups)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (consumer, {"hashed_topics": Topics()}),
        (streams, {"hashed_topics": Topics()}),
        (streams, {"shutdown": "bob"}),
        (streams, {"endpoint_epoch": 1}),
        (streams, {"description": "told"}),
    ],
)
def test_a_change_of_what_members_receive_invalidates_it(kind: Any, change: dict[str, Any]) -> None:
    """Also if something else has changed before."""
    group, cached, groups = group_with_cached_heartbeat(kind)
    group.soft = replace(group.soft, trace=RebalanceTrace(7))
    assert cached.is_current(groups)
    group.soft = replace(group.soft, **change)
    assert not cached.is_current(groups)


@pytest.mark.parametrize("kind", [consumer, streams])
def test_a_new_epoch_or_another_group_invalidates_it(kind: Any) -> None:
    """A replaced member invalidates it as well."""
    group, cached, groups = group_with_cached_heartbeat(kind)
    assert not cached.is_current({"g": group.copy()})
    group.epoch += 1
    assert not cached.is_current(groups)
    group.epoch -= 1
    group.put(replace(group.members["ann"], rack_id="r"))
    assert not cached.is_current(groups)
