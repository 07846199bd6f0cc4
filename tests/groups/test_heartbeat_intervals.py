"""What members are told to wait between heartbeats, and how long an answer may be kept, for all settings."""

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
    max_classic_hold_ms,
    max_hold_ms,
)

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
    assert heartbeat_interval_ms(configured, as_kafka, members, waits=waits) == configured


@given(INTERVALS, MEMBERS, st.booleans(), CONFIGS)
def test_never_longer_than_configured(
    configured: int, members: int, waits: bool, said: dict[str, Any]
) -> None:
    """However many there are and whatever is set; and never nothing."""
    assert 0 < heartbeat_interval_ms(configured, said, members, waits=waits) <= configured


@given(INTERVALS, MEMBERS, CONFIGS, st.text(min_size=1))
def test_each_has_its_own_only_where_intervals_are_stretched(
    configured: int, members: int, said: dict[str, Any], member_id: str
) -> None:
    """Always the same, a tenth more or less than it would be, and never above the configured one."""
    common = heartbeat_interval_ms(configured, said, members, waits=False)
    own = heartbeat_interval_ms(configured, said, members, waits=False, member_id=member_id)
    assert own == heartbeat_interval_ms(configured, said, members, waits=False, member_id=member_id)
    if common <= said["konvene.heartbeat.interval.ms"]:
        assert own == common
    else:
        assert common * 9 // 10 <= own <= min(configured, common * 11 // 10)


def test_ten_thousand_who_joined_at_once_come_apart() -> None:
    """Of those who would come in the same moment few do, and all together hardly more often."""
    told = Counter(
        heartbeat_interval_ms(5000, config(), 10_000, waits=False, member_id=f"member-{n}")
        for n in range(10_000)
    )
    assert (min(told), max(told)) == (4501, 5000)
    assert max(told.values()) < 50
    assert sum(ms * count for ms, count in told.items()) / 10_000 > 4700


@given(INTERVALS, MEMBERS, CONFIGS)
def test_all_together_stay_in_the_budget(configured: int, members: int, said: dict[str, Any]) -> None:
    """No more heartbeats a second than there may be, unless the configured interval itself means more."""
    told = heartbeat_interval_ms(configured, said, members, waits=False)
    budget = said["konvene.heartbeat.budget.per.second"]
    assert told == configured or members * 1000 <= budget * told


@given(INTERVALS, MEMBERS, MEMBERS, CONFIGS)
def test_more_members_are_never_told_less(
    configured: int, one: int, other: int, said: dict[str, Any]
) -> None:
    """The interval grows with the number of members, in steps."""
    few, many = sorted((one, other))
    told = [heartbeat_interval_ms(configured, said, members, waits=False) for members in (few, many)]
    assert told[0] <= told[1]
    shortest = said["konvene.heartbeat.interval.ms"]
    assert all(t in (configured, shortest) or t % STEP_MS == 0 for t in told)


@given(INTERVALS, MEMBERS, MEMBERS, CONFIGS)
def test_who_waits_is_told_the_same_however_many(
    configured: int, one: int, other: int, said: dict[str, Any]
) -> None:
    """A rebalance is over soon also where there are many."""
    told = {heartbeat_interval_ms(configured, said, members, waits=True) for members in (one, other)}
    assert told == {min(configured, said["konvene.heartbeat.waiting.interval.ms"])}


@pytest.mark.parametrize(
    ("members", "told"),
    [(0, 1000), (2000, 1000), (2001, 1250), (2500, 1250), (2501, 1500), (10_000, 5000), (10_001, 5000)],
)
def test_the_interval_by_default(members: int, told: int) -> None:
    """One second for up to 2,000 members, Kafka's five seconds from 10,000 on."""
    assert heartbeat_interval_ms(5000, config(), members, waits=False) == told


@given(st.integers(0, 3_600_000), st.booleans())
def test_held_below_the_told_interval(told: int, is_static: bool) -> None:
    """A fifth of the interval stays, and a tenth of a second at least; else nothing is held."""
    held = max_hold_ms(told, is_static=is_static)
    assert held >= 0
    assert held == 0 or held <= told - 100
    assert held == 0 or held <= told * 0.8 + 1


@given(st.integers(0, 3_600_000))
def test_a_static_member_is_never_held_for_long(told: int) -> None:
    """Its close waits for the answer."""
    assert max_hold_ms(told, is_static=True) == min(max_hold_ms(told, is_static=False), MOST_STATIC_MS)
    assert MOST_STATIC_MS == 800


@pytest.mark.parametrize(
    ("told", "held"), [(5000, 4000), (1250, 1000), (1000, 800), (500, 400), (250, 150), (100, 0), (50, 0)]
)
def test_how_long_answers_are_held(told: int, held: int) -> None:
    """As measured to be safe with real clients: 800 of 1,000 ms, 4,000 of 5,000."""
    assert max_hold_ms(told, is_static=False) == held


# --- members of classic groups ---


@given(st.integers(0, 3_600_000), st.booleans())
def test_classic_members_are_held_below_their_interval(learnt: int, is_static: bool) -> None:
    """A tenth of it stays, and 4.5 s are the most; from static members 0.8 s."""
    held = max_classic_hold_ms(learnt, is_static=is_static)
    assert 0 <= held <= learnt * 0.9
    assert held <= (MOST_STATIC_MS if is_static else MOST_CLASSIC_MS) < 5000


JITTER_MS = st.integers(0, 2000)


@given(st.integers(100, 60_000), st.lists(st.tuples(JITTER_MS, st.integers(0, 100)), max_size=30))
def test_the_interval_is_never_taken_for_longer_than_the_shortest_gap(
    interval: int, beats: list[tuple[int, int]]
) -> None:
    """Of a client that counts from its heartbeats: each comes late by some time, and its answer is held for
    some part of what may be."""
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
def test_holds_do_not_feed_upon_themselves(interval: int, beats: int) -> None:
    """A client that counts from the answer is held for no longer in the end than in the beginning."""
    spacing, now, answered = HeartbeatSpacing(), 0, 0
    for _ in range(beats):
        spacing.came(now, again=now > 0)
        answered = now + max_classic_hold_ms(spacing.learnt_ms, is_static=False)
        spacing.answered(answered)
        now = answered + interval
    assert spacing.learnt_ms in (0, interval)


def test_what_says_nothing_of_the_interval() -> None:
    """A gap with another heartbeat in it, or behind an answer that came late; and two gaps are not enough."""
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
