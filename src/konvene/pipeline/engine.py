"""Who does the work: this process, or as many as Spark has.

A step of the pipeline is a list of tasks and one function that does a task. A task is a small value (names of
files and ranges in them); what it makes are files that it writes itself, and what it gives back are few rows
about them. So nothing large ever passes the driver, a task that is done twice writes the same bytes under the
same name, and both engines make the same tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Engine", "Local", "Processes", "Spark"]

LEAST_JOBS = 8
"""So many jobs are handed to Spark at a time at least: it may not know yet how many slots it will have."""

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Does tasks, each at least once."""

    name: str

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """What came of each task, in the order in which they are done."""
        ...


class Local:
    """One after the other, here."""

    name = "local"

    def __repr__(self) -> str:
        return "Local()"

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        return map(work, tasks)


class Processes:
    """Some processes of this machine, for who has cores and no Spark.

    They are new ones, not copies of this one, whose threads a copy would not have. If one of them is ended
    from outside, `BrokenProcessPool` is raised and nothing is lost: the step has not happened."""

    name = "processes"

    def __init__(self, count: int | None = None) -> None:
        self._count = count or os.cpu_count() or 1

    def __repr__(self) -> str:
        return f"Processes({self._count})"

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        if not tasks:
            return
        count = min(self._count, len(tasks))
        with ProcessPoolExecutor(count, get_context("spawn"), _end_with_parent) as pool:
            futures = [pool.submit(work, task) for task in tasks]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A worker whose driver was killed would wait for work for ever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


class Spark:
    """One job of Spark's with one task for each.

    A job for each, not one for all, because of a job's results Spark's Python shows none before all are
    there. It costs some tens of milliseconds; a task should last seconds. More jobs are handed over than
    there are slots, so that no slot waits for the next."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Spark({self._session.sparkContext.master})"

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        if not tasks:
            return
        context = self._session.sparkContext

        def one(task: T) -> R:
            made: R = context.parallelize([task], 1).map(work).collect()[0]
            return made

        at_a_time = max(LEAST_JOBS, 2 * context.defaultParallelism)
        with ThreadPoolExecutor(min(at_a_time, len(tasks)), "konvene-job") as pool:
            futures = [pool.submit(one, task) for task in tasks]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)
