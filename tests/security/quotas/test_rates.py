"""Rates, token buckets and throttle times, with the figures of Kafka's own tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.quotas.precedence import quota_table
from konvene.security.quotas.rates import (
    QuotaWindows,
    Rate,
    TokenBucket,
    mutation_throttle_ms,
    rate_throttle_ms,
)
from konvene.security.quotas.sensors import EXPIRY_MS, RateSensors, Sensors, ThrottleTimes


def test_the_first_value_is_spread_over_all_windows_but_one() -> None:
    rate = Rate(QuotaWindows(11, 1_000))
    rate.record(1_000, 0)
    assert rate.measure(0) == 100
    assert rate.measure(500) == pytest.approx(1_000 / 10.5)


def test_the_throttle_time_is_kafkas() -> None:
    """10 windows of 400 bytes at a quota of 500, then 2300 more (`ClientQuotaManagerTest`)."""
    sensors = RateSensors(QuotaWindows(11, 1_000))
    sensors.table = quota_table("k", [((("client-id", None),), {"k": 500.0})])
    now_ms = 0
    for _ in range(10):
        assert sensors.record("", "client", 400, now_ms) == 0
        now_ms += 1_000
    # Half a second into the window: (4000 + 2300) / 10.5 s = 600 bytes/s; 100 / 500 * 10.5 s = 2100 ms.
    now_ms += 500
    assert sensors.record("", "client", 2_300, now_ms) == 2_100
    # The client is throttled until the window of the burst has expired.
    for _ in range(11):
        assert sensors.record("", "client", 400, now_ms) > 0
        now_ms += 1_000
    assert sensors.record("", "client", 0, now_ms) == 0


def test_a_limit_of_zero_permits_nothing() -> None:
    """`max.connection.creation.rate` may be 0; the caller bounds the throttle time."""
    rate = Rate(QuotaWindows())
    assert rate_throttle_ms(rate, 0, 0) == 0
    rate.record(1, 0)
    assert rate_throttle_ms(rate, 0, 0) == 2**31 - 1


def test_a_window_that_expired_does_not_count() -> None:
    rate = Rate(QuotaWindows(2, 1_000))
    rate.record(100, 0)
    rate.record(50, 1_500)
    assert rate.measure(1_999) == pytest.approx(150 / 1.999)
    assert rate.measure(2_000) == pytest.approx(50 / 1.5)
    assert rate.measure(9_000) == 0


def test_a_value_can_be_taken_back() -> None:
    sensors = RateSensors(QuotaWindows())
    sensors.table = quota_table("k", [((("user", None),), {"k": 10.0})])
    assert sensors.record("alice", "", 500, 0) == 40_000
    sensors.record_unthrottled("alice", "", -500, 0)
    assert sensors.record("alice", "", 100, 0) == 0
    assert sensors.max_value("alice", "", 0) == 100.0


def test_a_bounded_throttle_time() -> None:
    sensors = RateSensors(QuotaWindows(), max_throttle_ms=1_000)
    sensors.table = quota_table("k", [((("user", None),), {"k": 1.0})])
    assert sensors.record("alice", "", 500, 0) == 1_000


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 10_000)), min_size=1, max_size=60),
    st.floats(1, 5_000),
)
def test_after_the_throttle_time_the_rate_is_within_the_quota(
    values: list[tuple[int, int]], limit: float
) -> None:
    """As Kafka's formula assumes: while no window is dropped, and rounded to a millisecond."""
    rate, now_ms = Rate(QuotaWindows(10_000, 1_000)), 0
    for pause_ms, value in values:
        now_ms += pause_ms
        rate.record(value, now_ms)
    throttle_ms = rate_throttle_ms(rate, limit, now_ms)
    total = sum(value for _, value in values)
    seconds = rate.duration_ms(now_ms) / 1_000
    if throttle_ms:
        assert total / (seconds + (throttle_ms + 1) / 1_000) <= limit * (1 + 1e-9)
    else:
        assert total / (seconds + 0.001) <= limit * (1 + 1e-9)


@given(st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 2_000)), max_size=80), st.floats(10, 5_000))
def test_a_client_that_obeys_its_throttle_time_stays_within_the_quota(
    values: list[tuple[int, int]], limit: float
) -> None:
    """What is sent after each throttle time exceeds the quota by no more than the last request."""
    sensors = RateSensors(QuotaWindows())
    sensors.table = quota_table("k", [((("user", None),), {"k": limit})])
    now_ms = sent = last = 0
    for pause_ms, value in values:
        throttle_ms = sensors.record("alice", "", value, now_ms)
        sent, last = sent + value, value
        assert sent - 2 * 2_000 <= limit * (now_ms / 1_000 + 11)
        now_ms += max(throttle_ms, pause_ms)
    assert last <= 2_000


def test_a_token_bucket_is_kafkas() -> None:
    """The example of Kafka's class: after a burst of 560 at 5 per second a client waits 12 seconds."""
    bucket = TokenBucket(QuotaWindows(100, 1_000))
    assert bucket.tokens(5, 0) == 500
    tokens = bucket.take(560, 5, 0)
    assert (tokens, mutation_throttle_ms(tokens, 5)) == (-60, 12_000)
    assert bucket.tokens(5, 12_000) == 0
    assert bucket.tokens(5, 1_000_000) == 500
    bucket.take(600, 5, 1_000_000)
    bucket.fill()
    assert bucket.tokens(5, 1_000_000) == 500


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 300)), max_size=50), st.floats(0.1, 100))
def test_a_strict_bucket_grants_no_more_than_a_burst_and_its_rate(
    values: list[tuple[int, int]], limit: float
) -> None:
    bucket, now_ms, granted = TokenBucket(QuotaWindows()), 0, 0
    for pause_ms, count in values:
        now_ms += pause_ms
        if bucket.tokens(limit, now_ms) >= 0:
            bucket.take(count, limit, now_ms)
            granted += count
        assert granted <= limit * (11 + now_ms / 1_000) + 300 + 1e-6


def test_sensors_are_removed_after_an_hour_without_use() -> None:
    sensors = RateSensors(QuotaWindows())
    sensors.record("", "a", 1, 0)
    sensors.record("", "b", 1, 1_000)
    sensors.record("", "a", 1, 2_000)
    sensors.remove_unused(EXPIRY_MS + 1_000)
    assert [tags.client_id for tags, _ in sensors.latest()] == ["a"]
    sensors.record("", "c", 1, EXPIRY_MS + 2_000)
    assert [tags.client_id for tags, _ in sensors.latest()] == ["c"]


def test_the_number_of_sensors_is_bounded() -> None:
    """Clients with ever new client ids do not remove the sensor of one that is in use."""
    sensors: Sensors[ThrottledValue] = Sensors(QuotaWindows(), ThrottledValue, max_sensors=100)
    first, _ = sensors.of("", "kept", 0)
    for number in range(1_000):
        sensors.of("", f"client-{number}", number)
        assert sensors.of("", "kept", number)[0] is first
    assert len(sensors) == 100


class ThrottledValue:
    """A sensor without measurements."""

    def __init__(self, _windows: QuotaWindows) -> None:
        self.used_ms = 0.0


def test_the_average_throttle_time() -> None:
    times = ThrottleTimes()
    assert times.average_ms(0) is None
    times.record(100, 0)
    times.record(300, 10_000)
    assert times.average_ms(20_000) == pytest.approx(200)
    assert times.average_ms(200_000) is None
