"""Runs both steps of the pipeline in processes that are killed at each point in turn. For `test_crash`.

A point is the moment before or after a call that changes a directory or makes a file durable. For each one a
child is made that does the steps and kills itself there, and then another that does them again. What they
came to is printed as a line of JSON. Children are copies of a process that has done nothing yet, so no thread
is missed."""

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

from tests.pipeline import streaming
from tests.pipeline.segments import all_files, cleaned, log, records_of, sums_of, write

from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.resume import HOME
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.spark.stream import step
from konvene.pipeline.warehouse import warehouse as warehouses
from konvene.pipeline.warehouse.warehouse import Warehouse

PATCHED = ("replace", "link", "unlink", "fsync", "rmdir")


def before(home: Path) -> None:
    """What was taken in when all was well."""
    batches = log(7, 40)
    write(home / "then", cleaned(batches[:25], batches[12][0].offset), whole=batches[:25])
    write(home / "now" / "a", batches, cuts=[20, 25])
    write(home / "now" / "b", cleaned(batches, batches[35][0].offset), cuts=[10], whole=batches)
    warehouse = Warehouse(home / "w")
    ingest(warehouse, [home / "then"], Local())
    build(warehouse, Local())


def steps(home: Path) -> None:
    """What is interrupted: a log that grew, copies that have more than others, gold that is made anew."""
    warehouse = Warehouse(home / "w")
    ingest(warehouse, [home / "now"], Local())
    build(warehouse, Local())


def before_stream(home: Path) -> None:
    """Two batches of a stream, and a log that has grown since."""
    batches = log(7, 40)
    write(home / "logs", batches, cuts=[20])
    for number, parts in enumerate(streaming.steps(home / "logs", 40)):
        if number < 2:
            step(Warehouse(home / "w"), parts, Local(), [str(home / "logs")])


def stream(home: Path) -> None:
    """Its third batch, as Spark does it again: the same parts of the log."""
    parts = list(streaming.steps(home / "logs", 40))[2]
    step(Warehouse(home / "w"), parts, Local(), [str(home / "logs")])


def came_to(home: Path) -> dict[str, Any]:
    warehouse = Warehouse(home / "w")
    return {
        "number": warehouse.snapshot.number,
        "sums": sums_of(warehouse),
        "records": [offset for offset, *_ in records_of(warehouse)],
        "orphans": sorted(
            path for path in all_files(warehouse) - set(warehouse.snapshot.files) if not path.startswith(HOME)
        ),
    }


def killed_at(point: int) -> None:
    """This process ends at the point, without a word to anybody."""
    left = [point]

    def passing() -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def around(*args: Any, **more: Any) -> Any:
            passing()
            found = call(*args, **more)
            passing()
            return found

        return around

    for name in PATCHED:
        setattr(os, name, watched(getattr(os, name)))
    tempfile.mkstemp = watched(tempfile.mkstemp)  # type: ignore[assignment]
    os.preadv = watched(os.preadv)


def in_child(work: Callable[[], Any]) -> tuple[int, Any]:
    """How a copy of this process ended that did some work, and what it came to."""
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


def at(point: int, ready: Path, steps: Callable[[Path], None]) -> tuple[int, Any, Any]:
    """Interrupt the steps at a point, look, do them again, look again."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        shutil.copytree(ready, home, dirs_exist_ok=True)

        def interrupted() -> None:
            killed_at(point)
            steps(home)

        def again() -> dict[str, Any]:
            steps(home)
            return came_to(home)

        code, _ = in_child(interrupted)
        _, between = in_child(lambda: came_to(home))
        _, after = in_child(again)
        return code, between, after


def undisturbed(home: Path, steps: Callable[[Path], None]) -> list[dict[str, Any]]:
    """What it comes to before and after, and after each manifest in between, when nobody is killed."""
    states = [came_to(home)]
    commit = Warehouse.commit

    def told_after(self: Warehouse, *given: Any, **more: Any) -> int:
        number = commit(self, *given, **more)
        states.append(came_to(home))
        return number

    Warehouse.commit = told_after  # type: ignore[method-assign]
    steps(home)
    return states


def told(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


LIVES = {"steps": (before, steps), "stream": (before_stream, stream)}


def main(life: str, first: int, every: int) -> None:
    warehouses.FOLD = 2
    begin, interrupted = LIVES[life]
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        ready, point = Path(name), first
        in_child(lambda: begin(ready))
        shutil.copytree(ready, other, dirs_exist_ok=True)
        told(in_child(lambda: undisturbed(Path(other), interrupted))[1])
        while True:
            code, between, after = at(point, ready, interrupted)
            told({"point": point, "code": code, "between": between, "after": after})
            if code == 0:
                return
            point += every


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
