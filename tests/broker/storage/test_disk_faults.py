"""A broker on a disk that fails, or loses power, at each of its operations in turn.

The workload uses the logs in every way: topics and partitions, writes that wait for the disk, commits, rolls,
deleted records, retention, checkpoints, a clean shutdown and a restart. Acknowledged records survive. Other
records survive completely or not at all. A request that failed because of the disk receives an error.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import errno
import random
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
from konvene.log.disk.memory import MemoryDisk
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


class ClientHistory:
    """The requests of the clients, and the responses that they received."""

    def __init__(self) -> None:
        self.created = False
        self.deleted = False
        self.sent: list[list[bytes]] = [[], []]
        self.acknowledged: list[dict[int, bytes]] = [{}, {}]
        self.start = [0, 0]
        self.commits: list[int] = []
        self.committed = -1
        self.errors: set[Errors] = set()

    def succeeded(self, error: int) -> bool:
        """Record the error of a response; return True if there is none."""
        if error:
            self.errors.add(Errors(error))
        return not error


class PowerFailureDisk(MemoryDisk):
    """A disk that keeps the states in which it might be found if the power failed before any operation, each
    with the history of the clients until then. Equal ones are kept once."""

    def __init__(self, history: ClientHistory) -> None:
        super().__init__()
        self.history = history
        self.found: dict[tuple[object, ...], tuple[MemoryDisk, ClientHistory]] = {}

    def _operation(self, kind: str, path: str) -> bool:
        self.fail_power()
        return super()._operation(kind, path)

    def fail_power(self) -> None:
        """Keep the disk with nothing, all but the last step, and any part of what was not synced."""
        for choose in (lambda _count: 0, lambda count: count - 1, random.Random(self.calls).randrange):
            remains = self.crash(choose)
            files = tuple(
                (name, bytes(inode.data)) for name, inode in sorted(remains._names.items()) if inode
            )
            state = (tuple(sorted(remains._names)), files, repr(vars(self.history)))
            if state not in self.found:
                self.found[state] = (remains, copy.deepcopy(self.history))


async def started(disk: MemoryDisk, settings: dict[str, str] | None = None) -> Broker:
    config, _ = BrokerConfig.load(overrides=list((SETTINGS | (settings or {})).items()))
    directory = LogDirectory.open(disk, "/d", Identity("cluster", 1, "here"))
    broker = Broker(config, directory, asyncio.get_running_loop(), disk=SynchronousDisk())
    await broker.start()
    use_small_segments(broker)
    for _ in range(3):  # The coordinators load.
        await asyncio.sleep(0)
    return broker


def use_small_segments(broker: Broker) -> None:
    """Configure segments of a few batches, and a retention of few segments."""
    for partition in broker.partitions:
        keep = 900 if partition.topic == "t" else -1
        partition.log.config = dataclasses.replace(
            partition.log.config,
            segment_bytes=420,
            index_interval_bytes=100,
            retention_bytes=keep,
            retention_ms=-1,
        )


async def resolved(response: Any) -> Any:
    """Return a response, awaiting it if it is deferred."""
    return await response if hasattr(response, "__await__") else response


async def create(broker: Broker, history: ClientHistory) -> None:
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=2, replication_factor=1),))
    response = await bind(create_topics.handle, broker.services)(request, RequestContext(api_version=7))
    history.created = history.succeeded(response.topics[0].error_code) or history.created
    use_small_segments(broker)


async def create_and_delete(broker: Broker, history: ClientHistory) -> None:
    """Create and delete another topic."""
    topics = (CreatableTopic(name="brief", num_partitions=2, replication_factor=1),)
    creation = await bind(create_topics.handle, broker.services)(
        CreateTopicsRequest(topics=topics), RequestContext(api_version=7)
    )
    if history.succeeded(creation.topics[0].error_code):
        request = DeleteTopicsRequest(topic_names=("brief",))
        deletion = await bind(delete_topics.handle, broker.services)(request, RequestContext(api_version=5))
        history.deleted = history.succeeded(deletion.responses[0].error_code)


async def write(broker: Broker, history: ClientHistory, index: int) -> None:
    value = b"%d/%d" % (index, len(history.sent[index])) + b"." * 60
    history.sent[index].append(value)
    data = PartitionProduceData(index=index, records=batches.build_simple([(None, value)], NOW))
    request = ProduceRequest(acks=-1, topic_data=(TopicProduceData(name="t", partition_data=(data,)),))
    response = await resolved(bind(produce.handle, broker.services)(request, RequestContext(api_version=9)))
    partition_response = response.responses[0].partition_responses[0]
    if history.succeeded(partition_response.error_code):
        history.acknowledged[index][partition_response.base_offset] = value


async def commit(broker: Broker, history: ClientHistory) -> None:
    if broker.groups.of("g") is None:
        await broker.groups.make_ready()
        use_small_segments(broker)
        for _ in range(3):
            await asyncio.sleep(0)
    offset = len(history.commits)
    history.commits.append(offset)
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="m" * 80
    )
    topics = (OffsetCommitRequestTopic(name="t", partitions=(partition,)),)
    request = OffsetCommitRequest(group_id="g", topics=topics)
    response = await resolved(
        bind(offset_commit.handle, broker.services)(request, RequestContext(api_version=8))
    )
    if history.succeeded(response.topics[0].partitions[0].error_code):
        history.committed = offset


async def delete_before(broker: Broker, history: ClientHistory, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=1, offset=offset)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(partition,)),))
    response = bind(delete_records.handle, broker.services)(request, RequestContext()).topics[0].partitions[0]
    if history.succeeded(response.error_code):
        history.start[1] = max(history.start[1], response.low_watermark)


async def run_workload(disk: MemoryDisk, history: ClientHistory) -> None:
    """Do everything that a broker does with its logs, in two runs."""
    for run in range(2):
        broker = await started(disk)
        if run == 0:
            await create(broker, history)
        for _ in range(5):
            await write(broker, history, 0)
            await write(broker, history, 1)
            await commit(broker, history)
        await delete_before(broker, history, 4 + run)
        await broker.log_maintenance.checkpoint()
        for index in (0, 1):
            partition = broker.partitions.get("t", index)
            if partition is not None:  # Retention may delete records up to here.
                history.start[index] = max(history.start[index], partition.log.active_segment.base_offset)
        await broker.log_maintenance.retain()
        await write(broker, history, 0)
        await commit(broker, history)
        if run == 0:
            await create_and_delete(broker, history)
        await broker.stop()


async def check_recovery(disk: MemoryDisk, history: ClientHistory) -> None:
    """Restart the broker, compare its logs with the clients' history, and write again."""
    broker = await started(disk)
    assert not broker.partitions.offline
    assert ("t" in broker.catalogue.topics.by_name) or not history.created
    assert not (history.deleted and "brief" in broker.catalogue.topics.by_name)
    folders = {name.rpartition("-")[0] for name in disk.folders("/d")}
    assert folders == {*broker.catalogue.topics.by_name, CLUSTER_METADATA_TOPIC}
    for index in (0, 1):
        partition = broker.partitions.get("t", index)
        if partition is None:
            assert not history.created
            continue
        records: dict[int, bytes | None] = {}
        for header, view in partition.log.batches_from():
            batches.check(view, header)
            records |= {record.offset: record.value for record in batches.records(view, header)}
        assert partition.start_offset <= history.start[index]
        assert list(records) == list(range(partition.start_offset, partition.end_offset))
        for offset, value in history.acknowledged[index].items():
            assert offset < partition.start_offset or records[offset] == value
        values = list(records.values())
        assert [value for value in history.sent[index] if value in values] == values
    if "t" in broker.catalogue.topics.by_name:
        if history.committed >= 0:
            assert await committed(broker) in history.commits[history.committed :]
        later = ClientHistory()
        later.sent, later.commits = history.sent, history.commits
        await write(broker, later, 0)
        await commit(broker, later)
        assert later.errors == set()
    await broker.stop()


async def committed(broker: Broker) -> int:
    topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
    response = await resolved(
        bind(offset_fetch.handle, broker.services)(request, RequestContext(api_version=8))
    )
    offset: int = response.groups[0].topics[0].partitions[0].committed_offset
    return offset


def operations() -> list[tuple[str, str]]:
    """Return the disk operations of the workload without faults."""
    disk, history = MemoryDisk(), ClientHistory()
    asyncio.run(run_workload(disk, history))
    assert history.errors == set()
    assert history.start[0] > 0
    return disk.operations


OPERATIONS = operations()
STORAGE = {Errors.KAFKA_STORAGE_ERROR, Errors.NOT_COORDINATOR}
"""Errors that a client may receive because of the disk."""


def test_topic_creation_fails_with_a_storage_error() -> None:
    """Waiting and later requests receive KAFKA_STORAGE_ERROR, not NOT_COORDINATOR."""

    async def main() -> None:
        disk = MemoryDisk()
        broker = await started(disk)
        disk.fail[disk.calls + 1] = errno.EIO
        for name in ("waiting", "later"):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            response = await bind(create_topics.handle, broker.services)(
                CreateTopicsRequest(topics=(topic,)), RequestContext()
            )
            assert response.topics[0].error_code == Errors.KAFKA_STORAGE_ERROR
        await broker.stop()

    asyncio.run(main())


def test_the_workload_uses_every_kind_of_operation() -> None:
    """So a fault at each operation of the workload is a fault of each kind."""
    kinds = {kind for kind, _ in OPERATIONS}
    assert kinds >= {
        "append", "listdir", "mkdir", "open", "pread", "read", "remove", "rename", "sync", "sync_directory",
    }  # fmt: skip
    assert any(OFFSETS_TOPIC in path and not path.endswith("0000.log") for _, path in OPERATIONS)


ALLOCATING = ("append", "mkdir", "open")
"""Operations that need space on the disk."""


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failure_of_any_operation_is_reported_and_loses_nothing(code: int, part: int) -> None:
    """Each operation fails once (an append after half of its bytes); then the broker is restarted."""

    async def main(at: int) -> None:
        disk, history = MemoryDisk(), ClientHistory()
        disk.fail[at] = code
        failure = None
        try:
            await run_workload(disk, history)
        except LogError as error:
            failure = error
        kind, path = disk.operations[at - 1]
        assert failure or history.errors, f"the failure of {kind} {path} was not reported"
        missing = set() if history.created else {Errors.UNKNOWN_TOPIC_OR_PARTITION}
        assert history.errors <= STORAGE | missing, (kind, path, history.errors)
        await check_recovery(disk.copy(), history)

    for at in range(1 + part, len(OPERATIONS) + 1, 4):
        if code == errno.EIO or OPERATIONS[at - 1][0] in ALLOCATING:
            asyncio.run(main(at))


def test_a_power_failure_at_any_operation_loses_nothing_acknowledged() -> None:
    """Nothing, all, or any part of what was not synced survives."""
    history = ClientHistory()
    disk = PowerFailureDisk(history)
    asyncio.run(run_workload(disk, history))
    assert len(disk.operations) == len(OPERATIONS)
    assert len(disk.found) > len(OPERATIONS) / 2
    for remains, before in disk.found.values():
        asyncio.run(check_recovery(remains, before))


@pytest.mark.parametrize("internal", ["true", "false"])
def test_a_roll_of_a_coordinators_log_is_synced_only_if_its_responses_are(internal: str) -> None:
    """With `konvene.log.fsync.internal=false` commits and finished segments stay in the page cache."""

    async def main() -> None:
        disk, history = MemoryDisk(), ClientHistory()
        broker = await started(disk, {"konvene.log.fsync.internal": internal})
        await create(broker, history)
        await commit(broker, history)
        before = len(disk.operations)
        for _ in range(8):
            await commit(broker, history)
        assert history.errors == set()
        synced = {path for kind, path in disk.operations[before:] if kind == "sync" and OFFSETS_TOPIC in path}
        assert bool(synced) == (internal == "true")
        partition = broker.partitions.get(OFFSETS_TOPIC, 0)
        assert partition is not None
        assert len(partition.log.segments) > 2
        await broker.log_maintenance.checkpoint()
        assert partition.synced_offset >= partition.log.active_segment.base_offset
        await broker.stop()

    asyncio.run(main())
