"""Cleaned logs change hands: what our cleaner left of `__consumer_offsets` is read by Apache Kafka, and what
Kafka's left is read by us, cleaned on by us, and read again.

The groups are those of `test_kafka_loads_consumers`; between their records stand thousands of commits of one
of them, most of which the next ones overtake. Whole partition directories are exchanged between brokers that
are stopped, with their indexes and the note of how far they were cleaned.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.broker.hostile.wire import Target

from konvene.errors import Errors
from konvene.log.checkpoints import TopicPartition, read_checkpoint
from konvene.log.disk.files import RealDisk
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

from .brokers import Broker, Kafka
from .changing_hands import LOG, beside, eventually, running, stopped_kafka
from .test_kafka_loads_consumers import SETTINGS, TOPICS, Groups, Member, describe_all

pytestmark = pytest.mark.java

CLEANS = {
    "log.cleaner.enable": "true",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "0",
}
PARTITIONS, ROUNDS = 40, 700


def commit_often(target: Target, member: Member, first: int = 0) -> None:
    """Some three megabytes, of which one commit for each partition counts."""
    for number in range(first, first + ROUNDS):
        partitions = tuple(
            OffsetCommitRequestPartition(
                partition_index=p, committed_offset=number, committed_metadata="m" * 20
            )
            for p in range(PARTITIONS)
        )
        request = OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=member.epoch,
            member_id=member.member_id,
            topics=(OffsetCommitRequestTopic(name="many", partitions=partitions),),
        )
        answer = target.ask(request, 9)
        assert {p.error_code for p in answer.topics[0].partitions} == {Errors.NONE}


def go_on(target: Target, groups: Groups) -> None:
    """Check that every member keeps its epoch and assignment, and that another member can join. (Members with
    a regular expression are left out: after ten seconds a coordinator resolves it again.)"""
    for member in (*groups.names, groups.static[1], *groups.owing, *groups.mixed):
        before = member.epoch, dict(member.assigned)
        assert member.beat(target) is Errors.NONE, member
        assert (member.epoch, member.assigned) == before, member
    groups.settle(target, [*groups.names, Member("names", "new-here")])


def place(broker: Broker) -> Path:
    return broker.directory / "data" / LOG


def size(broker: Broker) -> int:
    return sum(file.stat().st_size for file in place(broker).glob("*.log"))


def cleaned_to(broker: Broker) -> int:
    name = broker.directory / "data" / "cleaner-offset-checkpoint"
    return read_checkpoint(RealDisk(), str(name)).get(TopicPartition("__consumer_offsets", 0), 0)


def wait_until_cleaned(broker: Broker, beyond: int = 0) -> None:
    """Until all but the segment that grows, and perhaps the one before it, is clean."""

    def done() -> bool:
        bases = sorted(int(file.stem) for file in place(broker).glob("*.log"))
        return beyond < cleaned_to(broker) == bases[-1]

    eventually(done, lambda: f"clean up to {cleaned_to(broker)}: {sorted(place(broker).iterdir())}")


def exchange(giver: Broker, taker: Broker) -> None:
    """The taker has the giver's partition directory instead of its own, and its note of what is clean."""
    shutil.rmtree(place(taker))
    shutil.copytree(place(giver), place(taker))
    data = taker.directory / "data"
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    shutil.copy(giver.directory / "data" / "cleaner-offset-checkpoint", data)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        file = data / name
        version, _, *rows = file.read_text().splitlines()
        rows = [row for row in rows if not row.startswith("__consumer")]
        file.write_text("\n".join([version, str(len(rows)), *rows, ""]))


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    """Apache Kafka, stopped, with the topics."""
    return stopped_kafka(tmp_path, SETTINGS | CLEANS, TOPICS | {"many": PARTITIONS})


def test_kafka_goes_on_with_what_our_cleaner_left(tmp_path: Path, kafka: Kafka) -> None:
    konvene = beside(kafka, tmp_path)
    with running(konvene, "names") as target:
        groups = Groups(target)
        commit_often(target, groups.names[0])
        written = PARTITIONS * ROUNDS
        wait_until_cleaned(konvene)
        ours = describe_all(target)
    assert cleaned_to(konvene) > written // 2
    assert size(konvene) < 2_000_000, "the half of what was written was cleaned"
    exchange(konvene, kafka)
    with running(kafka, "names") as target:
        assert describe_all(target) == ours
        go_on(target, groups)
        before = cleaned_to(kafka)
        commit_often(target, groups.names[0], ROUNDS)
        wait_until_cleaned(kafka, before)
        theirs = committed_offsets(target)
    with running(beside(kafka, tmp_path / "again"), "names") as target:
        assert committed_offsets(target) == theirs


def test_we_go_on_with_what_kafkas_cleaner_left(tmp_path: Path, kafka: Kafka) -> None:
    with running(kafka, "names") as target:
        groups = Groups(target)
        commit_often(target, groups.names[0])
        wait_until_cleaned(kafka)
        theirs = describe_all(target)
    konvene = beside(kafka, tmp_path)
    with running(konvene, "names") as target:
        assert describe_all(target) == theirs
        before = cleaned_to(konvene)
        commit_often(target, groups.names[0], ROUNDS)
        wait_until_cleaned(konvene, before)
        ours = describe_all(target)
    assert size(konvene) < 2_000_000
    with running(konvene, "names") as target:
        assert describe_all(target) == ours
        go_on(target, groups)


def committed_offsets(target: Target) -> object:
    """What was committed by the group that commits often."""
    wanted = (OffsetFetchRequestGroup(group_id="names", topics=None),)
    (fetched,) = target.ask(OffsetFetchRequest(groups=wanted), 9).groups
    return sorted(
        (topic.name, p.partition_index, p.committed_offset)
        for topic in fetched.topics
        for p in topic.partitions
    )
