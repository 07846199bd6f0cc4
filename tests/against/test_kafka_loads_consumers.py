"""Consumer groups change hands, from konvene to Apache Kafka and from Apache Kafka to konvene: the records of
`__consumer_offsets`, keys 3 to 8 and 16 with classic groups among them, are read by the other broker.

The same groups are made on either broker: members that read by name and by expression, static ones of which
one is away, one that has yet to give up what another waits for, a group with a classic member inside, one
that became a classic group again, one that everybody left, and one that was deleted. Then the broker stops,
the other one is given its log, tells the same of every group, and each member goes on with the epoch it has.
Topics were made by Kafka, whose whole directory konvene starts with, so that ids are the same with both.

kafka-dump-log, Kafka's own, reads each record of both logs as well.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.broker.hostile.wire import Target

from konvene.codec.compile import encode
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .brokers import Broker, Kafka, Konvene, Unavailable
from .tools import CLASSES, tools_classpath, why_no_tools

pytestmark = pytest.mark.java

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.assignment.interval.ms": "0",
}
LOG = "__consumer_offsets-0"
TOPICS = {"orders": 6, "audit-1": 2, "audit-2": 3}
LONG_MS = 600_000
"""Nobody is given up because of how long a broker needs to start."""

WITHIN_S = 20

# The keys of the records of these groups' log: commits, classic groups, consumer groups.
COMMIT, CLASSIC, CONSUMER = {"1"}, {"2"}, {"3", "5", "6", "7", "8", "16"}
# Of a key that is no longer used a group that goes writes tombstones still.
GONE = {"4"}

# What the groups are when they change hands.
STATES = {
    "down": ("classic", "Stable"),
    "emptied": ("consumer", "Empty"),
    "mixed": ("consumer", "Stable"),
    "names": ("consumer", "Stable"),
    "owing": ("consumer", "Reconciling"),
    "regex": ("consumer", "Stable"),
    "static": ("consumer", "Reconciling"),
}

Owned = dict[Uuid, tuple[int, ...]]


@dataclass
class Member:
    """One member of the consumer protocol, with what it was told."""

    group: str
    member_id: str
    epoch: int = 0
    instance: str | None = None
    names: tuple[str, ...] | None = ("orders",)
    regex: str | None = None
    stubborn: bool = False
    """Whether it keeps what it is told to give up."""
    owns: Owned = field(default_factory=dict)
    told: Owned = field(default_factory=dict)

    def beat(self, target: Target, epoch: int | None = None) -> Errors:
        """One heartbeat; a full one when it joins. What it is told, it takes, unless it is stubborn."""
        joins = self.epoch <= 0
        said: dict[str, Any] = {}
        if joins:
            said = {
                "subscribed_topic_names": self.names,
                "subscribed_topic_regex": self.regex,
                "rebalance_timeout_ms": LONG_MS,
            }
        owned = tuple(TopicPartitions(topic_id=t, partitions=p) for t, p in self.owns.items())
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance,
            topic_partitions=owned,
            **said,
        )
        answer = target.ask(request, 1, self.member_id)
        if answer.error_code == Errors.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.told = {
                    t.topic_id: tuple(sorted(t.partitions)) for t in answer.assignment.topic_partitions
                }
            if not self.stubborn:
                self.owns = dict(self.told)
        return Errors(answer.error_code)

    def leave(self, target: Target) -> None:
        assert self.beat(target, -2 if self.instance else -1) is Errors.NONE


@dataclass
class Classic:
    """One member of the classic protocol, the only one of its group that is."""

    group: str
    name: str
    member_id: str = ""
    generation: int = -1
    assignment: bytes = b""

    def join(self, target: Target) -> None:
        """JoinGroup and SyncGroup. As a leader it assigns nothing to anybody."""
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


class Groups:
    """All of them, as their members know them; see the top of this file."""

    def __init__(self, target: Target) -> None:
        self.names = [Member("names", name) for name in ("ann", "bob", "cid")]
        self.regex = [
            Member("regex", "reg", names=None, regex="audit-.*"),
            Member("regex", "both", names=("orders",), regex="audit-1"),
        ]
        self.static = [Member("static", "one", instance="i1"), Member("static", "two", instance="i2")]
        self.owing = [Member("owing", "has"), Member("owing", "waits")]
        self.mixed, self.old = [Member("mixed", "new")], Classic("mixed", "old")
        self.down, self.last = Member("down", "gone"), Classic("down", "stays")
        self.make(target)

    @property
    def consumers(self) -> list[Member]:
        """Everybody of the new protocol that is there."""
        return [*self.names, *self.regex, self.static[1], *self.owing, *self.mixed]

    def make(self, target: Target) -> None:
        self.settle(target, self.names)
        self.settle(target, self.regex)
        self.settle(target, self.static)
        self.static[0].leave(target)
        has, waits = self.owing
        self.settle(target, [has])
        has.stubborn = True
        for _ in range(3):
            waits.beat(target)
            has.beat(target)
        for new, classic in ((self.mixed[0], self.old), (self.down, self.last)):
            classic.step(target)
            self.settle(target, [new], classic)
        self.down.leave(target)
        self.last.step(target)
        for group in ("emptied", "deleted"):
            member = Member(group, "m")
            self.settle(target, [member])
            commit(target, member)
            member.leave(target)
        deleted = target.ask(DeleteGroupsRequest(groups_names=("deleted",)))
        assert [r.error_code for r in deleted.results] == [Errors.NONE]
        for member in (self.names[0], self.owing[0]):
            commit(target, member)

    def settle(self, target: Target, members: list[Member], classic: Classic | None = None) -> None:
        """Let them join, and beat until the group is stable."""
        group = members[0].group

        def stable() -> bool:
            for member in members:
                assert member.beat(target) is Errors.NONE
            if classic is not None:
                classic.step(target)
            return bool(told_of(target, group).group_state == "Stable" and all(m.told for m in members))

        eventually(stable, lambda: repr(told_of(target, group)))

    def go_on(self, target: Target) -> None:
        """Nobody has noticed: each keeps its epoch and its assignment. Who owes something may still confirm
        it, who waits for it is given it, and who was away is back; then one more comes to each group."""
        for member in self.consumers:
            before = member.epoch, dict(member.told)
            assert member.beat(target) is Errors.NONE, member
            assert (member.epoch, member.told) == before, member
        assert [self.old.beat(target), self.last.beat(target)] == [Errors.NONE] * 2
        has = self.owing[0]
        has.stubborn, has.owns = False, dict(has.told)
        self.settle(target, self.owing)
        assert {len(p) for m in self.owing for p in m.told.values()} == {3}
        back = Member("static", "another one", instance="i1")
        assert back.beat(target) is Errors.NONE
        assert (back.epoch, back.told) == (self.static[1].epoch, self.static[0].told)
        for group, there in (("names", self.names), ("regex", self.regex), ("emptied", [])):
            self.settle(target, [*there, Member(group, "new-here")])
        self.settle(target, [*self.mixed, Member("mixed", "third")], self.old)
        self.settle(target, [Member("down", "up again")], self.last)


def told_of(target: Target, group: str) -> Any:
    return target.ask(ConsumerGroupDescribeRequest(group_ids=(group,)), 1).groups[0]


def commit(target: Target, member: Member) -> None:
    """It commits for everything it has."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=100 + p, committed_metadata="said")
        for some in member.owns.values()
        for p in some
    )
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member_id,
        topics=(OffsetCommitRequestTopic(name="orders", partitions=partitions),),
    )
    answer = target.ask(request, 9)
    assert {p.error_code for p in answer.topics[0].partitions} == {Errors.NONE}


def eventually(holds: Callable[[], bool], else_: Callable[[], str]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, else_()
        time.sleep(0.1)


def told(target: Target) -> list[Any]:
    """What a broker says of all groups: what they are, who is in them with which epochs and partitions, and
    what was committed."""
    listed = sorted(target.ask(ListGroupsRequest(), 5).groups, key=lambda g: g.group_id)
    assert {g.group_id: (g.group_type, g.group_state) for g in listed} == STATES
    said: list[Any] = []
    for group in listed:
        said.append((group.group_id, group.group_type, group.group_state, group.protocol_type))
        if group.group_type == "consumer":
            told = told_of(target, group.group_id)
        else:
            (told,) = target.ask(DescribeGroupsRequest(groups=(group.group_id,)), 5).groups
        said.append(as_plain(told))
        wanted = (OffsetFetchRequestGroup(group_id=group.group_id, topics=None),)
        (fetched,) = target.ask(OffsetFetchRequest(groups=wanted), 9).groups
        said.append(as_plain(fetched))
    return said


def as_plain(value: Any) -> Any:
    """A value as its fields by name; partitions, whose order says nothing, in their own order."""
    if isinstance(value, Struct):
        return {f.name: as_plain(getattr(value, f.name)) for f in value.__fields__}
    if isinstance(value, tuple):
        return sorted((as_plain(v) for v in value), key=repr)
    return value


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


def log_of(broker: Broker) -> Path:
    return broker.directory / "data" / LOG / f"{0:020d}.log"


@contextmanager
def running(broker: Broker) -> Iterator[Target]:
    broker.start()
    try:
        target = Target(broker)
        target.coordinator("names")
        yield target
    finally:
        broker.stop()


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    """Apache Kafka, stopped, with the topics."""
    missing = why_no_tools()
    if missing:
        pytest.skip(f"Kafka's tools are missing: {missing}")
    try:
        kafka = Kafka(tmp_path / "kafka", SETTINGS)
    except Unavailable as why:
        pytest.skip(str(why))
    with running(kafka) as target:
        for name, partitions in TOPICS.items():
            target.topic(name, partitions)
    return kafka


def beside(kafka: Kafka, tmp_path: Path) -> Konvene:
    """konvene, stopped, with a copy of Kafka's directory."""
    konvene = Konvene(tmp_path / "konvene", SETTINGS)
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


def test_kafka_goes_on_with_the_groups_that_konvene_wrote(tmp_path: Path, kafka: Kafka) -> None:
    konvene = beside(kafka, tmp_path)
    with running(konvene) as target:
        groups = Groups(target)
        ours = told(target)
    assert {key for key, _ in dumped(log_of(konvene))} == COMMIT | CLASSIC | CONSUMER | GONE
    hand_over(konvene, kafka)
    with running(kafka) as target:
        assert told(target) == ours
        groups.go_on(target)


def test_konvene_goes_on_with_the_groups_that_kafka_wrote(tmp_path: Path, kafka: Kafka) -> None:
    with running(kafka) as target:
        groups = Groups(target)
        theirs = told(target)
    assert {key for key, _ in dumped(log_of(kafka))} == COMMIT | CLASSIC | CONSUMER | GONE
    with running(beside(kafka, tmp_path)) as target:
        assert told(target) == theirs
        groups.go_on(target)
