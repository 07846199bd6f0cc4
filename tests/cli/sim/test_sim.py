"""`konvene sim`: run, replay, soak, shrink, model-check, scenario, faults, invariants and what-if."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import call

import konvene.sim.runs.run
from konvene.sim.model_check.kernel import BreadthFirstSearch
from konvene.sim.runs.parallel import run_job
from konvene.sim.world.event import Event, Invariant

SHORT_RUN = ("--steps", "300")


class FailsAtFortiethEvent(Invariant):
    """An invariant that every event from the fortieth on violates."""

    def __init__(self) -> None:
        self.events = 0

    def after(self, event: Event) -> None:
        self.events += 1
        assert self.events < 40, "that was the fortieth event"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run violates an invariant."""
    monkeypatch.setattr(konvene.sim.runs.run, "invariants_of", lambda kinds: [FailsAtFortiethEvent()])


# run ----------------------------------------------------------------------------------------------


def test_run_reports_parameters_and_counts() -> None:
    result = call(None, "sim", "run", "--seed", "7", *SHORT_RUN)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Seed 7, classic: ")
    assert "every 200th event the whole shard" in result.out
    assert "Drawn: " in result.out
    headings = [line for line in result.lines if line and line[0].isupper() and len(line[0]) > 2]
    assert ["API", "RESPONSE", "COUNT"] in headings and ["STATE", "CHANGES"] in headings
    assert result.out.endswith("All invariants held.\n")


def test_json_of_two_runs_of_a_seed_is_equal() -> None:
    first, second = (call(None, "sim", "run", "--seed", "3", *SHORT_RUN, "--json").json for _ in range(2))
    for run in (first, second):
        del run["wall_s"], run["checking_s"]
    assert first == second
    assert first["seed"] == 3 and first["groups"] == ["classic"] and first["violation"] is None


def test_parameters_and_settings_can_be_given() -> None:
    args = ("--set", "members=2", "--set", "fault.crash=9", "--config", "group.max.size=1")
    output = call(None, "sim", "run", *SHORT_RUN, *args, "--json").json
    assert {"members=2", "fault.crash=9.0"} <= set(output["options"])
    assert output["counts"]["JoinGroup GROUP_MAX_SIZE_REACHED"] > 0


@pytest.mark.usefixtures("broken")
def test_violation_report_has_recent_events_and_the_command_to_reproduce() -> None:
    result = call(None, "sim", "run", "--seed", "7", *SHORT_RUN, "--set", "members=3")
    assert result.code == 1
    assert "FailsAtFortiethEvent was violated at step " in result.out
    assert "that was the fortieth event" in result.out
    recent, _, command = result.out.partition("Events before it:\n")[2].partition("\nRun it again: ")
    assert len(recent.strip().splitlines()) == 30
    command, _, shrink = command.partition("\nShrink it:    ")
    assert command == "konvene sim run --seed 7 --steps 300 --groups classic --set members=3"
    assert shrink == "konvene sim shrink 7 --steps 300 --groups classic --set members=3\n"
    again = call(None, *command.split()[1:])
    assert again.out.splitlines()[1:] == result.out.splitlines()[1:] or again.out.endswith(shrink)
    violation = call(None, *command.split()[1:], "--json").json["violation"]
    assert violation["invariant"] == "FailsAtFortiethEvent" and len(violation["recent"]) == 30


def test_several_seeds_give_a_table_of_totals() -> None:
    result = call(
        None, "sim", "run", "--seeds", "0..2", *SHORT_RUN, "--groups", "classic,static,mixed", "--jobs", "2"
    )
    assert result.code == 0
    rows = {row[0]: row[1:4] for row in result.lines[1:4]}
    assert list(rows) == ["classic", "static", "classic+static"]
    assert all(row == ["3", "0", "0"] for row in rows.values())
    assert "9 runs in " in result.out and "in 2 processes" in result.out


@pytest.mark.usefixtures("broken")
def test_each_violation_of_several_seeds_has_a_line_and_a_command() -> None:
    result = call(None, "sim", "run", "--seeds", "0..1", *SHORT_RUN, "--jobs", "1")
    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[0].startswith("seed 0, classic, step ") and "FailsAtFortiethEvent" in lines[0]
    assert lines[1] == "    konvene sim run --seed 0 --steps 300 --groups classic"
    json_result = call(None, "sim", "run", "--seeds", "0..1", *SHORT_RUN, "--jobs", "1", "--json")
    assert json_result.code == 1
    assert [violation["seed"] for violation in json_result.json["violations"]] == [0, 1]
    assert json_result.json["totals"]["classic"]["violations"] == 2


@pytest.mark.usefixtures("broken")
def test_until_violation_stops_at_the_first() -> None:
    result = call(None, "sim", "run", "--until-violation", *SHORT_RUN, "--jobs", "1")
    assert result.code == 1
    assert "1 run in " in result.out
    assert "Events before it:" in result.out


def test_interrupted_run_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("konvene.sim.runs.parallel.run_job", interrupted)
    assert call(None, "sim", "run").code == 130


def test_a_trace_is_written_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    assert call(None, "sim", "run", *SHORT_RUN, "--trace", str(file)).code == 0
    trace = file.read_text().splitlines()
    assert (
        trace == [line for line in call(None, "sim", "replay", "0", *SHORT_RUN).out.splitlines() if line][:-1]
    )
    unwritable = call(None, "sim", "run", *SHORT_RUN, "--trace", str(tmp_path / "no" / "trace.txt"))
    assert unwritable.code == 1 and "No such file" in unwritable.err


def test_level_2_runs_a_whole_broker() -> None:
    json_result = call(None, "sim", "run", "--level", "2", "--seed", "1", "--steps", "400", "--json")
    assert json_result.code == 0
    assert (
        json_result.json["level"] == 2
        and json_result.json["violation"] is None
        and json_result.json["steps"] >= 400
    )
    result = call(None, "sim", "run", "--level", "2", "--seed", "1", "--steps", "400")
    assert result.out.startswith("Seed 1, whole broker: ")


@pytest.mark.parametrize(
    ("args", "message"),
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
        (("--level", "2", "--set", "members=3"), "needs --level 1"),
    ],
)
def test_invalid_run_options_are_usage_errors(args: tuple[str, ...], message: str) -> None:
    result = call(None, "sim", "run", *args)
    assert result.code == 2
    assert message in " ".join(result.err.split())


# replay -------------------------------------------------------------------------------------------


def test_replay_prints_the_requested_steps() -> None:
    whole = call(None, "sim", "replay", "4", *SHORT_RUN).out.splitlines()
    late = call(None, "sim", "replay", "4", *SHORT_RUN, "--from-step", "100").out.splitlines()
    last = call(None, "sim", "replay", "4", *SHORT_RUN, "--last", "5").out.splitlines()
    assert whole[-1] == late[-1] == last[-1] == "All invariants held."
    assert 0 < len(late) < len(whole) and int(late[0].split()[0]) >= 100
    assert last[:5] == whole[-7:-2]
    output = call(None, "sim", "replay", "4", *SHORT_RUN, "--last", "5", "--json").json
    assert output["trace"] == last[:5]


@pytest.mark.usefixtures("broken")
def test_replay_ends_with_the_violation() -> None:
    result = call(None, "sim", "replay", "4", *SHORT_RUN, "--last", "1")
    assert result.code == 1
    assert "FailsAtFortiethEvent was violated" in result.out


def test_replay_needs_a_single_group_type() -> None:
    result = call(None, "sim", "replay", "4", "--groups", "classic,static")
    assert result.code == 2 and "give one group type" in result.err


# soak ---------------------------------------------------------------------------------------------


def test_soak_resumes_from_its_folder(tmp_path: Path) -> None:
    args = ("sim", "soak", *SHORT_RUN, "--jobs", "1", "--folder", str(tmp_path / "soak"), "--json")
    assert call(None, *args, "--seeds", "0..1").json["runs_now"] == 2
    again = call(None, *args, "--seeds", "0..3")
    assert (again.json["runs"], again.json["runs_now"], again.json["found"]) == (4, 2, [])
    assert "Resuming after 2 runs," in again.err
    assert call(None, *args, "--minutes", "0").json["runs_now"] == 0
    assert call(None, *args[:-1], "--seeds", "0..3").out.endswith("All invariants held.\n")


@pytest.mark.usefixtures("broken")
def test_soak_reports_violations_at_once_and_in_the_summary(tmp_path: Path) -> None:
    result = call(
        None, "sim", "soak", *SHORT_RUN, "--jobs", "1", "--folder", str(tmp_path), "--seeds", "0..1"
    )
    assert result.code == 1
    for text in (result.err, result.out):
        assert "konvene sim run --seed 1 --steps 300 --groups classic" in text
    assert "2 runs, 2 of them now" in result.out
    (file,) = tmp_path.iterdir()
    file.write_text("rubbish\n")
    unreadable = call(None, "sim", "soak", "--folder", str(tmp_path), "--minutes", "0")
    assert unreadable.code == 1 and "Remove the directory to start again" in unreadable.err


# shrink, model-check ------------------------------------------------------------------------------


def test_shrink_fails_without_a_violation() -> None:
    result = call(None, "sim", "shrink", "0", *SHORT_RUN)
    assert (result.code, result.out) == (1, "")
    assert "violates no invariant" in result.err


def test_small_classic_model_is_checked_completely(tmp_path: Path) -> None:
    states, graph = tmp_path / "states.jsonl", tmp_path / "states.dot"
    args = ("sim", "model-check", "--members", "1", "--partitions", "1", "--faults", "0")
    result = call(None, *args, "--export", str(states), "--dot", str(graph))
    assert result.code == 0
    assert result.out.endswith("all invariants held\n")
    assert len(states.read_text().splitlines()) > 10
    assert graph.read_text().startswith("digraph")
    output = call(None, *args, "--json").json
    assert output["complete"] is True and output["violation"] is None
    assert call(None, "sim", "model-check", "--members", "1", "--static", "2").code == 2


@pytest.mark.parametrize(("group_type", "extra"), [("consumer", ""), ("streams", ", standbys 1")])
def test_small_model_with_coordinator_side_assignment_is_checked_completely(
    group_type: str, extra: str
) -> None:
    args = (
        "sim",
        "model-check",
        "--groups",
        group_type,
        "--members",
        "1",
        "--partitions",
        "1",
        "--faults",
        "0",
    )
    result = call(None, *args)
    assert result.code == 0
    assert result.out.startswith(f"members 1, partitions 1, faults 0, static 0, starts 1{extra}\n")
    assert result.out.endswith("all invariants held\n")
    output = call(None, *args, "--depth", "2", "--json").json
    assert (output["complete"], output["depth"], output["violation"]) == (False, 1, None)
    assert call(None, *args, "--dot", "states.dot").code == 2
    assert call(None, "sim", "model-check", "--depth", "2").code == 2
    assert call(None, "sim", "model-check", "--groups", group_type, "--members", "9").code == 2


# scenarios ----------------------------------------------------------------------------------------

SCENARIO = """join ann protocols=range:orders
"""


@pytest.mark.parametrize(("group_type", "explored"), [("classic", 40), ("consumer", 40), ("streams", 40)])
def test_interrupted_model_check_reports_the_explored_states(
    monkeypatch: pytest.MonkeyPatch, group_type: str, explored: int
) -> None:
    """The output is that of a search with a limit, and the exit code is 130."""
    args = ("sim", "model-check", "--groups", group_type)
    limited = call(None, *args, "--limit", str(explored))
    run = BreadthFirstSearch.run

    def interrupting(self: Any, expand: Any, **options: Any) -> None:
        def expand_and_interrupt(number: int, state: Any) -> None:
            expand(number, state)
            if number == explored - 1:
                signal.raise_signal(signal.SIGINT)

        run(self, expand_and_interrupt, **options)

    monkeypatch.setattr(BreadthFirstSearch, "run", interrupting)
    result = call(None, *args)
    assert (limited.code, result.code) == (0, 130)
    assert without_times(result.out) == without_times(limited.out)
    assert "states were found and not expanded" in result.out
    assert result.err.startswith("interrupted: ")


def without_times(output: str) -> str:
    return re.sub(r"[\d.]+ s, .*/s", "", output)


def test_interrupted_run_of_many_seeds_prints_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(jobs: Any, workers: int) -> Iterator[Any]:
        for n, job in enumerate(jobs):
            if n == 2:
                raise KeyboardInterrupt
            yield job, run_job(job)

    monkeypatch.setattr("konvene.sim.runs.parallel.run_many", interrupted)
    result = call(None, "sim", "run", "--seeds", "0..9", *SHORT_RUN)
    assert result.code == 130
    assert "2 runs in " in result.out
    assert result.err.startswith("interrupted")


def test_written_scenario_plays_without_difference(tmp_path: Path) -> None:
    file = tmp_path / "join.txt"
    file.write_text(SCENARIO)
    result = call(None, "sim", "scenario", str(file))
    assert result.code == 1
    assert "+ann <- JoinGroup MEMBER_ID_REQUIRED" in result.out
    assert file.read_text() == SCENARIO
    assert call(None, "sim", "scenario", "--write", str(file)).code == 0
    assert call(None, "sim", "scenario", str(file)).out == "1 played, 0 different.\n"
    (row,) = call(None, "sim", "scenario", str(file), "--json").json
    assert row == {"file": str(file), "different": False, "text": file.read_text()}


def test_unplayable_scenario_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "wrong.txt"
    file.write_text("dance ann\n")
    result = call(None, "sim", "scenario", str(file))
    assert result.code == 1 and "line 1" in result.err and "docs/scenarios.md" in result.err
    assert call(None, "sim", "scenario", str(tmp_path / "none.txt")).code == 1
    file.write_bytes(b"\xff\xfe")
    assert "is not a UTF-8 text file" in call(None, "sim", "scenario", str(file)).err


def test_directories_stand_for_their_scenarios(tmp_path: Path) -> None:
    """All files are played; the exit code is 1 if one is different or not playable."""
    folder = tmp_path / "scenarios"
    (folder / "classic").mkdir(parents=True)
    for name in ("b.txt", "classic/a.txt"):
        (folder / name).write_text(SCENARIO)
    (folder / "notes.md").write_text("no scenario")
    assert call(None, "sim", "scenario", str(folder)).out.endswith("2 played, 2 different.\n")
    result = call(None, "sim", "scenario", "--write", str(folder))
    assert result.code == 0 and result.out.endswith("2 played, 2 different and written.\n")
    result = call(None, "sim", "scenario", str(folder), str(folder / "b.txt"))
    assert (result.code, result.out) == (0, "3 played, 0 different.\n")

    (folder / "wrong.txt").write_text("dance ann\n")
    result = call(None, "sim", "scenario", str(folder))
    assert (result.code, result.out) == (1, "2 played, 0 different, 1 not playable.\n")
    assert f"konvene: {folder / 'wrong.txt'}: line 1" in result.err
    rows = call(None, "sim", "scenario", str(folder), "--json").json
    assert [Path(row["file"]).name for row in rows] == ["b.txt", "a.txt", "wrong.txt"]
    assert "line 1" in rows[2]["error"] and rows[2]["different"] is False


def test_directory_without_scenarios_is_a_usage_error(tmp_path: Path) -> None:
    result = call(None, "sim", "scenario", str(tmp_path))
    assert result.code == 2 and "has no scenario files (*.txt)" in result.err


# faults, invariants ---------------------------------------------------------------------------------


def test_the_fault_model_is_printed() -> None:
    result = call(None, "sim", "faults")
    assert "request.loss" in result.out and "fraction of requests that are lost" in result.out
    assert "failover" in result.out
    output = call(None, "sim", "faults", "--seed", "7", "--json").json
    drawn_values = {row["name"]: row["drawn"] for row in output["knobs"]}
    assert drawn_values["members"] in range(1, 20)
    assert {"name", "weight", "sentence"} == set(output["faults"][0])


def test_the_invariants_are_printed() -> None:
    result = call(None, "sim", "invariants")
    assert ["NoRecordIsSkipped", "offset_oracle"] in [line[:2] for line in result.lines]
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
    "0..1",
    "--jobs",
    "1",
)


def test_what_if_compares_two_plans() -> None:
    result = call(None, *PLAN, "--rolling-restart", "--compare", "static=true")
    assert result.code == 0
    assert result.out.startswith("4 classic members, 12 partitions, range; 5 min, 2 seeds.\n")
    (row,) = (line for line in result.lines if line[:1] == ["rebalances"])
    assert row == ["rebalances", "run", "8", "8", "8", "0", "0", "0"]
    assert ["CAUSE", "(AS", "GIVEN)", "REBALANCES", "TIMES"] in result.lines
    assert ["member-left", "8", "8"] in result.lines
    assert "as given: 8 restarted" in result.err


def test_what_if_as_json_has_every_run() -> None:
    args = ("--kill-rate", "30/h", "--down-for", "1min", "--set", "group.initial.rebalance.delay.ms=0")
    (output,) = call(None, *PLAN, *args, "--json").json
    assert output["plan"]["kill_rate"] == 0.5 and output["plan"]["down_for_s"] == 60.0
    assert output["plan"]["settings"] == {"group.initial.rebalance.delay.ms": "0"}
    assert [run["seed"] for run in output["runs"]] == [0, 1]
    measured = {(row["name"], row["per"]): row for row in output["measures"]}
    assert measured["rebalances", "run"]["values"] == 2


def test_what_if_writes_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "drawn.svg"
    result = call(None, *PLAN, "--rolling-restart", "--plot", str(file))
    assert result.code == 0 and file.read_text().startswith("<?xml")
    assert call(None, *PLAN, "--plot", str(tmp_path / "no" / "drawn.svg")).code == 1


def test_what_if_plot_checks_matplotlib_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_matplotlib(name: str) -> Any:
        return None

    monkeypatch.setattr("importlib.util.find_spec", no_matplotlib)
    result = call(None, *PLAN, "--plot", "drawn.png")
    assert result.code == 1
    assert "pip install 'konvene[plot]'" in result.err
    assert call(None, *PLAN, "--plot", "drawn.gif").code == 2


@pytest.mark.parametrize(
    ("args", "message"),
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
def test_invalid_plan_options_are_usage_errors(args: tuple[str, ...], message: str) -> None:
    result = call(None, *PLAN, *args)
    assert result.code == 2
    assert message in " ".join(result.err.split())
