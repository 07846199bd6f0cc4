"""Run pipeline steps in processes that are killed at each point in turn, for `test_crash`.

A point is the moment before or after a call that changes a directory, makes a file durable, or commits to a
Delta table. For each point one child process runs the steps and kills itself there; another one repeats them.
The resulting states are printed as JSON lines. Children are forked from a process that has done no work, so
no thread is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from tests.pipeline import streaming
from tests.pipeline.segments import cleaned, log, records_of, sums_of, write

from konvene.log.disk.files import RealDisk
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.spark.stream import step
from konvene.pipeline.warehouse import delta
from konvene.pipeline.warehouse.warehouse import Warehouse

PATCHED = ("replace", "link", "unlink", "fsync")


def before(home: Path) -> None:
    """Ingest and build a warehouse without any crash."""
    batches = log(7, 40)
    write(home / "then", cleaned(batches[:25], batches[12][0].offset), whole=batches[:25])
    write(home / "now" / "a", batches, cuts=[20, 25])
    write(home / "now" / "b", cleaned(batches, batches[35][0].offset), cuts=[10], whole=batches)
    warehouse = Warehouse(home / "w")
    ingest(warehouse, [home / "then"], Local())
    build(warehouse, Local())


def steps(home: Path) -> None:
    """Run the interrupted steps: ingest a grown log and copies with more records, and rebuild gold."""
    warehouse = Warehouse(home / "w")
    ingest(warehouse, [home / "now"], Local())
    build(warehouse, Local())


def before_stream(home: Path) -> None:
    """Process two batches of a stream of a log that has grown since."""
    batches = log(7, 40)
    write(home / "logs", batches, cuts=[20])
    for number, parts in enumerate(streaming.steps(home / "logs", 40)):
        if number < 2:
            step(Warehouse(home / "w"), parts, Local(), [str(home / "logs")])


def stream(home: Path) -> None:
    """Process the third batch, with the same parts of the log whenever it is repeated."""
    parts = list(streaming.steps(home / "logs", 40))[2]
    step(Warehouse(home / "w"), parts, Local(), [str(home / "logs")])


def warehouse_state(home: Path) -> dict[str, Any]:
    warehouse = Warehouse(home / "w")
    return {
        "number": warehouse.snapshot.number,
        "sums": sums_of(warehouse),
        "records": [offset for offset, *_ in records_of(warehouse)],
    }


def kill_at(point: int) -> None:
    """Kill this process with SIGKILL at the given point."""
    remaining = [point]

    def pass_point() -> None:
        if remaining[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        remaining[0] -= 1

    def with_points(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            pass_point()
            found = call(*args, **more)
            pass_point()
            return found

        return wrapped

    for name in PATCHED:
        setattr(os, name, with_points(getattr(os, name)))
    tempfile.mkstemp = with_points(tempfile.mkstemp)  # type: ignore[assignment]
    os.preadv = with_points(os.preadv)
    RealDisk.settle = with_points(RealDisk.settle)  # type: ignore[method-assign]
    for owner, name in ((DeltaTable, "create_write_transaction"), (DeltaTable, "create")):
        setattr(owner, name, with_points(getattr(owner, name)))


def run_in_child(work: Callable[[], Any]) -> tuple[int, Any]:
    """Run `work` in a forked child; return its exit code and its JSON result."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            found = work()
            with os.fdopen(writing, "w") as file:
                json.dump(found, file)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(text) if text else None


def run_killed_at(point: int, ready: Path, steps: Callable[[Path], None]) -> tuple[int, Any, Any]:
    """Kill the steps at a point, and repeat them; return the exit code and the states after both."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        shutil.copytree(ready, home, dirs_exist_ok=True)

        def interrupted() -> None:
            kill_at(point)
            steps(home)

        def again() -> dict[str, Any]:
            steps(home)
            return warehouse_state(home)

        code, _ = run_in_child(interrupted)
        _, between = run_in_child(lambda: warehouse_state(home))
        _, after = run_in_child(again)
        return code, between, after


def run_undisturbed(home: Path, steps: Callable[[Path], None]) -> list[dict[str, Any]]:
    """Return the warehouse's states before the steps and after each of them, without a kill."""
    states = [warehouse_state(home)]
    commit = Warehouse.commit

    def commit_and_record(self: Warehouse, *given: Any, **more: Any) -> int:
        number = commit(self, *given, **more)
        states.append(warehouse_state(home))
        return number

    Warehouse.commit = commit_and_record  # type: ignore[method-assign]
    steps(home)
    return states


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


SCENARIOS = {"steps": (before, steps), "stream": (before_stream, stream)}


def main(scenario: str, first: int, every: int) -> None:
    delta.FOLD = 2
    prepare, interrupted = SCENARIOS[scenario]
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        ready, point = Path(name), first
        run_in_child(lambda: prepare(ready))
        shutil.copytree(ready, other, dirs_exist_ok=True)
        print_json(run_in_child(lambda: run_undisturbed(Path(other), interrupted))[1])
        while True:
            code, between, after = run_killed_at(point, ready, interrupted)
            print_json({"point": point, "code": code, "between": between, "after": after})
            if code == 0:
                return
            point += every


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
