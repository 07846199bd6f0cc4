"""Share groups change hands, between konvene and Apache Kafka: who is in a group and what it has done with is
in `__consumer_offsets` and `__share_group_state`, which the other broker reads, and goes on with.

Topics and records are Kafka's, whose whole directory konvene starts with. Then members join, acknowledge
some of what they have, leave or hang up, and a group is deleted, on one broker or the other; the other one
is given both logs, describes them alike, and delivers exactly what is not done. kafka-dump-log reads each
record of konvene's, too. The lines are those of `tests/differential`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.differential.playing import Player, await_ready
from tests.differential.stage import PROFILES

from .brokers import Broker, Kafka, Konvene, Unavailable
from .tools import CLASSES, tools_classpath, why_no_tools

pytestmark = pytest.mark.java

LOGS = ("__consumer_offsets-0", "__share_group_state-0")
BEFORE = (
    "config g share.auto.offset.reset=earliest",
    "config h share.auto.offset.reset=earliest",
    "config i share.auto.offset.reset=earliest",
    "fill p orders-0 10", "fill p orders-0 5", "fill p orders-1 3", "fill p audit-1 2",
)  # fmt: skip
LIVES = (
    "share a reads=orders", "share b reads=orders,audit", "share a", "share b",
    "take a orders-0 most=10",
    "ack a orders-0:0-1:accept,orders-0:4:accept,orders-0:6-7:reject,orders-0:8:release",
    "take b orders-1", "ack b orders-1:0-2:accept",
    "share c group=h reads=audit", "share c", "take c audit-1", "take c session=-1", "share c epoch=-1",
    "share d group=i reads=orders", "share d", "take d orders-0", "take d session=-1", "share d epoch=-1",
    "delete admin i",
    "move admin audit-1:1 group=j",
)  # fmt: skip
QUESTIONS = ("crowd admin g,h,i,j", "stand admin g,h,i,j", "list admin types=share")
LEFT = (
    ("take a orders-0 session=0 most=5", ["2-3 x2", "5-5 x2", "8-9 x2"]),
    ("take b orders-0 session=0", ["10-14 x1"]),
    ("take b orders-1 wait=100", []),
    ("take c audit-1 session=0 group=h", ["0-1 x2"]),
)
"""What is delivered by the next broker: offsets, and how often."""


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    """With topics, records and settings; stopped."""
    missing = why_no_tools()
    if missing:
        pytest.skip(f"Kafka's tools are missing: {missing}")
    try:
        kafka = Kafka(tmp_path / "kafka", PROFILES["shares"])
    except Unavailable as why:
        pytest.skip(str(why))
    kafka.start()
    try:
        played(player(kafka), BEFORE)
    finally:
        kafka.stop()
    return kafka


def test_kafka_goes_on_with_the_share_groups_that_konvene_had(tmp_path: Path, kafka: Kafka) -> None:
    konvene = beside(kafka, tmp_path)
    first, answers = lived(konvene)
    keys = dumped(konvene.directory / "data" / LOGS[1])
    assert {("0", "SNAPSHOT"), ("1", "UPDATE"), ("0", "DELETED")} <= keys
    hand_over(konvene, kafka)
    goes_on(kafka, first, answers)


def test_konvene_goes_on_with_the_share_groups_that_kafka_had(tmp_path: Path, kafka: Kafka) -> None:
    first, answers = lived(kafka)
    goes_on(beside(kafka, tmp_path), first, answers)


def player(broker: Broker) -> Player:
    await_ready(broker.port, transactions=True, shares=True)
    return Player(broker.port, "moved.", 0.15, transactional=True, shares=True)


def played(one: Player, lines: tuple[str, ...]) -> list[str]:
    """Return the responses, without fields that brokers count differently."""
    answers = []
    try:
        for line in lines:
            answers += one.play(line, 1 if line.split()[0] in ("crowd", "stand", "list") else None)
    finally:
        one.close()
    return [re.sub(r" leader_epoch=\w+", "", answer) for answer in answers]


def lived(broker: Broker) -> tuple[Player, list[str]]:
    broker.start()
    try:
        first = player(broker)
        for answer in played(first, LIVES):
            assert re.search(r"NONE", answer), answer
        asking = player(broker)
        asking.reader.numbers = first.reader.numbers
        return first, played(asking, QUESTIONS)
    finally:
        broker.stop()


def goes_on(broker: Broker, first: Player, answers: list[str]) -> None:
    """Check that the next broker describes the same, and delivers the records in flight."""
    broker.start()
    try:
        assert played(player(broker), QUESTIONS) == answers
        other = player(broker)
        other.speaker.memories = first.speaker.memories
        for who in "ab":
            (beaten,) = other.play(f"share {who}", 1)
            assert " NONE " in beaten, beaten
        for line, left in LEFT:
            (answer,) = other.play(line)
            found = re.findall(r"first_offset=(\d+) last_offset=(\d+) delivery_count=(\d+)", answer)
            assert (line, [f"{a}-{b} x{n}" for a, b, n in found]) == (line, left), answer
        (answer,) = other.play("ack a orders-0:2-3:accept,orders-0:5:accept,orders-0:8-9:accept")
        assert answer.count("NONE") == 2, answer
        other.close()
    finally:
        broker.stop()


def beside(kafka: Kafka, tmp_path: Path) -> Konvene:
    """konvene, stopped, with a copy of Kafka's directory."""
    konvene = Konvene(tmp_path / "konvene", kafka.settings)
    shutil.copytree(kafka.directory / "data", konvene.directory / "data")
    return konvene


def hand_over(konvene: Konvene, kafka: Kafka) -> None:
    """Kafka gets konvene's logs in place of its own, as after a crash: it reads them whole."""
    data = kafka.directory / "data"
    for name in LOGS:
        for file in (data / name).iterdir():
            if file.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
                file.unlink()
        shutil.copy(konvene.directory / "data" / name / f"{0:020d}.log", data / name)
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        version, _, *rows = (data / name).read_text().splitlines()
        rows = [row for row in rows if not row.startswith("__")]
        (data / name).write_text("\n".join([version, str(len(rows)), *rows, ""]))


def dumped(folder: Path) -> set[tuple[str, str]]:
    """The records of share state as kafka-dump-log reads them: types, and what they are."""
    words = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", tools_classpath()]
    words += [CLASSES["kafka-dump-log"], "--files", str(folder / f"{0:020d}.log")]
    words += ["--share-group-state-decoder", "--print-data-log", "--deep-iteration"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    batches = [line for line in done.stdout.splitlines() if line.startswith("baseOffset")]
    assert [line for line in batches if "isvalid: true" not in line] == []
    found = re.findall(r' key: \{"type":"(\d+)".* payload: (<DELETE>|\{"version":"\d+")', done.stdout)
    assert len(found) == sum(int(n) for line in batches for n in re.findall(r" count: (\d+)", line))
    kinds = {"0": "SNAPSHOT", "1": "UPDATE"}
    return {(key, "DELETED" if value == "<DELETE>" else kinds[key]) for key, value in found}
