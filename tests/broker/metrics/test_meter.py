"""The meter counts rebalances, responses and logs, with a bounded number of labels."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.broker.metrics.group_types import Moved
from konvene.broker.metrics.instruments import OTHER
from konvene.broker.metrics.meter import Meter, error_finder, heartbeat_interval_of, log_label
from konvene.broker.net.response_cache import CachedResponse
from konvene.broker.net.router import HANDLERS
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import API_KEYS
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from konvene.messages.heartbeat import HeartbeatResponse
from konvene.messages.leave_group import LeaveGroupResponse, MemberResponse
from konvene.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from konvene.records.audit import Cause, RebalanceValue
from konvene.shard.causes import MEMBER_JOINED, MEMBER_LEFT, UNKNOWN


def meter(most_groups: int = 10) -> Meter:
    return Meter(most_groups, clock=lambda: 0.0)


def audit_row(kind: str, state: str, *causes: str, took_ms: int = 0, joined_ms: int = -1) -> RebalanceValue:
    return RebalanceValue(
        group_type=kind,
        state=state,
        started_ms=1000,
        joined_ms=joined_ms,
        ended_ms=1000 + took_ms,
        causes=tuple(Cause(kind=cause) for cause in causes),
    )


def test_rebalance_is_counted_once_with_each_cause() -> None:
    """Under the first cause in the group's lines, under all of them in the other."""
    counts = meter()
    counts.rebalance("g", audit_row("consumer", "Assigning", MEMBER_JOINED, MEMBER_JOINED, MEMBER_LEFT))
    counts.rebalance("g", audit_row("consumer", "Stable", MEMBER_JOINED, took_ms=1500, joined_ms=1200))
    counts.rebalance("g", audit_row("consumer", "Empty"))
    assert counts.begun == {("g", "consumer", MEMBER_JOINED): 1, ("g", "consumer", UNKNOWN): 1}
    assert counts.causes == {("consumer", MEMBER_JOINED): 2, ("consumer", MEMBER_LEFT): 1}
    assert {key: (b.count, b.total) for key, b in counts.rebalance_s.items()} == {("g", "consumer"): (1, 1.5)}
    assert {kind: paced.count for kind, paced in counts.rebalance_rates.items()} == {
        "classic": 0, "consumer": 2, "share": 0, "streams": 0,
    }  # fmt: skip


def test_clock_set_back_gives_no_negative_duration() -> None:
    """Audit rows have wall-clock times, which may jump."""
    counts = meter()
    counts.rebalance("g", audit_row("classic", "Stable", took_ms=-5000))
    assert counts.rebalance_s["g", "classic"].total == 0


def test_groups_above_the_limit_share_a_label_until_one_is_deleted() -> None:
    """The number of lines is bounded, whatever the number of groups."""
    counts = meter(2)
    for number in range(50):
        counts.rebalance(f"g{number}", audit_row("classic", "Stable", MEMBER_JOINED))
        counts.moved(Moved(f"g{number}", "classic", 2))
    assert counts.begun == {
        ("g0", "classic", MEMBER_JOINED): 1,
        ("g1", "classic", MEMBER_JOINED): 1,
        (OTHER, "classic", MEMBER_JOINED): 48,
    }
    assert counts.units_moved == {("g0", "classic"): 2, ("g1", "classic"): 2, (OTHER, "classic"): 96}
    counts.forget("g0")
    counts.rebalance("late", audit_row("classic", "Stable", MEMBER_JOINED))
    assert sorted(key[0] for key in counts.begun) == [OTHER, "g1", "late"]
    assert sorted(key[0] for key in counts.rebalance_s) == [OTHER, "g1", "late"]


def committed(*codes: int) -> OffsetCommitResponse:
    partitions = tuple(OffsetCommitResponsePartition(partition_index=0, error_code=code) for code in codes)
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=partitions),))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (HeartbeatResponse(), 0),
        (HeartbeatResponse(error_code=27), 27),
        (committed(0, 0), 0),
        (committed(0, 22, 25), 22),
        (LeaveGroupResponse(members=(MemberResponse(error_code=25),)), 25),
        (LeaveGroupResponse(error_code=16, members=(MemberResponse(error_code=25),)), 16),
        (b"made before", 0),
        (None, 0),
    ],
)
def test_response_counts_as_its_first_error(response: Any, expected: int) -> None:
    """Its own, or that of its first part with an error; encoded and missing responses count as NONE."""
    counts = meter()
    counts.answered(8, response)
    counts.answered(8, response)
    assert counts.responses == {(8, expected): 2}


def has_error_code(cls: type[Struct]) -> bool:
    """Return True if a response class has an error code at any depth."""
    inner = [field.element for field in cls.__fields__ if field.kind in ("array", "struct")]
    own = any(field.name == "error_code" for field in cls.__fields__)
    return own or any(has_error_code(element) for element in inner if isinstance(element, type))


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: API_KEYS[key].name)
def test_error_code_of_each_api_is_found(key: int) -> None:
    """A response class with error codes has a finder, and its default is no error."""
    response = API_KEYS[key].response
    find = error_finder(response)
    assert (find is not None) == has_error_code(response)
    assert find is None or find(response()) == Errors.NONE


def test_heartbeat_intervals_are_counted_with_cached_responses() -> None:
    """A cached response counts its interval; errors and other APIs have none."""
    counts = meter()
    counts.answered(68, ConsumerGroupHeartbeatResponse(heartbeat_interval_ms=5000))
    counts.answered(68, ConsumerGroupHeartbeatResponse(error_code=25, heartbeat_interval_ms=5000))
    for _ in range(3):
        counts.cached_response_sent(CachedResponse(bytes(8), (68, 1000)))
    counts.cached_response_sent(CachedResponse(bytes(8), (18, 0)))
    assert (counts.heartbeat_intervals().count, counts.heartbeat_intervals().total) == (4, 8.0)
    assert heartbeat_interval_of(HeartbeatResponse()) == 0


def test_only_internal_topics_have_a_log_label() -> None:
    """All other topics share one line."""
    counts = meter()
    for topic in ("__consumer_offsets", "orders", "payments"):
        counts.appended(topic, 10)
        counts.synced(topic, 0.002)
    assert counts.appends == {"__consumer_offsets": 1, "topics": 2}
    assert counts.appended_bytes == {"__consumer_offsets": 10, "topics": 20}
    assert {log: buckets.count for log, buckets in counts.syncs.items()} == counts.appends
    assert log_label("__cluster_metadata") == "__cluster_metadata"
