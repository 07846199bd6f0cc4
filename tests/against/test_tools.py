"""Apache Kafka's own tools, unchanged, say of konvene what they say of Kafka: word by word."""

import os
import re
from collections.abc import Iterator
from difflib import unified_diff
from functools import cache
from pathlib import Path

import pytest

from .brokers import Broker
from .tools import TRANSCRIPTS, Tools, read, replay, tools, why_no_tools, written

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
def test_the_tools_say_what_they_say_of_kafka(path: Path, jvm: Tools, own_broker: Broker) -> None:
    """Each command of the transcript, in order, is answered as Apache Kafka answered it."""
    prose, steps = read(path)
    told = replay(steps, jvm, own_broker, 5 if own_broker.name == "kafka" else 0)
    if os.environ.get("KONVENE_REWRITE"):
        path.write_text(written(prose, told))
        return
    expected, now = written(prose, steps).splitlines(), written(prose, told).splitlines()
    differences = list(unified_diff(expected, now, "kafka", own_broker.name, lineterm="", n=2))
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
    batches = [line for said in dumped for line in said.out.splitlines() if line.startswith("baseOffset")]
    assert sum(int(n) for line in batches for n in re.findall(r" count: (\d+)", line)) == count
    assert [line for line in batches if "isvalid: true" not in line] == []
    for base in segments[:-1]:
        for kind in ("index", "timeindex"):
            line = f"kafka-dump-log --files {folder}/{base}.{kind}"
            dumped_index = jvm.run(own_broker, line)
            assert dumped_index.out.count("\n") > 20, dumped_index
            assert "mismatch" not in dumped_index.out, dumped_index
            passed = jvm.run(own_broker, f"{line} --index-sanity-check").out
            assert f"{base}.{kind} passed sanity check." in passed
