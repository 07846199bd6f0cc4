"""Timers ring once, at the deadline last set, in order, and only for keys that are still armed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from konvene.runtime.timers import Timers


class Clock:
    """An event loop's clock as a number that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alarms: list[tuple[float, Callable[..., Any]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Any:
        entry = (when, callback)
        self.alarms.append(entry)
        clock = self

        class Alarm:
            def cancel(self) -> None:
                if entry in clock.alarms:
                    clock.alarms.remove(entry)

        return Alarm()

    def move(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [a for a in self.alarms if a[0] <= end]:
            first = min(due, key=lambda a: a[0])
            self.alarms.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end


def test_rings_at_the_last_deadline_set() -> None:
    """Re-arming moves the deadline, earlier or later; disarming stops it."""
    clock, rang = Clock(), []
    timers = Timers(clock, lambda key: rang.append((key, clock.now)))
    timers.arm("a", 1000)
    timers.arm("b", 1000)
    timers.arm("c", 1000)
    clock.move(0.5)
    timers.arm("a", 1000)
    timers.arm("b", 100)
    timers.disarm("c")
    clock.move(5)
    assert rang == [("b", 0.6), ("a", 1.5)]
    assert len(timers) == 0


def test_leaves_alone_what_runs() -> None:
    """A key that is armed unless it is armed rings when it would have rung, and again once it has rung."""
    clock, rang = Clock(), []
    timers = Timers(clock, lambda key: rang.append((key, clock.now)))
    timers.arm("a", 1000)
    timers.arm("b", 1000, unless_armed=True)
    clock.move(0.5)
    timers.arm("a", 100, unless_armed=True)
    timers.arm("b", 9000, unless_armed=True)
    clock.move(1)
    assert rang == [("a", 1.0), ("b", 1.0)]
    timers.arm("a", 100, unless_armed=True)
    clock.move(1)
    assert rang[2:] == [("a", 1.6)]


def test_one_alarm_for_many_keys() -> None:
    """However many sessions there are, the event loop has one timer."""
    clock = Clock()
    timers = Timers(clock, lambda key: None)
    for key in range(1000):
        timers.arm(key, 10_000 - key)
    assert len(clock.alarms) == 1
    assert len(timers) == 1000
    timers.clear()
    assert clock.alarms == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 9), st.integers(0, 6)), max_size=40))
def test_like_a_plain_table_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    """Any sequence of arming, disarming and waiting rings as a plain table of deadlines would.

    In eighths of a second, which floating-point clocks hold exactly."""
    clock = Clock()
    rang: list[tuple[Hashable, int]] = []
    timers = Timers(clock, lambda key: rang.append((key, int(clock.now * 8))))
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
            clock.move(wait / 8)
            now += wait
            for due in sorted((at, k) for k, at in table.items() if at <= now):
                expected.append((due[1], due[0]))
                del table[due[1]]
    assert sorted(rang, key=str) == sorted(expected, key=str)
