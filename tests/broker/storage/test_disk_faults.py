"""The whole broker on a disk that fails, or loses power, at each of its operations in turn.

A life of a broker uses its logs in every way there is: topics and their partitions, writes that wait for the
disk, commits, rolls, deleted records, retention, checkpoints, a proper stop and a second start. What was
acknowledged is there afterwards; what was not is there whole or not at all; and whoever was refused because
of the disk was told so.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import random
from collections.abc import Callable
from typing import Any

import pytest

from konvene.broker.broker import Broker
from konvene.broker.handlers import (
    create_topics,
    delete_records,
    delete_topics,
    offset_commit,
    offset_fetch,
    produce,
)
from konvene.broker.services import bind
from konvene.codec import batches
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.internal_topics import CLUSTER_METADATA_TOPIC, OFFSETS_TOPIC
from konvene.log.directory import Identity, LogDirectory
from konvene.log.disk.memory import MemoryDisk, PowerCut
from konvene.log.errors import LogError
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from konvene.messages.delete_topics import DeleteTopicsRequest
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.runtime.coordinator import RequestContext
from konvene.testing.node import SynchronousDisk

SETTINGS = {
    "konvene.log.fsync.topics": "true",
    "konvene.audit.enable": "false",
    "offsets.topic.num.partitions": "1",
}
NOW = 1_760_000_000_000


class Dying(MemoryDisk):
    """A disk that keeps, at the power cut, what may be found of it later, and does nothing any more."""

    def __init__(self, luck: list[Callable[[int], int]]) -> None:
        super().__init__()
        self.remains: list[MemoryDisk] = []
        self.dead = asyncio.Event()
        self._luck = luck

    def _operation(self, kind: str, path: str) -> bool:
        if not self.remains and self.calls + 1 == self.cut_power_at:
            self.remains = [self.crash(choose) for choose in self._luck]
            self.dead.set()
        if self.remains:
            raise PowerCut(f"{kind} {path}")
        return super()._operation(kind, path)


class Told:
    """What clients sent, and what they were told."""

    def __init__(self) -> None:
        self.created = False
        self.deleted = False
        self.sent: list[list[bytes]] = [[], []]
        self.acknowledged: list[dict[int, bytes]] = [{}, {}]
        self.start = [0, 0]
        self.commits: list[int] = []
        self.committed = -1
        self.refusals: set[Errors] = set()

    def hear(self, error: int) -> bool:
        if error:
            self.refusals.add(Errors(error))
        return not error


async def started(disk: MemoryDisk, settings: dict[str, str] | None = None) -> Broker:
    config, _ = BrokerConfig.load(overrides=list((SETTINGS | (settings or {})).items()))
    directory = LogDirectory.open(disk, "/d", Identity("cluster", 1, "here"))
    broker = Broker(config, directory, asyncio.get_running_loop(), disk=SynchronousDisk())
    await broker.start()
    small(broker)
    for _ in range(3):  # The coordinators load.
        await asyncio.sleep(0)
    return broker


def small(broker: Broker) -> None:
    """Segments of a few batches, of which few are kept."""
    for partition in broker.partitions:
        keep = 900 if partition.topic == "t" else -1
        partition.log.config = dataclasses.replace(
            partition.log.config,
            segment_bytes=420,
            index_interval_bytes=100,
            retention_bytes=keep,
            retention_ms=-1,
        )


async def when_there(answer: Any) -> Any:
    """An answer, whether or not it comes later."""
    return await answer if hasattr(answer, "__await__") else answer


async def create(broker: Broker, told: Told) -> None:
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=2, replication_factor=1),))
    answer = await bind(create_topics.handle, broker.services)(request, RequestContext(api_version=7))
    told.created = told.hear(answer.topics[0].error_code) or told.created
    small(broker)


async def create_and_delete(broker: Broker, told: Told) -> None:
    """Another topic comes and goes."""
    topics = (CreatableTopic(name="brief", num_partitions=2, replication_factor=1),)
    made = await bind(create_topics.handle, broker.services)(
        CreateTopicsRequest(topics=topics), RequestContext(api_version=7)
    )
    if told.hear(made.topics[0].error_code):
        request = DeleteTopicsRequest(topic_names=("brief",))
        gone = await bind(delete_topics.handle, broker.services)(request, RequestContext(api_version=5))
        told.deleted = told.hear(gone.responses[0].error_code)


async def write(broker: Broker, told: Told, index: int) -> None:
    value = b"%d/%d" % (index, len(told.sent[index])) + b"." * 60
    told.sent[index].append(value)
    data = PartitionProduceData(index=index, records=batches.build_simple([(None, value)], NOW))
    request = ProduceRequest(acks=-1, topic_data=(TopicProduceData(name="t", partition_data=(data,)),))
    answer = await when_there(bind(produce.handle, broker.services)(request, RequestContext(api_version=9)))
    response = answer.responses[0].partition_responses[0]
    if told.hear(response.error_code):
        told.acknowledged[index][response.base_offset] = value


async def commit(broker: Broker, told: Told) -> None:
    if broker.groups.of("g") is None:
        await broker.groups.make_ready()
        small(broker)
        for _ in range(3):
            await asyncio.sleep(0)
    offset = len(told.commits)
    told.commits.append(offset)
    at = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m" * 80)
    topics = (OffsetCommitRequestTopic(name="t", partitions=(at,)),)
    request = OffsetCommitRequest(group_id="g", topics=topics)
    answer = await when_there(
        bind(offset_commit.handle, broker.services)(request, RequestContext(api_version=8))
    )
    if told.hear(answer.topics[0].partitions[0].error_code):
        told.committed = offset


async def delete_before(broker: Broker, told: Told, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=1, offset=offset)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(wanted,)),))
    answer = bind(delete_records.handle, broker.services)(request, RequestContext()).topics[0].partitions[0]
    if told.hear(answer.error_code):
        told.start[1] = max(told.start[1], answer.low_watermark)


async def life(disk: MemoryDisk, told: Told) -> None:
    """Everything that a broker does with its logs, in two runs."""
    for turn in range(2):
        broker = await started(disk)
        if turn == 0:
            await create(broker, told)
        for _ in range(5):
            await write(broker, told, 0)
            await write(broker, told, 1)
            await commit(broker, told)
        await delete_before(broker, told, 4 + turn)
        await broker.log_maintenance.checkpoint()
        for index in (0, 1):
            partition = broker.partitions.get("t", index)
            if partition is not None:  # Retention may go so far.
                told.start[index] = max(told.start[index], partition.log.active_segment.base_offset)
        await broker.log_maintenance.retain()
        await write(broker, told, 0)
        await commit(broker, told)
        if turn == 0:
            await create_and_delete(broker, told)
        await broker.stop()


async def look(disk: MemoryDisk, told: Told) -> None:
    """Start again on what is there, compare it with what was told, and go on writing."""
    broker = await started(disk)
    assert not broker.partitions.offline
    assert ("t" in broker.catalogue.topics.by_name) or not told.created
    assert not (told.deleted and "brief" in broker.catalogue.topics.by_name)
    folders = {name.rpartition("-")[0] for name in disk.folders("/d")}
    assert folders == {*broker.catalogue.topics.by_name, CLUSTER_METADATA_TOPIC}
    for index in (0, 1):
        partition = broker.partitions.get("t", index)
        if partition is None:
            assert not told.created
            continue
        found: dict[int, bytes | None] = {}
        for header, view in partition.log.batches_from():
            batches.check(view, header)
            found |= {record.offset: record.value for record in batches.records(view, header)}
        assert partition.start_offset <= told.start[index]
        assert list(found) == list(range(partition.start_offset, partition.end_offset))
        for offset, value in told.acknowledged[index].items():
            assert offset < partition.start_offset or found[offset] == value
        values = list(found.values())
        assert [value for value in told.sent[index] if value in values] == values
    if "t" in broker.catalogue.topics.by_name:
        if told.committed >= 0:
            assert await committed(broker) in told.commits[told.committed :]
        again = Told()
        again.sent, again.commits = told.sent, told.commits
        await write(broker, again, 0)
        await commit(broker, again)
        assert again.refusals == set()
    await broker.stop()


async def committed(broker: Broker) -> int:
    topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
    answer = await when_there(
        bind(offset_fetch.handle, broker.services)(request, RequestContext(api_version=8))
    )
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


def operations() -> list[tuple[str, str]]:
    """What a life without trouble does to the disk."""
    disk, told = MemoryDisk(), Told()
    asyncio.run(life(disk, told))
    assert told.refusals == set()
    assert told.start[0] > 0
    return disk.operations


OPERATIONS = operations()
STORAGE = {Errors.KAFKA_STORAGE_ERROR, Errors.NOT_COORDINATOR}
"""What a client may hear because of a disk; a topic that was not made is not known."""


def test_topics_are_refused_for_the_disk_and_not_for_a_coordinator() -> None:
    """The catalogue is no coordinator of groups: KAFKA_STORAGE_ERROR, for who waits and who comes."""

    async def main() -> None:
        disk = MemoryDisk()
        broker = await started(disk)
        disk.fail[disk.calls + 1] = errno.EIO
        for name in ("waits", "comes"):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            answer = await bind(create_topics.handle, broker.services)(
                CreateTopicsRequest(topics=(topic,)), RequestContext()
            )
            assert answer.topics[0].error_code == Errors.KAFKA_STORAGE_ERROR
        await broker.stop()

    asyncio.run(main())


def test_a_life_touches_the_disk_in_every_way() -> None:
    """Each word of the door is used, so failing each operation is failing each kind."""
    kinds = {kind for kind, _ in OPERATIONS}
    assert kinds >= {
        "append", "listdir", "mkdir", "open", "pread", "read", "remove", "rename", "sync", "sync_directory",
    }  # fmt: skip
    assert any(OFFSETS_TOPIC in path and not path.endswith("0000.log") for _, path in OPERATIONS)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failure_of_any_operation_is_told_and_loses_nothing(code: int, part: int) -> None:
    """Each fails once (an append after half of its bytes); then the broker is started on what is there."""

    async def main(at: int) -> None:
        disk, told = MemoryDisk(), Told()
        disk.fail[at] = code
        refused = None
        try:
            await life(disk, told)
        except LogError as error:
            refused = error
        kind, path = disk.operations[at - 1]
        assert refused or told.refusals, f"nobody heard that {kind} {path} failed"
        missing = set() if told.created else {Errors.UNKNOWN_TOPIC_OR_PARTITION}
        assert told.refusals <= STORAGE | missing, (kind, path, told.refusals)
        await look(disk.copy(), told)

    for at in range(1 + part, len(OPERATIONS) + 1, 4):
        asyncio.run(main(at))


@pytest.mark.parametrize("part", range(4))
def test_a_power_cut_at_any_operation_loses_nothing_acknowledged(part: int) -> None:
    """Of what was not synced nothing, all, or any part is found afterwards."""

    async def main(at: int) -> None:
        chance = random.Random(at)
        told = Told()
        disk = Dying([lambda _count: 0, lambda count: count - 1, chance.randrange])
        disk.cut_power_at = at
        living = asyncio.ensure_future(life(disk, told))
        dying = asyncio.ensure_future(disk.dead.wait())
        await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
        for task in (living, dying):
            task.cancel()
        await asyncio.gather(living, dying, return_exceptions=True)
        assert disk.remains
        for remains in disk.remains:
            await look(remains, told)

    for at in range(1 + part, len(OPERATIONS) + 1, 4):
        asyncio.run(main(at))


@pytest.mark.parametrize("internal", ["true", "false"])
def test_a_roll_of_the_coordinators_log_waits_for_the_disk_only_if_its_answers_do(internal: str) -> None:
    """`konvene.log.fsync.internal=false` leaves commits to the page cache, a finished segment as well."""

    async def main() -> None:
        disk, told = MemoryDisk(), Told()
        broker = await started(disk, {"konvene.log.fsync.internal": internal})
        await create(broker, told)
        await commit(broker, told)
        before = len(disk.operations)
        for _ in range(8):
            await commit(broker, told)
        assert told.refusals == set()
        synced = {path for kind, path in disk.operations[before:] if kind == "sync" and OFFSETS_TOPIC in path}
        assert bool(synced) == (internal == "true")
        partition = broker.partitions.get(OFFSETS_TOPIC, 0)
        assert partition is not None
        assert len(partition.log.segments) > 2
        await broker.log_maintenance.checkpoint()
        assert partition.synced_offset >= partition.log.active_segment.base_offset
        await broker.stop()

    asyncio.run(main())
