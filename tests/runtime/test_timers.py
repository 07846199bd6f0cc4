"""Timers fire once, at the deadline last set, in order, and only for keys that are still armed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from konvene.runtime.timers import Timers


class Clock:
    """Event loop whose clock the test advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.scheduled: list[tuple[float, Callable[..., Any]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Any:
        entry = (when, callback)
        self.scheduled.append(entry)
        clock = self

        class TimerHandle:
            def cancel(self) -> None:
                if entry in clock.scheduled:
                    clock.scheduled.remove(entry)

        return TimerHandle()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [a for a in self.scheduled if a[0] <= end]:
            first = min(due, key=lambda a: a[0])
            self.scheduled.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end


def test_a_timer_fires_at_the_last_deadline_set() -> None:
    """Rearming moves the deadline, earlier or later; disarming cancels it."""
    clock, fired = Clock(), []
    timers = Timers(clock, lambda key: fired.append((key, clock.now)))
    timers.arm("a", 1000)
    timers.arm("b", 1000)
    timers.arm("c", 1000)
    clock.advance(0.5)
    timers.arm("a", 1000)
    timers.arm("b", 100)
    timers.disarm("c")
    clock.advance(5)
    assert fired == [("b", 0.6), ("a", 1.5)]
    assert len(timers) == 0


def test_unless_armed_keeps_an_earlier_deadline() -> None:
    """Arming with `unless_armed` has no effect on an armed key, and arms it again once it has fired."""
    clock, fired = Clock(), []
    timers = Timers(clock, lambda key: fired.append((key, clock.now)))
    timers.arm("a", 1000)
    timers.arm("b", 1000, unless_armed=True)
    clock.advance(0.5)
    timers.arm("a", 100, unless_armed=True)
    timers.arm("b", 9000, unless_armed=True)
    clock.advance(1)
    assert fired == [("a", 1.0), ("b", 1.0)]
    timers.arm("a", 100, unless_armed=True)
    clock.advance(1)
    assert fired[2:] == [("a", 1.6)]


def test_many_keys_share_one_event_loop_timer() -> None:
    """The event loop has one timer, however many keys are armed."""
    clock = Clock()
    timers = Timers(clock, lambda key: None)
    for key in range(1000):
        timers.arm(key, 10_000 - key)
    assert len(clock.scheduled) == 1
    assert len(timers) == 1000
    timers.clear()
    assert clock.scheduled == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 9), st.integers(0, 6)), max_size=40))
def test_timers_behave_like_a_table_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    """Any sequence of arming, disarming and waiting fires the keys that are due in a table of deadlines.

    Times are in eighths of a second, which a float holds exactly."""
    clock = Clock()
    fired: list[tuple[Hashable, int]] = []
    timers = Timers(clock, lambda key: fired.append((key, int(clock.now * 8))))
    table: dict[str, int] = {}
    expected: list[tuple[Hashable, int]] = []
    now = 0
    for key, after, wait in steps:
        if after < 0:
            timers.disarm(key)
            table.pop(key, None)
        else:
            timers.arm(key, after * 125)
            table[key] = now + after
        if wait:
            clock.advance(wait / 8)
            now += wait
            for due in sorted((at, k) for k, at in table.items() if at <= now):
                expected.append((due[1], due[0]))
                del table[due[1]]
    assert sorted(fired, key=str) == sorted(expected, key=str)
