"""When the targets of a share group are computed while its share partitions are being initialized."""

from __future__ import annotations

import pytest
from tests.groups.share.harness import ShareGroupHarness
from tests.groups.share.test_core import AUDIT, ORDERS, assigned_partitions


@pytest.mark.parametrize("policy", ["responsive", "kafka"])
def test_target_after_an_initialization_is_computed_at_once(policy: str) -> None:
    """Only with Kafka's policy it waits for the assignment interval. The next one waits with both."""
    harness = ShareGroupHarness(group_share_assignment_interval_ms="1000", konvene_heartbeat_policy=policy)
    interval_ms = 100 if policy == "responsive" else 5000
    assert harness.beat("m").heartbeat_interval_ms == interval_ms
    assert assigned_partitions(harness.beat("n")) == {}, "it joins before the interval has passed"
    harness.work()
    if policy == "kafka":
        assert assigned_partitions(harness.beat("m")) is None
        harness.advance(1000)
    given = assigned_partitions(harness.beat("m")), assigned_partitions(harness.beat("n"))
    assert given == ({ORDERS: (0, 2, 4)}, {ORDERS: (1, 3, 5)})
    joined = harness.beat("o")
    assert assigned_partitions(joined) == {}
    assert joined.heartbeat_interval_ms == (500 if policy == "responsive" else 5000)
    harness.advance(1000)
    assert assigned_partitions(harness.beat("o"))


def test_added_topic_is_assigned_at_once_if_its_initialization_ends_within_the_interval() -> None:
    """Also for a group that has a target for its epoch already."""
    harness = ShareGroupHarness(group_share_assignment_interval_ms="1000")
    harness.stable("m")
    harness.advance(1000)
    harness.beat("m", None, "audit", "orders")
    harness.work()
    assert assigned_partitions(harness.beat("m")) == {ORDERS: tuple(range(6)), AUDIT: (0, 1)}
