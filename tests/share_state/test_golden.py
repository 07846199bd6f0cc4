"""Kafka's own log of share state: it is loaded, written again to the last byte, and decided again.

`vectors/logs/share` is what Apache Kafka 4.4.0 left of some share groups. Each record says what was asked;
asked the same in the same order, the shard writes the same records.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.share_state.asking import Asked, Pair, decoded

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

STORY = Path(__file__).parents[1] / "vectors" / "logs" / "share"
PLACES = sorted(place.name for place in STORY.glob("__share_group_state-*"))
FINAL = json.loads((STORY / "final.json").read_text(encoding="utf-8"))


def pairs(place: str) -> list[Pair]:
    found: list[Pair] = []
    for file in sorted((STORY / place).glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            assert not header.is_control
            for record in rb.records(batch, header):
                assert record.key is not None
                found.append((bytes(record.key), None if record.value is None else bytes(record.value)))
    return found


def loaded(place: str, topics: Topics) -> Asked:
    asked = Asked(topics=topics)
    asked.log = pairs(place)
    asked.shard = asked.again()
    return asked


def key_of(record: Record) -> SharePartitionKey:
    key: Any = record.key
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


TOPICS = Topics(
    [Topic(name, Uuid.parse(topic["id"]), topic["partitions"]) for name, topic in FINAL["topics"].items()]
)


def test_the_start_offsets_are_those_that_kafka_told_at_the_end() -> None:
    starts: dict[str, dict[str, int]] = {}
    for place in PLACES:
        asked = loaded(place, TOPICS)
        assert asked.shard.ignored_records == 0
        for key in asked.shard.states:
            answer = asked.ask(ReadSummary(key, 0))
            if answer.start_offset != -1:
                name = TOPICS.by_id[key.topic_id].name
                starts.setdefault(key.group_id, {})[f"{name}-{key.partition}"] = answer.start_offset
    told = {name: group["shareStartOffsets"] for name, group in FINAL["groups"].items()}
    assert starts == {name: offsets for name, offsets in told.items() if offsets}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_loaded_is_written_as_it_was(place: str) -> None:
    for pair in pairs(place):
        assert encode_record(decoded(pair), SHARE_STATE_RECORDS) == pair


@pytest.mark.parametrize("place", PLACES)
def test_every_record_is_decided_again(place: str) -> None:
    log = pairs(place)
    known = {key_of(decoded(pair)).topic_id for pair in log}
    asked = Asked(topics=Topics([Topic(str(topic_id), topic_id, 3) for topic_id in sorted(known)]))
    for pair in log:
        ask_for(asked, decoded(pair))
        assert asked.log[-1] == pair, decoded(pair)
    assert asked.log == log
    assert len(log) >= 3


def ask_for(asked: Asked, wanted: Record) -> None:
    """Ask for what Kafka wrote."""
    key = key_of(wanted)
    value: Any = wanted.value
    if value is None:
        assert asked.ask(Delete(key)) == Answer()
    elif isinstance(value, ShareSnapshotValue):
        asked.now_ms = value.write_timestamp
        assert value.create_timestamp == value.write_timestamp
        assert asked.ask(Initialize(key, value.state_epoch, value.start_offset)) == Answer()
    else:
        batches = tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in value.state_batches
        )
        state = asked.state(key)
        write = Write(key, state.state_epoch, 0, value.start_offset, value.delivery_complete_count, batches)
        assert asked.ask(write) == Answer()


def test_keys_are_placed_as_kafka_placed_them() -> None:
    from konvene.codec.hashes import group_partition

    for index, place in enumerate(PLACES):
        keys = {key_of(decoded(pair)) for pair in pairs(place)}
        assert {group_partition(str(key), len(PLACES)) for key in keys} == {index}
