"""Apache Kafka's own tools, unchanged, print the same for konvene as for Kafka."""

import json
import os
import re
from collections.abc import Iterator
from difflib import unified_diff
from functools import cache
from pathlib import Path

import pytest

from .brokers import Broker
from .clients import fleet_of
from .conftest import a_running_broker
from .tools import SETTINGS_OF, TRANSCRIPTS, Tools, read, replay, tools, why_no_tools, written

pytestmark = pytest.mark.java


@cache
def tools_are_missing() -> str | None:
    return why_no_tools()


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    missing = tools_are_missing()
    if missing:
        pytest.skip(f"Kafka's tools are missing: {missing}")
    with tools(tmp_path_factory.mktemp("tools") / "tools.log") as jvm:
        yield jvm


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_tools_output_equals_kafkas(path: Path, jvm: Tools, tmp_path: Path) -> None:
    """Each command of the transcript, in order, is answered as Apache Kafka answered it."""
    prose, steps = read(path)
    with a_running_broker(tmp_path / "broker", SETTINGS_OF.get(path.stem), kill=True) as broker:
        replayed = replay(steps, jvm, broker, 5 if broker.name == "kafka" else 0)
    if os.environ.get("KONVENE_REWRITE"):
        path.write_text(written(prose, replayed))
        return
    expected, now = written(prose, steps).splitlines(), written(prose, replayed).splitlines()
    differences = list(unified_diff(expected, now, "kafka", broker.name, lineterm="", n=2))
    if differences:
        pytest.fail("\n".join(differences), pytrace=False)


def test_the_performance_tools_fill_segments_that_kafka_reads(jvm: Tools, own_broker: Broker) -> None:
    """All that kafka-producer-perf-test sends is read by kafka-consumer-perf-test; kafka-dump-log finds every
    batch of every segment sound, and each finished segment's indexes true to it."""
    count = 30_000
    jvm.run(own_broker, "kafka-topics --create --topic load --config segment.bytes=1048576")
    sent = jvm.run(
        own_broker,
        f"kafka-producer-perf-test --topic load --num-records {count} --record-size 100 --throughput -1",
    )
    assert f"{count} records sent" in sent.out, sent
    assert jvm.run(own_broker, "kafka-get-offsets --topic load").out == f"load:0:{count}\n"
    read_ = jvm.run(
        own_broker, f"kafka-consumer-perf-test --topic load --num-records {count} --timeout 20000"
    )
    names, figures = (line.split(", ") for line in read_.out.splitlines()[-2:])
    assert dict(zip(names, figures, strict=True))["data.consumed.in.nMsg"] == str(count), read_

    own_broker.stop()
    folder = own_broker.directory / "data" / "load-0"
    segments = sorted(path.stem for path in folder.glob("*.log"))
    assert len(segments) == 4
    dumped = [jvm.run(own_broker, f"kafka-dump-log --files {folder}/{base}.log") for base in segments]
    batches = [line for result in dumped for line in result.out.splitlines() if line.startswith("baseOffset")]
    assert sum(int(n) for line in batches for n in re.findall(r" count: (\d+)", line)) == count
    assert [line for line in batches if "isvalid: true" not in line] == []
    for base in segments[:-1]:
        for kind in ("index", "timeindex"):
            line = f"kafka-dump-log --files {folder}/{base}.{kind}"
            dumped_index = jvm.run(own_broker, line)
            assert dumped_index.out.count("\n") > 5, dumped_index
            assert "mismatch" not in dumped_index.out, dumped_index
            passed = jvm.run(own_broker, f"{line} --index-sanity-check").out
            assert f"{base}.{kind} passed sanity check." in passed


def test_the_clusters_own_log_is_kafkas(jvm: Tools, own_broker: Broker) -> None:
    """kafka-dump-log reads what was decided of a topic: its creation, growth, settings and end."""
    for line in (
        "kafka-topics --create --topic orders --config retention.ms=5",
        "kafka-topics --alter --topic orders --partitions 2",
        "kafka-configs --alter --entity-type topics --entity-name orders --delete-config retention.ms",
        "kafka-topics --delete --topic orders",
    ):
        assert jvm.run(own_broker, line).status == 0, line
    log = "DATA/__cluster_metadata-0/00000000000000000000.log"
    result = jvm.run(own_broker, f"kafka-dump-log --cluster-metadata-decoder --files {log}")
    payloads = [json.loads(text) for text in re.findall(r" payload: (\{.*\})$", result.out, re.MULTILINE)]
    (topic_id,) = (row["data"]["topicId"] for row in payloads if row["type"] == "TOPIC_RECORD")
    decoded = [
        (row["type"], {name: value for name, value in row["data"].items() if name not in BY_CHANCE})
        for row in payloads
        if row["data"].get("topicId") == topic_id or row["data"].get("resourceName") == "orders"
    ]
    setting = {"resourceType": 2, "resourceName": "orders", "name": "retention.ms"}
    replica = {"replicas": [1], "isr": [1], "removingReplicas": [], "addingReplicas": [], "leader": 1}
    assert decoded == [
        ("TOPIC_RECORD", {"name": "orders"}),
        ("CONFIG_RECORD", {**setting, "value": "5"}),
        ("PARTITION_RECORD", {"partitionId": 0, **replica, "leaderEpoch": 0, "partitionEpoch": 0}),
        ("PARTITION_RECORD", {"partitionId": 1, **replica, "leaderEpoch": 0, "partitionEpoch": 0}),
        ("CONFIG_RECORD", {**setting, "value": None}),
        ("REMOVE_TOPIC_RECORD", {}),
    ]


BY_CHANCE = ("topicId", "directories")
"""What of a topic's records is drawn by lot."""


def test_a_living_group_is_described(jvm: Tools, own_broker: Broker, tmp_path: Path) -> None:
    """Who reads what, how far behind, and in what state the group is; deletion and a reset are refused."""
    jvm.run(own_broker, "kafka-topics --create --topic orders")
    jvm.run(own_broker, "kafka-console-producer --topic orders", "one\ntwo\nthree\n")
    with fleet_of(own_broker.bootstrap, tmp_path / "clients") as fleet:
        member = fleet.consumer("kafka-python", "reader", group="workers", topics=["orders"], commit="sync")
        member.until("three records", lambda: len(member.records()) == 3)
        member.until(
            "its commit", lambda: ["orders", 0, 3] in [c["offsets"][0][:3] for c in member.of("committed")]
        )
        member_id = member.call("member")["member_id"]

        def rows(line: str) -> list[list[str]]:
            result = jvm.run(own_broker, f"kafka-consumer-groups --group workers {line}")
            return [row.split() for row in result.out.splitlines() if row.strip()][1:]

        who = [member_id, "/127.0.0.1", "reader"]
        assert rows("--describe --offsets") == [["workers", "orders", "0", "3", "3", "0", *who]]
        assert rows("--describe --members --verbose") == [["workers", *who, "1", "-", "orders:0", "-", "-"]]
        assert rows("--describe --state")[0][-3:] == ["range", "Stable", "1"]
        refused = jvm.run(own_broker, "kafka-consumer-groups --group workers --delete")
        assert "GroupNotEmptyException: The group is not empty." in refused.out, refused
        moved = jvm.run(
            own_broker,
            "kafka-consumer-groups --group workers --reset-offsets --to-earliest --all-topics --execute",
        )
        assert "Assignments can only be reset if the group 'workers' is inactive" in moved.out, moved
