"""Logs that Apache Kafka wrote: read as it reads them, and served on as if they were ours."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from konvene.codec import batches as rb
from konvene.codec.batches import TimestampType
from konvene.log.config import LogConfig
from konvene.log.disk.files import RealDisk
from konvene.log.index import OffsetIndex, TimeIndex
from konvene.log.opening import open_log

LOGS = Path(__file__).parents[1] / "vectors" / "logs"
SCENARIOS = sorted(folder.name for folder in LOGS.iterdir() if folder.is_dir())
NOW = 1_800_000_000_000
TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}


def _expected(scenario: str) -> dict[str, list[dict[str, Any]]]:
    rows = defaultdict(list)
    text = (LOGS / scenario / "expected.jsonl").read_text(encoding="utf-8")
    for line in text.split("\n"):
        if line:
            row = json.loads(line)
            rows[f"{row['topic']}-{row['partition']}"].append(row)
    return rows


def _shown(header: rb.BatchHeader, record: rb.Record) -> dict[str, Any]:
    row: dict[str, Any] = {
        "offset": record.offset,
        "batch_base_offset": header.base_offset,
        "timestamp": record.timestamp,
        "timestamp_type": TYPES[header.timestamp_type],
        "compression": header.compression.label,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id if header.producer_id >= 0 else None,
        "producer_epoch": header.producer_epoch if header.producer_id >= 0 else None,
        "transactional": header.is_transactional,
    }
    if header.is_control:
        marker = rb.read_end_marker(record)
        assert marker is not None
        row["control"] = "COMMIT" if marker.committed else "ABORT"
        row["coordinator_epoch"] = marker.coordinator_epoch
    else:
        row["key_hex"] = None if record.key is None else record.key.hex()
        row["value_hex"] = None if record.value is None else record.value.hex()
    return row


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_log_of_kafka_opens_with_the_same_content(tmp_path, scenario: str, clean: bool):
    """Every record of every partition: offsets, batches, times, epochs, producers, markers, keys, values."""
    expected = _expected(scenario)
    folders = [folder for folder in (LOGS / scenario).iterdir() if folder.is_dir()]
    assert sorted(expected) == sorted(folder.name for folder in folders if any(expected[folder.name]))
    for folder in folders:
        place = tmp_path / folder.name
        shutil.copytree(folder, place)
        log, found = open_log(RealDisk(), str(place), LogConfig(), clean=clean, now_ms=NOW)
        assert found.cut_bytes == 0
        shown = []
        for header, view in log.batches_from():
            rb.check(view, header)
            shown += [_shown(header, record) for record in rb.records(view, header)]
        rows = expected[folder.name]
        assert len(rows) == len(shown)
        for row, got in zip(rows, shown, strict=True):
            assert {name: row.get(name, False if name == "transactional" else None) for name in got} == got
        if rows:
            assert log.end_offset == rows[-1]["offset"] + 1
            middle = rows[len(rows) // 2]
            data = log.read(middle["offset"], 1)
            assert rb.read_header(data).base_offset == middle["batch_base_offset"]
            latest = max(row["timestamp"] for row in rows)
            largest = log.max_timestamp()
            assert largest is not None
            assert largest.timestamp == latest
        log.append_built([(b"k", b"v")], log.epochs.latest + 1, NOW)
        assert log.sync() == log.end_offset
        log.close()


def test_an_index_of_kafka_is_read_and_written_again():
    """Kafka's own index files load, and what we derive from the log are the same bytes."""
    found = 0
    for path in sorted((LOGS / "classic").glob("*/*.index")):
        data, size = path.read_bytes(), path.with_suffix(".log").stat().st_size
        assert bytes(OffsetIndex.load(0, data, size).data) == data
        times = path.with_suffix(".timeindex").read_bytes()
        assert bytes(TimeIndex.load(0, times).data) == times
        found += 1
    assert found


def test_the_indexes_we_derive_are_kafkas(tmp_path):
    """Reading a log of Kafka again gives its own indexes, byte for byte."""
    for folder in sorted(LOGS.glob("classic/*-*")):
        place = tmp_path / folder.name
        place.mkdir()
        name = "00000000000000000000"
        shutil.copy(folder / f"{name}.log", place)
        log, _ = open_log(RealDisk(), str(place), LogConfig(), clean=False, now_ms=NOW)
        log.close()
        for suffix in (".index", ".timeindex"):
            assert (place / (name + suffix)).read_bytes() == (folder / (name + suffix)).read_bytes()
