"""Apache Kafka loads what konvene's coordinator wrote: the files of `__consumer_offsets` change hands.

A group is made on konvene: static and dynamic members, an assignment, commits with and without metadata, a
deleted offset. Then konvene stops, Kafka is given its `__consumer_offsets-0`, and must describe the same
group.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.broker.hostile.wire import Client, Target, frame, header

from konvene.codec.compile import decode, encode
from konvene.messages import API_KEYS
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .brokers import Kafka, Konvene, Unavailable

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "300"}
LOG = "__consumer_offsets-0"


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    try:
        return Kafka(tmp_path / "kafka", SETTINGS)
    except Unavailable as why:
        pytest.skip(str(why))


def join(member_id: str, instance: str | None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="moved",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\1t\0\0\0\0"),),
    )


def form(target: Target, instances: list[str | None]) -> dict[str, bytes]:
    """Let members join and give each an assignment of its own; the assignments by member id."""
    clients = [target.client() for _ in instances]
    ids = []
    for client, instance in zip(clients, instances, strict=True):
        ids.append("" if instance else client.ask(join("", None)).member_id)
    for client, member_id, instance in zip(clients, ids, instances, strict=True):
        send(client, join(member_id, instance))
    joined = [receive(client, JoinGroupRequest) for client in clients]
    assert [j.error_code for j in joined] == [0] * len(joined)
    assignments = {j.member_id: b"part of %d" % i for i, j in enumerate(joined)}
    leader_first = sorted(zip(clients, joined, strict=True), key=lambda p: p[1].member_id != p[1].leader)
    for client, j in leader_first:
        given = tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=data)
            for member, data in assignments.items()
        )
        synced = client.ask(
            SyncGroupRequest(
                group_id="moved",
                generation_id=j.generation_id,
                member_id=j.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=given if j.member_id == j.leader else (),
            )
        )
        assert (synced.error_code, synced.assignment) == (0, assignments[j.member_id])
    return assignments


def send(client: Client, request: Any) -> None:

    client.send(frame(header(type(request).__key__, 9) + encode(request, 9)))


def receive(client: Client, kind: Any) -> Any:
    answer = client.frame()
    assert answer is not None
    return decode(API_KEYS[kind.__key__].response, 9, answer, 5)


def commit(target: Target, group: str, metadata: str = "") -> None:
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=i, committed_offset=100 + i, committed_metadata=metadata)
        for i in range(3)
    )
    topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),)
    answer = target.ask(OffsetCommitRequest(group_id=group, topics=topics), 9)
    assert {p.error_code for p in answer.topics[0].partitions} == {0}


def describe_groups(target: Target) -> list[Any]:
    """Return a broker's descriptions of the groups."""
    described = target.ask(DescribeGroupsRequest(groups=("moved", "simple")), 5).groups
    wanted = (OffsetFetchRequestGroup(group_id="simple", topics=None),)
    (fetched,) = target.ask(OffsetFetchRequest(groups=wanted), 9).groups
    return [
        [
            (g.error_code, g.group_id, g.group_state, g.protocol_type, g.protocol_data, _members(g.members))
            for g in described
        ],
        [
            (t.name, p.partition_index, p.committed_offset, p.metadata)
            for t in fetched.topics
            for p in sorted(t.partitions, key=lambda p: p.partition_index)
        ],
    ]


def _members(members: Any) -> list[Any]:
    return sorted(
        (m.member_id, m.client_id, m.client_host, bytes(m.member_metadata), bytes(m.member_assignment))
        + ((m.group_instance_id,) if m.group_instance_id else ())
        for m in members
    )


@pytest.mark.java
def test_kafka_loads_the_group_that_konvene_wrote(tmp_path: Path, kafka: Kafka) -> None:
    konvene = Konvene(tmp_path / "konvene", SETTINGS)
    konvene.start()
    try:
        target = Target(konvene)
        target.topic("t", 3)
        target.coordinator("moved")
        assignments = form(target, [None, "one", None, "two"])
        assert len(assignments) == 4
        commit(target, "simple", "a note")
        deleted_offset = OffsetDeleteRequestTopic(
            name="t", partitions=(OffsetDeleteRequestPartition(partition_index=1),)
        )
        assert target.ask(OffsetDeleteRequest(group_id="simple", topics=(deleted_offset,))).error_code == 0
        ours = describe_groups(target)
    finally:
        konvene.stop()
    kafka.start()
    try:
        other = Target(kafka)
        other.topic("t", 3)
        other.coordinator("moved")
        commit(other, "kafka's own")
    finally:
        kafka.stop()
    place = kafka.directory / "data" / LOG
    for file in place.iterdir():
        if file.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            file.unlink()
    shutil.copy(konvene.directory / "data" / LOG / f"{0:020d}.log", place)
    (kafka.directory / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        file = kafka.directory / "data" / name
        version, _, *rows = file.read_text().splitlines()
        rows = [row for row in rows if "__consumer" not in row]
        file.write_text("\n".join([version, str(len(rows)), *rows, ""]))
    kafka.start()
    try:
        other = Target(kafka)
        other.coordinator("moved")
        assert describe_groups(other) == ours
        for member in assignments:
            beat = HeartbeatRequest(group_id="moved", generation_id=1, member_id=member)
            assert other.ask(beat).error_code in (0, 82), "an instance id has to be named with its member's"
    finally:
        kafka.stop()
