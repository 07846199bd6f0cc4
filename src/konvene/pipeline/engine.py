"""Engines that run the tasks of a pipeline step: this process, several processes, or Spark.

A step is a list of tasks and one function that runs a task. A task is a small value (file names and ranges);
it writes its output files itself and returns a few rows about them. So nothing large passes the driver, a
task that runs twice writes the same bytes under the same name, and all engines produce the same tables.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, Protocol, TypeVar

from konvene.runtime.signals import sigint_blocked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Engine", "Local", "Processes", "Spark"]

CANCEL_EVERY_S = 0.2
"""Time between two attempts to cancel jobs."""
MIN_JOBS = 8
"""At least this many jobs are submitted to Spark at a time, since it may not know its number of slots yet."""

SHUFFLE_FROM = 16
"""Number of buckets from which Spark's shuffle costs less than reading a log once for each bucket.

An estimate from runs on one to four million records: the shuffle takes some 4 µs of CPU time per record, and
reading one once more takes 0.5 µs for records of groups, 0.2 µs for commits."""
T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Interface of the engines, which run each task at least once."""

    name: str

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Generator[R]:
        """Yield the result of each task, in order of completion.

        Ctrl-C, or closing the generator early, ends the tasks that are running."""
        ...


class Local:
    """Engine that runs tasks sequentially in this process."""

    name = "local"

    def __repr__(self) -> str:
        return "Local()"

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Generator[R]:
        yield from map(work, tasks)


class Processes:
    """Engine that runs tasks in several processes of this machine.

    They are spawned, not forked, because a fork does not have this process's threads. If one of them is
    killed, `BrokenProcessPool` is raised and the step has no effect. Ctrl-C is for this process only, which
    kills them."""

    name = "processes"

    def __init__(self, count: int | None = None) -> None:
        self._count = count or os.cpu_count() or 1

    def __repr__(self) -> str:
        return f"Processes({self._count})"

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Generator[R]:
        if not tasks:
            return
        count = min(self._count, len(tasks))
        with ProcessPoolExecutor(count, get_context("spawn"), _begin_worker) as pool:
            try:
                with sigint_blocked():  # All processes are started here, and inherit the mask.
                    futures = [pool.submit(work, task) for task in tasks]
                for future in as_completed(futures):
                    yield future.result()
            except (KeyboardInterrupt, GeneratorExit):
                for process in list(pool._processes.values()):
                    process.kill()
                raise
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _begin_worker() -> None:
    """Prepare a worker process: it exits when its parent ends, and Arrow allocates with malloc.

    Arrow's own allocator keeps what a task has freed, up to 80 MB, beside what malloc keeps."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    _end_with_parent()


def _end_with_parent() -> None:
    """Exit when the parent process ends; otherwise a worker of a killed driver would wait forever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


class Spark:
    """Engine that runs each task as a Spark job of its own.

    Spark's Python API returns no results of a job before all are complete, hence one job per task. That costs
    some tens of milliseconds; a task should last seconds. More jobs are submitted than there are slots, so
    that no slot is idle. Ctrl-C cancels the jobs of this engine.

    The gold of logs with at least `shuffle_from` buckets is computed by a job that spreads the rows over the
    slots (`konvene.pipeline.spark.shuffle`), with the same files as a result."""

    name = "spark"

    def __init__(self, session: SparkSession, *, shuffle_from: int = SHUFFLE_FROM) -> None:
        self.session = session
        self.shuffle_from = shuffle_from

    def __repr__(self) -> str:
        return f"Spark({self.session.sparkContext.master})"

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Generator[R]:
        context = self.session.sparkContext

        def one(task: T) -> R:
            made: R = context.parallelize([task], 1).map(work).collect()[0]
            return made

        return self.jobs(one, tasks)

    def jobs(self, job: Callable[[T], R], tasks: Sequence[T]) -> Generator[R]:
        """Yield the result of `job` for each task, in order of completion; it runs a Spark job from this
        process, several at a time."""
        if not tasks:
            return
        context, tag = self.session.sparkContext, f"konvene-{uuid.uuid4()}"

        def one(task: T) -> R:
            context.addJobTag(tag)
            return job(task)

        at_a_time = max(MIN_JOBS, 2 * context.defaultParallelism)
        with ThreadPoolExecutor(min(at_a_time, len(tasks)), "konvene-job") as pool:
            futures = [pool.submit(one, task) for task in tasks]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except (KeyboardInterrupt, GeneratorExit):
                pool.shutdown(wait=False, cancel_futures=True)
                with contextlib.suppress(Exception):  # The JVM may be dead.
                    while running := [each for each in futures if not each.done()]:
                        context.cancelJobsWithTag(tag)  # Again, as a thread may submit a job after it.
                        wait(running, CANCEL_EVERY_S)
                raise
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
