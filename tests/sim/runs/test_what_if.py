"""What-if plans: hand-computed measures, effects of protocols and timeouts, validation, output."""

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
    """The attributes of a member that `Meter` reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owned: set[tuple[str, int]] = set()


def own(meter: Meter, owner: Owner, *partitions: int) -> None:
    owner.owned = {("orders", p) for p in partitions}
    meter.owned(owner, 0, 0)  # type: ignore[arg-type]


# --- the meter -----------------------------------------------------------------------------------


def test_meter_equals_a_hand_computed_example() -> None:
    """Of two partitions, 0 has no owner for 3 s and then moves; 1 has none in the last second."""
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


def test_partition_with_two_owners_is_available_until_both_release_it() -> None:
    """A fenced member counts as an owner until it notices."""
    meter = Meter(outcome := Outcome(0), 1)
    ann, bob = Owner("ann"), Owner("bob")
    own(meter, ann, 0)
    own(meter, bob, 0)
    own(meter, ann)
    assert meter.missing == 0
    own(meter, bob)
    assert meter.missing == 1
    assert outcome.timeline == []  # The measurement has not started.


def test_percentiles_are_observed_values() -> None:
    values = Counter({1.0: 50, 2.0: 48, 7.0: 2})
    assert [percentile(values, part) for part in (0.5, 0.51, 0.98, 0.99)] == [1.0, 2.0, 2.0, 7.0]
    assert percentile(Counter(), 0.5) == 0.0


# --- outcomes of plans ---------------------------------------------------------------------------


def test_undisturbed_group_does_not_rebalance() -> None:
    outcome = run_plan(SMALL, 0)
    assert (outcome.rebalances, outcome.unavailable_s, outcome.idle_s) == ([], 0.0, 0.0)
    assert 3.0 <= outcome.stable_after_s <= 10.0  # group.initial.rebalance.delay.ms


def test_static_members_that_return_in_time_cause_no_rebalance() -> None:
    """Four members, each down for 20 s with 3 partitions: 240 partition-seconds, and no partition moves."""
    outcome = run_plan(replace(SMALL, static=True, rolling_restart=True), 1)
    assert outcome.restarted == 4
    assert outcome.rebalances == []
    assert outcome.unavailable_s == pytest.approx(4 * 3 * 20, rel=0.01)
    assert {round(ms / 1000) for ms in outcome.outages_ms} == {20}


def test_restart_of_a_dynamic_member_causes_two_rebalances() -> None:
    """A member leaves and returns 20 s later; the others notice each change within a heartbeat."""
    outcome = run_plan(replace(SMALL, rolling_restart=True), 1)
    assert len(outcome.rebalances) == 2 * 4
    assert {c for r in outcome.rebalances for c in r.causes} == {"member-left", "member-joined"}
    assert all(r.state == "Stable" and r.took_s < 3.1 for r in outcome.rebalances)
    assert sum(r.moved for r in outcome.rebalances) > 0
    assert outcome.most_unavailable == 12  # Eager members revoke all partitions.


def test_consumer_group_revokes_only_reassigned_partitions() -> None:
    plan = replace(SMALL, protocol="consumer", rolling_restart=True)
    outcome = run_plan(plan, 1)
    assert plan.effective_assignor == "uniform"
    assert outcome.restarted == 4
    assert {c for r in outcome.rebalances for c in r.causes} == {"member-left", "member-joined"}
    assert 0 < outcome.most_unavailable < 12


def test_restart_of_static_consumer_group_members_causes_no_rebalance() -> None:
    outcome = run_plan(replace(SMALL, protocol="consumer", static=True, rolling_restart=True), 1)
    assert (outcome.restarted, outcome.stopped, outcome.rebalances) == (4, 0, [])


def test_partitions_of_a_killed_member_wait_for_its_session_timeout() -> None:
    """Its partitions are unavailable for 45 s, less a heartbeat interval; then the group rebalances."""
    plan = replace(SMALL, minutes=3, kill_rate=0.7, down_for_s=3_600)
    outcome = next(o for o in (run_plan(plan, seed) for seed in range(20)) if o.killed == 1 and o.rebalances)
    (rebalance,) = outcome.rebalances
    assert rebalance.causes == ("session-expired",)
    longest_s = max(outcome.outages_ms) / 1000
    assert 42 <= longest_s <= 45 + 3 + 3


def test_cooperative_members_keep_their_partitions() -> None:
    """With the same kills, all eager members stop, and cooperative ones do not."""
    plan = replace(SMALL, kill_rate=0.5)
    eager, cooperative = (run_plan(replace(plan, assignor=a), 3) for a in ("range", "cooperative-sticky"))
    assert eager.killed == cooperative.killed > 0
    assert eager.most_unavailable == 12 > cooperative.most_unavailable
    assert cooperative.unavailable_s < eager.unavailable_s


def test_coordinator_failover_causes_no_rebalance() -> None:
    """The new coordinator loads the group, and members continue in their generation."""
    outcome = run_plan(replace(SMALL, coordinator_failovers=3), 0)
    assert outcome.failovers == 3
    assert outcome.rebalances == []


def test_shorter_session_timeout_shortens_outages() -> None:
    plan = replace(SMALL, kill_rate=0.5, down_for_s=120)
    long, short = (run_plan(replace(plan, session_timeout_ms=ms), 2) for ms in (45_000, 10_000))
    assert long.killed == short.killed > 0
    assert max(short.outages_ms) < max(long.outages_ms)


def test_outcome_is_a_function_of_the_seed() -> None:
    plan = replace(SMALL, kill_rate=1, loss=0.02)
    first, second = (run_plan(plan, 5, stopwatch=lambda: 0.0) for _ in range(2))
    assert first == second
    assert run_plan(plan, 6, stopwatch=lambda: 0.0) != first


# --- plans ---------------------------------------------------------------------------------------


def test_plan_is_changed_by_option_and_config_names() -> None:
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
def test_invalid_plan_is_rejected(name: str, value: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SMALL.changed(name, value).check()


# --- results and plots ----------------------------------------------------------------------------


def test_measures_cover_all_seeds() -> None:
    """Percentiles are per run or per rebalance; causes are counted by rebalance and in total."""
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


def test_timeline_is_recorded_only_if_requested() -> None:
    assert run_job(PlanRun(SMALL, 0, with_timeline=True)).timeline == [(0.0, 0)]
    assert run_job(PlanRun(SMALL, 0, with_timeline=False)).timeline == []


def test_plot_is_written_as_svg_and_png(tmp_path: Path) -> None:
    """The SVG file contains its labels as text and is deterministic."""
    pytest.importorskip("matplotlib")
    plan = replace(SMALL, rolling_restart=True)
    shown = [("as asked", plan, run_plan(plan, 0)), ("static", plan, run_plan(replace(plan, static=True), 0))]
    for name in ("first.svg", "second.svg", "third.png"):
        plot(tmp_path / name, shown)
    svg = (tmp_path / "first.svg").read_bytes()
    assert svg == (tmp_path / "second.svg").read_bytes()
    svg_text = "".join(ElementTree.fromstring(svg).itertext())
    assert (
        "as asked" in svg_text and "8 rebalances (marks)" in svg_text and "0 rebalances (marks)" in svg_text
    )
    assert (tmp_path / "third.png").read_bytes().startswith(b"\x89PNG")
