"""Gold tables for the Spark data source: computed from logs while they are read, without a warehouse.

A task ingests the logs that a table needs into a temporary warehouse, builds the table, and returns its rows.
So they are those of `ingest` and `build` on the same logs, and memory is bounded as there.

The groups of a log partition are in no other one, so for tables about groups each partition is a task. The
others need more than one log (ends of user topics, transactional ids, topics of share groups): they are one
task for each cluster, as is a live cluster, whose logs are first copied to a temporary directory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from konvene.internal_topics import AUDIT_TOPIC, CLUSTER_METADATA_TOPIC, COORDINATOR_TOPICS, OFFSETS_TOPIC
from konvene.log.directory import TOPIC_ID_NAME
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.worker import GOLD_OF
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.sources.client_config import NO_CONFIG, ClientConfig
from konvene.pipeline.sources.files import Copy, find
from konvene.pipeline.sources.live import LiveReader
from konvene.pipeline.sources.plan import Live, Source, Wanted
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.memory import InMemory
from konvene.pipeline.warehouse.warehouse import Warehouse

__all__ = ["GOLD", "GoldTask", "gold_rows", "gold_tasks"]

GOLD = frozenset(name for tables in GOLD_OF.values() for name in tables)
"""The gold tables."""

_OF_GROUPS = (
    "coordinator_record", "audit_event", "log_span", "topic_name", "offset_commit",
    "share_group_state_partition_metadata",
)  # fmt: skip
"""The tables from which tables about groups are built; the last two have names of topics."""


class GoldTask(NamedTuple):
    """A task: the files to read, or the servers of a live cluster."""

    table: str
    cluster: str
    files: tuple[str, ...] = ()
    topic_ids: tuple[tuple[str, str], ...] = ()
    """Topics and their ids, as far as directories have them."""
    servers: str = ""
    client: ClientConfig = NO_CONFIG

    @property
    def is_of_groups(self) -> bool:
        return self.table in GOLD_OF["groups"]


def gold_tasks(table: str, source: Source, wanted: Wanted) -> list[GoldTask]:
    """Return the tasks that together return the rows of a gold table.

    Of `wanted` only the partitions are used."""
    if isinstance(source, Live):
        if wanted.partitions is not None:
            raise ValueError(f"of a live cluster the table {table} is read for all partitions")
        return [GoldTask(table, source.cluster, servers=source.bootstrap, client=source.client)]
    copies = find(source.paths, source.cluster).copies
    tasks: list[GoldTask] = []
    for cluster in sorted({copy.of.cluster for copy in copies}):
        here = [copy for copy in copies if copy.of.cluster == cluster]
        tasks += _tasks_of_cluster(GoldTask(table, cluster), here, wanted)
    return tasks


def _tasks_of_cluster(task: GoldTask, copies: Sequence[Copy], wanted: Wanted) -> Iterator[GoldTask]:
    named = {(copy.of.topic, copy.topic_id) for copy in copies if copy.topic_id is not None}
    task = task._replace(topic_ids=tuple(sorted(named)))
    allowed = wanted.partitions
    of_coordinators = [
        copy
        for copy in copies
        if copy.of.topic in COORDINATOR_TOPICS and (allowed is None or copy.of.partition in allowed)
    ]
    if task.is_of_groups:
        logs = [copy for copy in of_coordinators if copy.of.topic == OFFSETS_TOPIC]
        beside = [copy for copy in copies if copy.of.topic in (AUDIT_TOPIC, CLUSTER_METADATA_TOPIC)]
        for of in sorted({copy.of for copy in logs}):
            of_partition = [copy for copy in logs if copy.of == of]
            yield task._replace(files=_files([*of_partition, *beside]))
    elif of_coordinators:
        others = [copy for copy in copies if copy.of.topic not in COORDINATOR_TOPICS]
        yield task._replace(files=_files([*of_coordinators, *others]))


def _files(copies: Iterable[Copy]) -> tuple[str, ...]:
    return tuple(each.path for copy in copies for each in (*copy.segments, *copy.snapshots))


def gold_rows(task: GoldTask, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, with the columns `names` or with all."""
    executor = os.environ.get("SPARK_EXECUTOR_DIRS", "").split(",")[0]  # Spark deletes it with the executor.
    with tempfile.TemporaryDirectory(prefix="konvene-", dir=executor or None) as folder:
        home = f"{folder}/warehouse"
        warehouse = Warehouse(home, InMemory(home))
        paths = [*task.files, *_named(Path(folder, "names"), task.topic_ids)]
        if task.servers:
            settings = task.client.client_settings()
            with LiveReader(task.servers, f"{folder}/spool", settings=settings) as reader:
                reader.catch_up()
            paths = [f"{folder}/spool"]
        tables = _OF_GROUPS if task.is_of_groups else None
        ingest(warehouse, paths, Local(), cluster=task.cluster, tables=tables)
        kinds = [kind for kind, tables in GOLD_OF.items() if task.table in tables]
        build(warehouse, Local(), kinds=kinds)
        yield from read.batches(warehouse, task.table, names)


def _named(home: Path, topic_ids: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Make directories that have only the ids of topics, as a broker stores them; yield their paths."""
    for topic, topic_id in topic_ids:
        folder = home / topic_id / f"{topic}-0"
        folder.mkdir(parents=True)
        (folder / TOPIC_ID_NAME).write_text(f"version: 0\ntopic_id: {topic_id}")
        yield str(folder)
