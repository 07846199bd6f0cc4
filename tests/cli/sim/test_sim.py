"""`konvene sim`: runs, replays, soaks, scenarios and what-if, as people and programs see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import call

import konvene.sim.runs.run
from konvene.sim.world.event import Event, Invariant

FEW = ("--steps", "300")


class NobodyIsEverWell(Invariant):
    """An invariant that is violated from some event on."""

    def __init__(self) -> None:
        self.events = 0

    def after(self, event: Event) -> None:
        self.events += 1
        assert self.events < 40, "that was the fortieth event"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run violates an invariant."""
    monkeypatch.setattr(konvene.sim.runs.run, "invariants_of", lambda kinds: [NobodyIsEverWell()])


# run ----------------------------------------------------------------------------------------------


def test_a_run_says_what_was_drawn_and_what_happened() -> None:
    said = call(None, "sim", "run", "--seed", "7", *FEW)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Seed 7, classic: ")
    assert "every 200th event the whole shard" in said.out
    assert "Drawn: " in said.out
    heads = [line for line in said.lines if line and line[0].isupper() and len(line[0]) > 2]
    assert ["API", "RESPONSE", "COUNT"] in heads and ["STATE", "CHANGES"] in heads
    assert said.out.endswith("All invariants held.\n")


def test_a_run_as_json_is_the_same_run() -> None:
    first, second = (call(None, "sim", "run", "--seed", "3", *FEW, "--json").json for _ in range(2))
    for each in (first, second):
        del each["wall_s"], each["checking_s"]
    assert first == second
    assert first["seed"] == 3 and first["groups"] == ["classic"] and first["violation"] is None


def test_knobs_and_settings_are_set_by_hand() -> None:
    words = ("--set", "members=2", "--set", "fault.crash=9", "--config", "group.max.size=1")
    told = call(None, "sim", "run", *FEW, *words, "--json").json
    assert {"members=2", "fault.crash=9.0"} <= set(told["options"])
    assert told["counts"]["JoinGroup GROUP_MAX_SIZE_REACHED"] > 0


@pytest.mark.usefixtures("broken")
def test_a_violation_is_told_with_what_came_before_and_how_to_see_it_again() -> None:
    said = call(None, "sim", "run", "--seed", "7", *FEW, "--set", "members=3")
    assert said.code == 1
    assert "NobodyIsEverWell was violated at step " in said.out
    assert "that was the fortieth event" in said.out
    before, _, command = said.out.partition("Events before it:\n")[2].partition("\nRun it again: ")
    assert len(before.strip().splitlines()) == 30
    command, _, shrink = command.partition("\nShrink it:    ")
    assert command == "konvene sim run --seed 7 --steps 300 --groups classic --set members=3"
    assert shrink == "konvene sim shrink 7 --steps 300 --groups classic --set members=3\n"
    again = call(None, *command.split()[1:])
    assert again.out.splitlines()[1:] == said.out.splitlines()[1:] or again.out.endswith(shrink)
    violation = call(None, *command.split()[1:], "--json").json["violation"]
    assert violation["invariant"] == "NobodyIsEverWell" and len(violation["recent"]) == 30


def test_many_runs_are_a_table_of_totals() -> None:
    said = call(
        None, "sim", "run", "--seeds", "0..2", *FEW, "--groups", "classic,static,mixed", "--jobs", "2"
    )
    assert said.code == 0
    rows = {row[0]: row[1:4] for row in said.lines[1:4]}
    assert list(rows) == ["classic", "static", "classic+static"]
    assert all(row == ["3", "0", "0"] for row in rows.values())
    assert "9 runs in " in said.out and "in 2 processes" in said.out


@pytest.mark.usefixtures("broken")
def test_each_violation_of_many_runs_is_a_line_and_its_command() -> None:
    said = call(None, "sim", "run", "--seeds", "0..1", *FEW, "--jobs", "1")
    assert said.code == 1
    lines = said.out.splitlines()
    assert lines[0].startswith("seed 0, classic, step ") and "NobodyIsEverWell" in lines[0]
    assert lines[1] == "    konvene sim run --seed 0 --steps 300 --groups classic"
    told = call(None, "sim", "run", "--seeds", "0..1", *FEW, "--jobs", "1", "--json")
    assert told.code == 1
    assert [each["seed"] for each in told.json["violations"]] == [0, 1]
    assert told.json["totals"]["classic"]["violations"] == 2


@pytest.mark.usefixtures("broken")
def test_until_violation_stops_at_the_first() -> None:
    said = call(None, "sim", "run", "--until-violation", *FEW, "--jobs", "1")
    assert said.code == 1
    assert "1 runs in " in said.out
    assert "Events before it:" in said.out


def test_an_interrupt_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("konvene.sim.runs.parallel.run_job", interrupted)
    assert call(None, "sim", "run").code == 130


def test_a_trace_is_written_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    assert call(None, "sim", "run", *FEW, "--trace", str(file)).code == 0
    traced = file.read_text().splitlines()
    assert traced == [line for line in call(None, "sim", "replay", "0", *FEW).out.splitlines() if line][:-1]
    nowhere = call(None, "sim", "run", *FEW, "--trace", str(tmp_path / "no" / "trace.txt"))
    assert nowhere.code == 1 and "No such file" in nowhere.err


def test_a_whole_broker_is_run_at_level_2() -> None:
    told = call(None, "sim", "run", "--level", "2", "--seed", "1", "--steps", "400", "--json")
    assert told.code == 0
    assert told.json["level"] == 2 and told.json["violation"] is None and told.json["steps"] >= 400
    said = call(None, "sim", "run", "--level", "2", "--seed", "1", "--steps", "400")
    assert said.out.startswith("Seed 1, whole broker: ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--seed", "1", "--seeds", "1..2"), "cannot be used together"),
        (("--seeds", "2..1"), "the last seed is smaller than the first"),
        (("--seeds", "one"), "write A..B"),
        (("--seeds", "5.."), "has no end"),
        (("--seeds", "0..1", "--trace", "x"), "--trace needs a single seed"),
        (("--groups", "shares"), "unknown kind of group shares; known kinds: classic, static"),
        (("--groups", ","), "give at least one group type"),
        (("--set", "members"), "write NAME=VALUE"),
        (("--set", "colour=red"), "unknown simulator parameter colour"),
        (("--set", "members=few"), "not a number"),
        (("--config", "group.max.size=none"), "group.max.size"),
        (("--level", "2", "--set", "members=3"), "need --level 1"),
    ],
)
def test_what_cannot_be_run_is_wrong_usage(words: tuple[str, ...], why: str) -> None:
    said = call(None, "sim", "run", *words)
    assert said.code == 2
    assert why in " ".join(said.err.split())


# replay -------------------------------------------------------------------------------------------


def test_replay_prints_steps_from_one_on_or_the_last() -> None:
    whole = call(None, "sim", "replay", "4", *FEW).out.splitlines()
    late = call(None, "sim", "replay", "4", *FEW, "--from-step", "100").out.splitlines()
    last = call(None, "sim", "replay", "4", *FEW, "--last", "5").out.splitlines()
    assert whole[-1] == late[-1] == last[-1] == "All invariants held."
    assert 0 < len(late) < len(whole) and int(late[0].split()[0]) >= 100
    assert last[:5] == whole[-7:-2]
    told = call(None, "sim", "replay", "4", *FEW, "--last", "5", "--json").json
    assert told["trace"] == last[:5]


@pytest.mark.usefixtures("broken")
def test_replay_ends_with_the_violation() -> None:
    said = call(None, "sim", "replay", "4", *FEW, "--last", "1")
    assert said.code == 1
    assert "NobodyIsEverWell was violated" in said.out


def test_replay_is_of_one_kind_at_a_time() -> None:
    said = call(None, "sim", "replay", "4", "--groups", "classic,static")
    assert said.code == 2 and "give one group type" in said.err


# soak ---------------------------------------------------------------------------------------------


def test_a_soak_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ("sim", "soak", *FEW, "--jobs", "1", "--folder", str(tmp_path / "soak"), "--json")
    assert call(None, *words, "--seeds", "0..1").json["runs_now"] == 2
    again = call(None, *words, "--seeds", "0..3")
    assert (again.json["runs"], again.json["runs_now"], again.json["found"]) == (4, 2, [])
    assert "2 runs are already done" in again.err
    assert call(None, *words, "--minutes", "0").json["runs_now"] == 0
    assert call(None, *words[:-1], "--seeds", "0..3").out.endswith("All invariants held.\n")


@pytest.mark.usefixtures("broken")
def test_a_soak_tells_of_violations_as_it_finds_them_and_in_the_end(tmp_path: Path) -> None:
    said = call(None, "sim", "soak", *FEW, "--jobs", "1", "--folder", str(tmp_path), "--seeds", "0..1")
    assert said.code == 1
    for text in (said.err, said.out):
        assert "konvene sim run --seed 1 --steps 300 --groups classic" in text
    assert "2 runs, 2 of them now" in said.out
    (file,) = tmp_path.iterdir()
    file.write_text("rubbish\n")
    unreadable = call(None, "sim", "soak", "--folder", str(tmp_path), "--minutes", "0")
    assert unreadable.code == 1 and "Remove the directory to start again" in unreadable.err


# shrink, exhaust ----------------------------------------------------------------------------------


def test_a_seed_without_a_violation_has_nothing_to_shrink() -> None:
    said = call(None, "sim", "shrink", "0", *FEW)
    assert (said.code, said.out) == (1, "")
    assert "violates no invariant" in said.err


def test_a_small_model_is_looked_at_whole(tmp_path: Path) -> None:
    states, graph = tmp_path / "states.jsonl", tmp_path / "states.dot"
    words = ("sim", "model-check", "--members", "1", "--partitions", "1", "--faults", "0")
    said = call(None, *words, "--export", str(states), "--dot", str(graph))
    assert said.code == 0
    assert said.out.endswith("all invariants held\n")
    assert len(states.read_text().splitlines()) > 10
    assert graph.read_text().startswith("digraph")
    told = call(None, *words, "--json").json
    assert told["complete"] is True and told["violation"] is None
    assert call(None, "sim", "model-check", "--members", "1", "--static", "2").code == 2


@pytest.mark.parametrize(("kind", "more"), [("consumer", ""), ("streams", ", standbys 1")])
def test_a_small_group_whose_coordinator_assigns_is_looked_at_whole(kind: str, more: str) -> None:
    words = ("sim", "model-check", "--groups", kind, "--members", "1", "--partitions", "1", "--faults", "0")
    said = call(None, *words)
    assert said.code == 0
    assert said.out.startswith(f"members 1, partitions 1, faults 0, static 0, starts 1{more}\n")
    assert said.out.endswith("all invariants held\n")
    told = call(None, *words, "--depth", "2", "--json").json
    assert (told["complete"], told["depth"], told["violation"]) == (False, 1, None)
    assert call(None, *words, "--dot", "states.dot").code == 2
    assert call(None, "sim", "model-check", "--depth", "2").code == 2
    assert call(None, "sim", "model-check", "--groups", kind, "--members", "9").code == 2


# scenarios ----------------------------------------------------------------------------------------

SCENARIO = """join ann protocols=range:orders
"""


def test_a_scenario_is_written_and_then_is_as_it_says(tmp_path: Path) -> None:
    file = tmp_path / "join.txt"
    file.write_text(SCENARIO)
    said = call(None, "sim", "scenario", str(file))
    assert said.code == 1
    assert "+ann <- JoinGroup MEMBER_ID_REQUIRED" in said.out
    assert file.read_text() == SCENARIO
    assert call(None, "sim", "scenario", "--write", str(file)).code == 0
    assert call(None, "sim", "scenario", str(file)).out == "1 played, 0 different.\n"
    (row,) = call(None, "sim", "scenario", str(file), "--json").json
    assert row == {"file": str(file), "different": False, "text": file.read_text()}


def test_a_scenario_that_cannot_be_played_is_told(tmp_path: Path) -> None:
    file = tmp_path / "wrong.txt"
    file.write_text("dance ann\n")
    said = call(None, "sim", "scenario", str(file))
    assert said.code == 1 and "line 1" in said.err and "docs/scenarios.md" in said.err
    assert call(None, "sim", "scenario", str(tmp_path / "none.txt")).code == 1
    file.write_bytes(b"\xff\xfe")
    assert "is not a UTF-8 text file" in call(None, "sim", "scenario", str(file)).err


# faults, invariants ---------------------------------------------------------------------------------


def test_the_fault_model_is_printed() -> None:
    said = call(None, "sim", "faults")
    assert "request.loss" in said.out and "fraction of requests that are lost" in said.out
    assert "failover" in said.out
    told = call(None, "sim", "faults", "--seed", "7", "--json").json
    drawn = {row["name"]: row["drawn"] for row in told["knobs"]}
    assert drawn["members"] in range(1, 20)
    assert {"name", "weight", "sentence"} == set(told["faults"][0])


def test_the_invariants_are_printed() -> None:
    said = call(None, "sim", "invariants")
    assert ["NoRecordIsSkipped", "offset_oracle"] in [line[:2] for line in said.lines]
    rows = call(None, "sim", "invariants", "--json").json
    assert {row["invariant"] for row in rows} >= {"ReplayEqualsLive", "GroupsBecomeStable"}
    assert all(row["sentence"] for row in rows)
    assert call(None, "sim", "invariants", "--groups", "shares").code == 2


# what-if ------------------------------------------------------------------------------------------

PLAN = (
    "sim",
    "what-if",
    "--members",
    "4",
    "--partitions",
    "12",
    "--minutes",
    "5",
    "--seeds",
    "2",
    "--jobs",
    "1",
)


def test_what_if_puts_two_plans_side_by_side() -> None:
    said = call(None, *PLAN, "--rolling-restart", "--compare", "static=true")
    assert said.code == 0
    assert said.out.startswith("4 classic members, 12 partitions, range; 5 minutes, 2 seeds.\n")
    (row,) = (line for line in said.lines if line[:1] == ["rebalances"])
    assert row == ["rebalances", "run", "8", "8", "8", "0", "0", "0"]
    assert ["CAUSE", "(AS", "GIVEN)", "REBALANCES", "TIMES"] in said.lines
    assert ["member-left", "8", "8"] in said.lines
    assert "as given: 8 restarted" in said.err


def test_what_if_as_json_has_every_run() -> None:
    words = ("--kill-rate", "30/h", "--down-for", "1min", "--set", "group.initial.rebalance.delay.ms=0")
    (told,) = call(None, *PLAN, *words, "--json").json
    assert told["plan"]["kill_rate"] == 0.5 and told["plan"]["down_for_s"] == 60.0
    assert told["plan"]["settings"] == {"group.initial.rebalance.delay.ms": "0"}
    assert [run["seed"] for run in told["runs"]] == [0, 1]
    measured = {(row["name"], row["per"]): row for row in told["measures"]}
    assert measured["rebalances", "run"]["values"] == 2


def test_what_if_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "drawn.svg"
    said = call(None, *PLAN, "--rolling-restart", "--plot", str(file))
    assert said.code == 0 and file.read_text().startswith("<?xml")
    assert call(None, *PLAN, "--plot", str(tmp_path / "no" / "drawn.svg")).code == 1


def test_what_if_says_how_to_draw_before_it_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_matplotlib(name: str) -> Any:
        return None

    monkeypatch.setattr("importlib.util.find_spec", no_matplotlib)
    said = call(None, *PLAN, "--plot", "drawn.png")
    assert said.code == 1
    assert "pip install 'konvene[plot]'" in said.err
    assert call(None, *PLAN, "--plot", "drawn.gif").code == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--compare", "colour=red"), "colour is neither a setting of the broker nor one of members"),
        (("--compare", "static"), "write NAME=VALUE"),
        (("--assignor", "sticky"), "unknown assignor sticky"),
        (("--session-timeout-ms", "5"), "the broker allows 6000"),
        (("--kill-rate", "often"), "write 2/min"),
        (("--down-for", "long"), "write 20s"),
        (("--set", "group.max.sise=1"), "group.max.sise"),
    ],
)
def test_a_plan_that_cannot_be_is_wrong_usage(words: tuple[str, ...], why: str) -> None:
    said = call(None, *PLAN, *words)
    assert said.code == 2
    assert why in " ".join(said.err.split())
