"""Killed drivers and workers: no record is lost or duplicated, and the files come out the same."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from tests import depth
from tests.pipeline.segments import all_files, expected, log, records_of, sums_of, write

from konvene.pipeline.engine import Local, Processes
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.warehouse.warehouse import Conflict, Warehouse

ROOT = Path(__file__).parents[3]
EVERY = int(os.environ.get("KONVENE_CRASH_EVERY", depth.times(9, soaked=1)))
"""Step between the points at which the driver is killed; with `--soak` every point is tested."""


@pytest.mark.parametrize(("life", "numbers"), [("steps", [2, 3, 4]), ("stream", [4, 5, 6])])
def test_driver_killed_at_any_point_leaves_a_step_complete_or_not_begun(
    life: str, numbers: list[int]
) -> None:
    """Kills it before and after each rename, fsync, removal, temporary file and commit to a Delta table, of
    ingest and build and in a resumed batch of a stream.

    Readers then find a state that exists without a crash, and repeating the steps yields the same files
    with the same checksums."""
    command = [sys.executable, "-m", "tests.pipeline.crashing", life, "0", str(EVERY)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    states, *points = [json.loads(line) for line in done.stdout.splitlines()]
    by_number = {state["number"]: state for state in states}
    assert list(by_number) == numbers
    found = set()
    for each in points:
        between, after = each["between"], each["after"]
        found.add(between["number"])
        for reached, state in ((between, by_number[between["number"]]), (after, states[-1])):
            for name in ("number", "sums", "records"):
                assert reached[name] == state[name], (each["point"], name)
        assert each["code"] == (0 if each is points[-1] else -signal.SIGKILL)
    assert found == set(numbers)
    assert len(points) > 100 / EVERY


class KillingEngine:
    """An engine that kills one worker at the beginning of a task or after its files are written."""

    name = "dying"

    def __init__(self, once: Path, when: str, which: int) -> None:
        self.once, self.when, self.which = once, when, which

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        numbered = list(enumerate(tasks))
        killed_task = functools.partial(_killed_task, work, self.once, self.when, self.which)
        return Processes(2).run(killed_task, numbered)


def _killed_task(work: Callable[[Any], Any], once: Path, when: str, which: int, task: tuple[int, Any]) -> Any:
    number, value = task
    made = work(value) if when == "after" else None
    if number == which and not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return work(value) if made is None else made


@pytest.mark.parametrize(("step", "when"), [("ingest", "before"), ("ingest", "after"), ("build", "after")])
def test_killed_worker_fails_its_step_only(tmp_path: Path, step: str, when: str) -> None:
    batches = log(3, 60)
    write(tmp_path / "logs", batches, cuts=[20, 40])
    undisturbed, warehouse = Warehouse(tmp_path / "w1"), Warehouse(tmp_path / "w2")
    for each in (lambda w, e: ingest(w, [tmp_path / "logs"], e), build):
        each(undisturbed, Local())
    if step == "build":
        ingest(warehouse, [tmp_path / "logs"], Local())
    number = warehouse.snapshot.number
    killing_engine = KillingEngine(tmp_path / "once", when, 1)
    with pytest.raises(BrokenProcessPool):
        if step == "ingest":
            ingest(warehouse, [tmp_path / "logs"], killing_engine)
        else:
            build(warehouse, killing_engine)
    assert warehouse.refresh().number == number
    ingest(warehouse, [tmp_path / "logs"], killing_engine)
    build(warehouse, killing_engine)
    assert sums_of(warehouse) == sums_of(undisturbed)
    assert records_of(warehouse) == expected(batches)
    assert set(warehouse.snapshot.files) <= all_files(warehouse)


def test_failed_step_can_be_repeated(tmp_path: Path) -> None:
    """One task raises after another one has written its files; the next run ingests all records."""
    write(tmp_path / "logs", log(3, 60), cuts=[20, 40])

    class Failing(Local):
        def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
            yield work(tasks[0])
            raise OSError("no space left")

    warehouse = Warehouse(tmp_path / "w")
    with pytest.raises(OSError, match="no space left"):
        ingest(warehouse, [tmp_path / "logs"], Failing())
    assert all_files(warehouse) and warehouse.refresh().number == 0
    ingest(warehouse, [tmp_path / "logs"], Local())
    assert records_of(warehouse) == expected(log(3, 60))
    assert all_files(warehouse) == set(warehouse.snapshot.files)


def test_concurrent_step_is_rejected(tmp_path: Path) -> None:
    """A step that begins while another is running raises Conflict; the running one completes."""
    write(tmp_path / "logs", log(3, 60), cuts=[20])

    class Interleaved(Local):
        def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
            for task in tasks:
                with pytest.raises(Conflict, match="another process is writing"):
                    ingest(Warehouse(tmp_path / "w"), [tmp_path / "logs"], Local())
                with pytest.raises(Conflict, match="another process is writing"):
                    build(Warehouse(tmp_path / "w"), Local())
                yield work(task)

    warehouse = Warehouse(tmp_path / "w")
    assert ingest(warehouse, [tmp_path / "logs"], Interleaved()).number == 1
    assert records_of(warehouse) == expected(log(3, 60))
    build(warehouse, Local())
    assert sums_of(Warehouse(tmp_path / "w")) == sums_of(warehouse)
