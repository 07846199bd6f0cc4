"""Restart on a compacted log of members and offsets, as large as that of a busy coordinator.

The log is written and cleaned without a broker: consumer groups whose members joined twice, and offsets that
were committed twice, so that the cleaner removes half. Then the broker starts on it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, less
from bench.requests import all_offsets_of, offsets
from bench.systems import Lab, Running, report_progress
from bench.topics import Topic, make_topic, prove, wait_for_coordinator
from bench.wire import BadAnswer
from konvene.broker.storage.offline_cleaner import OfflineCleaner
from konvene.configs import BrokerConfig
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import RealDisk
from konvene.messages.offset_fetch import OffsetFetchResponse
from konvene.records.commits import Committed, OffsetCommitted, encode_group_record
from konvene.records.consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)
from konvene.records.consumer import TopicPartition as Target
from konvene.records.coordinator import Record

GROUPS, MEMBERS, OFFSETS = 1_000, 100, 1_000
"""Number of groups, and of members and offsets per group."""
ROUNDS = 2
PER_BATCH = 500
LOG = TopicPartition("__consumer_offsets", 0)
SETTINGS = {"offsets.topic.num.partitions": "1", "group.consumer.session.timeout.ms": "60000"}


def compacted(lab: Lab) -> list[Figure]:
    """Measure from the start of the process until the last group's offsets are returned."""
    groups = [f"group-{i}" for i in range(lab.of(GROUPS))]
    loaded, rss = [], []
    with lab.fresh(SETTINGS) as running:
        running.start()
        topic = make_topic(running, OFFSETS)
        wait_for_coordinator(running, groups[0])
        running.stop()
        data = running.broker.directory / "data"
        written, left = write(data, groups, topic)
        report_progress(f"  {written / 1e6:.0f} MB, cleaned to {left / 1e6:.0f} MB")
        for _ in range(lab.windows.runs):
            running.start()
            wait_for_offsets(running, groups[-1])
            loaded.append(1000 * running.age_s())
            rss.append(running.rss_mib())
            report_progress(f"  {loaded[-1]:.0f} ms")
            running.stop()
    return [less("until all is loaded, ms", loaded), less("RSS, MiB", rss)]


def write(data: Path, groups: list[str], topic: Topic) -> tuple[int, int]:
    """Write the coordinator's log and clean it; return its size before and after."""
    now_ms = int(time.time() * 1000)
    directory = LogDirectory.open(RealDisk(), str(data), Identity("", 1, ""))
    log = directory.load(LOG, LogConfig(segment_bytes=32 << 20, retention_ms=-1), now_ms)
    for number in range(1, ROUNDS + 1):
        pairs = []
        for group in groups:
            for record in records_of(group, number, topic):
                pairs.append(encode_group_record(record))
                if len(pairs) == PER_BATCH:
                    log.append_built(pairs, 0, now_ms)
                    pairs = []
        if pairs:
            log.append_built(pairs, 0, now_ms)
    log.roll(now_ms)
    size = log.size
    directory.load_all(lambda _: LogConfig(retention_ms=-1), now_ms)
    directory.close()
    config, _ = BrokerConfig.load()
    with OfflineCleaner(str(data), config, dry_run=False) as cleaning:
        for of, settings in cleaning.select([]):
            done = cleaning.clean(of, settings, lambda _bytes, _of: None)
            if of == LOG:
                size = done.bytes
    return size, sum(file.stat().st_size for file in (data / str(LOG)).glob("*.log"))


def records_of(group: str, epoch: int, topic: Topic) -> Iterator[Record | OffsetCommitted]:
    """Yield members with ten partitions each, and commits for all of them."""
    yield Record(ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(epoch=epoch))
    each = OFFSETS // MEMBERS
    for number in range(MEMBERS):
        member = f"{group}-member-{number:08d}-{number:08d}"
        has = tuple(range(number * each, (number + 1) * each))
        yield Record(
            ConsumerGroupMemberMetadataKey(group_id=group, member_id=member),
            ConsumerGroupMemberMetadataValue(
                client_id="bench", client_host="/127.0.0.1", subscribed_topic_names=(topic.name,),
                rebalance_timeout_ms=300_000,
            ),
        )  # fmt: skip
        yield Record(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member),
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=(Target(topic_id=topic.topic_id, partitions=has),)
            ),
        )
        yield Record(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=epoch, previous_member_epoch=epoch, state=0,
                assigned_partitions=(TopicPartitions(topic_id=topic.topic_id, partitions=has),),
            ),
        )  # fmt: skip
    yield Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )
    for partition in range(OFFSETS):
        yield OffsetCommitted(group, topic.name, partition, Committed(epoch))


def wait_for_offsets(running: Running, group: str) -> None:
    """Repeat OffsetFetch until the group's offsets are returned; raises BadAnswer for wrong ones."""

    def right(answer: OffsetFetchResponse) -> bool:
        found = offsets(answer)
        if found and found != [ROUNDS] * OFFSETS:
            raise BadAnswer(f"{group}: {len(found)} offsets, {found[:3]} …")
        return bool(found)

    prove(running, all_offsets_of(group), OffsetFetchResponse, right)
