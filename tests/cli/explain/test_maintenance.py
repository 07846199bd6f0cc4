"""`konvene explain optimize` and `vacuum`: upkeep of a warehouse that a stream fills."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import CommandResult, call
from tests.pipeline import streaming
from tests.pipeline.segments import all_files, log, write

from konvene.pipeline.warehouse.warehouse import Warehouse


def run(*args: str) -> CommandResult:
    return call(None, "explain", *args)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a warehouse of several micro-batches."""
    home = tmp_path_factory.mktemp("streamed")
    write(home / "logs", log(7, 20))
    return streaming.built_in_steps(home / "w", home / "logs", 30).path


@pytest.fixture
def home(streamed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(streamed, tmp_path / "w")


def test_optimize_shows_the_merged_files_of_each_table(home: Path) -> None:
    before = Warehouse(home)
    count = len(before.files("offset_commit"))
    rebalances = run("logs", "--warehouse", str(home), "--json").out
    output = run("optimize", "--warehouse", str(home))
    assert output.code == 0
    header, *rows = output.out.splitlines()
    assert header.split() == ["TABLE", "#FILES-BEFORE", "#FILES-AFTER", "BYTES"]
    (file,) = Warehouse(home).files("offset_commit")
    assert ["offset_commit", str(count), "1", str(file.bytes)] in [row.split() for row in rows]
    assert run("logs", "--warehouse", str(home), "--json").out == rebalances


def test_optimize_and_vacuum_print_json(home: Path) -> None:
    merged = {each["table"]: each for each in run("optimize", "--warehouse", str(home), "--json").json}
    assert merged["coordinator_record"]["files_after"] == 2
    assert merged["coordinator_record"]["files_before"] > 4
    listed = run("vacuum", "--warehouse", str(home), "--retention", "0h", "--dry-run", "--json").json
    assert len(listed) >= sum(each["files_before"] for each in merged.values())
    assert all(Path(each["path"]).stat().st_size == each["bytes"] for each in listed)
    assert run("vacuum", "--warehouse", str(home), "--retention", "0h", "--json").json == listed
    assert all_files(Warehouse(home)) == set(Warehouse(home).snapshot.files)


def test_vacuum_keeps_files_of_the_last_week(home: Path) -> None:
    run("optimize", "--warehouse", str(home))
    output = run("vacuum", "--warehouse", str(home))
    assert (output.code, output.err) == (0, "0 files deleted: 0 bytes.\n")
    output = run("vacuum", "--warehouse", str(home), "--retention", "0d", "--dry-run")
    assert output.out.splitlines()[0].split() == ["FILE", "BYTES"]
    assert " files would be deleted: " in output.err


def test_nothing_to_do_is_a_note(tmp_path: Path) -> None:
    output = run("optimize", "--warehouse", str(tmp_path))
    assert (output.code, output.err) == (0, "Nothing to merge.\n")
    assert run("vacuum", "--warehouse", str(tmp_path)).err == "0 files deleted: 0 bytes.\n"
    assert run("optimize", "--warehouse", str(tmp_path), "--json").json == []


@pytest.mark.parametrize("command", ["optimize", "vacuum"])
def test_misuse_is_an_error_with_a_hint(command: str, tmp_path: Path) -> None:
    assert "--warehouse DIR is required" in run(command).err
    missing = run(command, "--warehouse", "/nowhere")
    assert (missing.code, missing.err) == (1, "konvene: there is no warehouse /nowhere\n")
    (tmp_path / "_manifest").mkdir()
    assert "format of an older konvene" in run(command, "--warehouse", str(tmp_path)).err


@pytest.mark.parametrize(
    ("retention", "message"),
    [("8d", "for 7 days at most"), ("soon", "write days or hours, such as 7d or 12h")],
)
def test_invalid_retention_is_exit_code_two(retention: str, message: str) -> None:
    output = run("vacuum", "--warehouse", "/tmp", "--retention", retention)
    assert output.code == 2 and message in " ".join(output.err.split())


@pytest.mark.parametrize("command", ["optimize", "vacuum"])
def test_interrupted_command_exits_with_130_and_changes_nothing(command: str, home: Path) -> None:
    """Ctrl-C while it waits for another writer."""
    warehouse = Warehouse(home)
    with warehouse.writing() as before:
        args = ["explain", command, "--warehouse", str(home)]
        code = (
            "import sys, time; from konvene.cli import main; sleep = time.sleep\n"
            "time.sleep = lambda s: (print('waits', flush=True), sleep(s))\n"
            "sys.argv = ['konvene', *sys.argv[1:]]; main()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == "waits\n"
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(60) == 130
    assert warehouse.refresh() == before


def test_commands_are_in_the_help() -> None:
    assert all(name in run("--help").out for name in ("optimize", "vacuum"))
