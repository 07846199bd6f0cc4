"""What members are told to wait between heartbeats, and how long an answer may be kept, for all settings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.configs.broker import BROKER
from konvene.groups.intervals import MOST_STATIC_MS, STEP_MS, hold_ms, told_interval_ms

INTERVALS = st.integers(1, 60_000)
MEMBERS = st.integers(0, 100_000)


def config(policy: str = "responsive", **said: int) -> dict[str, Any]:
    """The settings that the policy rests on, at their defaults but for what is said."""
    names = {name: row.default for name, row in BROKER.items() if name.startswith("konvene.heartbeat.")}
    return names | {"konvene.heartbeat.policy": policy} | {
        f"konvene.heartbeat.{name.replace('_', '.')}": value for name, value in said.items()
    }  # fmt: skip


CONFIGS = st.builds(
    config,
    interval_ms=st.integers(100, 20_000),
    waiting_interval_ms=st.integers(100, 20_000),
    budget_per_second=st.integers(1, 10_000),
)


@given(INTERVALS, MEMBERS, st.booleans(), CONFIGS)
def test_as_by_kafka_unless_asked(configured: int, members: int, waits: bool, said: dict[str, Any]) -> None:
    """With policy kafka everybody is told what is configured."""
    as_kafka = said | {"konvene.heartbeat.policy": "kafka"}
    assert told_interval_ms(configured, as_kafka, members, waits=waits) == configured


@given(INTERVALS, MEMBERS, st.booleans(), CONFIGS)
def test_never_longer_than_configured(
    configured: int, members: int, waits: bool, said: dict[str, Any]
) -> None:
    """However many there are and whatever is set; and never nothing."""
    assert 0 < told_interval_ms(configured, said, members, waits=waits) <= configured


@given(INTERVALS, MEMBERS, CONFIGS)
def test_all_together_stay_in_the_budget(configured: int, members: int, said: dict[str, Any]) -> None:
    """No more heartbeats a second than there may be, unless the configured interval itself means more."""
    told = told_interval_ms(configured, said, members, waits=False)
    budget = said["konvene.heartbeat.budget.per.second"]
    assert told == configured or members * 1000 <= budget * told


@given(INTERVALS, MEMBERS, MEMBERS, CONFIGS)
def test_more_members_are_never_told_less(
    configured: int, one: int, other: int, said: dict[str, Any]
) -> None:
    """The interval grows with the number of members, in steps."""
    few, many = sorted((one, other))
    told = [told_interval_ms(configured, said, members, waits=False) for members in (few, many)]
    assert told[0] <= told[1]
    shortest = said["konvene.heartbeat.interval.ms"]
    assert all(t in (configured, shortest) or t % STEP_MS == 0 for t in told)


@given(INTERVALS, MEMBERS, MEMBERS, CONFIGS)
def test_who_waits_is_told_the_same_however_many(
    configured: int, one: int, other: int, said: dict[str, Any]
) -> None:
    """A rebalance is over soon also where there are many."""
    told = {told_interval_ms(configured, said, members, waits=True) for members in (one, other)}
    assert told == {min(configured, said["konvene.heartbeat.waiting.interval.ms"])}


@pytest.mark.parametrize(
    ("members", "told"),
    [(0, 1000), (2000, 1000), (2001, 1250), (2500, 1250), (2501, 1500), (10_000, 5000), (10_001, 5000)],
)
def test_the_interval_by_default(members: int, told: int) -> None:
    """One second for up to 2,000 members, Kafka's five seconds from 10,000 on."""
    assert told_interval_ms(5000, config(), members, waits=False) == told


@given(st.integers(0, 3_600_000), st.booleans())
def test_held_below_the_told_interval(told: int, is_static: bool) -> None:
    """A fifth of the interval stays, and a tenth of a second at least; else nothing is held."""
    held = hold_ms(told, is_static=is_static)
    assert held >= 0
    assert held == 0 or held <= told - 100
    assert held == 0 or held <= told * 0.8 + 1


@given(st.integers(0, 3_600_000))
def test_a_static_member_is_never_held_for_long(told: int) -> None:
    """Its close waits for the answer."""
    assert hold_ms(told, is_static=True) == min(hold_ms(told, is_static=False), MOST_STATIC_MS)
    assert MOST_STATIC_MS == 800


@pytest.mark.parametrize(
    ("told", "held"), [(5000, 4000), (1250, 1000), (1000, 800), (500, 400), (250, 150), (100, 0), (50, 0)]
)
def test_how_long_answers_are_held(told: int, held: int) -> None:
    """As measured to be safe with real clients: 800 of 1,000 ms, 4,000 of 5,000."""
    assert hold_ms(told, is_static=False) == held
