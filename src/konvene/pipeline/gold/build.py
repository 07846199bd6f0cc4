"""Builds the gold tables from bronze and silver: for each log whose inputs changed, all of its files.

A log partition has its groups to itself, so each log is a task of its own, or several if it is large: one for
each bucket of its groups or keys (`konvene.pipeline.gold.buckets`). There are three kinds of tasks:

    groups     rebalance, rebalance_member, ownership, unavailability, group_health: from the `groups`
               family of bronze, in log order, with the audit rows that explain it
    lag        from silver's commits and the log ends of user topics; and transactional_commit, in the same
               pass, with the names of producers from silver's transactions
    delivery   share_delivery, share_progress and lag, from silver's share state and user topics' log ends

A task's files replace those of its previous run. It runs again when one of its inputs has changed: their
checksums are in the ledger. The output is a function of these inputs alone, so running it again writes the
same files.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow.parquet as pq

from konvene.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from konvene.pipeline.engine import Engine, Spark
from konvene.pipeline.gold.buckets import COMMITS, GROUP_RECORDS, Bucket, number
from konvene.pipeline.gold.task import Task
from konvene.pipeline.gold.transitions import may_be_incomplete
from konvene.pipeline.gold.worker import GOLD_OF, RULES, Made, make, observe
from konvene.pipeline.ingest.ingest import Report, run_row
from konvene.pipeline.ingest.offset_spans import WHOLE, Covered
from konvene.pipeline.progress import Watch, Watched
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.warehouse.parquet import VERSION
from konvene.pipeline.warehouse.warehouse import DataFile, Warehouse

__all__ = ["build", "digests"]

_OVERLAPS = "coordinator_record"
_COSTS = {
    "groups": (50, ("groups",)),
    "delivery": (20, ("share_snapshot", "share_update")),
    "lag": (1, ("commits",)),
}
"""By kind of task, the time per row, relative to a commit, and the input files with its rows."""


def build(
    warehouse: Warehouse,
    engine: Engine,
    progress: Watch | None = None,
    *,
    kinds: Collection[str] = tuple(GOLD_OF),
    goes_on: bool = False,
) -> Report:
    """Bring gold up to date with bronze and silver. Raises `Conflict` if another process is writing.

    `kinds` limits the build to tasks of these kinds. With `goes_on` reducers resume from the state that the
    last build stored, and store it again (`konvene.pipeline.gold.resume`): faster for frequent small builds,
    with the same files as a result."""
    with warehouse.writing():
        started_ms = time.time_ns() // 1_000_000
        watched = Watched("build", progress)
        ledger = warehouse.snapshot.ledger
        wanted = [task for task in _tasks(warehouse) if task.kind in kinds]
        tasks = [task for task in wanted if ledger.get(_key(task)) != _digest(task)]
        if goes_on:
            tasks = [task._replace(goes_on=True, before=_made(warehouse, task)) for task in tasks]
        tasks = _with_transitions(engine, tasks)
        tasks.sort(key=lambda task: (-_cost(task), task.kind, task.of, task.bucket))
        watched.expect(len(tasks), sum(task.size for task in tasks))
        by_key = {(task.kind, task.of, task.bucket): task for task in tasks}
        added: list[DataFile] = []
        removed: list[DataFile] = []
        for kind, of, bucket, files in _run(engine, tasks):
            task = by_key[kind, of, bucket]
            watched.did(task.size, sum(file.rows for file in files))
            added += files
            removed += _made(warehouse, task)
        number = None
        if tasks:
            obsolete, keys = _obsolete(warehouse, wanted, tasks)
            removed += obsolete
            done = {**dict.fromkeys(keys), **{_key(task): _digest(task) for task in tasks}}
            run = run_row(warehouse, "build", started_ms, engine.name, added)
            number = warehouse.commit("build", added, removed, ledger=done, run=run)
        rows, size = sum(file.rows for file in added), sum(file.bytes for file in added)
        read = sum(task.size for task in tasks)
        return Report("build", number, len(tasks), len(added), rows, size, read)


def digests(warehouse: Warehouse) -> dict[str, str]:
    """Return the digest of the inputs of each task, by the key of its entry in the ledger."""
    return {_key(task): _digest(task) for task in _tasks(warehouse)}


def _run(engine: Engine, tasks: Sequence[Task]) -> Iterator[Made]:
    """Run tasks and yield what each wrote."""
    shuffled = [task for task in tasks if _is_shuffled(task, engine)]
    if not isinstance(engine, Spark) or not shuffled:
        yield from engine.run(make, tasks)
        return
    from konvene.pipeline.spark.shuffle import make_by_shuffle

    pending = {(task.kind, task.of, task.bucket) for task in shuffled}
    for made in make_by_shuffle(engine, shuffled):
        pending.discard(made[:3])
        yield made
    yield from (Made(*key, []) for key in sorted(pending))
    yield from engine.run(make, [task for task in tasks if not _is_shuffled(task, engine)])


def _is_shuffled(task: Task, engine: Engine) -> bool:
    """Return whether the rows of a task reach it by Spark's shuffle; a task that resumes reads few."""
    return isinstance(engine, Spark) and task.bucket.of >= max(2, engine.shuffle_from) and not task.goes_on


def _tasks(warehouse: Warehouse) -> Iterator[Task]:
    """Yield a task for each log and kind, with its inputs."""
    audits = _audits(warehouse)
    logs = {
        file.of
        for file in warehouse.snapshot.files.values()
        if file.topic in (OFFSETS_TOPIC, SHARE_STATE_TOPIC)
    }
    for of in sorted(logs):
        covered = Covered.from_json(warehouse.snapshot.ledger.get(f"log:{of}"))
        if not covered.spans:
            continue
        names = warehouse.files("topic_name", cluster=of.cluster)

        def inputs(table: str, family: str | None = None, of: Partition = of) -> tuple[DataFile, ...]:
            return tuple(warehouse.files(table, of.topic, of.partition, cluster=of.cluster, family=family))

        home, spans = str(warehouse.path), tuple(covered.spans)
        if of.topic == SHARE_STATE_TOPIC:
            read = {"share_snapshot": inputs("share_snapshot"), "share_update": inputs("share_update")}
            if any(read.values()):
                ends = tuple(warehouse.files("log_end", cluster=of.cluster))
                yield Task("delivery", home, of, spans, {**read, "topic_name": tuple(names), "log_end": ends})
            continue
        groups, commits = inputs(_OVERLAPS, "groups"), inputs(_OVERLAPS, "commits")
        if groups:
            read = {"groups": groups, "commits": _in_doubt(commits, covered)}
            wanted = {of.partition, -1}
            explaining = tuple(f for f, explains in audits if f.cluster == of.cluster and explains & wanted)
            read |= {"audit_event": explaining, "topic_name": tuple(names), "times": (*groups, *commits)}
            task = Task("groups", home, of, spans, read)
            buckets = _buckets(task, groups, GROUP_RECORDS)
            if len(buckets) > 1:
                read["quarantine"] = inputs("quarantine")
            yield from buckets
        silver = (*inputs("offset_commit"), *inputs("legacy_offset_commit"))
        if silver:
            ends = tuple(warehouse.files("log_end", cluster=of.cluster))
            names = warehouse.files("transaction_log", cluster=of.cluster)
            read = {"commits": silver, "log_end": ends, "transactional": (*groups, *commits)}
            task = Task("lag", home, of, spans, {**read, "transactions": tuple(names)})
            yield from _buckets(task, silver, COMMITS)


def _buckets(task: Task, files: Sequence[DataFile], rows_per_bucket: int) -> list[Task]:
    """Return a task for each bucket of a log with these rows."""
    count = number(sum(file.rows for file in files), rows_per_bucket)
    return [task._replace(bucket=Bucket(index, count)) for index in range(count)]


def _with_transitions(engine: Engine, tasks: Sequence[Task]) -> list[Task]:
    """Find out for logs of several buckets where their history is incomplete, if it may be."""
    doubtful = {
        task.of: task
        for task in tasks
        if task.kind == "groups"
        and task.bucket.of > 1
        and (may_be_incomplete(task.spans) or task.inputs["quarantine"])
    }
    found = dict(engine.run(observe, list(doubtful.values())))
    return [
        task._replace(transitions=found[task.of]) if task.kind == "groups" and task.of in found else task
        for task in tasks
    ]


def _cost(task: Task) -> float:
    """Return a measure of how long a task takes, to begin with the longest."""
    per_row, words = _COSTS[task.kind]
    return per_row * sum(file.rows for word in words for file in task.inputs[word]) / task.bucket.of


def _obsolete(
    warehouse: Warehouse, wanted: Iterable[Task], tasks: Iterable[Task]
) -> tuple[list[DataFile], list[str]]:
    """Return gold files and ledger keys of former buckets of the logs of `tasks`; `wanted` are the tasks for
    all buckets that exist now."""
    names = {(task.kind, task.of, task.bucket.name) for task in wanted}
    keys = {_key(task) for task in wanted}
    files, obsolete = [], []
    for kind, of in sorted({(task.kind, task.of) for task in tasks}):
        for table in GOLD_OF[kind]:
            for file in warehouse.files(table, of.topic, of.partition, cluster=of.cluster):
                if (kind, of, file.family) not in names:
                    files.append(file)
        prefix = f"gold:{kind}:{of}"
        for key in warehouse.snapshot.ledger:
            if (key == prefix or key.startswith(f"{prefix}:")) and key not in keys:
                obsolete.append(key)
    return files, obsolete


def _made(warehouse: Warehouse, task: Task) -> tuple[DataFile, ...]:
    """Return the files that the previous run of this task wrote."""
    of = task.of
    return tuple(
        file
        for table in GOLD_OF[task.kind]
        for file in warehouse.files(
            table, of.topic, of.partition, cluster=of.cluster, family=task.bucket.name
        )
    )


def _audits(warehouse: Warehouse) -> list[tuple[DataFile, frozenset[int]]]:
    """Return pairs of an audit file and the partitions of `__consumer_offsets` that its rows are about (-1:
    unknown)."""
    return [(file, _explained(warehouse.where(file))) for file in warehouse.files("audit_event")]


@functools.lru_cache(maxsize=100_000)
def _explained(path: str) -> frozenset[int]:
    """Return the partitions that the rows of an audit file are about.

    The result is cached: the contents of a file never change under its name."""
    column = pq.read_table(path, columns=["partition"]).column(0)
    return frozenset(column.unique().to_pylist())


def _in_doubt(files: Sequence[DataFile], covered: Covered) -> tuple[DataFile, ...]:
    """Return the files that overlap a span in which offsets are missing."""
    doubtful = [span for span in covered.spans if span.kind != WHOLE]
    return tuple(
        f for f in files if any(s.first <= f.last_offset and f.first_offset <= s.last for s in doubtful)
    )


def _key(task: Task) -> str:
    bucket = task.bucket.name
    return f"gold:{task.kind}:{task.of}" + (f":{bucket}" if bucket else "")


def _digest(task: Task) -> str:
    """Return a digest of the task's inputs."""
    identity: list[object] = [VERSION, RULES, task.kind, *task.bucket, *GOLD_OF[task.kind], *task.spans]
    for word, files in sorted(task.inputs.items()):
        identity += [word, *(file.sha256 for file in files)]
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:32]
