"""The heartbeat interval sent to members and how long a response may be held, for all settings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.configs.broker.table import BROKER
from konvene.groups.heartbeat_intervals import (
    GAPS,
    MOST_CLASSIC_MS,
    MOST_STATIC_MS,
    STEP_MS,
    HeartbeatSpacing,
    heartbeat_interval_ms,
    initializing_interval_ms,
    max_classic_hold_ms,
    max_hold_ms,
)

INTERVALS = st.integers(1, 60_000)
MEMBERS = st.integers(0, 100_000)


def config(policy: str = "responsive", **overrides: int) -> dict[str, Any]:
    """Return the settings of the policy: the defaults, overridden by `overrides`."""
    names = {name: row.default for name, row in BROKER.items() if name.startswith("konvene.heartbeat.")}
    return names | {"konvene.heartbeat.policy": policy} | {
        f"konvene.heartbeat.{name.replace('_', '.')}": value for name, value in overrides.items()
    }  # fmt: skip


CONFIGS = st.builds(
    config,
    interval_ms=st.integers(100, 20_000),
    waiting_interval_ms=st.integers(100, 20_000),
    budget_per_second=st.integers(1, 10_000),
)


@given(INTERVALS, MEMBERS, st.booleans(), CONFIGS)
def test_policy_kafka_keeps_the_configured_interval(
    configured: int, members: int, waits: bool, settings: dict[str, Any]
) -> None:
    """With policy kafka every member gets the configured interval."""
    as_kafka = settings | {"konvene.heartbeat.policy": "kafka"}
    assert heartbeat_interval_ms(configured, as_kafka, members, waits=waits) == configured


@given(INTERVALS, MEMBERS, st.booleans(), CONFIGS)
def test_the_interval_is_never_longer_than_configured(
    configured: int, members: int, waits: bool, settings: dict[str, Any]
) -> None:
    """Whatever the number of members and the settings; and never 0."""
    assert 0 < heartbeat_interval_ms(configured, settings, members, waits=waits) <= configured


@given(INTERVALS, MEMBERS, CONFIGS, st.text(min_size=1))
def test_members_get_individual_intervals_only_if_intervals_are_stretched(
    configured: int, members: int, settings: dict[str, Any], member_id: str
) -> None:
    """It is stable, within a tenth of the common interval, and never above the configured one."""
    common = heartbeat_interval_ms(configured, settings, members, waits=False)
    own = heartbeat_interval_ms(configured, settings, members, waits=False, member_id=member_id)
    assert own == heartbeat_interval_ms(configured, settings, members, waits=False, member_id=member_id)
    if common <= settings["konvene.heartbeat.interval.ms"]:
        assert own == common
    else:
        assert common * 9 // 10 <= own <= min(configured, common * 11 // 10)


def test_heartbeats_of_ten_thousand_simultaneous_joins_spread_out() -> None:
    """Few of them heartbeat in the same moment, and the total rate hardly grows."""
    intervals = Counter(
        heartbeat_interval_ms(5000, config(), 10_000, waits=False, member_id=f"member-{n}")
        for n in range(10_000)
    )
    assert (min(intervals), max(intervals)) == (4501, 5000)
    assert max(intervals.values()) < 50
    assert sum(ms * count for ms, count in intervals.items()) / 10_000 > 4700


@given(INTERVALS, MEMBERS, CONFIGS)
def test_the_heartbeat_rate_stays_in_the_budget(
    configured: int, members: int, settings: dict[str, Any]
) -> None:
    """The rate of heartbeats stays within the budget, unless the configured interval alone exceeds it."""
    interval = heartbeat_interval_ms(configured, settings, members, waits=False)
    budget = settings["konvene.heartbeat.budget.per.second"]
    assert interval == configured or members * 1000 <= budget * interval


@given(INTERVALS, MEMBERS, MEMBERS, CONFIGS)
def test_the_interval_never_falls_with_more_members(
    configured: int, one: int, other: int, settings: dict[str, Any]
) -> None:
    """The interval grows with the number of members, in steps."""
    few, many = sorted((one, other))
    intervals = [heartbeat_interval_ms(configured, settings, members, waits=False) for members in (few, many)]
    assert intervals[0] <= intervals[1]
    shortest = settings["konvene.heartbeat.interval.ms"]
    assert all(interval in (configured, shortest) or interval % STEP_MS == 0 for interval in intervals)


@given(INTERVALS, MEMBERS, MEMBERS, CONFIGS)
def test_the_interval_of_waiting_members_does_not_depend_on_their_number(
    configured: int, one: int, other: int, settings: dict[str, Any]
) -> None:
    """A rebalance ends soon in large groups as well."""
    intervals = {heartbeat_interval_ms(configured, settings, members, waits=True) for members in (one, other)}
    assert intervals == {min(configured, settings["konvene.heartbeat.waiting.interval.ms"])}


@pytest.mark.parametrize(
    ("members", "expected"), [(0, 100), (200, 100), (400, 200), (1000, 500), (100_000, 500)]
)
def test_the_interval_during_an_initialization_keeps_to_the_budget(members: int, expected: int) -> None:
    """But it is never longer than that of other waiting members, or the configured one."""
    assert initializing_interval_ms(5000, config(), members) == expected
    assert initializing_interval_ms(60, config(), members) == 60
    assert initializing_interval_ms(5000, config("kafka"), members) == 5000


@pytest.mark.parametrize(
    ("members", "expected"),
    [(0, 1000), (2000, 1000), (2001, 1250), (2500, 1250), (2501, 1500), (10_000, 5000), (10_001, 5000)],
)
def test_the_interval_by_default(members: int, expected: int) -> None:
    """One second for up to 2,000 members, Kafka's five seconds from 10,000 on."""
    assert heartbeat_interval_ms(5000, config(), members, waits=False) == expected


@given(st.integers(0, 3_600_000), st.booleans())
def test_a_response_is_held_for_less_than_the_interval(interval: int, is_static: bool) -> None:
    """At least a fifth of the interval and a quarter of a second remain; otherwise nothing is held."""
    held = max_hold_ms(interval, is_static=is_static)
    assert held >= 0
    assert held == 0 or held <= interval - 250
    assert held == 0 or held <= interval * 0.8 + 1


@given(st.integers(0, 3_600_000))
def test_responses_to_static_members_are_held_briefly(interval: int) -> None:
    """Its close waits for the response."""
    assert max_hold_ms(interval, is_static=True) == min(
        max_hold_ms(interval, is_static=False), MOST_STATIC_MS
    )
    assert MOST_STATIC_MS == 800


@pytest.mark.parametrize(
    ("interval", "expected"),
    [(5000, 4000), (1250, 1000), (1000, 750), (500, 250), (250, 0), (100, 0)],
)
def test_max_hold_of_usual_intervals(interval: int, expected: int) -> None:
    """At most what was measured to be safe with real clients: 800 of 1,000 ms, 4,000 of 5,000."""
    assert max_hold_ms(interval, is_static=False) == expected


# --- members of classic groups ---


@given(st.integers(0, 3_600_000), st.booleans())
def test_responses_to_classic_members_are_held_for_less_than_their_interval(
    learnt: int, is_static: bool
) -> None:
    """At least a tenth of the interval remains; the maximum is 4.5 s, and 0.8 s for static members."""
    held = max_classic_hold_ms(learnt, is_static=is_static)
    assert 0 <= held <= learnt * 0.9
    assert held <= (MOST_STATIC_MS if is_static else MOST_CLASSIC_MS) < 5000


JITTER_MS = st.integers(0, 2000)


@given(st.integers(100, 60_000), st.lists(st.tuples(JITTER_MS, st.integers(0, 100)), max_size=30))
def test_the_learnt_interval_lies_between_the_gaps(interval: int, beats: list[tuple[int, int]]) -> None:
    """For a client that counts from its heartbeats: each is late by some time, and its response is held for
    part of the allowed time."""
    spacing, now, gaps = HeartbeatSpacing(), 0, []
    spacing.came(now, again=False)
    for late, percent in beats:
        held = max_classic_hold_ms(spacing.learnt_ms, is_static=False) * percent // 100
        spacing.answered(now + held)
        now += interval + late
        spacing.came(now, again=True)
        gaps.append(interval + late)
        assert spacing.learnt_ms == 0 or min(gaps) <= spacing.learnt_ms <= max(gaps)
        assert (spacing.learnt_ms == 0) or len(gaps) >= GAPS


@given(st.integers(500, 10_000), st.integers(4, 60))
def test_holding_responses_does_not_stretch_the_learnt_interval(interval: int, beats: int) -> None:
    """A client that counts from the response is held no longer in the end than in the beginning."""
    spacing, now, answered = HeartbeatSpacing(), 0, 0
    for _ in range(beats):
        spacing.came(now, again=now > 0)
        answered = now + max_classic_hold_ms(spacing.learnt_ms, is_static=False)
        spacing.answered(answered)
        now = answered + interval
    assert spacing.learnt_ms in (0, interval)


def test_ambiguous_gaps_do_not_teach_an_interval() -> None:
    """A gap with another heartbeat in it, or after a late response; and two gaps are not enough."""
    spacing = HeartbeatSpacing()
    assert repr(spacing) == "<heartbeat interval not known yet>"
    for at, again in ((0, False), (3000, True), (6000, True), (60_000, False)):
        spacing.came(at, again=again)
        assert spacing.learnt_ms == 0
    spacing.answered(61_000)
    spacing.came(63_000, again=True)
    assert spacing.learnt_ms == 0
    spacing.came(66_500, again=True)
    assert repr(spacing) == "<a heartbeat every 3000 ms>"
