"""Logs become rows of `coordinator_record`, also with damaged bytes."""

from __future__ import annotations

import pytest
from tests.pipeline.codec.logs import STORIES, expected_rows, segments

from konvene.pipeline.codec.bronze import QUARANTINE, RECORDS, blocks, located
from konvene.pipeline.tables import TABLES


@pytest.mark.parametrize("story", STORIES)
def test_every_record_of_kafkas_logs(story: str) -> None:
    """Offsets, times, batches, producers, keys, values, types and versions match Kafka's tool."""
    logs = expected_rows(story)
    for topic, partition, path in segments(story):
        data = path.read_bytes()
        found = list(blocks(data, segment_base=int(path.stem)))
        assert [f.quarantine for f in found] == [None] * len(found)
        assert not found or found[-1].next_position == len(data)
        got = [row for f in found for row in f.records.to_pylist()]
        wanted = logs.pop((topic, partition), [])
        assert [row["offset"] for row in got] == [row["offset"] for row in wanted]
        for row, want in zip(got, wanted, strict=True):
            assert row["batch_base_offset"] == want["batch_base_offset"]
            assert row["timestamp_ms"] == want["timestamp"]
            assert row["leader_epoch"] == want["leader_epoch"]
            assert row["producer_id"] == want.get("producer_id", -1)
            if "control" in want:
                assert (row["key_type"], row["value_version"], row["group_id"]) == (None, None, None)
                continue
            assert row["key"].hex() == want["key_hex"]
            assert (None if row["value"] is None else row["value"].hex()) == want["value_hex"]
            assert row["key_type"] == want["key_type"]
            assert row["value_version"] == want["value_version"]
            texts = ("group", "groupId", "transactionalId")
            assert row["group_id"] == next(want["key"][name] for name in texts if name in want["key"])
    assert not logs


def test_columns_are_those_of_the_tables() -> None:
    """With cluster, topic and partition in front, rows are as the tables have them."""
    _, _, path = next(segments("classic"))
    (found,) = blocks(path.read_bytes(), segment_base=0)
    assert found.records.schema == RECORDS
    full = located(found.records, "c", "__consumer_offsets", 1)
    assert full.schema == TABLES["coordinator_record"].schema
    full.validate(full=True)
    assert QUARANTINE.names == [c.name for c in TABLES["quarantine"].columns[3:]]
