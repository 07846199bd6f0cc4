"""`konvene log clean`: what would go, and that it goes; beside a running broker nothing is touched."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Said, call, serving

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
ME = Identity("clusterA", 1, "dirA")
OFFSETS = TopicPartition("__consumer_offsets", 0)
METADATA = TopicPartition("__cluster_metadata", 0)
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=200, cleanup_policy=frozenset({"compact"}))
KEYS, ROUNDS = 7, 40
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.roll.ms": "30",
    "log.cleaner.enable": "false",
}


def clean(path: Path, *words: str) -> Said:
    return call(None, "log", "clean", str(path), *words)


def rows(path: Path, *words: str) -> dict[str, dict[str, Any]]:
    said = clean(path, "--json", *words)
    assert said.code == 0, said
    return {f"{row['topic']}-{row['partition']}": row for row in said.json["partitions"]}


def make(path: Path, of: TopicPartition = OFFSETS, *, clean: bool = True, rounds: int = ROUNDS) -> None:
    """A few keys over and over, some deleted again at last, long ago."""
    directory = LogDirectory.open(RealDisk(), str(path), ME)
    (log,) = directory.create([of], SMALL, NOW)
    for turn in range(rounds):
        log.append_built([(b"key-%d" % at, b"%d" % turn * 20) for at in range(KEYS)], 0, NOW + turn)
    log.append_built([(b"key-0", None)], 0, NOW)
    log.roll(NOW)
    log.append_built([(b"key-1", b"last")], 0, NOW)
    log.sync()
    directory.close(clean=clean)


def there(path: Path) -> dict[str, str]:
    """Every file below, by what is in it."""
    return {
        str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }


def last_values(path: Path, of: TopicPartition = OFFSETS) -> dict[bytes | None, bytes | None]:
    """What each key comes to for who reads the log from its beginning."""
    found: dict[bytes | None, bytes | None] = {}
    for file in sorted((path / str(of)).glob("*.log")):
        for header, view in batches(file.read_bytes()):
            for record in records(view, header):
                found[record.key] = record.value
    return found


def alive(path: Path, of: TopicPartition = OFFSETS) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in last_values(path, of).items() if value is not None}


def test_it_says_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    """A dry run's figures are those of the cleaning that comes after it."""
    make(tmp_path)
    before = there(tmp_path)
    dry = rows(tmp_path, "--dry-run")
    assert there(tmp_path) == before
    row = dry["__consumer_offsets-0"]
    assert row["dirty_ratio"] == 1.0
    assert (row["records"], row["records_after"]) == (KEYS * ROUNDS + 1, KEYS)
    assert row["bytes_after"] < row["bytes"] / 5
    assert row["segments_after"] == 2 < row["segments"]
    wet = rows(tmp_path)["__consumer_offsets-0"]
    differing = {name for name in row if row[name] != wet[name]}
    assert not differing
    size = sum(file.stat().st_size for file in (tmp_path / str(OFFSETS)).glob("*.log"))
    assert size == row["bytes_after"]
    assert len(list((tmp_path / str(OFFSETS)).glob("*.log"))) == 2
    again = rows(tmp_path)["__consumer_offsets-0"]
    assert (again["dirty_ratio"], again["records"], again["bytes"]) == (0.0, None, row["bytes_after"])


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_each_key_stands_for_what_it_stood_for(tmp_path: Path, closed: bool) -> None:
    """Nothing is left beside the logs, they are sound, and a start finds the same end."""
    make(tmp_path, clean=closed)
    before = alive(tmp_path)
    assert clean(tmp_path).code == 0
    assert alive(tmp_path) == before
    folder = tmp_path / str(OFFSETS)
    suffixes = {file.suffix for file in folder.iterdir()} - {".log", ".index", ".timeindex", ".snapshot", ""}
    assert not suffixes
    assert all(verify(ReadOnlyDisk(), each).is_sound for each in find(ReadOnlyDisk(), str(folder)))
    assert (tmp_path / ".kafka_cleanshutdown").exists() == closed
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    log = directory.load(OFFSETS, SMALL, NOW)
    assert log.end_offset == KEYS * ROUNDS + 2
    assert directory.cleaned_to(OFFSETS) == KEYS * ROUNDS + 1
    directory.close()


def test_the_table(tmp_path: Path) -> None:
    make(tmp_path)
    said = clean(tmp_path, "--dry-run")
    assert (said.code, said.err) == (0, "Nothing was changed (dry run).\n")
    head, row = said.lines
    assert head == [
        "PARTITION", "DIRTY", "RECORDS", "RECORDS-AFTER", "BYTES", "BYTES-AFTER", "TOMBSTONES-REMOVED",
        "MARKERS-REMOVED", "SEGMENTS", "SEGMENTS-AFTER",
    ]  # fmt: skip
    assert row[:4] == ["__consumer_offsets-0", "100%", str(KEYS * ROUNDS + 1), str(KEYS)]
    assert row[6:8] == ["0", "0"]
    clean(tmp_path)
    said = clean(tmp_path)
    assert said.lines[1][:4] == ["__consumer_offsets-0", "0%", "-", "-"]
    assert "nothing to clean: " in said.out


def test_tombstones_go_when_their_time_has_come(tmp_path: Path) -> None:
    """The first cleaning says when; one that comes later takes them: here at once, as the setting says."""
    make(tmp_path)
    config = tmp_path / "server.properties"
    config.write_text("log.cleaner.delete.retention.ms=0\n")
    assert b"key-0" in last_values(tmp_path)
    assert rows(tmp_path, "--config", str(config))["__consumer_offsets-0"]["tombstones_removed"] == 0
    assert b"key-0" in last_values(tmp_path)
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    log = directory.load(OFFSETS, SMALL, NOW)
    log.append_built([(b"key-2", b"newer")], 0, NOW)
    log.roll(NOW)
    log.append_built([(b"key-2", b"newest")], 0, NOW)
    directory.close()
    assert rows(tmp_path, "--config", str(config))["__consumer_offsets-0"]["tombstones_removed"] == 1
    assert b"key-0" not in last_values(tmp_path)


def cluster_says(path: Path, topic: str, **settings: str) -> None:
    """The cluster's own log tells of a topic with one partition."""
    topic_id = Uuid(bytes(range(16)))
    told = [
        TopicRecord(name=topic, topic_id=topic_id),
        PartitionRecord(partition_id=0, topic_id=topic_id),
        *(
            ConfigRecord(resource_type=2, resource_name=topic, name=name.replace("_", "."), value=value)
            for name, value in settings.items()
        ),
    ]
    directory = LogDirectory.open(RealDisk(), str(path), ME)
    (log,) = directory.create([METADATA], LogConfig(), NOW)
    log.append_built([encode_cluster_record(record) for record in told], 0, NOW)
    log.sync()
    directory.close()


def test_what_is_compacted_is_said_by_the_clusters_log(tmp_path: Path) -> None:
    """Of another topic not a byte goes, whoever names it."""
    prices, orders = TopicPartition("prices", 0), TopicPartition("orders", 0)
    make(tmp_path, prices)
    make(tmp_path, orders)
    make(tmp_path)
    before = there(tmp_path / "orders-0")
    said = clean(tmp_path, "--topic", "prices")
    assert (said.code, "cleanup.policy of prices is not known" in said.err) == (2, True)
    cluster_says(tmp_path, "prices", cleanup_policy="compact,delete")
    assert set(rows(tmp_path, "--dry-run")) == {"__consumer_offsets-0", "prices-0"}
    assert set(rows(tmp_path, "--topic", "prices:0")) == {"prices-0"}
    assert len(list((tmp_path / "prices-0").glob("*.log"))) == 2
    assert len(list((tmp_path / str(OFFSETS)).glob("*.log"))) > 2
    cluster_says(tmp_path, "orders", cleanup_policy="delete")
    said = clean(tmp_path, "--topic", "orders")
    assert (said.code, "cleanup.policy of orders does not say compact" in said.err) == (2, True)
    assert there(tmp_path / "orders-0") == before
    for words in ("orders:7", "nothing"):
        assert f"has no {words}" in clean(tmp_path, "--topic", words).err
    assert "is not a partition number" in clean(tmp_path, "--topic", "orders:x").err


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    said = clean(tmp_path)
    assert (said.code, "is not a data directory" in said.err) == (2, True)


def test_a_damaged_log_is_left_as_it_is_and_told(tmp_path: Path) -> None:
    """The others are cleaned."""
    make(tmp_path)
    other = TopicPartition("__consumer_offsets", 1)
    make(tmp_path, other)
    file = sorted((tmp_path / str(OFFSETS)).glob("*.log"))[2]
    data = bytearray(file.read_bytes())
    data[len(data) // 2 + 100] ^= 1
    file.write_bytes(data)
    before = there(tmp_path / str(OFFSETS))
    said = clean(tmp_path, "--json")
    assert said.code == 1
    found = {row["partition"]: row for row in said.json["partitions"]}
    assert file.name in found[0]["damage"]
    assert found[1]["damage"] is None
    assert found[1]["records_after"] == KEYS
    assert {n: s for n, s in there(tmp_path / str(OFFSETS)).items() if n in before} == before
    assert not list((tmp_path / str(OFFSETS)).glob("*.cleaned"))


def test_segments_are_kept_before_they_are_replaced(tmp_path: Path) -> None:
    """With --archive, or by the setting in the broker's file; what cannot be kept is not cleaned."""
    make(tmp_path / "data")
    folder = tmp_path / "data" / str(OFFSETS)
    wanted = {file.name: file.read_bytes() for file in sorted(folder.glob("*.log"))[:-1]}
    said = clean(tmp_path / "data", "--archive", str(tmp_path / "data" / "kept"))
    assert (said.code, "is in the data directory" in said.err) == (2, True)
    blocked = tmp_path / "blocked"
    blocked.write_text("a file is no directory")
    said = clean(tmp_path / "data", "--archive", str(blocked / "kept"))
    assert said.code == 1
    assert "segments cannot be handed over" in said.out
    assert {f.name: f.read_bytes() for f in sorted(folder.glob("*.log"))[:-1]} == wanted
    assert clean(tmp_path / "data", "--archive", str(tmp_path / "kept")).code == 0
    kept = tmp_path / "kept" / str(OFFSETS)
    assert {file.name: file.read_bytes() for file in kept.glob("*.log")} == wanted
    assert len(list(folder.glob("*.log"))) == 2
    make(tmp_path / "other")
    config = tmp_path / "server.properties"
    config.write_text(f"konvene.log.archive.dir={tmp_path / 'others'}\n")
    assert clean(tmp_path / "other", "--config", str(config)).code == 0
    others = tmp_path / "others" / str(OFFSETS)
    assert {file.name: file.read_bytes() for file in others.glob("*.log")} == wanted


def test_a_running_broker_is_looked_at_and_kept_from_harm(tmp_path: Path) -> None:
    """The dry run answers beside it; a cleaning is refused; afterwards the broker answers as before."""
    with serving(tmp_path, SETTINGS) as broker:
        broker.create("orders", 1)
        for offset in range(60):
            for group in ("a", "b", "c"):
                broker.commit(group, "orders", p0=offset)
        dry = rows(tmp_path, "--dry-run")["__consumer_offsets-0"]
        assert dry["records"] > 150
        assert dry["records_after"] < 20
        said = clean(tmp_path)
        assert said.code == 1
        assert "is held by" in said.err
        assert "--dry-run" in said.err
        broker.commit("a", "orders", p0=77)
    wet = rows(tmp_path)["__consumer_offsets-0"]
    assert wet["records_after"] < 20
    with serving(tmp_path, SETTINGS) as broker:
        assert broker.committed("a") == {"orders-0": 77}
        assert broker.committed("c") == {"orders-0": 59}
        broker.commit("c", "orders", p0=60)
        assert broker.committed("c") == {"orders-0": 60}
