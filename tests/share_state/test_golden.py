"""Kafka's share state log is loaded, encoded to the same bytes, and reproduced from the implied requests.

`vectors/logs/share` is the log that Apache Kafka 4.4.0 wrote for several share groups. Each record implies
the request that caused it; for the same requests in the same order the shard writes the same records.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.share_state.harness import Pair, ShareStateHarness, decoded

from konvene.codec import batches as rb
from konvene.codec.uuid import Uuid
from konvene.records.coordinator import SHARE_STATE_RECORDS, Record, encode_record
from konvene.records.share_state import ShareSnapshotValue
from konvene.shard.image import Topic, Topics
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    ReadSummary,
    SharePartitionKey,
    StateBatch,
    Write,
)

LOGS = Path(__file__).parents[1] / "vectors" / "logs" / "share"
PARTITIONS = sorted(partition.name for partition in LOGS.glob("__share_group_state-*"))
FINAL = json.loads((LOGS / "final.json").read_text(encoding="utf-8"))


def pairs(partition: str) -> list[Pair]:
    found: list[Pair] = []
    for file in sorted((LOGS / partition).glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            assert not header.is_control
            for record in rb.records(batch, header):
                assert record.key is not None
                found.append((bytes(record.key), None if record.value is None else bytes(record.value)))
    return found


def loaded(partition: str, topics: Topics) -> ShareStateHarness:
    harness = ShareStateHarness(topics=topics)
    harness.log = pairs(partition)
    harness.shard = harness.restarted()
    return harness


def key_of(record: Record) -> SharePartitionKey:
    key: Any = record.key
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


TOPICS = Topics(
    [Topic(name, Uuid.parse(topic["id"]), topic["partitions"]) for name, topic in FINAL["topics"].items()]
)


def test_start_offsets_equal_those_of_kafkas_describe() -> None:
    starts: dict[str, dict[str, int]] = {}
    for partition in PARTITIONS:
        harness = loaded(partition, TOPICS)
        assert harness.shard.ignored_records == 0
        for key in harness.shard.states:
            answer = harness.ask(ReadSummary(key, 0))
            if answer.start_offset != -1:
                name = TOPICS.by_id[key.topic_id].name
                starts.setdefault(key.group_id, {})[f"{name}-{key.partition}"] = answer.start_offset
    expected = {name: group["shareStartOffsets"] for name, group in FINAL["groups"].items()}
    assert starts == {name: offsets for name, offsets in expected.items() if offsets}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_records_encode_to_the_same_bytes(partition: str) -> None:
    for pair in pairs(partition):
        assert encode_record(decoded(pair), SHARE_STATE_RECORDS) == pair


@pytest.mark.parametrize("partition", PARTITIONS)
def test_replayed_requests_write_the_same_records(partition: str) -> None:
    log = pairs(partition)
    known = {key_of(decoded(pair)).topic_id for pair in log}
    harness = ShareStateHarness(
        topics=Topics([Topic(str(topic_id), topic_id, 3) for topic_id in sorted(known)])
    )
    for pair in log:
        send_request_for(harness, decoded(pair))
        assert harness.log[-1] == pair, decoded(pair)
    assert harness.log == log
    assert len(log) >= 3


def send_request_for(harness: ShareStateHarness, record: Record) -> None:
    """Send the request that made Kafka write a record."""
    key = key_of(record)
    value: Any = record.value
    if value is None:
        assert harness.ask(Delete(key)) == Answer()
    elif isinstance(value, ShareSnapshotValue):
        harness.now_ms = value.write_timestamp
        assert value.create_timestamp == value.write_timestamp
        assert harness.ask(Initialize(key, value.state_epoch, value.start_offset)) == Answer()
    else:
        batches = tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in value.state_batches
        )
        state = harness.state(key)
        write = Write(key, state.state_epoch, 0, value.start_offset, value.delivery_complete_count, batches)
        assert harness.ask(write) == Answer()


def test_keys_map_to_the_same_log_partitions() -> None:
    from konvene.codec.hashes import group_partition

    for index, partition in enumerate(PARTITIONS):
        keys = {key_of(decoded(pair)) for pair in pairs(partition)}
        assert {group_partition(str(key), len(PARTITIONS)) for key in keys} == {index}
