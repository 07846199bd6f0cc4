"""Engines without Spark run every task once."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from konvene.pipeline.engine import Engine, Local, Processes, Spark

ROOT = Path(__file__).parents[2]


def doubled(n: int) -> int:
    return 2 * n


def process_id(_: int) -> int:
    return os.getpid()


def failing(n: int) -> int:
    if n == 3:
        raise ValueError("three")
    return n


@pytest.mark.parametrize("engine", [Local(), Processes(2)], ids=["local", "processes"])
def test_each_task_runs_once(engine: Engine) -> None:
    assert sorted(engine.run(doubled, range(7))) == [0, 2, 4, 6, 8, 10, 12]
    assert list(engine.run(doubled, [])) == []
    with pytest.raises(ValueError, match="three"):
        list(engine.run(failing, range(5)))


def test_processes_engine_uses_other_processes() -> None:
    pids = set(Processes(2).run(process_id, range(6)))
    assert os.getpid() not in pids and 1 <= len(pids) <= 2
    assert set(Local().run(process_id, range(2))) == {os.getpid()}


def allocator(_: int) -> str:
    import pyarrow as pa

    return str(pa.default_memory_pool().backend_name)


def test_worker_processes_return_freed_memory_to_the_system() -> None:
    assert set(Processes(2).run(allocator, range(2))) == {"system"}


def wait_unless_first(n: int) -> int:
    if n:
        time.sleep(600)
    return n


def test_closed_processes_engine_ends_its_tasks() -> None:
    """As after Ctrl-C. It does not wait for them."""
    results = Processes(2).run(wait_unless_first, range(4))
    assert next(results) == 0
    results.close()
    assert multiprocessing.active_children() == []


CHILD = """
import os, sys, time
from konvene.pipeline.engine import Processes
from tests.pipeline.test_engine import write_pid_and_wait
if __name__ == "__main__":
    list(Processes(1).run(write_pid_and_wait, [sys.argv[1]]))
"""


def write_pid_and_wait(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def test_workers_end_with_a_killed_driver(tmp_path: Path) -> None:
    """No idle worker process is left behind."""
    script, pid_file = tmp_path / "driver.py", tmp_path / "pid"
    script.write_text(CHILD)
    driver = subprocess.Popen(
        [sys.executable, str(script), str(pid_file)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        while not (pid_file.exists() and pid_file.read_text()):
            assert driver.poll() is None
            time.sleep(0.05)
        worker = int(pid_file.read_text())
    finally:
        driver.kill()
        driver.wait()
    for _ in range(600):
        if not is_running(worker):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {worker} is still there")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Jobs:
    """Stands for a Spark session, its context and a job: the second job is submitted after the first attempt
    to cancel jobs, and runs until the next one."""

    master, defaultParallelism = "local[1]", 1

    def __init__(self) -> None:
        self.sparkContext = self
        self.started, self.attempted, self.submitted, self.cancelled = (threading.Event() for _ in range(4))

    def addJobTag(self, tag: str) -> None:
        pass

    def parallelize(self, tasks: list[int], slices: int) -> Job:
        return Job(self, tasks[0])

    def cancelJobsWithTag(self, tag: str) -> None:
        if self.submitted.is_set():
            self.cancelled.set()
        self.attempted.set()


class Job:
    def __init__(self, jobs: Jobs, task: int) -> None:
        self.jobs, self.task = jobs, task

    def map(self, work: object) -> Job:
        return self

    def collect(self) -> list[int]:
        if self.task == 0:
            assert self.jobs.started.wait(60)
        else:
            self.jobs.started.set()
            assert self.jobs.attempted.wait(60)
            self.jobs.submitted.set()
            assert self.jobs.cancelled.wait(60)
        return [self.task]


def test_a_job_that_is_submitted_while_jobs_are_cancelled_is_cancelled_too() -> None:
    jobs = Jobs()
    running = Spark(jobs).run(doubled, [0, 1])  # type: ignore[arg-type]
    assert next(running) == 0
    running.close()
    assert jobs.submitted.is_set() and jobs.cancelled.is_set()
