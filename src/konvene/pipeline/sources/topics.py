"""Topic names for the ids in coordinators' records.

There are four sources: the cluster metadata log and its snapshots, partition directories, commits with both
id and name, and share groups, which name the topics whose state they keep. They arrive from many tasks in any
order, so the known names are a set that only grows; a topic that was created again under its old name has two
ids. The number of partitions is the largest one seen, -1 if unknown.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from konvene.codec.batches import records
from konvene.codec.errors import CodecError
from konvene.pipeline.codec.batches import Source, walk
from konvene.pipeline.sources.files import Copy
from konvene.pipeline.tables import TABLES
from konvene.records.cluster_log import decode_cluster_record
from konvene.records.metadata import PartitionRecord, TopicRecord

__all__ = [
    "Named", "merged", "named_table", "names_in_commits", "names_in_folders", "names_in_metadata",
    "names_in_share_groups",
]  # fmt: skip


class Named(NamedTuple):
    """A row of `topic_name`. Where the source has only a topic id and its partitions, `topic` is empty."""

    cluster: str
    topic_id: str
    topic: str
    partitions: int


def names_in_folders(copies: Iterable[Copy]) -> Iterator[Named]:
    """Yield the names that `partition.metadata` files imply."""
    for copy in copies:
        if copy.topic_id is not None:
            yield Named(copy.of.cluster, copy.topic_id, copy.of.topic, copy.of.partition + 1)


def names_in_commits(rows: pa.RecordBatch, cluster: str) -> Iterator[Named]:
    """Yield the names in rows of silver's `offset_commit` whose version has both id and name."""
    ids = rows.schema.get_field_index("topic_id")
    if ids < 0 or rows.column(ids).null_count == rows.num_rows:
        return
    both = pa.table({"topic_id": rows.column(ids), "topic": rows.column("topic")})
    found = both.group_by(["topic_id", "topic"], use_threads=False).aggregate([]).to_pylist()
    for row in found:
        topic_id, topic = _text(row["topic_id"]), row["topic"]
        if topic_id is not None and topic is not None:
            yield Named(cluster, topic_id, topic, -1)


def names_in_share_groups(rows: pa.RecordBatch, cluster: str) -> Iterator[Named]:
    """Yield the names in rows of silver's `share_group_state_partition_metadata`."""
    for column in ("initializing_topics", "initialized_topics", "deleting_topics"):
        for topics in rows.column(column).to_pylist():
            for topic in topics or ():
                if topic["topic_id"] is not None:
                    partitions = max(topic.get("partitions") or (-2,)) + 1
                    yield Named(cluster, topic["topic_id"], topic["topic_name"], partitions)


def names_in_metadata(buf: Source, cluster: str) -> list[Named]:
    """Return the names in the cluster metadata log or a snapshot of it. Other records are skipped."""
    found: set[Named] = set()
    whole = memoryview(buf)
    for block in walk(buf):
        for at, length in zip(block.positions.tolist(), block.headers["batch_length"].tolist(), strict=True):
            found.update(_in_batch(whole[at : at + 12 + length], cluster))
    return sorted(found)


def _in_batch(batch: memoryview, cluster: str) -> Iterator[Named]:
    if int.from_bytes(batch[21:23], "big") & 0x20:
        return
    try:
        values = records(batch)
    except CodecError:
        return
    for each in values:
        try:
            record = decode_cluster_record(each.key, each.value)
        except CodecError:
            continue
        if isinstance(record, TopicRecord):
            yield Named(cluster, str(record.topic_id), record.name, -1)
        elif isinstance(record, PartitionRecord):
            yield Named(cluster, str(record.topic_id), "", record.partition_id + 1)


def merged(names: Iterable[Named]) -> list[Named]:
    """Merge rows into one per topic id, without ids that have no name."""
    called: dict[tuple[str, str], str] = {}
    counted: dict[tuple[str, str], int] = {}
    for each in sorted(names):
        key = each.cluster, each.topic_id
        called[key] = each.topic or called.get(key, "")
        counted[key] = max(each.partitions, counted.get(key, -1))
    return [Named(*key, called[key], counted[key]) for key in sorted(called) if called[key]]


def named_table(names: Iterable[Named]) -> pa.RecordBatch:
    """Return the rows as a batch of the table `topic_name`."""
    rows = list(names)
    schema = TABLES["topic_name"].schema
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_NO_ID = "A" * 22


def _text(topic_id: str | bytes | None) -> str | None:
    if isinstance(topic_id, bytes):
        topic_id = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return None if topic_id == _NO_ID else topic_id
