"""The share coordinator answers 1,500 recorded requests as Apache Kafka did, and writes the same records.

`beside_kafka.py` recorded the requests and Kafka's responses and records in
`vectors/share_state/kafka.jsonl.gz`. Timestamps of records are not compared.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

from tests.share_state.beside_kafka import KEPT, UPDATES_PER_SNAPSHOT
from tests.share_state.harness import ShareStateHarness, decoded

from konvene.codec.uuid import Uuid
from konvene.records.coordinator import Record
from konvene.records.share_state import ShareSnapshotValue
from konvene.shard.image import Topic, Topics
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    Read,
    ReadSummary,
    SharePartitionKey,
    StateAnswer,
    StateBatch,
    SummaryAnswer,
    TopicsDeleted,
    Write,
)

KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Initialize, Read, Write, Delete, ReadSummary)}


def kept() -> tuple[dict[str, int], list[dict[str, Any]], list[Record]]:
    with gzip.open(KEPT, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    records = [
        decoded((bytes.fromhex(row["key"]), None if row["value"] is None else bytes.fromhex(row["value"])))
        for row in rows
        if "value" in row
    ]
    return rows[0]["topics"], [row for row in rows if "ask" in row or "deleted" in row], records


def request_of(row: dict[str, Any]) -> Any:
    group_id, topic_id, partition = row["key"]
    key = SharePartitionKey(group_id, Uuid.parse(topic_id), partition)
    arguments = row["said"]
    if row["ask"] == "Write":
        return Write(key, *arguments[:4], tuple(StateBatch(*batch) for batch in arguments[4]))
    return KINDS[row["ask"]](key, *arguments)


def response_row(answer: Any) -> list[Any]:
    """Return the fields of a response in the order of `beside_kafka.response_row`."""
    fields = [int(answer.error), answer.message]
    if answer.error or isinstance(answer, Answer):
        return fields
    if isinstance(answer, StateAnswer):
        return [*fields, answer.state_epoch, answer.start_offset, [list(batch) for batch in answer.batches]]
    assert isinstance(answer, SummaryAnswer)
    return [
        *fields, answer.state_epoch, answer.leader_epoch, answer.start_offset, answer.delivery_complete_count,
    ]  # fmt: skip


def timeless(record: Record) -> Record:
    if isinstance(record.value, ShareSnapshotValue):
        return Record(record.key, record.value.replace(create_timestamp=0, write_timestamp=0))
    return record


def in_order(records: list[Record]) -> list[Record]:
    """Sort adjacent tombstones: Kafka writes those of a deleted topic in the order of a hash map."""
    ordered: list[Record] = []
    for record in map(timeless, records):
        ordered.append(record)
        if record.value is None:
            first = len(ordered)
            while first and ordered[first - 1].value is None:
                first -= 1
            ordered[first:] = sorted(ordered[first:], key=repr)
    return ordered


def test_responses_and_log_equal_those_of_kafka() -> None:
    partitions, rows, records = kept()
    topics = [Topic(topic_id, Uuid.parse(topic_id), count) for topic_id, count in partitions.items()]
    harness = ShareStateHarness(UPDATES_PER_SNAPSHOT, Topics(topics))
    seen: Counter[tuple[str, int]] = Counter()
    for number, row in enumerate(rows):
        if "deleted" in row:
            harness.topics = Topics([topic for topic in topics if topic.name != row["deleted"]])
            harness.inform(TopicsDeleted(frozenset((Uuid.parse(row["deleted"]),))))
            continue
        assert response_row(harness.ask(request_of(row))) == row["told"], (number, row)
        seen[row["ask"], row["told"][0]] += 1
    assert in_order([decoded(pair) for pair in harness.log]) == in_order(records)
    assert harness.restarted().states == harness.shard.states
    assert sum(seen.values()) == 1_500
    assert all(seen[kind, 0] > 30 for kind in KINDS), seen
    assert len(seen) >= 15, seen
