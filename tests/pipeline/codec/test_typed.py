"""Each record type has a table whose rows match the records."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.coordinator_log import segment
from tests.pipeline.codec.logs import STORIES, expected_rows, segments

from konvene.codec.batches import batches, build_simple
from konvene.codec.batches import records as plain
from konvene.codec.compile import encode
from konvene.codec.json import to_json
from konvene.codec.schema import Field, Primitive, Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.pipeline.codec.bronze import LogRecords, blocks
from konvene.pipeline.codec.typed import TYPED, SilverTable
from konvene.pipeline.tables import TABLES
from konvene.records.coordinator import GROUP_RECORDS, decode_record

VECTORS = Path(__file__).parents[2] / "vectors"


def value_of(cls: type[Struct], row: dict[str, Any], renamed: dict[str, str] | None = None) -> Struct:
    """Convert a row of Arrow back to the declared value."""
    names = {f.name: (renamed or {}).get(f.name, f.name) for f in cls.__fields__}
    return cls(**{f.name: _field(f, row[names[f.name]]) for f in cls.__fields__})


def _field(f: Field, value: Any) -> Any:
    if value is None:
        return ZERO_UUID if f.kind == "uuid" else None
    if f.kind == "array":
        return tuple(_item(f.element, item) for item in value)
    return _item(f.element if f.kind == "struct" else Primitive(f.kind, None), value)


def _item(element: Any, value: Any) -> Any:
    if not isinstance(element, Primitive):
        return value_of(element, value)
    if element.name == "uuid":
        return ZERO_UUID if value is None else Uuid.parse(value)
    return value


def typed(table: SilverTable, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> Any:
    """The table's rows for records of these keys and values, which stand at offsets 0, 1 and so on."""
    return table.decode(bronze(table.log_topic, pairs))


def bronze(topic: str, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> LogRecords:
    """Records of these keys and values, read from one batch."""
    (found,) = blocks(build_simple(pairs, 1000), segment_base=0)
    return found.rows("c", topic, 3)


def records_of(table: SilverTable, rows: pa.RecordBatch) -> Iterator[tuple[Struct, Struct | None]]:
    """Key and value of each row, as the declarations have them."""
    renamed = {"offset": "committed_offset"} if "committed_offset" in rows.schema.names else {}
    for row in rows.to_pylist():
        key = value_of(table.kind.key, row)
        if row["tombstone"]:
            values = [row[renamed.get(f.name, f.name)] for f in table.kind.value.__fields__]
            assert values == [None] * len(values)
            yield key, None
        else:
            yield key, value_of(table.kind.value, row, renamed)


@pytest.mark.parametrize("story", STORIES)
def test_every_record_of_kafkas_logs(story: str) -> None:
    """Rows of silver match Kafka's own JSON for every record of every log."""
    logs = expected_rows(story)
    for topic, partition, path in segments(story):
        wanted = {row["offset"]: row for row in logs.get((topic, partition), []) if "control" not in row}
        for found in blocks(path.read_bytes(), segment_base=int(path.stem)):
            records = found.rows("c", topic, partition)
            for kind in sorted({t for t in records.column("key_type").to_pylist() if t is not None}):
                table = TYPED[topic, kind]
                rows, bad = table.decode(records.of_type(kind))
                assert bad is None
                assert rows.schema == table.schema
                rows.validate(full=True)
                pairs = records_of(table, rows)
                for row, (key, value) in zip(rows.to_pylist(), pairs, strict=True):
                    want = wanted.pop(row["offset"])
                    assert (row["log_topic"], row["log_partition"]) == (topic, partition)
                    assert row["timestamp_ms"] == want["timestamp"]
                    assert row["batch_base_offset"] == want["batch_base_offset"]
                    assert to_json(key, 0) == want["key"]
                    assert (value and to_json(value, want["value_version"])) == want["value"]
        assert not wanted


def vectors() -> Iterator[tuple[SilverTable, bool, dict[str, Any]]]:
    """Kafka's own bytes for keys and values, each with its table and whether it is a key."""
    by_name = {t.kind.key.__name__: (t, True) for t in TYPED.values()}
    by_name |= {t.kind.value.__name__: (t, False) for t in TYPED.values()}
    with gzip.open(VECTORS / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["name"] in by_name:
                yield (*by_name[row["name"]], row)


def test_golden_vectors() -> None:
    """Every version of every key and value comes through its table as Kafka's JSON has it."""
    seen = set()
    for table, is_key, row in vectors():
        data = bytes.fromhex(row["hex"])
        key = data if is_key else key_of(table)
        rows, bad = typed(table, [(key, None if is_key else data)])
        assert bad is None, row
        rows.validate(full=True)
        ((got_key, got_value),) = records_of(table, rows)
        if is_key:
            assert to_json(got_key, 0) == row["json"]
        else:
            assert got_value is not None
            assert to_json(got_value, row["version"]) == row["json"]
        seen.add((row["name"], row["version"]))
    declared = {(t.kind.key.__name__, 0) for t in TYPED.values()}
    for table in TYPED.values():
        first, last = table.kind.value.__versions__
        declared |= {(table.kind.value.__name__, version) for version in range(first, last + 1)}
    assert seen == declared


def key_of(table: SilverTable) -> bytes:
    """Return an empty key of the table."""
    return table.kind.code.to_bytes(2, "big") + encode(table.kind.key(), 0)


def test_tables_have_the_names_of_kafkas_records() -> None:
    """One table for each type of each log, with a name of its own."""
    names = [table.name for table in TYPED.values()]
    assert len(set(names)) == len(names) == 25
    assert TYPED["__consumer_offsets", 1].name == "offset_commit"
    assert TYPED["__consumer_offsets", 8].name == "consumer_group_current_member_assignment"
    assert TYPED["__share_group_state", 0].name == "share_snapshot"
    assert TYPED["__transaction_state", 0].name == "transaction_log"
    assert not set(names) & set(TABLES)


@pytest.mark.parametrize("table", TYPED.values(), ids=lambda table: table.name)
def test_undecodable_records_go_to_quarantine(table: SilverTable) -> None:
    """A truncated key, a value of a future version and a value with trailing bytes each give a row with
    the reason."""
    key, version = key_of(table), table.kind.written_version
    value = version.to_bytes(2, "big") + encode(table.kind.value(), version)
    pairs = [
        (key, value),
        (key[:-1], value),
        (key + b"?", value),
        (key, (99).to_bytes(2, "big") + value[2:]),
        (key, value + b"?"),
        (key, value[:-1]),
        (key, b"\0"),
        (key, b""),
        (key, None),
    ]
    rows, bad = typed(table, pairs)
    assert rows.column("offset").to_pylist() == [0, 8]
    assert rows.column("tombstone").to_pylist() == [False, True]
    assert bad.schema == TABLES["quarantine"].schema
    assert bad.column("offset").to_pylist() == [1, 2, 3, 4, 5, 6, 7]
    quarantined = bad.to_pylist()
    assert "version 99 is not known" in quarantined[2]["reason"]
    assert quarantined[2]["bytes"] == key + pairs[3][1]
    assert quarantined[2]["length"] == len(quarantined[2]["bytes"])
    assert {(t["cluster"], t["topic"], t["partition"]) for t in quarantined} == {("c", table.log_topic, 3)}
    assert {(t["segment_base_offset"], t["file_position"]) for t in quarantined} == {(0, 0)}


def test_no_rows() -> None:
    for table in TYPED.values():
        rows, bad = table.decode(bronze(table.log_topic, [(b"", b"")]).slice(0, 0))
        assert (len(rows), bad) == (0, None)
        assert rows.schema == table.schema


@pytest.mark.parametrize("version", range(5))
def test_a_large_log(version: int) -> None:
    """Fifty thousand records of a coordinator, most of them commits, as the broker itself reads them."""
    data = segment(50_000, seed=version, commit_version=version)
    decoded: dict[int, tuple[Struct, Struct | None]] = {}
    for found in blocks(data, segment_base=0):
        records = found.rows("c", "__consumer_offsets", 0)
        for kind in (1, 8):
            table = TYPED["__consumer_offsets", kind]
            rows, bad = table.decode(records.of_type(kind))
            assert bad is None
            decoded |= zip(rows.column("offset").to_pylist(), records_of(table, rows), strict=True)
    for header, batch in batches(data):
        for record in plain(batch, header):
            want = decode_record(record.key or b"", record.value, GROUP_RECORDS)
            assert decoded.pop(record.offset) == want
    assert decoded == {}
