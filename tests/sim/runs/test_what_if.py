"""What-if: what can be worked out by hand comes out so, and plans that differ tell the difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from konvene.sim.runs.meter import Meter, Outcome, Rebalanced, causes_of, measures, percentile
from konvene.sim.runs.plot import plot
from konvene.sim.runs.what_if import Plan, PlanRun, run_job, run_plan

SMALL = Plan(members=4, partitions=12, minutes=10, revoke_ms=0)


class Owner:
    """As much of a member as a meter looks at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owned: set[tuple[str, int]] = set()


def own(meter: Meter, owner: Owner, *partitions: int) -> None:
    owner.owned = {("orders", p) for p in partitions}
    meter.owned(owner, 0, 0)  # type: ignore[arg-type]


# --- the meter -----------------------------------------------------------------------------------


def test_the_meter_counts_by_hand() -> None:
    """Two partitions: 0 is nobody's for 3 s, 1 for 1 s until the end; the first of these moves."""
    now = [0]
    outcome = Outcome(0)
    meter = Meter(outcome, 2)
    meter.clock(lambda: now[0])
    ann, bob = Owner("ann"), Owner("bob")
    for each in (ann, bob):
        meter.started(each)  # type: ignore[arg-type]
    own(meter, ann, 0)
    own(meter, bob, 1)
    now[0] = 5_000
    meter.begin()
    outcome.rebalances.append(Rebalanced(0, 1, "Stable", ()))
    now[0] = 10_000
    own(meter, ann)
    now[0] = 13_000
    own(meter, bob, 0, 1)
    now[0] = 19_000
    own(meter, bob, 0)
    now[0] = 20_000
    meter.end()
    assert outcome.unavailable_s == 4.0
    assert outcome.outages_ms == Counter({3_000: 1, 1_000: 1})
    assert outcome.most_unavailable == 1
    assert outcome.timeline == [(0.0, 0), (5.0, 1), (8.0, 0), (14.0, 1)]
    assert outcome.idle_s == 10.0
    assert outcome.rebalances[0].moved == 1


def test_a_partition_with_two_owners_is_available_until_both_are_gone() -> None:
    """A member that was fenced may not know it yet."""
    meter = Meter(outcome := Outcome(0), 1)
    ann, bob = Owner("ann"), Owner("bob")
    own(meter, ann, 0)
    own(meter, bob, 0)
    own(meter, ann)
    assert meter.missing == 0
    own(meter, bob)
    assert meter.missing == 1
    assert outcome.timeline == []  # It has not begun.


def test_percentiles_are_values_that_were_met() -> None:
    values = Counter({1.0: 50, 2.0: 48, 7.0: 2})
    assert [percentile(values, part) for part in (0.5, 0.51, 0.98, 0.99)] == [1.0, 2.0, 2.0, 7.0]
    assert percentile(Counter(), 0.5) == 0.0


# --- what plans come to --------------------------------------------------------------------------


def test_a_group_that_is_left_alone_does_not_rebalance() -> None:
    outcome = run_plan(SMALL, 0)
    assert (outcome.rebalances, outcome.unavailable_s, outcome.idle_s) == ([], 0.0, 0.0)
    assert 3.0 <= outcome.stable_after_s <= 10.0  # group.initial.rebalance.delay.ms


def test_static_members_that_come_back_in_time_rebalance_nobody() -> None:
    """Four members, each 20 s away with 3 partitions: 240 partition-seconds, and nothing moves."""
    outcome = run_plan(replace(SMALL, static=True, rolling_restart=True), 1)
    assert outcome.restarted == 4
    assert outcome.rebalances == []
    assert outcome.unavailable_s == pytest.approx(4 * 3 * 20, rel=0.01)
    assert {round(ms / 1000) for ms in outcome.outages_ms} == {20}


def test_dynamic_members_that_are_restarted_rebalance_twice_each() -> None:
    """One leaves, and comes back 20 s later: two rebalances, which others notice within a heartbeat."""
    outcome = run_plan(replace(SMALL, rolling_restart=True), 1)
    assert len(outcome.rebalances) == 2 * 4
    assert {c for r in outcome.rebalances for c in r.causes} == {"member-left", "member-joined"}
    assert all(r.state == "Stable" and r.took_s < 3.1 for r in outcome.rebalances)
    assert sum(r.moved for r in outcome.rebalances) > 0
    assert outcome.most_unavailable == 12  # Eager members give up everything.


def test_members_of_a_consumer_group_give_up_only_what_others_are_given() -> None:
    plan = replace(SMALL, protocol="consumer", rolling_restart=True)
    outcome = run_plan(plan, 1)
    assert plan.effective_assignor == "uniform"
    assert outcome.restarted == 4
    assert {c for r in outcome.rebalances for c in r.causes} == {"member-left", "member-joined"}
    assert 0 < outcome.most_unavailable < 12


def test_static_members_of_a_consumer_group_keep_their_place_while_they_are_restarted() -> None:
    outcome = run_plan(replace(SMALL, protocol="consumer", static=True, rolling_restart=True), 1)
    assert (outcome.restarted, outcome.stopped, outcome.rebalances) == (4, 0, [])


def test_a_member_that_dies_is_missed_for_its_session() -> None:
    """Nobody has its partitions before 45 s are over, less a heartbeat; then there is a rebalance."""
    plan = replace(SMALL, minutes=3, kill_rate=0.7, down_for_s=3_600)
    outcome = next(o for o in (run_plan(plan, seed) for seed in range(20)) if o.killed == 1 and o.rebalances)
    (rebalance,) = outcome.rebalances
    assert rebalance.causes == ("session-expired",)
    longest_s = max(outcome.outages_ms) / 1000
    assert 42 <= longest_s <= 45 + 3 + 3


def test_cooperative_members_keep_what_they_have() -> None:
    """The same deaths: eager members all stop, cooperative ones do not."""
    plan = replace(SMALL, kill_rate=0.5)
    eager, cooperative = (run_plan(replace(plan, assignor=a), 3) for a in ("range", "cooperative-sticky"))
    assert eager.killed == cooperative.killed > 0
    assert eager.most_unavailable == 12 > cooperative.most_unavailable
    assert cooperative.unavailable_s < eager.unavailable_s


def test_a_failover_loses_nobody() -> None:
    """The new coordinator knows the group; members go on in their generation."""
    outcome = run_plan(replace(SMALL, coordinator_failovers=3), 0)
    assert outcome.failovers == 3
    assert outcome.rebalances == []


def test_a_shorter_session_finds_the_dead_sooner() -> None:
    plan = replace(SMALL, kill_rate=0.5, down_for_s=120)
    long, short = (run_plan(replace(plan, session_timeout_ms=ms), 2) for ms in (45_000, 10_000))
    assert long.killed == short.killed > 0
    assert max(short.outages_ms) < max(long.outages_ms)


def test_the_same_seed_is_the_same_play() -> None:
    plan = replace(SMALL, kill_rate=1, loss=0.02)
    first, second = (run_plan(plan, 5, stopwatch=lambda: 0.0) for _ in range(2))
    assert first == second
    assert run_plan(plan, 6, stopwatch=lambda: 0.0) != first


# --- plans ---------------------------------------------------------------------------------------


def test_a_plan_is_changed_by_the_names_of_options_and_settings() -> None:
    changed = SMALL.changed("session-timeout-ms", "10000").changed("static", "true").changed("down-for", "5")
    assert changed == replace(SMALL, session_timeout_ms=10_000, static=True, down_for_s=5.0)
    setting = SMALL.changed("group.initial.rebalance.delay.ms", "0")
    assert setting.settings == (("group.initial.rebalance.delay.ms", "0"),)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("static", "perhaps", "not a valid bool"),
        ("members", "0", "must be at least 1"),
        ("members", "few", "not a valid int"),
        ("assignor", "sticky", "unknown assignor sticky"),
        ("protocol", "carrier-pigeon", "unknown protocol carrier-pigeon; known protocols: classic"),
        ("session-timeout-ms", "1000", "the broker allows 6000 to 1800000"),
        ("loss", "1", "and loss less than 1"),
        ("partition", "3", "partition is neither a setting of the broker nor one of members"),
        ("group.max.sise", "3", "group.max.sise"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SMALL.changed(name, value).check()


# --- what it comes to ----------------------------------------------------------------------------


def test_measures_are_over_all_seeds() -> None:
    """Of runs and rebalances, whichever it is; causes are counted per rebalance and in all."""
    one, two = Outcome(0, unavailable_s=60.0), Outcome(1)
    one.rebalances = [
        Rebalanced(1, 3.0, "Stable", ("member-left", "member-left"), moved=2),
        Rebalanced(2, 0.1, "Superseded", ("member-joined",)),
    ]
    rows = {(row.name, row.per): row for row in measures(10, 1, [one, two])}
    rebalances, stable = rows["rebalances", "run"], rows["time to stable", "rebalance"]
    assert (rebalances.p50, rebalances.p99, rebalances.most, rebalances.values) == (0, 2, 2, 2)
    assert (stable.p50, stable.values) == (3.0, 1)
    assert rows["unavailable", "run"].most == 10.0
    assert rows["unavailable for", "outage"].values == 0
    assert causes_of([one, two]) == [("member-joined", 1, 1), ("member-left", 1, 2)]


def test_only_what_is_drawn_has_a_timeline() -> None:
    assert run_job(PlanRun(SMALL, 0, with_timeline=True)).timeline == [(0.0, 0)]
    assert run_job(PlanRun(SMALL, 0, with_timeline=False)).timeline == []


def test_the_picture_is_drawn_in_both_formats(tmp_path: Path) -> None:
    """SVG has its words as text, and is the same to the byte each time."""
    pytest.importorskip("matplotlib")
    plan = replace(SMALL, rolling_restart=True)
    shown = [("as asked", plan, run_plan(plan, 0)), ("static", plan, run_plan(replace(plan, static=True), 0))]
    for name in ("first.svg", "second.svg", "third.png"):
        plot(tmp_path / name, shown)
    svg = (tmp_path / "first.svg").read_bytes()
    assert svg == (tmp_path / "second.svg").read_bytes()
    words = "".join(ElementTree.fromstring(svg).itertext())
    assert "as asked" in words and "8 rebalances (marks)" in words and "0 rebalances (marks)" in words
    assert (tmp_path / "third.png").read_bytes().startswith(b"\x89PNG")
