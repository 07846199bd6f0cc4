"""Transaction markers: failed writes are retried, and no marker is written late."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.transactions.test_transactions import (
    OLD,
    QUICK,
    TOPIC,
    consume_and_produce,
    eventually,
    started,
)

from konvene.log.errors import LogOffline


class OfflinePartition:
    """A partition that is offline for markers while `offline` is set."""

    def __init__(self, partition: Any) -> None:
        self._partition = partition
        self.offline = True
        self.attempts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    def append_marker(self, ending: Any, now_ms: int) -> Any:
        self.attempts += 1
        if self.offline:
            raise LogOffline("not now")
        return self._partition.append_marker(ending, now_ms)


def take_offline(broker_client: BrokerClient) -> OfflinePartition:
    """Replace the topic's partition by one that is offline for markers, and return it."""
    partitions: Any = broker_client.broker.partitions
    partition = OfflinePartition(partitions.get(TOPIC, 0))
    partitions._all[TOPIC, 0] = partition
    return partition


def test_a_failed_marker_is_retried(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await started(broker_client, OLD)
        await consume_and_produce(client, 7)
        partition = take_offline(broker_client)
        assert await client.end(commit=True) == 0
        await eventually(reader.offset, (7, 0))  # The marker of the group's partition was written.
        assert (await reader.state()).transaction_state == "PrepareCommit"
        assert await reader.committed() == (0, [])
        partition.offline = False
        await eventually(reader.committed, (3, []))
        assert (await reader.state()).transaction_state == "CompleteCommit"
        assert partition.attempts >= 2

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_reloaded_coordinator_drops_its_pending_markers(tmp_path: Path) -> None:
    """The new core sends them; a marker of the old one would end the next transaction."""

    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await started(broker_client, OLD)
        await consume_and_produce(client, 7)
        partition = take_offline(broker_client)
        assert await client.end(commit=True) == 0
        (coordinator,) = (c for c in broker_client.broker.transactions.all() if c.core.transactions)  # type: ignore[attr-defined]
        coordinator.reload()
        partition.offline = False
        await eventually(reader.committed, (3, []))
        await eventually(client.add, 0)
        assert await client.write(b"of the next one") == 0
        await asyncio.sleep(0.2)
        assert await reader.committed() == (3, [])
        assert await client.end(commit=False) == 0
        await eventually(reader.committed, (5, [(client.producer_id, 3)]))

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("synced", [True, False])
def test_transactions_with_and_without_synced_topics(tmp_path: Path, synced: bool) -> None:
    """Transactions complete whether or not appends wait for the disk."""

    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await started(broker_client, OLD)
        await consume_and_produce(client, 7)
        assert await client.end(commit=True) == 0
        await eventually(reader.committed, (3, []))
        await eventually(reader.offset, (7, 0))

    run_with_broker(tmp_path, scenario, QUICK | {"konvene.log.fsync.topics": str(synced).lower()})
