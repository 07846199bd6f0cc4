"""Damage of logs in the output of all commands; nothing about whole logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.explain.test_explain import CLASSIC, lines, run
from tests.pipeline.answers.damaged_logs import changed, explained, flip, kafkas_log

from konvene.cli.explain.damage import MAX_NOTES, DamageNotes

NOTE = (
    "1 batch of __consumer_offsets-1 could not be read (offsets 2-10, checksum): rebalances of groups in "
    "that partition (alive, alive-coop, billing and 2 more) may be missing between 2026-11-21 02:17:05 and "
    "2026-11-21 02:17:09; 2 rebalances next to it may be incomplete.\n"
)
HINT = "konvene explain damage shows the details.\n"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse of a log with an unreadable batch."""
    home = tmp_path_factory.mktemp("damaged")
    changed(kafkas_log(home / "logs", "classic"), flip((2, 75)))
    explained(home / "w", home / "logs")
    return str(home / "w")


@pytest.mark.parametrize("command", [["logs"], ["logs", "--json"], ["tables"], ["report"], ["transactions"]])
def test_commands_note_damage(damaged: str, command: list[str], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "page.html")] if command == ["report"] else []
    assert NOTE + HINT in run(*command, "--warehouse", damaged, *out).err


def test_rebalances_next_to_damage_are_marked(damaged: str) -> None:
    printed = lines(run("logs", "--warehouse", damaged, "--json"))
    marked = [(each["group"], each["to_epoch"]) for each in printed if each["damaged"]]
    assert marked == [("billing", 3), ("billing", 2)]
    why = run("logs", "--warehouse", damaged, "--group", "billing", "--why", "2")
    assert f"Records next to this rebalance are missing. {NOTE}" in why.err
    assert "Records next to" not in run(*why_args(damaged), "6").err
    assert json.loads(run(*why_args(damaged), "2", "--json").out)["damaged"] is True


def why_args(warehouse: str) -> list[str]:
    return ["logs", "--warehouse", warehouse, "--group", "billing", "--why"]


def test_damage_that_concerns_other_groups_or_an_earlier_time_is_not_noted(damaged: str) -> None:
    assert NOTE not in run("logs", "--warehouse", damaged, "--since", "2026-11-21T02:18").err
    assert run("damage", "--warehouse", damaged, "--group", "billing").out.count("\n") == 2


def test_details(damaged: str) -> None:
    shown = run("damage", "--warehouse", damaged)
    assert shown.err == ""
    assert [line.split()[:7] for line in shown.out.splitlines()] == [
        ["TOPIC", "PARTITION", "OFFSETS", "#BATCHES", "#RECORDS", "BYTES", "REASON"],
        ["__consumer_offsets", "1", "2-10", "1", "-", "754", "checksum"],
    ]
    (row,) = lines(run("damage", "--warehouse", damaged, "--json"))
    assert (row["first_offset"], row["last_offset"], row["reasons"]) == (2, 10, ["checksum"])
    assert (row["batches"], row["bytes"], row["rebalances"], row["missing"]) == (1, 754, 2, 1)


def test_whole_logs_say_nothing() -> None:
    assert run("damage", CLASSIC).out == "No damage: all records were read.\n"
    assert "could not be read" not in run(CLASSIC).err


def test_a_follower_notes_damage_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When it is found; later polls repeat nothing."""
    logs, notes = tmp_path / "logs", DamageNotes(())
    segment = kafkas_log(logs, "classic")
    data = segment.read_bytes()
    segment.write_bytes(data[:300])
    for _ in range(2):
        notes.poll(explained(tmp_path / "w", logs))
    assert capsys.readouterr().err == ""
    segment.write_bytes(data)
    changed(segment, flip((5, 75)))
    for _ in range(2):
        notes.poll(explained(tmp_path / "w", logs))
    assert capsys.readouterr().err.count("could not be read") == 1


def test_many_holes_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(kafkas_log(tmp_path / "logs", "classic"), flip(*((n, 75) for n in range(2, 30, 4))))
    DamageNotes(()).poll(explained(tmp_path / "w", tmp_path / "logs"))
    printed = capsys.readouterr().err
    assert printed.count("could not be read") == MAX_NOTES
    assert printed.endswith(f"\n4 more places are damaged; {HINT}")
