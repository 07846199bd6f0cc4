"""Groups that change hands, between konvene and Apache Kafka: one broker stops, the other has its log.

Topics are made by Kafka, whose whole directory konvene starts with, so that ids are the same with both.
kafka-dump-log, Kafka's own, reads each record of a log as well.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.broker.hostile.wire import Target

from konvene.codec.compile import encode
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .brokers import Broker, Kafka, Konvene, Unavailable
from .tools import CLASSES, tools_classpath, why_no_tools

LOG = "__consumer_offsets-0"
LONG_MS = 600_000
"""Timeout long enough that no member expires while a broker starts."""

WITHIN_S = 20


@dataclass
class Classic:
    """One member of the classic protocol, the only one of its group that is."""

    group: str
    name: str
    member_id: str = ""
    generation: int = -1
    assignment: bytes = b""

    def join(self, target: Target) -> None:
        """Join with JoinGroup and SyncGroup. As a leader it assigns empty assignments."""
        subscription = b"\0\1" + encode(ConsumerProtocolSubscription(topics=("orders",)), 1)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=LONG_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription),),
        )
        answer = target.ask(request, 9, self.name)
        self.member_id = answer.member_id
        if answer.error_code == Errors.MEMBER_ID_REQUIRED:
            return self.join(target)
        assert answer.error_code == Errors.NONE
        self.generation = answer.generation_id
        nothing = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"\0\1" + bytes(8))
        synced = target.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=(nothing,) if answer.leader == self.member_id else (),
            )
        )
        assert synced.error_code == Errors.NONE
        self.assignment = bytes(synced.assignment)
        return None

    def beat(self, target: Target) -> Errors:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return Errors(target.ask(request).error_code)

    def step(self, target: Target) -> None:
        """A heartbeat, and what it asks for."""
        if self.generation < 0 or self.beat(target) is Errors.REBALANCE_IN_PROGRESS:
            self.join(target)


def eventually(holds: Callable[[], bool], else_: Callable[[], str]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, else_()
        time.sleep(0.1)


def stopped_kafka(tmp_path: Path, settings: dict[str, str], topics: Mapping[str, int]) -> Kafka:
    """Apache Kafka, stopped, with topics: how many partitions each has."""
    missing = why_no_tools()
    if missing:
        pytest.skip(f"Kafka's tools are missing: {missing}")
    try:
        kafka = Kafka(tmp_path / "kafka", settings)
    except Unavailable as why:
        pytest.skip(str(why))
    with running(kafka, "anybody") as target:
        for name, partitions in topics.items():
            target.topic(name, partitions)
    return kafka


@contextmanager
def running(broker: Broker, group: str) -> Iterator[Target]:
    """A broker that is started, and that answers for the group."""
    broker.start()
    try:
        target = Target(broker)
        target.coordinator(group)
        yield target
    finally:
        broker.stop()


def beside(kafka: Kafka, tmp_path: Path) -> Konvene:
    """konvene, stopped, with a copy of Kafka's directory."""
    settings = kafka.settings | {"group.streams.assignors": "sticky"}  # As Kafka has no other.
    konvene = Konvene(tmp_path / "konvene", settings)
    shutil.copytree(kafka.directory / "data", konvene.directory / "data")
    return konvene


def hand_over(konvene: Konvene, kafka: Kafka) -> None:
    """Give Kafka what konvene wrote of groups, and nothing that was derived from what it wrote itself."""
    place = kafka.directory / "data" / LOG
    for file in place.iterdir():
        if file.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            file.unlink()
    shutil.copy(log_of(konvene), place)
    (kafka.directory / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        file = kafka.directory / "data" / name
        version, _, *rows = file.read_text().splitlines()
        rows = [row for row in rows if not row.startswith("__consumer")]
        file.write_text("\n".join([version, str(len(rows)), *rows, ""]))


def log_of(broker: Broker) -> Path:
    return broker.directory / "data" / LOG / f"{0:020d}.log"


def dumped(log: Path) -> set[tuple[str, str]]:
    """The records of a log as kafka-dump-log reads them: which keys it has with which versions of a value. A
    record that the tool cannot read is an error."""
    words = [
        "java",
        "-Xmx128m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        tools_classpath(),
        CLASSES["kafka-dump-log"],
    ]
    words += ["--files", str(log), "--offsets-decoder", "--print-data-log", "--deep-iteration"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    batches = [line for line in done.stdout.splitlines() if line.startswith("baseOffset")]
    assert [line for line in batches if "isvalid: true" not in line] == []
    found = re.findall(r' key: \{"type":"(\d+)".* payload: (<DELETE>|\{"version":"\d+")', done.stdout)
    assert len(found) == sum(int(n) for line in batches for n in re.findall(r" count: (\d+)", line))
    return {(key, value) for key, value in found}


def as_plain(value: Any) -> Any:
    """Return a value as a dict of its fields, with partitions sorted, since their order has no meaning."""
    if isinstance(value, Struct):
        return {f.name: as_plain(getattr(value, f.name)) for f in value.__fields__}
    if isinstance(value, tuple):
        return sorted((as_plain(v) for v in value), key=repr)
    return value
