"""Every record in logs written by Apache Kafka 4.4.0, compared with Kafka's own decoding."""

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
SCENARIOS = sorted(path.name for path in LOGS.iterdir() if path.is_dir())


def rows(scenario: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a scenario without transaction markers, which are no coordinator records."""
    for path in sorted((LOGS / scenario).glob("expected.jsonl*")):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                row = json.loads(line)
                if "control" not in row:
                    yield row


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_record_decodes_and_encodes_as_in_kafka(scenario: str) -> None:
    """The bytes decode to Kafka's JSON, it parses to the record, and the record encodes to the bytes."""
    found = list(rows(scenario))
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
            parsed = Record(from_json(kind.key, row["key"], 0), None)
        else:
            version = value_version(kind, value)
            assert version == row["value_version"] == kind.written_version, where
            assert to_json(record.value, version) == row["value"], where
            parsed = Record(from_json(kind.key, row["key"], 0), from_json(kind.value, row["value"], version))
        assert parsed == record, where
        assert encode_record(record, table) == (key, value), where
