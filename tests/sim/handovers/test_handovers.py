"""Hand-overs of tasks with warm-ups and without: pinned scenarios, counted at their members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from konvene.client.streams.tasks import Task
from konvene.sim.handovers.comparison import compared, main, spoken
from konvene.sim.handovers.coordinator import Coordinator
from konvene.sim.handovers.plan import CHANCES, SEED, Change, Part, Scenario, What, drawn, drawn_all
from konvene.sim.handovers.run import Outcome, Run, run
from konvene.sim.transcript.sandbox import Sandbox

PROMISED = [drawn(SEED + number) for number in range(0, 100, 9)]


@cache
def all_of_them() -> tuple[Outcome, Outcome]:
    """Without warm-ups, and with them."""
    return compared(drawn_all())


def watched(settings: Mapping[str, str]) -> Coordinator:
    """A coordinator that is held against every invariant."""
    return Sandbox(settings, kinds=("streams",))


def moved(stories: list[str], how: str) -> list[str]:
    return [line.strip() for line in stories if f" {how}: " in line]


GROWS = Scenario(
    seed=1,
    parts=(Part((20_000,) * 4, stateful=True),),
    processes={"p1": 1},
    restores=5_000,
    writes=0,
    lag=1_000,
    changes=(Change(What.STARTS, "p2", 1),),
)
"""Four tasks with state on one process; another one comes, and is to have two of them."""


@pytest.mark.deep
def test_seven_of_ten_cold_handovers_are_spared() -> None:
    """The bar of the yardstick: as many scenarios as Kafka's own has, and it is the same ones both times."""
    without, with_warmups = all_of_them()
    assert without.cold > 200
    assert with_warmups.cold <= 0.3 * without.cold
    assert with_warmups.idle < without.idle


def test_it_settles_nearly_as_soon() -> None:
    """Warm-ups take their time, two at a time."""
    without, with_warmups = all_of_them()
    assert with_warmups.ticks <= 1.15 * without.ticks
    assert with_warmups.moving <= 1.15 * without.moving


def test_nobody_warms_up_where_there_are_to_be_no_warmups() -> None:
    """And with them the tasks are as evenly spread in the end, by about as many hand-overs."""
    without, with_warmups = all_of_them()
    assert without.warmups == 0 < with_warmups.warmups
    assert with_warmups.uneven <= without.uneven
    assert with_warmups.handovers <= 1.1 * without.handovers


@pytest.mark.parametrize("scenario", PROMISED, ids=lambda scenario: str(scenario.seed))
def test_invariants_hold_on_the_way(scenario: Scenario) -> None:
    """With every invariant held against it, and requests through the codec, it comes out the same."""
    assert run(scenario, host=watched) == run(scenario)


def test_the_same_seed_is_the_same_scenario() -> None:
    """And another one is another."""
    assert drawn(SEED) == drawn(SEED) != drawn(SEED + 1)
    assert {change.what for each in drawn_all() for change in each.changes} >= CHANCES.keys() - {What.BOUNCES}


def test_without_warmups_tasks_move_cold() -> None:
    """Two tasks move at once, to an empty disk, while who had them was processing."""
    stories: list[str] = []
    outcome = run(GROWS, warmups=False, tell=stories.append)
    assert (outcome.cold, outcome.unavoidable, outcome.warmups) == (2, 0, 0)
    assert outcome.idle >= 2 * 20_000 // GROWS.restores
    assert len(moved(stories, "cold")) == 2


def test_with_warmups_none_does() -> None:
    """They move when the copies have caught up, and are idle only while they change hands."""
    stories: list[str] = []
    outcome = run(GROWS, tell=stories.append)
    assert (outcome.cold, outcome.unavoidable, outcome.warmups) == (0, 0, 2)
    assert outcome.idle < 2 * 20_000 // GROWS.restores
    assert any("p2-1 has warmup 0_" in line for line in stories)


def test_what_is_shortest_warms_up_first() -> None:
    """A disk with nothing on it takes what is restored soonest, so that the next one has its turn. Who tells
    how long changelogs are does so once in a minute."""
    stories: list[str] = []
    lengths = Part((24_000, 18_000, 21_000, 27_000), stateful=True)
    later = (Change(What.LAG, value=500, calm=13), *GROWS.changes)
    assert run(replace(GROWS, parts=(lengths,), changes=later), tell=stories.append).cold == 0
    begun = next(line for line in stories if "p2-1 is to have" in line)
    assert begun.endswith("p2-1 is to have warmup 0_1,0_2")


def test_a_disk_stays_when_one_of_its_members_goes() -> None:
    """Its tasks go to the other member of the process, who has never said a word of them."""
    quiet = Change(What.LAG, value=500, calm=13)
    shrinks = replace(GROWS, processes={"p1": 2, "p2": 1}, changes=(quiet, Change(What.SHRINKS, "p1")))
    stories: list[str] = []
    outcome = run(shrinks, tell=stories.append)
    assert (outcome.cold, outcome.unavoidable) == (0, 0)
    last = stories[stories.index(f"-- {shrinks.changes[-1]}") :]
    assert any("p1-1 has active 0_" in line for line in last)


def test_what_nobody_has_is_taken_cold_all_the_same() -> None:
    """The only copy burns: that is counted apart."""
    burns = replace(GROWS, processes={"p1": 1, "p2": 1}, changes=(Change(What.BURNS, "p1"),))
    outcome = run(burns)
    assert (outcome.cold, outcome.unavoidable) == (0, 2)


def test_a_standby_takes_over_warm() -> None:
    """Who has a copy that follows is to have the task when its owner leaves."""
    leaves = replace(GROWS, processes={"p1": 1, "p2": 1}, standbys=1, changes=(Change(What.STOPS, "p1"),))
    for warmups in (False, True):
        outcome = run(leaves, warmups=warmups)
        assert (outcome.handovers, outcome.cold, outcome.unavoidable) == (2, 0, 0)


def test_it_is_seen_when_two_run_a_task() -> None:
    """The rules at the members are no decoration."""
    broken = Run(replace(GROWS, processes={"p1": 1, "p2": 1}))
    for name in ("p1", "p2"):
        broken.app.start(name, 1)
    broken.settle()
    first, second = broken.app.threads()
    task = min(first.has.active)
    second.machine.owned = second.has._replace(active=second.has.active | {task})
    with pytest.raises(AssertionError, match=f"{task} is active on"):
        broken.check_members()


def test_it_is_seen_when_it_does_not_settle() -> None:
    """A member that takes nothing holds up the group, for longer than it may."""
    stuck = Run(GROWS)
    stuck.app.start("p1", 1)
    stuck.settle()
    stuck.app.ends[Task("0", 0)] += 10**9
    stuck.app.stop("p1")
    stuck.app.start("p2", 1)
    with pytest.raises(AssertionError, match="not settled"):
        stuck.settle()


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """For one scenario, with its story; a row for each figure."""
    main(["--seed", str(SEED), "--story"])
    told = capsys.readouterr().out
    assert "=== without warm-ups" in told and "-- settled" in told
    assert [line.split("  ")[0] for line in spoken(Outcome(), Outcome())[1:]] == [
        line.split("  ")[0] for line in told.splitlines()[-9:]
    ]
