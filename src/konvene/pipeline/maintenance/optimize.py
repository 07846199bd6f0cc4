"""Merges small files of bronze and silver into larger ones.

Each ingest leaves files of its own, so a stream leaves many small ones. Neighbouring files of one table, log
and family are read in log order and written as one. No row changes, and gold stays valid: its digests are
renewed in the same step. The next build that resumes a reducer finds its input files replaced, and reduces
that log once from the beginning, with the same rows as a result.

Gold is left as it is, since each build writes all of a log's files again.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from konvene.pipeline.engine import Engine
from konvene.pipeline.gold.build import digests
from konvene.pipeline.ingest.ingest import run_row
from konvene.pipeline.progress import Watch, Watched
from konvene.pipeline.warehouse.data_file import DataFile, folder_of
from konvene.pipeline.warehouse.parquet import VERSION, Sink
from konvene.pipeline.warehouse.read import layer_of, of_files, schema_of
from konvene.pipeline.warehouse.warehouse import RUNS, Change, Warehouse

__all__ = ["TARGET_BYTES", "Merged", "Optimized", "merge", "optimize", "plan"]

TARGET_BYTES = 128 << 20


class Merge(NamedTuple):
    """A task: the neighbouring files to write as one."""

    warehouse: str
    files: tuple[DataFile, ...]

    @property
    def size(self) -> int:
        return sum(file.bytes for file in self.files)


class Merged(NamedTuple):
    """A file that replaces others."""

    replaced: tuple[DataFile, ...]
    file: DataFile


class Optimized(NamedTuple):
    """The result of `optimize`; `number` is that of its step, None if there was nothing to merge."""

    number: int | None
    merged: tuple[Merged, ...]


def optimize(
    warehouse: Warehouse, engine: Engine, progress: Watch | None = None, *, target_bytes: int = TARGET_BYTES
) -> Optimized:
    """Merge neighbouring small files, up to `target_bytes` each, as one step.

    Raises `Conflict` if another process is writing to the warehouse."""
    with warehouse.writing():
        started_ms = time.time_ns() // 1_000_000
        watched = Watched("optimize", progress)
        tasks = list(plan(warehouse, target_bytes))
        watched.expect(len(tasks), sum(task.size for task in tasks))
        found: list[Merged] = []
        for merged in engine.run(merge, tasks):
            watched.did(sum(file.bytes for file in merged.replaced), merged.file.rows)
            found.append(merged)
        if not found:
            return Optimized(None, ())
        added = [merged.file for merged in found]
        removed = [file for merged in found for file in merged.replaced]
        run = run_row(warehouse, "optimize", started_ms, engine.name, added)
        ledger = _renewed(warehouse, added, removed)
        number = warehouse.commit("optimize", added, removed, ledger=ledger, run=run, rewrites=True)
        return Optimized(number, tuple(sorted(found, key=lambda merged: merged.file.path)))


def plan(warehouse: Warehouse, target_bytes: int = TARGET_BYTES) -> Iterator[Merge]:
    """Yield the groups of neighbouring files to merge."""
    files = sorted(
        (file for file in warehouse.snapshot.files.values() if _may_merge(file)),
        key=lambda file: (file.table, file.family, *file.place),
    )
    for _, of_log in itertools.groupby(files, key=lambda file: (file.table, file.family, file.of)):
        together: list[DataFile] = []
        for file in of_log:
            if together and sum(each.bytes for each in together) + file.bytes > target_bytes:
                if len(together) > 1:
                    yield Merge(str(warehouse.path), tuple(together))
                together = []
            together.append(file)
        if len(together) > 1:
            yield Merge(str(warehouse.path), tuple(together))


def merge(task: Merge) -> Merged:
    """Run a task: write the rows of its files to one file."""
    first = task.files[0]
    folder = folder_of(first.table, first.of)
    begin, end = first.first_offset, max(file.last_offset for file in task.files)
    stem = f"{begin}-{end}-v{VERSION}" + (f"-{first.family}" if first.family else "")
    sink = Sink(f"{task.warehouse}/{folder}", schema_of(first.table))
    try:
        for batch in of_files(task.warehouse, task.files):
            sink.write(batch)
        written = sink.close(lambda checksum: f"{stem}-{checksum}.parquet")
    finally:
        sink.abandon()
    assert written is not None
    return Merged(task.files, DataFile.made(first.table, folder, first.of, begin, end, written, first.family))


def _may_merge(file: DataFile) -> bool:
    return file.table == RUNS or layer_of(file.table) != "gold"


def _renewed(warehouse: Warehouse, added: Sequence[DataFile], removed: Sequence[DataFile]) -> dict[str, str]:
    """Return the ledger entries of gold that is up to date, for its inputs after the step."""
    ledger = warehouse.snapshot.ledger
    current = {key for key, digest in digests(warehouse).items() if ledger.get(key) == digest}
    after = copy.copy(warehouse)
    change = Change(warehouse.snapshot.number + 1, "optimize", tuple(added), tuple(removed), {})
    after.snapshot = change.applied(warehouse.snapshot)
    return {key: digest for key, digest in digests(after).items() if key in current}
