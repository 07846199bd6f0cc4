"""Markers on their way: what cannot be written now is written later, and nothing comes too late."""

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
    begun,
    consume_and_produce,
    eventually,
)

from konvene.log.errors import LogOffline


class Stubborn:
    """A partition that takes no marker for a while."""

    def __init__(self, partition: Any) -> None:
        self._partition = partition
        self.refuses = True
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    def append_marker(self, ending: Any, now_ms: int) -> Any:
        self.asked += 1
        if self.refuses:
            raise LogOffline("not now")
        return self._partition.append_marker(ending, now_ms)


def stubborn(broker_client: BrokerClient) -> Stubborn:
    """The topic's partition, which refuses markers from now on."""
    known: Any = broker_client.broker.partitions
    partition = Stubborn(known.get(TOPIC, 0))
    known._all[TOPIC, 0] = partition
    return partition


def test_a_marker_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await begun(broker_client, OLD)
        await consume_and_produce(client, 7)
        partition = stubborn(broker_client)
        assert await client.end(commit=True) == 0
        await eventually(reader.offset, (7, 0))  # The group's is not kept from it.
        assert (await reader.state()).transaction_state == "PrepareCommit"
        assert await reader.committed() == (0, [])
        partition.refuses = False
        await eventually(reader.committed, (3, []))
        assert (await reader.state()).transaction_state == "CompleteCommit"
        assert partition.asked >= 2

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_coordinator_that_begins_anew_leaves_no_marker_behind(tmp_path: Path) -> None:
    """Its markers are sent by who comes after it. One that came later yet would end the next transaction."""

    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await begun(broker_client, OLD)
        await consume_and_produce(client, 7)
        partition = stubborn(broker_client)
        assert await client.end(commit=True) == 0
        (coordinator,) = (c for c in broker_client.broker.transactions.all() if c.core.transactions)  # type: ignore[attr-defined]
        coordinator.reload()
        partition.refuses = False
        await eventually(reader.committed, (3, []))
        await eventually(client.add, 0)
        assert await client.write(b"of the next one") == 0
        await asyncio.sleep(0.2)
        assert await reader.committed() == (3, [])
        assert await client.end(commit=False) == 0
        await eventually(reader.committed, (5, [(client.producer_id, 3)]))

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("synced", [True, False])
def test_the_topics_that_wait_for_the_disk(tmp_path: Path, synced: bool) -> None:
    """Where records do, so do their transactions, from beginning to end."""

    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await begun(broker_client, OLD)
        await consume_and_produce(client, 7)
        assert await client.end(commit=True) == 0
        await eventually(reader.committed, (3, []))
        await eventually(reader.offset, (7, 0))

    run_with_broker(tmp_path, scenario, QUICK | {"konvene.log.fsync.topics": str(synced).lower()})
