"""Placement costs of streams groups by racks and tags."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.metrics.scraping import Samples, measured, scrape
from tests.broker.shares.test_groups import ready

from konvene.errors import Errors
from konvene.messages.streams_group_heartbeat import KeyValue, StreamsGroupHeartbeatRequest
from konvene.sim.transcript.streams_commands import topology_of

PLACEMENT = "konvene_streams_group_placement_cost"

AT_ONCE = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.num.standby.replicas": "1",
    "group.streams.assignors": "sticky",
    "konvene.heartbeat.policy": "kafka",
}


def joins(name: str, zone: str, rack: str) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id="g", member_id=name, process_id=name, rebalance_timeout_ms=30_000, rack_id=rack,
        topology=topology_of("0:lines!counts"), active_tasks=(), standby_tasks=(), warmup_tasks=(),
        client_tags=(KeyValue(key="zone", value=zone),), member_epoch=0,
    )  # fmt: skip


def costs(found: Samples) -> dict[str, float]:
    return {dict(labels)["cost"]: count for (name, labels), count in found.items() if name == PLACEMENT}


def test_placement_costs_of_a_target(tmp_path: Path) -> None:
    """All partitions are read in the broker's rack; both copies of a task share the only zone.

    A member in another zone lowers the cost, and a group without members has none."""

    async def main() -> None:
        settings = AT_ONCE | {"broker.rack": "r1", "group.streams.rack.aware.assignment.tags": "zone"}
        async with measured(tmp_path, settings) as (broker, port):
            client = BrokerClient(broker)
            await ready(client, lines=2, counts=2)
            assert costs(await scrape(port)) == {}
            for name, rack in (("ann", "r1"), ("bob", "r2")):
                answer: Any = await client.send(joins(name, "a", rack))
                assert answer.error_code == Errors.NONE, answer
            outside = {"active-outside-rack": 1, "copy-outside-rack": 1, "pair-sharing-some-tags": 0}
            assert costs(await scrape(port)) == outside | {"pair-sharing-all-tags": 2, "task-not-apart": 2}
            assert costs(await scrape(port)) == outside | {"pair-sharing-all-tags": 2, "task-not-apart": 2}
            await client.send(joins("bob", "b", "r2"))
            assert costs(await scrape(port)) == outside | {"pair-sharing-all-tags": 0, "task-not-apart": 0}
            for name in ("ann", "bob"):
                leaves = StreamsGroupHeartbeatRequest(group_id="g", member_id=name, member_epoch=-1)
                await client.send(leaves)
            assert set(costs(await scrape(port)).values()) <= {0}

    asyncio.run(main())


def test_groups_without_tags_and_racks_have_no_costs(tmp_path: Path) -> None:
    async def main() -> None:
        async with measured(tmp_path, AT_ONCE) as (broker, port):
            client = BrokerClient(broker)
            await ready(client, lines=2, counts=2)
            await client.send(joins("ann", "a", "r1"))
            assert costs(await scrape(port)) == {}

    asyncio.run(main())
