"""`konvene log dump` and `verify`: Kafka's decoded logs, konvene's own logs, and reports of damage."""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import CommandResult, call

from konvene.cli.output import Progress
from konvene.codec.batches import Compression, Record, TimestampType, build, build_simple
from konvene.codec.uuid import Uuid
from konvene.log.disk.files import RealDisk
from konvene.log.producers import Producers
from konvene.records.audit import RebalanceKey, RebalanceValue
from konvene.records.cluster_log import encode_cluster_record
from konvene.records.coordinator import AUDIT_RECORDS, encode_record
from konvene.records.coordinator import Record as Coordinated
from konvene.records.metadata import TopicRecord

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
SCENARIOS = sorted(path.name for path in LOGS.iterdir() if path.is_dir())
CLASSIC = LOGS / "classic" / "__consumer_offsets-1"
NAME = f"{0:020d}.log"
NOW = 1_760_000_000_000


def dump(path: Path | str, *args: str) -> CommandResult:
    return call(None, "log", "dump", str(path), *args)


def rows(path: Path | str, *args: str) -> list[dict[str, Any]]:
    result = dump(path, "--json", *args)
    assert result.code == 0, result
    return [json.loads(line) for line in result.out.split("\n") if line]


def write_partition(parent: Path, name: str, data: bytes) -> Path:
    folder = parent / name
    folder.mkdir()
    (folder / NAME).write_bytes(data)
    return folder


# dump ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_dump_equals_kafkas_decoding(scenario: str) -> None:
    """Byte by byte, for every record that Kafka's coordinators wrote."""
    result = dump(LOGS / scenario, "--json")
    assert (result.code, result.err) == (0, "")
    expected = (LOGS / scenario / "expected.jsonl").read_text("utf-8").split("\n")
    assert result.out.split("\n") == expected


def test_dump_reads_a_segment_a_partition_or_a_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    of_partition = [row for row in rows(LOGS / "classic") if row["partition"] == 1]
    assert rows(CLASSIC) == rows(CLASSIC / NAME) == of_partition
    monkeypatch.chdir(CLASSIC)
    assert rows(".") == rows(NAME) == of_partition


def test_dump_of_an_offset_range() -> None:
    assert [row["offset"] for row in rows(CLASSIC, "--offsets-from", "100", "--max", "3")] == [100, 101, 102]
    assert [row["partition"] for row in rows(LOGS / "classic", "--max", "26")][-1] == 1
    assert rows(CLASSIC, "--offsets-from", "100000") == []
    assert dump(CLASSIC, "--max", "0").code == 2


def test_no_records_dumps_batches_only() -> None:
    all_records, batches = rows(CLASSIC), rows(CLASSIC, "--no-records")
    assert [row["base_offset"] for row in batches] == sorted(
        {row["batch_base_offset"] for row in all_records}
    )
    assert sum(row["record_count"] for row in batches) == len(all_records)
    assert batches[1]["position"] == batches[0]["size"]
    assert len(rows(CLASSIC, "--no-records", "--max", "2")) == 2
    assert "OFFSET_COMMIT" not in dump(CLASSIC, "--no-records").out


def test_dump_as_text() -> None:
    lines = dump(LOGS / "transactions" / "__consumer_offsets-0", "--max", "4").out.splitlines()
    assert lines[0].endswith(NAME)
    assert lines[1] == (
        "batch 0..0  at byte 0  107 bytes  1 record  CreateTime 2026-11-21 02:15:06.784  none  leader epoch 0"
    )
    assert lines[2].startswith(
        '  0  2026-11-21 02:15:06.784  GROUP_METADATA {"group": "eos-classic"} v3 {"protocolType": ""'
    )
    assert lines[7].endswith("producer 1 epoch 1 sequence -1  transactional  control")
    assert lines[8] == "  3  2026-11-21 02:15:10.221  COMMIT coordinator_epoch=0"
    assert '"partition": 0} deleted' in dump(CLASSIC, "--offsets-from", "100", "--max", "1").out


def test_utf8_keys_and_values_are_dumped_as_text(tmp_path: Path) -> None:
    batch = build(
        [
            Record(0, NOW, b"k", "größe\x1b[2J".encode(), (("h", b"1"), ("n", None))),
            Record(1, NOW, None, b"\xff\xfe"),
        ],
        compression=Compression.ZSTD,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=NOW,
    )
    folder = write_partition(tmp_path, "orders-7", batch)
    first, second = rows(folder)
    assert (first["topic"], first["partition"], first["compression"]) == ("orders", 7, "zstd")
    assert (first["timestamp_type"], first["leader_epoch"]) == ("LogAppendTime", -1)
    assert (first["key"], first["value"]) == ("k", "größe\x1b[2J")
    assert first["headers"] == [{"key": "h", "value_hex": "31"}, {"key": "n", "value_hex": None}]
    assert (second["key_hex"], second["value_hex"], second["value"]) == (None, "fffe", None)
    assert "producer_id" not in first and "headers" not in second
    lines = dump(folder).out.splitlines()
    assert lines[2].endswith("k = größe\\x1b[2J h: 1 n: null")
    assert lines[3].endswith("null = 0xfffe")


def test_dump_of_audit_and_metadata_records(tmp_path: Path) -> None:
    audit = encode_record(
        Coordinated(RebalanceKey(group="billing"), RebalanceValue(group_type="classic", epoch=3)),
        AUDIT_RECORDS,
    )
    (row,) = rows(write_partition(tmp_path, "__konvene_audit-0", build_simple([audit], NOW)))
    assert (row["key_name"], row["key"]) == ("REBALANCE", {"group": "billing"})
    assert row["value"]["epoch"] == 3
    topic_id = Uuid(b"orders----------")
    records = [encode_cluster_record(TopicRecord(name="orders", topic_id=topic_id)), (None, b"\1\x7f\0")]
    folder = write_partition(tmp_path, "__cluster_metadata-0", build_simple(records, NOW))
    known, unknown = rows(folder)
    assert (known["key_type"], known["key_name"], known["key"]) == (2, "TOPIC_RECORD", None)
    assert known["value"] == {"name": "orders", "topicId": str(topic_id)}
    assert (unknown["key_type"], unknown["value"]) == (127, None)
    assert unknown["error"] == "metadata record type 127 version 0 is not known"
    assert "TOPIC_RECORD v0" in dump(folder).out
    # Offsets in a metadata snapshot start at 0, independent of its file name.
    shutil.copy(folder / NAME, folder / "00000000000000000099-0000000003.checkpoint")
    assert rows(folder / "00000000000000000099-0000000003.checkpoint") == [known, unknown]


@pytest.mark.parametrize(
    "key, value, error",
    [
        (b"\x00\x63", b"", "unknown record type 99"),
        (b"\x00\x02\x00\x01g", b"\x00\x63", "GROUP_METADATA: version 99 is not known (known: 0-4)"),
        (b"\x00", b"x", "a coordinator record without a type"),
        (None, b"x", "a coordinator record without a type"),
        (b"\x00\x02\x00\x09g", b"", "GroupMetadataKey v0: "),
    ],
)
def test_unknown_record_is_dumped_as_bytes(
    tmp_path: Path, key: bytes | None, value: bytes, error: str
) -> None:
    folder = write_partition(tmp_path, "__consumer_offsets-0", build_simple([(key, value)], NOW))
    (row,) = rows(folder)
    assert row["error"].startswith(error)
    assert row["value_hex"] == value.hex()
    assert error in dump(folder).out


def test_topic_option_names_the_topic_of_a_single_file(tmp_path: Path) -> None:
    shutil.copy(CLASSIC / NAME, tmp_path / NAME)
    (plain,) = rows(tmp_path / NAME, "--max", "1")
    (named,) = rows(tmp_path / NAME, "--max", "1", "--topic", "__consumer_offsets")
    assert (plain["topic"], plain["partition"]) == (None, None)
    assert (named["topic"], named["key_name"]) == ("__consumer_offsets", rows(CLASSIC)[0]["key_name"])


def test_dump_of_a_leader_change_record(tmp_path: Path) -> None:
    data = bytes.fromhex("0001") + bytes.fromhex("00000001") + b"\1\1\0"
    batch = build([Record(0, NOW, bytes.fromhex("00000002"), data)], control=True)
    (row,) = rows(write_partition(tmp_path, "__cluster_metadata-0", batch))
    assert row["control"] == "LEADER_CHANGE"
    assert row["value"]["leaderId"] == 1


def test_damaged_batch_is_reported_and_skipped(tmp_path: Path) -> None:
    data = bytearray((CLASSIC / NAME).read_bytes())
    sizes = [row["size"] for row in rows(CLASSIC, "--no-records")]
    data[sizes[0] + 70] ^= 1
    result = dump(write_partition(tmp_path, "__consumer_offsets-1", bytes(data)), "--json")
    assert result.code == 1
    lost = [row for row in rows(CLASSIC) if row["batch_base_offset"] == 1]
    assert [json.loads(line) for line in result.out.splitlines()] == [
        row for row in rows(CLASSIC) if row not in lost
    ]
    assert f"byte {sizes[0]}, offset 1: the checksum of the batch at offset 1 does not hold" in result.err


def test_progress_is_printed_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", stderr := Terminal())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    clock = iter([0.0, 0.5, 2.0, 2.0, 0.0, 0.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    progress = Progress(4 << 20)
    progress.add(1 << 20, "orders-0")
    assert stderr.getvalue() == ""
    progress.add(1 << 20, "orders-0")
    assert stderr.getvalue() == "\r50% of 4 MiB  orders-0"
    progress.clear()
    assert stderr.getvalue().endswith("\r" + " " * 22 + "\r")
    counted = Progress(8, unit="partitions")
    monkeypatch.setattr(time, "monotonic", lambda: 10_000_000.0)
    counted.add(2, "orders-1")
    assert stderr.getvalue().endswith("\r25% of 8 partitions  orders-1")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert not Progress(1)._shown and Progress(1, beside_output=True)._shown


# the small files ----------------------------------------------------------------------------------


def test_dump_of_indexes_checkpoints_and_snapshots(tmp_path: Path) -> None:
    index = CLASSIC / NAME.replace(".log", ".index")
    assert dump(index).lines[0] == ["OFFSET", "POSITION"]
    assert rows(index, "--max", "1") == [{"offset": 29, "position": rows(index)[0]["position"]}]
    times = dump(CLASSIC / NAME.replace(".log", ".timeindex"))
    assert times.lines[1] == ["1795227432565", "(2026-11-21", "02:17:12.565)", "29"]
    assert rows(CLASSIC / "leader-epoch-checkpoint") == [{"leader_epoch": 0, "start_offset": 0}]
    snapshot = tmp_path / f"{5:020d}.snapshot"
    snapshot.write_bytes(Producers().snapshot())
    assert rows(snapshot) == []
    snapshot.write_bytes(b"123")
    assert dump(snapshot).err == f"konvene: {snapshot} is damaged: a producer snapshot is cut\n"


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_paths_without_a_log_are_usage_errors(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "empty", tmp_path / "nothing"):
        result = call(None, "log", command, str(path))
        assert (result.code, result.out) == (2, "")


# verify -------------------------------------------------------------------------------------------


def test_verify_reports_sound_logs() -> None:
    result = call(None, "log", "verify", str(LOGS / "classic"))
    assert result.code == 0
    assert result.lines == [
        ["PARTITION", "SEGMENTS", "BATCHES", "RECORDS", "BYTES", "OFFSETS", "VERDICT"],
        ["__consumer_offsets-0", "1", "18", "25", "3843", "0..24", "sound"],
        ["__consumer_offsets-1", "1", "86", "120", "20161", "0..119", "sound"],
    ]
    assert call(None, "log", "verify", str(CLASSIC / NAME)).code == 0


def test_verify_reports_the_position_of_damage(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, "orders-0", build_simple([(b"k", b"v")], NOW) + b"torn")
    (folder / NAME).chmod(0o444)
    result = call(None, "log", "verify", str(tmp_path), "--json")
    assert result.code == 1
    (row,) = result.json["partitions"]
    assert (result.json["sound"], row["topic"], row["records"], row["next_offset"]) == (
        False,
        "orders",
        1,
        1,
    )
    assert row["findings"] == [
        {
            "kind": "torn-tail", "damage": True, "file": str(folder / NAME), "position": 70, "offset": 1,
            "message": "4 bytes are fewer than the 61 of a batch header (4 bytes to the end of the file)",
        }
    ]  # fmt: skip
    text = call(None, "log", "verify", str(tmp_path)).out
    assert "DAMAGED" in text
    assert f"    torn-tail: {NAME}, byte 70, offset 1: 4 bytes are fewer" in text
    assert (folder / NAME).read_bytes().endswith(b"torn")


def test_verify_checks_the_recovery_point_checkpoint(tmp_path: Path) -> None:
    write_partition(tmp_path, "orders-0", build_simple([(b"k", b"v")], NOW))
    points = tmp_path / "recovery-point-offset-checkpoint"
    points.write_text("")  # Kafka creates it empty.
    assert call(None, "log", "verify", str(tmp_path)).code == 0
    points.write_text("0\n1\norders 0 1\n")
    assert call(None, "log", "verify", str(tmp_path)).code == 0
    points.write_text("0\n1\norders 0 2\n")
    result = call(None, "log", "verify", str(tmp_path))
    assert result.code == 1
    assert "order: orders-0, offset 1: the log ends at offset 1, but 2 was durable" in result.out


def test_dump_and_verify_do_not_write(tmp_path: Path) -> None:
    shutil.copytree(LOGS / "classic", tmp_path / "data")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for command in ("dump", "verify"):
        assert call(None, "log", command, str(tmp_path / "data")).code == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert RealDisk().listdir(str(tmp_path)) == ["data"]
