"""The broker's share coordinators: topic creation, loading, durability, pruning, deletion with the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.broker.shares.state_coordinators import RETRY_S
from konvene.cluster.state import ResourceType
from konvene.errors import Errors
from konvene.share_state.pruning import PRUNE
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    Read,
    ReadSummary,
    SharePartitionKey,
    StateAnswer,
    StateBatch,
    SummaryAnswer,
    Write,
)

TOPIC, STATE = "orders", "__share_group_state"
QUICK = {"share.coordinator.state.topic.num.partitions": "3"}


def test_the_first_request_creates_the_topic(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        key = SharePartitionKey("g", await broker_client.topic(TOPIC), 0)
        states = broker_client.broker.share_coordinators
        assert await states.submit(Write(key, 0, 0, 0, 0, ())) == Answer(
            Errors.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed."
        )
        assert await states.submit(Initialize(key, 1, -1)) == Answer()
        batches = (StateBatch(4, 9, 0, 1),)
        assert await states.submit(Write(key, 1, 0, 4, 0, batches)) == Answer()
        assert await states.submit(Read(key, 3)) == StateAnswer(
            state_epoch=1, start_offset=4, batches=batches
        )
        assert await states.submit(ReadSummary(key, 3)) == SummaryAnswer(
            state_epoch=1, leader_epoch=3, start_offset=4, delivery_complete_count=0
        )
        assert broker_client.broker.catalogue.topics.by_name["__share_group_state"].partitions == 3
        assert await states.submit(Delete(key)) == Answer()
        assert await states.submit(ReadSummary(key, 3)) == SummaryAnswer()

    run_with_broker(tmp_path, scenario, QUICK)


def test_acknowledged_writes_survive_a_restart(tmp_path: Path) -> None:
    keys = []

    async def before(broker_client: BrokerClient) -> None:
        key = SharePartitionKey("g", await broker_client.topic(TOPIC), 0)
        keys.append(key)
        states = broker_client.broker.share_coordinators
        await states.submit(Initialize(key, 1, 0))
        for offset in range(10):
            batch = StateBatch(offset, offset, 2, 1)
            assert await states.submit(Write(key, 1, 0, 0, offset + 1, (batch,))) == Answer()

    async def after(broker_client: BrokerClient) -> None:
        answer = await broker_client.broker.share_coordinators.submit(Read(keys[0], 0))
        assert answer == StateAnswer(state_epoch=1, start_offset=0, batches=(StateBatch(0, 9, 2, 1),))

    run_with_broker(tmp_path, before, QUICK)
    run_with_broker(tmp_path, after, QUICK)


class FailingJournal:
    """A coordinator's journal whose next appends or syncs fail."""

    def __init__(self, journal: Any) -> None:
        self.journal = journal
        self.appends_fail = 0
        self.syncs_fail = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)

    def append_pairs(self, *args: Any) -> int:
        if self.appends_fail:
            self.appends_fail -= 1
            raise OSError("the disk is not there")
        return int(self.journal.append_pairs(*args))

    async def sync(self) -> None:
        if self.syncs_fail:
            self.syncs_fail -= 1
            raise OSError("the disk is not there")
        await self.journal.sync()


async def initialized(broker_client: BrokerClient, wrap_journal: Any = None) -> SharePartitionKey:
    """Create a topic and initialize the state of its partition 0."""
    if wrap_journal is not None:
        broker_client.broker.share_coordinators.wrap_journal = wrap_journal
    key = SharePartitionKey("g", await broker_client.topic(TOPIC, 3), 0)
    assert await broker_client.broker.share_coordinators.submit(Initialize(key, 1, 0)) == Answer()
    return key


def accept(key: SharePartitionKey, first: int, last: int, count: int = 0) -> Write:
    return Write(key, 1, 0, 0, count, (StateBatch(first, last, 2, 1),))


@pytest.mark.parametrize("synced", ["true", "false"])
@pytest.mark.parametrize("fails", ["appends_fail", "syncs_fail"])
def test_writes_that_the_disk_lost_are_retried(tmp_path: Path, synced: str, fails: str) -> None:
    """SH6: writes are acknowledged only once durable; the coordinator retries after a disk error."""

    async def scenario(broker_client: BrokerClient) -> None:
        logs: list[FailingJournal] = []

        def wrap_journal(journal: Any) -> Any:
            logs.append(FailingJournal(journal))
            return logs[-1]

        key = await initialized(broker_client, wrap_journal)
        states = broker_client.broker.share_coordinators
        await states.submit(accept(key, 0, 9, 10))
        for journal in logs:
            setattr(journal, fails, 1)
        answers = [states.submit(accept(key, first, first + 9, first + 10)) for first in (10, 20, 30)]
        assert [await answer for answer in answers] == [Answer()] * 3
        assert (await states.submit(Read(key, 0))).batches == (StateBatch(0, 39, 2, 1),)
        assert (await states.submit(ReadSummary(key, 0))).delivery_complete_count == 40
        if fails == "appends_fail" or synced == "true":
            assert sum(getattr(journal, fails) for journal in logs) == len(logs) - 1, "no fault was injected"

    run_with_broker(tmp_path, scenario, QUICK | {"konvene.log.fsync.internal": synced})


def test_requests_during_loading_are_queued_in_order(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        key = await initialized(broker_client)
        states = broker_client.broker.share_coordinators
        coordinator = states.of(str(key))
        assert coordinator is not None
        coordinator.reload(after_ms=30)
        completed: list[str] = []
        requests = {
            "later": Write(key, 1, 0, 20, 0, ()),
            "earlier": Write(key, 1, 0, 5, 3, ()),
            "summary": ReadSummary(key, 0),
        }
        answers = []
        for name, request in requests.items():
            answer = states.submit(request)
            answer.listen(lambda value, name=name: completed.append(name))
            answers.append(answer)
        assert completed == []
        await until(lambda: len(completed) == 3)
        assert completed == ["later", "earlier", "summary"]
        assert answers[2].value == SummaryAnswer(state_epoch=1, start_offset=20, delivery_complete_count=0)

    run_with_broker(tmp_path, scenario, QUICK)


def test_new_requests_do_not_overtake_queued_ones(tmp_path: Path) -> None:
    """A request arrives after the coordinator became active and before it ran the queued ones."""

    async def scenario(broker_client: BrokerClient) -> None:
        key = await initialized(broker_client)
        states = broker_client.broker.share_coordinators
        coordinator = states.of(str(key))
        assert coordinator is not None
        coordinator.reload()
        queued = states.submit(Write(key, 1, 0, 20, 0, ()))
        while coordinator.state != "active":  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        assert not queued.done
        later = states.submit(ReadSummary(key, 0))
        assert not later.done
        assert (await later).start_offset == 20

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_failed_coordinator_rejects_requests_at_once(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        key = await initialized(broker_client)
        coordinator = broker_client.broker.share_coordinators.of(str(key))
        assert coordinator is not None
        coordinator.state = "failed"
        answer = broker_client.broker.share_coordinators.submit(accept(key, 0, 9))
        assert answer.done
        assert answer.value.error is Errors.COORDINATOR_NOT_AVAILABLE

    run_with_broker(tmp_path, scenario, QUICK)


def test_queued_requests_time_out(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        key = await initialized(broker_client)
        states = broker_client.broker.share_coordinators
        coordinator = states.of(str(key))
        assert coordinator is not None
        coordinator.reload(after_ms=60_000)
        loading = "The coordinator is loading and hence can't process requests."
        assert await states.submit(accept(key, 0, 9)) == Answer(Errors.COORDINATOR_LOAD_IN_PROGRESS, loading)
        coordinator.state = "failed"
        assert await states.submit(Read(key, 0)) == StateAnswer(
            Errors.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."
        )

    run_with_broker(tmp_path, scenario, QUICK | {"share.coordinator.write.timeout.ms": "2000"})


def test_queued_requests_are_rejected_when_the_broker_stops(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        key = await initialized(broker_client)
        states = broker_client.broker.share_coordinators
        coordinator = states.of(str(key))
        assert coordinator is not None
        coordinator.reload(after_ms=60_000)
        answer = states.submit(accept(key, 0, 9))
        await states.close()
        unavailable = Answer(Errors.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        assert answer.value == unavailable
        assert await states.submit(accept(key, 0, 9)) == unavailable

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_write_too_large_for_a_batch_changes_nothing(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        key = await initialized(broker_client)
        states = broker_client.broker.share_coordinators
        many = tuple(StateBatch(offset * 2, offset * 2, 2, 1) for offset in range(60_000))
        answer = await states.submit(Write(key, 1, 0, 0, 0, many))
        assert answer.error is Errors.UNKNOWN_SERVER_ERROR
        assert (await states.submit(Read(key, 0))).batches == ()

    run_with_broker(tmp_path, scenario, QUICK)


def test_the_log_is_pruned_and_loads_the_same_state(tmp_path: Path) -> None:
    keys: list[SharePartitionKey] = []

    async def before(broker_client: BrokerClient) -> None:
        broker, key = broker_client.broker, await initialized(broker_client)
        keys.append(key)
        for first in range(0, 100, 10):
            await broker.share_coordinators.submit(accept(key, first, first + 9, first + 10))
        index = broker.share_coordinators.index_of(str(key))
        coordinator, partition = broker.share_coordinators.at(index), broker.partitions.get(STATE, index)
        assert coordinator is not None and partition is not None
        assert coordinator.fire_timer(PRUNE)
        await until(lambda: partition.log.start_offset == 9)
        assert coordinator.deadlines[PRUNE] > broker.loop.time() + 200
        assert broker.meter is not None
        assert broker.meter.share_cut_at == {index: 9}

    async def after(broker_client: BrokerClient) -> None:
        answer = await broker_client.broker.share_coordinators.submit(Read(keys[0], 0))
        assert answer.batches == (StateBatch(0, 99, 2, 1),)

    settings = QUICK | {
        "share.coordinator.snapshot.update.records.per.snapshot": "2",
        "konvene.metrics.port": "0",
    }
    run_with_broker(tmp_path, before, settings)
    run_with_broker(tmp_path, after, settings)


def test_redundant_offsets_are_known_after_a_restart(tmp_path: Path) -> None:
    keys: list[SharePartitionKey] = []

    async def before(broker_client: BrokerClient) -> None:
        keys.append(await initialized(broker_client))
        await broker_client.broker.share_coordinators.submit(accept(keys[0], 0, 9, 10))
        await broker_client.broker.share_coordinators.submit(Initialize(keys[0], 2, 5))

    async def after(broker_client: BrokerClient) -> None:
        broker = broker_client.broker
        await broker.share_coordinators.loaded()
        index = broker.share_coordinators.index_of(str(keys[0]))
        coordinator, partition = broker.share_coordinators.at(index), broker.partitions.get(STATE, index)
        assert coordinator is not None and partition is not None
        assert coordinator.fire_timer(PRUNE)
        await until(lambda: partition.log.start_offset == 2)

    run_with_broker(tmp_path, before, QUICK)
    run_with_broker(tmp_path, after, QUICK)


def test_records_are_pruned_only_after_their_successors_are_synced(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        logs: list[BlockedJournal] = []

        def wrap_journal(journal: Any) -> Any:
            logs.append(BlockedJournal(journal))
            return logs[-1]

        broker, key = broker_client.broker, await initialized(broker_client, wrap_journal)
        index = broker.share_coordinators.index_of(str(key))
        coordinator, partition = broker.share_coordinators.at(index), broker.partitions.get(STATE, index)
        assert coordinator is not None and partition is not None
        for journal in logs:
            journal.unblocked.clear()
        again = broker.share_coordinators.submit(Initialize(key, 2, 5))
        assert coordinator.fire_timer(PRUNE)
        await asyncio.sleep(0.05)
        assert not again.done
        assert partition.log.start_offset == 0
        for journal in logs:
            journal.unblocked.set()
        assert await again == Answer()
        await until(lambda: partition.log.start_offset == 1)

    run_with_broker(tmp_path, scenario, QUICK | {"konvene.log.fsync.internal": "true"})


class BlockedJournal(FailingJournal):
    """A journal whose syncs block until `unblocked` is set."""

    def __init__(self, journal: Any) -> None:
        super().__init__(journal)
        self.unblocked = asyncio.Event()
        self.unblocked.set()

    async def sync(self) -> None:
        await self.unblocked.wait()
        await self.journal.sync()


def test_the_deletion_of_a_topic_deletes_its_share_state(tmp_path: Path) -> None:
    """Bug 88, SH13: state is keyed by topic id, so a new topic of the same name starts without state."""

    async def scenario(broker_client: BrokerClient) -> None:
        key = await initialized(broker_client)
        states = broker_client.broker.share_coordinators
        await states.submit(accept(key, 0, 9))
        await broker_client.drop(TOPIC)
        shard = states.shard_of(key)
        assert shard is not None
        await until(lambda: not shard.states)
        assert (await states.submit(Read(key, 0))).error is Errors.INVALID_REQUEST
        namesake = key._replace(topic_id=await broker_client.topic(TOPIC, 3))
        assert await states.submit(ReadSummary(namesake, 0)) == SummaryAnswer()

    run_with_broker(tmp_path, scenario, QUICK)


def test_state_of_a_deleted_topic_is_deleted_after_a_restart(tmp_path: Path) -> None:
    """The broker stopped between the deletion of the topic and that of its state."""
    keys: list[SharePartitionKey] = []

    async def before(broker_client: BrokerClient) -> None:
        key = await initialized(broker_client)
        keys.append(key)
        broker_client.broker.share_coordinators.topic_deleted = lambda topic_id: None  # type: ignore[method-assign]
        await broker_client.drop(TOPIC)
        shard = broker_client.broker.share_coordinators.shard_of(key)
        assert shard is not None
        assert list(shard.states) == [key]

    async def after(broker_client: BrokerClient) -> None:
        await broker_client.broker.share_coordinators.loaded()
        shard = broker_client.broker.share_coordinators.shard_of(keys[0])
        assert shard is not None
        await until(lambda: not shard.states)

    run_with_broker(tmp_path, before, QUICK)
    run_with_broker(tmp_path, after, QUICK)


def test_the_state_topic_has_kafkas_configs(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        await initialized(broker_client)
        broker = broker_client.broker
        assert dict(broker.catalogue.settings_of(ResourceType.TOPIC, STATE)) == {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "retention.ms": "-1",
            "segment.bytes": "104857600",
        }

    run_with_broker(tmp_path, scenario, QUICK)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not become true within 5 s")


def test_a_failed_topic_creation_is_retried_after_a_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        tried: list[str] = []

        async def fails(name: str) -> None:
            tried.append(name)
            if len(tried) == 1:
                raise OSError("no space")

        monkeypatch.setattr(broker_client.broker.topic_creator, "create_internal", fails)
        key = SharePartitionKey("g", await broker_client.topic(TOPIC), 0)
        answers = [broker_client.broker.share_coordinators.submit(ReadSummary(key, 0)) for _ in range(3)]
        for answer in answers:
            assert (await answer).error is Errors.COORDINATOR_NOT_AVAILABLE
        assert 2 <= len(tried) <= 1 + 2.0 / RETRY_S
        monkeypatch.undo()
        assert await broker_client.broker.share_coordinators.submit(ReadSummary(key, 0)) == SummaryAnswer()

    run_with_broker(tmp_path, scenario, QUICK | {"share.coordinator.write.timeout.ms": "2000"})
