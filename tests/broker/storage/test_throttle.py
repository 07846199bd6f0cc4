"""Bytes a second, over all who ask."""

from __future__ import annotations

from konvene.broker.storage.throttle import MIN_PAUSE_S, Throttle


def test_so_many_bytes_a_second_and_no_more() -> None:
    """Who asks pauses for all that was done before, also by others; time that nobody used is not saved."""
    throttle = Throttle(100.0)
    assert throttle.pause_after(50, 10.0) == 0.5
    assert throttle.pause_after(100, 10.0) == 1.5
    assert throttle.pause_after(100, 11.5) == 1.0
    assert throttle.pause_after(100, 100.0) == 1.0


def test_what_is_not_worth_a_pause_is_owed() -> None:
    throttle = Throttle(1000.0)
    count = int(MIN_PAUSE_S * 1000) - 1
    assert throttle.pause_after(count, 0.0) == 0.0
    assert throttle.pause_after(1, 0.0) == MIN_PAUSE_S


def test_without_a_bound_nobody_pauses() -> None:
    """Kafka's default is the largest number there is; and no bound is so low that nothing goes on."""
    throttle = Throttle(1.7976931348623157e308)
    assert throttle.pause_after(1 << 50, 0.0) == 0.0
    throttle.set_rate(0.0)
    assert throttle.pause_after(10, 0.0) == 10.0


def test_another_bound_forgives_what_was_owed() -> None:
    """And the same one does not."""
    throttle = Throttle(1.0)
    throttle.pause_after(100, 0.0)
    throttle.set_rate(1.0)
    assert throttle.pause_after(1, 0.0) == 101.0
    throttle.set_rate(2.0)
    assert throttle.pause_after(1, 0.0) == 0.5
