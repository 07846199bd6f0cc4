"""A task of a build, as a value that is sent to workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.gold.buckets import WHOLE_LOG, Bucket
from konvene.pipeline.gold.transitions import Transition
from konvene.pipeline.ingest.offset_spans import Span
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.warehouse.read import of_files
from konvene.pipeline.warehouse.warehouse import DataFile

__all__ = ["Task"]


class Task(NamedTuple):
    """A task of a build: a log, the kind of tables to build from it, and its input files by purpose."""

    kind: str
    warehouse: str
    of: Partition
    spans: tuple[Span, ...]
    inputs: dict[str, tuple[DataFile, ...]]
    before: tuple[DataFile, ...] = ()
    """The files that the previous task of this kind wrote."""
    goes_on: bool = False
    """Whether to resume from that task's state, and to store the state for the next one."""
    bucket: Bucket = WHOLE_LOG
    """The part of the log's groups, or of the keys of commits."""
    transitions: tuple[Transition, ...] = ()
    """For one of several buckets, where the history becomes incomplete and complete again."""

    @property
    def size(self) -> int:
        """Approximate number of bytes of its rows."""
        size = sum(file.bytes for word, files in self.inputs.items() if word != "times" for file in files)
        return size // self.bucket.of

    def read(
        self, word: str, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the input files for a purpose (a key of `inputs`), in log order."""
        return of_files(self.warehouse, self.inputs[word], columns, filter)
