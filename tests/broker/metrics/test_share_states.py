"""Metrics of the share coordinator."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.metrics.scraping import measured, scrape, value

from konvene.share_state.requests import Initialize, Read, SharePartitionKey, StateBatch, Write

KAFKAS = "kafka_server_share_coordinator_metrics_"


def test_writes_are_counted_as_kafka_counts_them(tmp_path: Path) -> None:
    """Rejected writes count too, and reads that write a new leader epoch."""

    async def main() -> None:
        settings = {"share.coordinator.state.topic.num.partitions": "3"}
        async with measured(tmp_path, settings) as (broker, port):
            found = await scrape(port)
            assert value(found, KAFKAS + "write_total") == 0
            assert value(found, KAFKAS + "num_partitions", state="active") == 0
            key = SharePartitionKey("g", await BrokerClient(broker).topic("orders"), 0)
            states = broker.share_coordinators
            await states.submit(Initialize(key, 1, 0))
            for epoch in (1, 1, 0):
                await states.submit(Write(key, epoch, 0, 0, 0, (StateBatch(0, 9, 2, 1),)))
            for epoch in (0, 3, 3):
                await states.submit(Read(key, epoch))
            found = await scrape(port)
            assert value(found, KAFKAS + "write_total") == 4
            assert value(found, KAFKAS + "write_rate") > 0
            longest = value(found, KAFKAS + "write_latency_max")
            assert longest >= value(found, KAFKAS + "write_latency_avg") > 0
            assert value(found, KAFKAS + "num_partitions", state="active") == 3
            longest = value(found, KAFKAS + "partition_load_time_max")
            assert longest >= value(found, KAFKAS + "partition_load_time_avg") > 0

    asyncio.run(main())
