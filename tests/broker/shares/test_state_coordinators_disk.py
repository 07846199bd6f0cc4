"""Share state on a disk that fails, or loses power, at each of its operations in turn.

SH6: acknowledged state of a share partition survives every fault of the disk. Other state survives completely
or not at all. The workload initializes, writes, prunes the log and restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any

import pytest
from tests.broker.storage.test_disk_faults import (
    ClientHistory,
    PowerFailureDisk,
    create,
    started,
    use_small_segments,
)

from konvene.broker.broker import Broker
from konvene.broker.shares import state_coordinators
from konvene.errors import Errors
from konvene.log.disk.memory import MemoryDisk
from konvene.log.errors import LogError
from konvene.share_state.pruning import PRUNE
from konvene.share_state.requests import Initialize, Read, ReadSummary, SharePartitionKey, StateBatch, Write

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.write.timeout.ms": "500",
}
STATE = "__share_group_state"
STORAGE = {Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS}


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_coordinators, "RETRY_S", 0.002)


class ShareHistory(ClientHistory):
    """The requests for share state, and their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.state_epoch = 0
        """The state epoch of the last answer."""
        self.accepted: set[int] = set()
        self.sent_offsets: set[int] = set()
        self.moved_to = self.sent_start = 0

    def answered(self, answer: Any) -> bool:
        """Record the error of an answer; return True if there is none."""
        return self.succeeded(answer.error)


def key_of(broker: Broker) -> SharePartitionKey | None:
    topic = broker.catalogue.topics.by_name.get("t")
    return None if topic is None else SharePartitionKey("g", topic.id, 0)


async def initialise(broker: Broker, history: ShareHistory, key: SharePartitionKey) -> None:
    if history.answered(await broker.share_coordinators.submit(Initialize(key, 1, 0))):
        history.state_epoch = 1
    use_small_segments(broker)


async def accept(
    broker: Broker, history: ShareHistory, key: SharePartitionKey, offset: int, start: int
) -> None:
    history.sent_offsets.add(offset)
    history.sent_start = max(history.sent_start, start)
    batch = StateBatch(offset, offset, 2, 1)
    if history.answered(await broker.share_coordinators.submit(Write(key, 1, 0, start, 0, (batch,)))):
        history.accepted.add(offset)
        history.moved_to = max(history.moved_to, start)


async def run_workload(disk: MemoryDisk, history: ShareHistory) -> None:
    for run in range(2):
        broker = await started(disk, SETTINGS)
        await broker.share_coordinators.loaded()
        if run == 0:
            await create(broker, history)
        key = key_of(broker)
        if key is not None:
            await use_share_partition(broker, history, key, run)
        await broker.stop()


async def use_share_partition(
    broker: Broker, history: ShareHistory, key: SharePartitionKey, run: int
) -> None:
    if not history.state_epoch:
        await initialise(broker, history, key)
    if not history.state_epoch:
        return
    for number in range(10):
        offset = run * 20 + number * 2
        await accept(broker, history, key, offset, offset // 2)
        if number % 4 == 3:
            coordinator = broker.share_coordinators.at(0)
            if coordinator is not None:
                coordinator.fire_timer(PRUNE)
    history.answered(await broker.share_coordinators.submit(Read(key, 0)))
    await broker.log_maintenance.checkpoint()


async def check_recovery(disk: MemoryDisk, history: ShareHistory) -> None:
    """Restart the broker and compare its share state with the acknowledged one."""
    broker = await started(disk, SETTINGS)
    assert not broker.partitions.offline
    await broker.share_coordinators.loaded()
    key = key_of(broker)
    assert key is not None or not history.state_epoch
    if key is not None and history.state_epoch:
        summary = await broker.share_coordinators.submit(ReadSummary(key, 0))
        assert (summary.error, summary.state_epoch) == (Errors.NONE, 1)
        assert history.moved_to <= summary.start_offset <= history.sent_start
        answer = await broker.share_coordinators.submit(Read(key, 0))
        offsets = {o for b in answer.batches for o in range(b.first_offset, b.last_offset + 1)}
        assert {o for o in history.accepted if o >= summary.start_offset} <= offsets <= history.sent_offsets
        assert all(batch[2:] == (2, 1) for batch in answer.batches)
        later = ShareHistory()
        await accept(broker, later, key, 99, 0)
        assert later.errors == set()
    await broker.stop()


def operations() -> list[tuple[str, str]]:
    """Return the disk operations of the workload without faults."""
    disk, history = MemoryDisk(), ShareHistory()
    asyncio.run(run_workload(disk, history))
    assert history.errors == set()
    assert len(history.accepted) == 20
    return disk.operations


OPERATIONS = operations()


TESTED_OPERATIONS = [at for at, (_, path) in enumerate(OPERATIONS, 1) if STATE in path or at % 10 == 0]
"""The operations on share state and every tenth other one; `test_disk_faults.py` tests all of those."""


def test_the_workload_rolls_and_prunes_its_log() -> None:
    paths = {path for kind, path in OPERATIONS if STATE in path and path.endswith(".log")}
    assert len(paths) > 5
    assert {
        path for kind, path in OPERATIONS if kind == "rename" and STATE in path and "deleted" in path
    } or {path for kind, path in OPERATIONS if kind == "remove" and STATE in path}


@pytest.mark.parametrize(("code", "part"), [(errno.EIO, 0), (errno.ENOSPC, 1)])
def test_a_failure_of_any_operation_loses_no_acknowledged_state(code: int, part: int) -> None:
    async def main(at: int) -> None:
        disk, history = MemoryDisk(), ShareHistory()
        disk.fail[at] = code
        with contextlib.suppress(LogError):
            await run_workload(disk, history)
        other_errors = {Errors.KAFKA_STORAGE_ERROR, Errors.INVALID_REQUEST}
        assert history.errors <= STORAGE | other_errors, (disk.operations[at - 1], history.errors)
        await check_recovery(disk.copy(), history)

    for at in TESTED_OPERATIONS[part::2]:
        asyncio.run(main(at))


def test_a_power_failure_at_any_operation_loses_no_acknowledged_state() -> None:
    """Nothing, all, or any part of what was not synced survives."""
    history = ShareHistory()
    disk = PowerFailureDisk(history)
    asyncio.run(run_workload(disk, history))
    assert len(disk.found) > len(OPERATIONS) / 2
    for remains, before in disk.found.values():
        asyncio.run(check_recovery(remains, before))
