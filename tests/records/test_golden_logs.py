"""Every record of logs that Apache Kafka 4.4.0 left behind, as Kafka itself decoded it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konvene.codec.json import from_json, to_json
from konvene.records.coordinator import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    Record,
    decode_record,
    encode_record,
    value_version,
)

LOGS = Path(__file__).parents[1] / "vectors" / "logs"
TABLES = {
    "__consumer_offsets": GROUP_RECORDS,
    "__share_group_state": SHARE_STATE_RECORDS,
    "__transaction_state": TRANSACTION_RECORDS,
}
STORIES = sorted(path.name for path in LOGS.iterdir() if path.is_dir())


def rows(story: str) -> Iterator[dict[str, Any]]:
    """The story's records but for the markers of transactions, which no envelope holds."""
    for path in sorted((LOGS / story).glob("expected.jsonl*")):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                row = json.loads(line)
                if "control" not in row:
                    yield row


@pytest.mark.parametrize("story", STORIES)
def test_every_record_both_ways(story: str) -> None:
    """The bytes give Kafka's JSON, the JSON gives the record, and the record gives the bytes."""
    found = list(rows(story))
    assert len(found) > 50
    for row in found:
        where = f"{row['topic']}-{row['partition']} offset {row['offset']}"
        table = TABLES[row["topic"]]
        key = bytes.fromhex(row["key_hex"])
        value = None if row["value_hex"] is None else bytes.fromhex(row["value_hex"])
        record = decode_record(key, value, table)
        assert record is not None, where
        kind = table[row["key_type"]]
        assert (kind.code, kind.name) == (record.key.__key__, row["key_name"]), where
        assert to_json(record.key, 0) == row["key"], where
        if record.value is None or value is None:
            assert row["value"] is None, where
            again = Record(from_json(kind.key, row["key"], 0), None)
        else:
            version = value_version(kind, value)
            assert version == row["value_version"] == kind.written_version, where
            assert to_json(record.value, version) == row["value"], where
            again = Record(from_json(kind.key, row["key"], 0), from_json(kind.value, row["value"], version))
        assert again == record, where
        assert encode_record(record, table) == (key, value), where
