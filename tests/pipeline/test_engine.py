"""Who does the work, without Spark: every task once, whatever comes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from konvene.pipeline.engine import Engine, Local, Processes

ROOT = Path(__file__).parents[2]


def doubled(n: int) -> int:
    return 2 * n


def where(_: int) -> int:
    return os.getpid()


def failing(n: int) -> int:
    if n == 3:
        raise ValueError("three")
    return n


@pytest.mark.parametrize("engine", [Local(), Processes(2)], ids=["local", "processes"])
def test_every_task_is_done(engine: Engine) -> None:
    assert sorted(engine.run(doubled, range(7))) == [0, 2, 4, 6, 8, 10, 12]
    assert list(engine.run(doubled, [])) == []
    with pytest.raises(ValueError, match="three"):
        list(engine.run(failing, range(5)))


def test_processes_are_others_than_this_one() -> None:
    pids = set(Processes(2).run(where, range(6)))
    assert os.getpid() not in pids and 1 <= len(pids) <= 2
    assert set(Local().run(where, range(2))) == {os.getpid()}


CHILD = """
import os, sys, time
from konvene.pipeline.engine import Processes
from tests.pipeline.test_engine import told_and_waiting
if __name__ == "__main__":
    list(Processes(1).run(told_and_waiting, [sys.argv[1]]))
"""


def told_and_waiting(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def test_workers_go_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    """Nobody is left behind that waits for work."""
    script, told = tmp_path / "driver.py", tmp_path / "pid"
    script.write_text(CHILD)
    driver = subprocess.Popen(
        [sys.executable, str(script), str(told)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        while not (told.exists() and told.read_text()):
            assert driver.poll() is None
            time.sleep(0.05)
        worker = int(told.read_text())
    finally:
        driver.kill()
        driver.wait()
    for _ in range(600):
        if not _runs(worker):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {worker} is still there")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
