"""`konvene log clean`: dry runs, cleaning, archiving, and refusal beside a running broker."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import CommandResult, call, running_broker

from konvene.codec.batches import batches, records
from konvene.codec.uuid import Uuid
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import RealDisk
from konvene.log.disk.read_only import ReadOnlyDisk
from konvene.log.inspect.dump import find
from konvene.log.inspect.verify import verify
from konvene.records.cluster_log import encode_cluster_record
from konvene.records.metadata import ConfigRecord, PartitionRecord, TopicRecord

NOW = 1_760_000_000_000
IDENTITY = Identity("clusterA", 1, "dirA")
OFFSETS = TopicPartition("__consumer_offsets", 0)
METADATA = TopicPartition("__cluster_metadata", 0)
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=200, cleanup_policy=frozenset({"compact"}))
KEYS, ROUNDS = 7, 40
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.roll.ms": "30",
    "log.cleaner.enable": "false",
}


def clean(path: Path, *args: str) -> CommandResult:
    return call(None, "log", "clean", str(path), *args)


def rows(path: Path, *args: str) -> dict[str, dict[str, Any]]:
    result = clean(path, "--json", *args)
    assert result.code == 0, result
    return {f"{row['topic']}-{row['partition']}": row for row in result.json["partitions"]}


def make_log(path: Path, tp: TopicPartition = OFFSETS, *, clean: bool = True, rounds: int = ROUNDS) -> None:
    """Write a log of a few keys that are overwritten in each round; key-0 ends with a tombstone."""
    directory = LogDirectory.open(RealDisk(), str(path), IDENTITY)
    (log,) = directory.create([tp], SMALL, NOW)
    for round_number in range(rounds):
        log.append_built(
            [(b"key-%d" % key, b"%d" % round_number * 20) for key in range(KEYS)], 0, NOW + round_number
        )
    log.append_built([(b"key-0", None)], 0, NOW)
    log.roll(NOW)
    log.append_built([(b"key-1", b"last")], 0, NOW)
    log.sync()
    directory.close(clean=clean)


def file_digests(path: Path) -> dict[str, str]:
    """Return the SHA-256 digest of every file below `path`."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def last_values(path: Path, tp: TopicPartition = OFFSETS) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key (None: a tombstone)."""
    found: dict[bytes | None, bytes | None] = {}
    for file in sorted((path / str(tp)).glob("*.log")):
        for header, view in batches(file.read_bytes()):
            for record in records(view, header):
                found[record.key] = record.value
    return found


def live_values(path: Path, tp: TopicPartition = OFFSETS) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in last_values(path, tp).items() if value is not None}


def test_dry_run_predicts_the_cleaning_and_changes_nothing(tmp_path: Path) -> None:
    """The numbers of a dry run equal those of the following run."""
    make_log(tmp_path)
    before = file_digests(tmp_path)
    dry_run_rows = rows(tmp_path, "--dry-run")
    assert file_digests(tmp_path) == before
    row = dry_run_rows["__consumer_offsets-0"]
    assert row["dirty_ratio"] == 1.0
    assert (row["records"], row["records_after"]) == (KEYS * ROUNDS + 1, KEYS)
    assert row["bytes_after"] < row["bytes"] / 5
    assert row["segments_after"] == 2 < row["segments"]
    cleaned = rows(tmp_path)["__consumer_offsets-0"]
    differing = {name for name in row if row[name] != cleaned[name]}
    assert not differing
    size = sum(file.stat().st_size for file in (tmp_path / str(OFFSETS)).glob("*.log"))
    assert size == row["bytes_after"]
    assert len(list((tmp_path / str(OFFSETS)).glob("*.log"))) == 2
    again = rows(tmp_path)["__consumer_offsets-0"]
    assert (again["dirty_ratio"], again["records"], again["bytes"]) == (0.0, None, row["bytes_after"])


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_cleaning_keeps_the_last_value_of_each_key(tmp_path: Path, closed: bool) -> None:
    """No temporary files are left, the logs verify as sound, and the end offset is unchanged."""
    make_log(tmp_path, clean=closed)
    before = live_values(tmp_path)
    assert clean(tmp_path).code == 0
    assert live_values(tmp_path) == before
    folder = tmp_path / str(OFFSETS)
    suffixes = {file.suffix for file in folder.iterdir()} - {".log", ".index", ".timeindex", ".snapshot", ""}
    assert not suffixes
    assert all(verify(ReadOnlyDisk(), segment).is_sound for segment in find(ReadOnlyDisk(), str(folder)))
    assert (tmp_path / ".kafka_cleanshutdown").exists() == closed
    directory = LogDirectory.open(RealDisk(), str(tmp_path), IDENTITY)
    log = directory.load(OFFSETS, SMALL, NOW)
    assert log.end_offset == KEYS * ROUNDS + 2
    assert directory.cleaned_to(OFFSETS) == KEYS * ROUNDS + 1
    directory.close()


def test_table_of_cleaned_partitions(tmp_path: Path) -> None:
    make_log(tmp_path)
    result = clean(tmp_path, "--dry-run")
    assert (result.code, result.err) == (0, "Nothing was changed (dry run).\n")
    heading, row = result.lines
    assert heading == [
        "PARTITION", "DIRTY", "RECORDS", "RECORDS-AFTER", "BYTES", "BYTES-AFTER", "TOMBSTONES-REMOVED",
        "MARKERS-REMOVED", "SEGMENTS", "SEGMENTS-AFTER",
    ]  # fmt: skip
    assert row[:4] == ["__consumer_offsets-0", "100%", str(KEYS * ROUNDS + 1), str(KEYS)]
    assert row[6:8] == ["0", "0"]
    clean(tmp_path)
    result = clean(tmp_path)
    assert result.lines[1][:4] == ["__consumer_offsets-0", "0%", "-", "-"]
    assert "nothing to clean: " in result.out


def test_tombstones_are_removed_after_their_retention(tmp_path: Path) -> None:
    """The first cleaning sets the delete horizon; a later one removes the tombstones, here at once with a
    retention of 0 ms.
    """
    make_log(tmp_path)
    config = tmp_path / "server.properties"
    config.write_text("log.cleaner.delete.retention.ms=0\n")
    assert b"key-0" in last_values(tmp_path)
    assert rows(tmp_path, "--config", str(config))["__consumer_offsets-0"]["tombstones_removed"] == 0
    assert b"key-0" in last_values(tmp_path)
    directory = LogDirectory.open(RealDisk(), str(tmp_path), IDENTITY)
    log = directory.load(OFFSETS, SMALL, NOW)
    log.append_built([(b"key-2", b"newer")], 0, NOW)
    log.roll(NOW)
    log.append_built([(b"key-2", b"newest")], 0, NOW)
    directory.close()
    assert rows(tmp_path, "--config", str(config))["__consumer_offsets-0"]["tombstones_removed"] == 1
    assert b"key-0" not in last_values(tmp_path)


def write_cluster_log(path: Path, topic: str, **settings: str) -> None:
    """Write a metadata log with one topic of one partition and these topic configs."""
    topic_id = Uuid(bytes(range(16)))
    metadata_records = [
        TopicRecord(name=topic, topic_id=topic_id),
        PartitionRecord(partition_id=0, topic_id=topic_id),
        *(
            ConfigRecord(resource_type=2, resource_name=topic, name=name.replace("_", "."), value=value)
            for name, value in settings.items()
        ),
    ]
    directory = LogDirectory.open(RealDisk(), str(path), IDENTITY)
    (log,) = directory.create([METADATA], LogConfig(), NOW)
    log.append_built([encode_cluster_record(record) for record in metadata_records], 0, NOW)
    log.sync()
    directory.close()


def test_cleanup_policies_come_from_the_cluster_log(tmp_path: Path) -> None:
    """Topics without cleanup.policy=compact are never cleaned, even if named."""
    prices, orders = TopicPartition("prices", 0), TopicPartition("orders", 0)
    make_log(tmp_path, prices)
    make_log(tmp_path, orders)
    make_log(tmp_path)
    before = file_digests(tmp_path / "orders-0")
    result = clean(tmp_path, "--topic", "prices")
    assert (result.code, "cleanup.policy of prices is unknown" in result.err) == (2, True)
    write_cluster_log(tmp_path, "prices", cleanup_policy="compact,delete")
    assert set(rows(tmp_path, "--dry-run")) == {"__consumer_offsets-0", "prices-0"}
    assert set(rows(tmp_path, "--topic", "prices:0")) == {"prices-0"}
    assert len(list((tmp_path / "prices-0").glob("*.log"))) == 2
    assert len(list((tmp_path / str(OFFSETS)).glob("*.log"))) > 2
    write_cluster_log(tmp_path, "orders", cleanup_policy="delete")
    result = clean(tmp_path, "--topic", "orders")
    assert (result.code, "cleanup.policy of orders does not include compact" in result.err) == (2, True)
    assert file_digests(tmp_path / "orders-0") == before
    for name in ("orders:7", "nothing"):
        assert f"has no {name}" in clean(tmp_path, "--topic", name).err
    assert "is not a partition number" in clean(tmp_path, "--topic", "orders:x").err


def test_other_directories_are_rejected(tmp_path: Path) -> None:
    result = clean(tmp_path)
    assert (result.code, "is not a data directory" in result.err) == (2, True)


def test_damaged_log_is_reported_and_left_unchanged(tmp_path: Path) -> None:
    """The other logs are cleaned."""
    make_log(tmp_path)
    other = TopicPartition("__consumer_offsets", 1)
    make_log(tmp_path, other)
    file = sorted((tmp_path / str(OFFSETS)).glob("*.log"))[2]
    data = bytearray(file.read_bytes())
    data[len(data) // 2 + 100] ^= 1
    file.write_bytes(data)
    before = file_digests(tmp_path / str(OFFSETS))
    result = clean(tmp_path, "--json")
    assert result.code == 1
    rows_by_partition = {row["partition"]: row for row in result.json["partitions"]}
    assert file.name in rows_by_partition[0]["damage"]
    assert rows_by_partition[1]["damage"] is None
    assert rows_by_partition[1]["records_after"] == KEYS
    assert {
        name: digest for name, digest in file_digests(tmp_path / str(OFFSETS)).items() if name in before
    } == before
    assert not list((tmp_path / str(OFFSETS)).glob("*.cleaned"))


def test_segments_are_archived_before_they_are_replaced(tmp_path: Path) -> None:
    """With --archive or the broker's setting; a log whose segments cannot be archived is not cleaned."""
    make_log(tmp_path / "data")
    folder = tmp_path / "data" / str(OFFSETS)
    originals = {file.name: file.read_bytes() for file in sorted(folder.glob("*.log"))[:-1]}
    result = clean(tmp_path / "data", "--archive", str(tmp_path / "data" / "kept"))
    assert (result.code, "is in the data directory" in result.err) == (2, True)
    blocked = tmp_path / "blocked"
    blocked.write_text("a file is no directory")
    result = clean(tmp_path / "data", "--archive", str(blocked / "kept"))
    assert result.code == 1
    assert "cannot archive its segments" in result.out
    assert {f.name: f.read_bytes() for f in sorted(folder.glob("*.log"))[:-1]} == originals
    assert clean(tmp_path / "data", "--archive", str(tmp_path / "kept")).code == 0
    archived = tmp_path / "kept" / str(OFFSETS)
    assert {file.name: file.read_bytes() for file in archived.glob("*.log")} == originals
    assert len(list(folder.glob("*.log"))) == 2
    make_log(tmp_path / "other")
    config = tmp_path / "server.properties"
    config.write_text(f"konvene.log.archive.dir={tmp_path / 'others'}\n")
    assert clean(tmp_path / "other", "--config", str(config)).code == 0
    archived_by_setting = tmp_path / "others" / str(OFFSETS)
    assert {file.name: file.read_bytes() for file in archived_by_setting.glob("*.log")} == originals


def test_running_broker_allows_only_a_dry_run(tmp_path: Path) -> None:
    """A dry run works beside a running broker; a cleaning is refused until it stops."""
    with running_broker(tmp_path, SETTINGS) as broker:
        broker.create("orders", 1)
        for offset in range(60):
            for group in ("a", "b", "c"):
                broker.commit(group, "orders", p0=offset)
        dry_run_row = rows(tmp_path, "--dry-run")["__consumer_offsets-0"]
        assert dry_run_row["records"] > 150
        assert dry_run_row["records_after"] < 20
        result = clean(tmp_path)
        assert result.code == 1
        assert "is held by" in result.err
        assert "--dry-run" in result.err
        broker.commit("a", "orders", p0=77)
    cleaned = rows(tmp_path)["__consumer_offsets-0"]
    assert cleaned["records_after"] < 20
    with running_broker(tmp_path, SETTINGS) as broker:
        assert broker.committed("a") == {"orders-0": 77}
        assert broker.committed("c") == {"orders-0": 59}
        broker.commit("c", "orders", p0=60)
        assert broker.committed("c") == {"orders-0": 60}
