"""Share state on a disk that fails, or loses power, at each of its operations in turn.

SH6: what was answered of a share partition is known afterwards, whatever the disk did; and what was not
answered is known or not, but nothing else is. A life initialises, writes, cuts its log and takes over, twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from typing import Any

import pytest
from tests.broker.storage.test_disk_faults import Dying, Told, create, small, started

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
def nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_coordinators, "RETRY_S", 0.002)


class Heard(Told):
    """What was asked, and what was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        """The state epoch that was answered last."""
        self.accepted: set[int] = set()
        self.sent_offsets: set[int] = set()
        self.moved_to = self.sent_start = 0

    def said(self, answer: Any) -> bool:
        return self.hear(answer.error)


def key_of(broker: Broker) -> SharePartitionKey | None:
    topic = broker.catalogue.topics.by_name.get("t")
    return None if topic is None else SharePartitionKey("g", topic.id, 0)


async def initialise(broker: Broker, heard: Heard, key: SharePartitionKey) -> None:
    if heard.said(await broker.share_coordinators.submit(Initialize(key, 1, 0))):
        heard.begun = 1
    small(broker)


async def accept(broker: Broker, heard: Heard, key: SharePartitionKey, offset: int, start: int) -> None:
    heard.sent_offsets.add(offset)
    heard.sent_start = max(heard.sent_start, start)
    batch = StateBatch(offset, offset, 2, 1)
    if heard.said(await broker.share_coordinators.submit(Write(key, 1, 0, start, 0, (batch,)))):
        heard.accepted.add(offset)
        heard.moved_to = max(heard.moved_to, start)


async def life(disk: MemoryDisk, heard: Heard) -> None:
    for turn in range(2):
        broker = await started(disk, SETTINGS)
        await broker.share_coordinators.loaded()
        if turn == 0:
            await create(broker, heard)
        key = key_of(broker)
        if key is not None:
            await live(broker, heard, key, turn)
        await broker.stop()


async def live(broker: Broker, heard: Heard, key: SharePartitionKey, turn: int) -> None:
    if not heard.begun:
        await initialise(broker, heard, key)
    if not heard.begun:
        return
    for number in range(10):
        offset = turn * 20 + number * 2
        await accept(broker, heard, key, offset, offset // 2)
        if number % 4 == 3:
            coordinator = broker.share_coordinators.at(0)
            if coordinator is not None:
                coordinator.fire_timer(PRUNE)
    heard.said(await broker.share_coordinators.submit(Read(key, 0)))
    await broker.log_maintenance.checkpoint()


async def look(disk: MemoryDisk, heard: Heard) -> None:
    """Start again on what is there, and compare it with what was answered."""
    broker = await started(disk, SETTINGS)
    assert not broker.partitions.offline
    await broker.share_coordinators.loaded()
    key = key_of(broker)
    assert key is not None or not heard.begun
    if key is not None and heard.begun:
        summary = await broker.share_coordinators.submit(ReadSummary(key, 0))
        assert (summary.error, summary.state_epoch) == (Errors.NONE, 1)
        assert heard.moved_to <= summary.start_offset <= heard.sent_start
        answer = await broker.share_coordinators.submit(Read(key, 0))
        found = {o for b in answer.batches for o in range(b.first_offset, b.last_offset + 1)}
        assert {o for o in heard.accepted if o >= summary.start_offset} <= found <= heard.sent_offsets
        assert all(batch[2:] == (2, 1) for batch in answer.batches)
        again = Heard()
        await accept(broker, again, key, 99, 0)
        assert again.refusals == set()
    await broker.stop()


def operations() -> list[tuple[str, str]]:
    """What a life without trouble does to the disk."""
    disk, heard = MemoryDisk(), Heard()
    asyncio.run(life(disk, heard))
    assert heard.refusals == set()
    assert len(heard.accepted) == 20
    return disk.operations


OPERATIONS = operations()


OURS = [at for at, (_, path) in enumerate(OPERATIONS, 1) if STATE in path or at % 10 == 0]
"""Those that have to do with share state, and some others; `test_disk_faults.py` has all of those."""


def test_a_life_rolls_and_cuts_its_log() -> None:
    paths = {path for kind, path in OPERATIONS if STATE in path and path.endswith(".log")}
    assert len(paths) > 5
    assert {
        path for kind, path in OPERATIONS if kind == "rename" and STATE in path and "deleted" in path
    } or {path for kind, path in OPERATIONS if kind == "remove" and STATE in path}


@pytest.mark.parametrize(("code", "part"), [(errno.EIO, 0), (errno.ENOSPC, 1)])
def test_a_failure_of_any_operation_loses_nothing_that_was_answered(code: int, part: int) -> None:
    async def main(at: int) -> None:
        disk, heard = MemoryDisk(), Heard()
        disk.fail[at] = code
        with contextlib.suppress(LogError):
            await life(disk, heard)
        told_by_others = {Errors.KAFKA_STORAGE_ERROR, Errors.INVALID_REQUEST}
        assert heard.refusals <= STORAGE | told_by_others, (disk.operations[at - 1], heard.refusals)
        await look(disk.copy(), heard)

    for at in OURS[part::2]:
        asyncio.run(main(at))


@pytest.mark.parametrize("part", range(2))
def test_a_power_cut_at_any_operation_loses_nothing_that_was_answered(part: int) -> None:
    """Of what was not synced nothing, all, or any part is found afterwards."""

    async def main(at: int) -> None:
        heard = Heard()
        disk = Dying([lambda _count: 0, lambda count: count - 1, random.Random(at).randrange])
        disk.cut_power_at = at
        living = asyncio.ensure_future(life(disk, heard))
        dying = asyncio.ensure_future(disk.dead.wait())
        await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
        for task in (living, dying):
            task.cancel()
        await asyncio.gather(living, dying, return_exceptions=True)
        # How often it syncs depends on when: the last operations may not come.
        assert disk.remains or at > len(OPERATIONS) * 0.9
        for remains in disk.remains or [disk.copy()]:
            await look(remains, heard)

    for at in OURS[part::2]:
        asyncio.run(main(at))
