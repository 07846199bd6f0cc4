"""What Kafka's share coordinator answered and wrote, ours answers and writes: 1,500 questions, to the byte.

The questions and Kafka's part are `vectors/share_state/kafka.jsonl.gz` (`beside_kafka.py` made it); of its
records all but the time is held against ours.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

from tests.share_state.asking import Asked, decoded
from tests.share_state.beside_kafka import KEPT, UPDATES_PER_SNAPSHOT

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
    said = row["said"]
    if row["ask"] == "Write":
        return Write(key, *said[:4], tuple(StateBatch(*batch) for batch in said[4]))
    return KINDS[row["ask"]](key, *said)


def told(answer: Any) -> list[Any]:
    """As `beside_kafka.told` tells it."""
    said = [int(answer.error), answer.message]
    if answer.error or isinstance(answer, Answer):
        return said
    if isinstance(answer, StateAnswer):
        return [*said, answer.state_epoch, answer.start_offset, [list(batch) for batch in answer.batches]]
    assert isinstance(answer, SummaryAnswer)
    return [
        *said, answer.state_epoch, answer.leader_epoch, answer.start_offset, answer.delivery_complete_count,
    ]  # fmt: skip


def timeless(record: Record) -> Record:
    if isinstance(record.value, ShareSnapshotValue):
        return Record(record.key, record.value.replace(create_timestamp=0, write_timestamp=0))
    return record


def in_order(records: list[Record]) -> list[Record]:
    """Tombstones next to each other come in the order of a hash map where a topic was deleted."""
    ordered: list[Record] = []
    for record in map(timeless, records):
        ordered.append(record)
        if record.value is None:
            first = len(ordered)
            while first and ordered[first - 1].value is None:
                first -= 1
            ordered[first:] = sorted(ordered[first:], key=repr)
    return ordered


def test_kafka_and_we_say_the_same_and_write_the_same() -> None:
    partitions, rows, records = kept()
    topics = [Topic(topic_id, Uuid.parse(topic_id), count) for topic_id, count in partitions.items()]
    asked = Asked(UPDATES_PER_SNAPSHOT, Topics(topics))
    seen: Counter[tuple[str, int]] = Counter()
    for number, row in enumerate(rows):
        if "deleted" in row:
            asked.topics = Topics([topic for topic in topics if topic.name != row["deleted"]])
            asked.inform(TopicsDeleted(frozenset((Uuid.parse(row["deleted"]),))))
            continue
        assert told(asked.ask(request_of(row))) == row["told"], (number, row)
        seen[row["ask"], row["told"][0]] += 1
    assert in_order([decoded(pair) for pair in asked.log]) == in_order(records)
    assert asked.again().states == asked.shard.states
    assert sum(seen.values()) == 1_500
    assert all(seen[kind, 0] > 30 for kind in KINDS), seen
    assert len(seen) >= 15, seen
