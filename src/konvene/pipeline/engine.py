"""Who does the work: this process, or as many as Spark has.

A step of the pipeline is a list of tasks and one function that does a task. A task is a small value (names of
files and ranges in them); what it makes are files that it writes itself, and what it gives back are few rows
about them. So nothing large ever passes the driver, a task that is done twice writes the same bytes under the
same name, and both engines make the same tables.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Engine", "Local", "Spark"]

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


class Spark:
    """One task of Spark's for each."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Spark({self._session.sparkContext.master})"

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        if not tasks:
            return
        import pyarrow as pa

        pickled = [pickle.dumps(task) for task in tasks]

        def do(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    made = pickle.dumps(work(pickle.loads(pickled[number])))
                    yield pa.RecordBatch.from_arrays([pa.array([made], pa.binary())], ["made"])

        frame = self._session.range(0, len(pickled), 1, len(pickled))
        for row in frame.mapInArrow(do, "made binary").toLocalIterator(prefetchPartitions=True):
            yield pickle.loads(row.made)
