"""Ingests logs: from segments to bronze and silver, each offset once, however often it is offered.

An offset is new if the ledger does not have it. So repeating an ingest adds nothing, a log that grew adds its
growth, a replica adds records that other copies lost to compaction, and bronze keeps its rows whatever
happens to the log. The steps:

    look     find partitions and their copies, and how far each segment can be read
    read     what no span of the ledger covers, each range from the first copy that has it
    fill     compacted spans, from other copies, one after the other: they may have the missing records
    commit   make files, spans and topic names visible atomically

`take` does `read` and `commit` for callers that already know which parts are new.

A segment that the cleaner or retention replaced between look and read is left for the next run, and the
report mentions it.

Known limitation: offsets identify records. If a partition was truncated (an unclean election, a crash) and
other records were then written with the same offsets, bronze keeps the records that it read first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from konvene import __version__
from konvene.internal_topics import CLUSTER_METADATA_TOPIC, COORDINATOR_TOPICS
from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.engine import Engine
from konvene.pipeline.ingest.chunk import READ_WHOLE, Chunk, do
from konvene.pipeline.ingest.fingerprints import Source, agreeing, fingerprint
from konvene.pipeline.ingest.offset_spans import Covered, Range, Span, without
from konvene.pipeline.ingest.splits import TASK_BYTES, Replaced, Split, cut, extent
from konvene.pipeline.progress import Watch, Watched
from konvene.pipeline.sources.files import Copy, Partition, find
from konvene.pipeline.sources.topics import Named, merged, named_table, names_in_folders
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse.parquet import VERSION, Sink
from konvene.pipeline.warehouse.warehouse import DataFile, Warehouse, folder_of

if TYPE_CHECKING:
    from konvene.pipeline.sources.plan import Slice

__all__ = ["Report", "WrongTables", "ingest", "run_row", "take"]


MAX_FILL_OFFSETS = 1_000_000
"""Adjacent compacted spans are filled together, up to this many offsets."""
MAX_REMEMBERED_SEGMENTS = 500
"""Number of searched segments remembered per log; a forgotten one is searched again."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an ingest or a build. `number` is None if there was nothing to do."""

    step: str
    number: int | None
    tasks: int
    files: int
    rows: int
    bytes: int
    """Bytes written."""
    bytes_read: int
    left: tuple[str, ...] = ()
    """Messages about skipped inputs."""


class WrongTables(ValueError):
    """There is no such table, or the warehouse was created with other tables."""


def ingest(
    warehouse: Warehouse,
    paths: Iterable[str | Path],
    engine: Engine,
    *,
    cluster: str = "",
    tables: Iterable[str] | None = None,
    progress: Watch | None = None,
    task_bytes: int = TASK_BYTES,
) -> Report:
    """Ingest what the logs at `paths` have and the warehouse has not.

    `cluster` names the cluster of directories without `meta.properties`. With `tables` only these (and
    `pipeline_run`) are written, from the first ingest of the warehouse on: raises `WrongTables` if that
    changes, or for an unknown table. Raises `NotALog` for paths without logs, `Conflict` if another process
    is writing to the warehouse."""
    with warehouse.writing():
        return _Ingest(warehouse, engine, tables, Watched("ingest", progress), task_bytes).run(paths, cluster)


def take(
    warehouse: Warehouse, parts: Sequence[Slice], engine: Engine, paths: Sequence[str] = (), cluster: str = ""
) -> Report:
    """Ingest the offsets of these parts that the warehouse does not have; other copies are not searched.

    For callers that have planned what to read, such as a stream. `paths` are searched for topic names only;
    `cluster` is as in `ingest`. Raises `Replaced`, without effect, if a segment was replaced since it was
    planned, and `Conflict` if another process is writing to the warehouse."""
    with warehouse.writing():
        return _Ingest(warehouse, engine, None, Watched("ingest", None), TASK_BYTES).take(
            parts, paths, cluster
        )


class _Job(NamedTuple):
    """A task to run, the range of offsets that it covers a part of, and the fingerprint of its segment."""

    chunk: Chunk
    whole: Range
    fingerprint: str


@dataclass(slots=True)
class _State:
    """The results of a run so far."""

    logs: dict[Partition, Covered] = field(default_factory=dict)
    changed: set[Partition] = field(default_factory=set)
    looked: dict[tuple[Partition, Range], frozenset[str]] = field(default_factory=dict)
    """Fingerprints of the segments in which a compacted span was searched in this run."""
    unsure: set[str] = field(default_factory=set)
    """Fingerprints of segments that were replaced meanwhile."""
    files: list[DataFile] = field(default_factory=list)
    names: set[Named] = field(default_factory=set)
    left: list[str] = field(default_factory=list)
    tasks: int = 0
    bytes_read: int = 0


class _Ingest:
    def __init__(
        self,
        warehouse: Warehouse,
        engine: Engine,
        tables: Iterable[str] | None,
        watched: Watched,
        task_bytes: int,
    ) -> None:
        self.warehouse = warehouse
        self.engine = engine
        self.tables = None if tables is None else frozenset(tables)
        self.watched = watched
        self.task_bytes = task_bytes
        self.state = _State()

    def __repr__(self) -> str:
        return f"<ingest into {self.warehouse!r}>"

    def run(self, paths: Iterable[str | Path], cluster: str) -> Report:
        started_ms = time.time_ns() // 1_000_000
        tables_row = self._same_tables()
        found = find(paths, cluster)
        self.state.names.update(names_in_folders(found.copies))
        sources: list[Source] = []
        jobs: list[_Job] = []
        for of, copies in found.partitions().items():
            here = agreeing(self._sources(of, copies), self.state.left)
            sources += here
            jobs += self._new(of, here)
            jobs += self._snapshots(of, copies)
        self._do(jobs)
        self._fill([s for s in sources if s.of.topic in COORDINATOR_TOPICS])
        return self._commit(started_ms, tables_row)

    def take(self, parts: Sequence[Slice], paths: Sequence[str], cluster: str) -> Report:
        started_ms = time.time_ns() // 1_000_000
        tables_row = self._same_tables()
        found = find(paths, cluster)
        self.state.names.update(names_in_folders(found.copies))
        jobs: list[_Job] = []
        for of, copies in found.partitions().items():
            jobs += self._snapshots(of, copies)
        for part in parts:
            for new in self._covered(part.of).open(Range(part.first, part.last)):
                split = part.split or Split("", -1, 0, 0, *new)
                chunk = self._chunk(part.of, split, new)._replace(servers=part.bootstrap, client=part.client)
                jobs.append(_Job(chunk, new, ""))
        self._do(jobs)
        if self.state.left:
            raise Replaced("; ".join(self.state.left))
        return self._commit(started_ms, tables_row)

    def _same_tables(self) -> dict[str, object]:
        """Return the entry to add to the ledger: the tables of the warehouse; empty if it is there already.

        Raises `WrongTables` if the entry there differs, or for an unknown table."""
        tables_row = None if self.tables is None else sorted(self.tables)
        unknown = sorted(
            (self.tables or frozenset()) - TABLES.keys() - {each.name for each in TYPED.values()}
        )
        if unknown:
            raise WrongTables(f"no table is called {', '.join(unknown)}")
        ledger = self.warehouse.snapshot.ledger
        if "tables" not in ledger:
            return {"tables": tables_row}
        if ledger["tables"] != tables_row:
            raise WrongTables(
                f"{self.warehouse.path} was created with {_listed(ledger['tables'])}, not with "
                f"{_listed(tables_row)}"
            )
        return {}

    # looking --------------------------------------------------------------------------------------

    def _covered(self, of: Partition) -> Covered:
        covered = self.state.logs.get(of)
        if covered is None:
            row = self.warehouse.snapshot.ledger.get(_key(of))
            covered = self.state.logs[of] = Covered.from_json(row)
        return covered

    def _sources(self, of: Partition, copies: Sequence[Copy]) -> Iterator[Source]:
        """Yield the segments that may have new records, first copy first."""
        covered = self._covered(of)
        for copy in copies:
            for i, segment in enumerate(copy.segments):
                behind = copy.segments[i + 1].base_offset if i + 1 < len(copy.segments) else None
                if behind is not None:
                    all_of_it = Range(segment.base_offset, behind - 1)
                    if not covered.open(all_of_it) and not covered.doubtful(all_of_it):
                        continue
                try:
                    found = extent(segment, behind, has_records=of.topic in READ_WHOLE)
                    if found is not None:
                        yield Source(of, segment, found, *fingerprint(segment, found))
                except FileNotFoundError:
                    self.state.left.append(f"{segment.path} went away before it was read")

    def _new(self, of: Partition, sources: Sequence[Source]) -> Iterator[_Job]:
        """Yield tasks for the ranges that no span covers, each from the first segment that has it."""
        covered = self._covered(of)
        planned: list[Range] = []
        for source in sources:
            for part in covered.open(source.offsets):
                for wanted in without(part, planned):
                    planned = sorted([*planned, wanted])
                    for split in cut(source.segment, source.extent, *wanted, self.task_bytes):
                        within = Range(split.first, split.last)
                        yield _Job(self._chunk(of, split, within), within, source.fingerprint)

    def _snapshots(self, of: Partition, copies: Sequence[Copy]) -> Iterator[_Job]:
        """Yield a task for the newest snapshot of the cluster metadata log, unless it was read already."""
        newest = max((s for copy in copies for s in copy.snapshots), default=None)
        covered = self._covered(of)
        if newest is None or of.topic != CLUSTER_METADATA_TOPIC or Path(newest.path).name in covered.seen:
            return
        covered.seen = [Path(newest.path).name]
        self.state.changed.add(of)
        split = Split(newest.path, 0, 0, newest.size, -1, -1, newest.inode)
        yield _Job(self._chunk(of, split, Range(-1, -1)), Range(-1, -1), "")

    def _chunk(
        self,
        of: Partition,
        split: Split,
        within: Range,
        known: tuple[str, ...] | None = None,
        pieces: tuple[Range, ...] = (),
    ) -> Chunk:
        return Chunk(str(self.warehouse.path), of, split, within, self.tables, known, pieces)

    # reading --------------------------------------------------------------------------------------

    def _do(self, jobs: Sequence[_Job]) -> None:
        """Run tasks and record their results: a range once all of its parts are complete."""
        if not jobs:
            return
        state, by_chunk = self.state, {(job.chunk.of, job.chunk.within): job for job in jobs}
        self.watched.expect(len(jobs), sum(job.chunk.size for job in jobs))
        found: dict[tuple[Partition, Range], list[Span]] = {}
        broken = {(job.chunk.of, job.whole) for job in jobs if job.whole.first < 0}
        for done in self.engine.run(do, [job.chunk for job in jobs]):
            job = by_chunk[done.of, done.within]
            self.watched.did(job.chunk.size, done.rows)
            state.tasks += 1
            state.names.update(done.names)
            if done.spans is None:
                state.left.append(
                    f"{done.of}: a segment changed while it was read; the next run reads it again"
                )
                state.unsure.add(job.fingerprint)
                broken.add((done.of, job.whole))
                continue
            state.bytes_read += job.chunk.size
            state.files += done.files
            found.setdefault((done.of, job.whole), []).extend(done.spans)
        for job in jobs:
            spans = found.pop((job.chunk.of, job.whole), None)
            if spans is not None and (job.chunk.of, job.whole) not in broken:
                self._put(job, spans)

    def _put(self, job: _Job, spans: list[Span]) -> None:
        of, covered = job.chunk.of, self._covered(job.chunk.of)
        before = [
            self.state.looked.get((of, Range(s.first, s.last)), frozenset())
            for s in covered.doubtful(job.whole)
        ]
        looked = frozenset.intersection(*before) if before else frozenset()
        covered.put(job.whole, sorted(spans))
        self.state.changed.add(of)
        for span in spans:
            self.state.looked[of, Range(span.first, span.last)] = looked | {job.fingerprint}

    def _fill(self, sources: Sequence[Source]) -> None:
        """Search segments for records missing in compacted spans; for the same span one segment after the
        other."""
        if self.tables is not None and "coordinator_record" not in self.tables:
            return
        waiting = [s for s in sources if s.fingerprint not in self._covered(s.of).seen]
        while waiting:
            busy: dict[Partition, list[Range]] = {}
            jobs: list[_Job] = []
            later: list[Source] = []
            for source in waiting:
                taken, held = busy.setdefault(source.of, []), False
                for whole in self._stretches(source):
                    if any(r.first <= whole.last and whole.first <= r.last for r in taken):
                        held = True
                        continue
                    taken.append(whole)
                    jobs += self._filling(source, whole)
                later += [source] if held else []
            self._do(jobs)
            waiting = later
        self._remember(sources)

    def _stretches(self, source: Source) -> list[Range]:
        """Return the compacted spans that a segment may fill; adjacent ones are joined."""
        covered = self._covered(source.of)
        stretches: list[Range] = []
        for span in covered.doubtful(source.offsets):
            if source.fingerprint in self.state.looked.get((source.of, Range(span.first, span.last)), ()):
                continue
            before = stretches[-1] if stretches else None
            if before is not None and span.last - before.first < MAX_FILL_OFFSETS:
                between = Range(before.last + 1, span.first - 1)
                if between.last < between.first or not covered.open(between):
                    stretches[-1] = Range(before.first, span.last)
                    continue
            stretches.append(Range(span.first, span.last))
        return stretches

    def _filling(self, source: Source, whole: Range) -> Iterator[_Job]:
        """Yield tasks that search a segment for the missing records of a stretch; their ranges add up to
        it."""
        first, last = max(whole.first, source.offsets.first), min(whole.last, source.offsets.last)
        splits = list(cut(source.segment, source.extent, first, last, self.task_bytes))
        for n, split in enumerate(splits):
            within = Range(
                split.first if n else whole.first, split.last if n < len(splits) - 1 else whole.last
            )
            known = tuple(f.path for f in self._bronze(source.of, within))
            pieces = self._covered(source.of).within(within)
            yield _Job(self._chunk(source.of, split, within, known, pieces), whole, source.fingerprint)

    def _bronze(self, of: Partition, within: Range) -> Iterator[DataFile]:
        for file in [*self.warehouse.snapshot.files.values(), *self.state.files]:
            overlaps = file.first_offset <= within.last and within.first <= file.last_offset
            if overlaps and file.table == "coordinator_record" and file.of == of:
                yield file

    def _remember(self, sources: Sequence[Source]) -> None:
        """Add the searched segments to the ledger, so that later runs do not search them again.

        Only segments that overlap a compacted span are added. That is a range of offsets, some of which have
        no record in any copy searched so far. Segments that were replaced during this run are left out."""
        prints: dict[Partition, set[str]] = {}
        for source in sources:
            if source.fingerprint in self.state.unsure:
                continue
            if self._covered(source.of).doubtful(source.offsets):
                prints.setdefault(source.of, set()).add(source.fingerprint)
        for of, seen in prints.items():
            covered = self._covered(of)
            if not seen <= set(covered.seen):
                kept = [each for each in covered.seen if each not in seen]
                covered.seen = [*kept, *sorted(seen)][-max(MAX_REMEMBERED_SEGMENTS, len(seen)) :]
                self.state.changed.add(of)

    # committing -----------------------------------------------------------------------------------

    def _commit(self, started_ms: int, tables_row: dict[str, object]) -> Report:
        state, removed = self.state, list[DataFile]()
        for of in sorted(state.changed):
            if of.topic in COORDINATOR_TOPICS:
                self._replace("log_span", of, _span_rows(of, state.logs[of]), removed)
        for cluster in sorted({name.cluster for name in state.names}):
            self._names(cluster, removed)
        ledger = {_key(of): state.logs[of].to_json() for of in sorted(state.changed)}
        rows, size = sum(f.rows for f in state.files), sum(f.bytes for f in state.files)
        number = None
        if state.files or ledger:
            run = run_row(self.warehouse, "ingest", started_ms, self.engine.name, state.files)
            number = self.warehouse.commit(
                "ingest", state.files, removed, ledger={**tables_row, **ledger}, run=run
            )
        return Report(
            "ingest", number, state.tasks, len(state.files), rows, size, state.bytes_read, tuple(state.left)
        )

    def _names(self, cluster: str, removed: list[DataFile]) -> None:
        """Rewrite a cluster's `topic_name`, if there are new names."""
        before: list[Named] = []
        for file in self.warehouse.files("topic_name", cluster=cluster):
            rows = pq.read_table(self.warehouse.where(file)).to_pylist()
            before += [Named(**row) for row in rows]
        names = merged([*before, *(n for n in self.state.names if n.cluster == cluster)])
        if names and names != sorted(before):
            self._replace("topic_name", Partition(cluster, "", -1), named_table(names), removed)

    def _replace(self, table: str, of: Partition, rows: pa.RecordBatch, removed: list[DataFile]) -> None:
        """Write the only file of a small table about a log or a cluster, and remove its former one."""
        if self.tables is not None and table not in self.tables:
            return
        folder = folder_of(table, of)
        sink = Sink(self.warehouse.path / folder, TABLES[table].schema)
        sink.write(rows)
        first, last = 0, int(rows.column("last_offset")[-1].as_py()) if table == "log_span" else 0
        stem = f"{first}-{last}-v{VERSION}" if of.topic else f"v{VERSION}"
        written = sink.close(lambda checksum: f"{stem}-{checksum}.parquet")
        if written is None:
            return
        new = DataFile.made(table, folder, of, first, last, written)
        for file in self.warehouse.files(table, of.topic, of.partition, cluster=of.cluster):
            if file.path != new.path:
                removed.append(file)
        self.state.files.append(new)


def run_row(
    warehouse: Warehouse, step: str, started_ms: int, engine: str, files: Sequence[DataFile]
) -> dict[str, object]:
    """Return the row of `pipeline_run` for a step that is about to be committed."""
    return {
        "run_id": f"{step}-{warehouse.snapshot.number + 1}",
        "step": step,
        "started_ms": started_ms,
        "ended_ms": time.time_ns() // 1_000_000,
        "engine": engine,
        "files": len(files),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "version": __version__,
    }


def _span_rows(of: Partition, covered: Covered) -> pa.RecordBatch:
    spans: list[Span] = covered.with_missing()
    schema = TABLES["log_span"].schema
    columns: dict[str, Callable[[Span], object]] = {
        "cluster": lambda _: of.cluster,
        "topic": lambda _: of.topic,
        "partition": lambda _: of.partition,
        "first_offset": lambda s: s.first,
        "last_offset": lambda s: s.last,
        "kind": lambda s: s.kind,
        "records": lambda s: s.records,
    }
    arrays = [pa.array([columns[f.name](s) for s in spans], f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _key(of: Partition) -> str:
    return f"log:{of}"


def _listed(tables: Iterable[str] | None) -> str:
    return "all tables" if tables is None else "only " + ", ".join(tables)
