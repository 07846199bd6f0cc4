"""Hand-overs of tasks with and without warm-ups, in the pinned scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from konvene.client.streams.tasks import Task
from konvene.sim.handovers.comparison import compare, format_table, main
from konvene.sim.handovers.coordinator import Coordinator
from konvene.sim.handovers.plan import CHANCES, SEED, Change, Part, Scenario, What, draw, draw_all
from konvene.sim.handovers.run import Outcome, Run, run
from konvene.sim.transcript.sandbox import Sandbox

CHECKED = [draw(SEED + number) for number in range(0, 100, 9)]


@cache
def outcomes() -> tuple[Outcome, Outcome]:
    """Return the sums of all pinned scenarios without and with warm-ups."""
    return compare(draw_all())


def checked_coordinator(settings: Mapping[str, str]) -> Coordinator:
    """Return a coordinator that checks every invariant."""
    return Sandbox(settings, kinds=("streams",))


def handovers(trace: list[str], kind: str) -> list[str]:
    return [line.strip() for line in trace if f" {kind}: " in line]


GROWS = Scenario(
    seed=1,
    parts=(Part((20_000,) * 4, stateful=True),),
    processes={"p1": 1},
    restores=5_000,
    writes=0,
    lag=1_000,
    changes=(Change(What.STARTS, "p2", 1),),
)
"""Four stateful tasks on one process; a second one starts and is assigned two of them."""


@pytest.mark.deep
def test_warmups_avoid_seventy_percent_of_cold_handovers() -> None:
    """As many scenarios as in Kafka's own comparison, the same ones with and without warm-ups."""
    without, with_warmups = outcomes()
    assert without.cold > 200
    assert with_warmups.cold <= 0.3 * without.cold
    assert with_warmups.idle < without.idle


def test_groups_settle_at_most_fifteen_percent_later() -> None:
    """Two tasks warm up at a time, which takes longer."""
    without, with_warmups = outcomes()
    assert with_warmups.ticks <= 1.15 * without.ticks
    assert with_warmups.moving <= 1.15 * without.moving


def test_warmups_are_assigned_only_if_enabled() -> None:
    """With warm-ups the final assignment is as balanced, after about as many hand-overs."""
    without, with_warmups = outcomes()
    assert without.warmups == 0 < with_warmups.warmups
    assert with_warmups.uneven <= without.uneven
    assert with_warmups.handovers <= 1.1 * without.handovers


@pytest.mark.parametrize("scenario", CHECKED, ids=lambda scenario: str(scenario.seed))
def test_scenario_violates_no_invariant(scenario: Scenario) -> None:
    """With all invariants checked, and requests encoded and decoded, the outcome is the same."""
    assert run(scenario, host=checked_coordinator) == run(scenario)


def test_scenario_is_a_function_of_its_seed() -> None:
    """Different seeds have different scenarios, which contain every change."""
    assert draw(SEED) == draw(SEED) != draw(SEED + 1)
    assert {change.what for scenario in draw_all() for change in scenario.changes} >= CHANCES.keys() - {
        What.BOUNCES
    }


def test_without_warmups_handovers_are_cold() -> None:
    """Two tasks move at once to an empty disk, although their owner was processing."""
    trace: list[str] = []
    outcome = run(GROWS, warmups=False, trace=trace.append)
    assert (outcome.cold, outcome.unavoidable, outcome.warmups) == (2, 0, 0)
    assert outcome.idle >= 2 * 20_000 // GROWS.restores
    assert len(handovers(trace, "cold")) == 2


def test_with_warmups_no_handover_is_cold() -> None:
    """Tasks move when their copies have caught up, and are idle only during the hand-over."""
    trace: list[str] = []
    outcome = run(GROWS, trace=trace.append)
    assert (outcome.cold, outcome.unavoidable, outcome.warmups) == (0, 0, 2)
    assert outcome.idle < 2 * 20_000 // GROWS.restores
    assert any("p2-1 has warmup 0_" in line for line in trace)


def test_shortest_changelog_warms_up_first() -> None:
    """A process with an empty disk warms up the tasks that are restored soonest. Members report end offsets
    once a minute."""
    trace: list[str] = []
    lengths = Part((24_000, 18_000, 21_000, 27_000), stateful=True)
    later = (Change(What.LAG, value=500, calm=13), *GROWS.changes)
    assert run(replace(GROWS, parts=(lengths,), changes=later), trace=trace.append).cold == 0
    target = next(line for line in trace if "target of p2-1:" in line)
    assert target.endswith("target of p2-1: warmup 0_1,0_2")


def test_disk_outlives_a_removed_member() -> None:
    """The tasks move to the other member of the process, which has never reported offsets of them."""
    quiet = Change(What.LAG, value=500, calm=13)
    shrinks = replace(GROWS, processes={"p1": 2, "p2": 1}, changes=(quiet, Change(What.SHRINKS, "p1")))
    trace: list[str] = []
    outcome = run(shrinks, trace=trace.append)
    assert (outcome.cold, outcome.unavoidable) == (0, 0)
    last_change = trace[trace.index(f"-- {shrinks.changes[-1]}") :]
    assert any("p1-1 has active 0_" in line for line in last_change)


def test_cold_handover_without_any_copy_is_unavoidable() -> None:
    """The only copy is lost with its disk, which is counted separately."""
    burns = replace(GROWS, processes={"p1": 1, "p2": 1}, changes=(Change(What.BURNS, "p1"),))
    outcome = run(burns)
    assert (outcome.cold, outcome.unavoidable) == (0, 2)


def test_standby_takes_over_warm() -> None:
    """The process with a standby gets the task when its owner leaves."""
    leaves = replace(GROWS, processes={"p1": 1, "p2": 1}, standbys=1, changes=(Change(What.STOPS, "p1"),))
    for warmups in (False, True):
        outcome = run(leaves, warmups=warmups)
        assert (outcome.handovers, outcome.cold, outcome.unavoidable) == (2, 0, 0)


def test_task_active_on_two_members_is_detected() -> None:
    """The checks of members find a task with two active members."""
    broken = Run(replace(GROWS, processes={"p1": 1, "p2": 1}))
    for name in ("p1", "p2"):
        broken.app.start(name, 1)
    broken.settle()
    first, second = broken.app.threads()
    task = min(first.has.active)
    second.machine.owned = second.has._replace(active=second.has.active | {task})
    with pytest.raises(AssertionError, match=f"{task} is active on"):
        broken.check_members()


def test_unsettled_group_is_detected() -> None:
    """A task that cannot be restored in time keeps the group from settling."""
    stuck = Run(GROWS)
    stuck.app.start("p1", 1)
    stuck.settle()
    stuck.app.ends[Task("0", 0)] += 10**9
    stuck.app.stop("p1")
    stuck.app.start("p2", 1)
    with pytest.raises(AssertionError, match="not settled"):
        stuck.settle()


def test_table_and_trace_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """One scenario with its trace, and a row for each figure."""
    main(["--seed", str(SEED), "--trace"])
    output = capsys.readouterr().out
    assert "=== without warm-ups" in output and "-- settled" in output
    assert [line.split("  ")[0] for line in format_table(Outcome(), Outcome())[1:]] == [
        line.split("  ")[0] for line in output.splitlines()[-9:]
    ]
