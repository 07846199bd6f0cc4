"""A throttle limits the rate of all its users together."""

from __future__ import annotations

from konvene.broker.storage.throttle import MIN_PAUSE_S, Throttle


def test_pauses_keep_the_total_rate() -> None:
    """A pause covers all earlier operations, also of other users; idle time is not saved."""
    throttle = Throttle(100.0)
    assert throttle.pause_after(50, 10.0) == 0.5
    assert throttle.pause_after(100, 10.0) == 1.5
    assert throttle.pause_after(100, 11.5) == 1.0
    assert throttle.pause_after(100, 100.0) == 1.0


def test_short_pauses_are_postponed() -> None:
    throttle = Throttle(1000.0)
    count = int(MIN_PAUSE_S * 1000) - 1
    assert throttle.pause_after(count, 0.0) == 0.0
    assert throttle.pause_after(1, 0.0) == MIN_PAUSE_S


def test_no_pauses_without_a_limit() -> None:
    """Kafka's default is the largest double. A limit of 0 does not stop all operations."""
    throttle = Throttle(1.7976931348623157e308)
    assert throttle.pause_after(1 << 50, 0.0) == 0.0
    throttle.set_rate(0.0)
    assert throttle.pause_after(10, 0.0) == 10.0


def test_a_new_rate_drops_postponed_pauses() -> None:
    """Setting the same rate does not."""
    throttle = Throttle(1.0)
    throttle.pause_after(100, 0.0)
    throttle.set_rate(1.0)
    assert throttle.pause_after(1, 0.0) == 101.0
    throttle.set_rate(2.0)
    assert throttle.pause_after(1, 0.0) == 0.5
