"""Metrics of share groups, under Kafka's names and konvene's: states, rebalances and causes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.metrics.scraping import measured, scrape, value
from tests.broker.shares.test_groups import AT_ONCE, heartbeat, joined, ready

KAFKAS = "kafka_server_group_coordinator_metrics_"


def test_share_groups_are_counted_with_their_rebalances_and_causes(tmp_path: Path) -> None:
    """Three epochs: ann joins, her partitions are initialized, bob joins; in a fourth ann has left."""

    async def main() -> None:
        async with measured(tmp_path, AT_ONCE) as (broker, port):
            client = BrokerClient(broker)
            await ready(client)
            epoch = (await joined(client, "ann")).member_epoch
            await client.send(heartbeat(0, "bob"))
            await client.send(heartbeat(epoch, "ann"))
            found = await scrape(port)
            assert value(found, KAFKAS + "share_group_count", state="Stable") == 1
            assert value(found, KAFKAS + "share_group_count", state="Empty") == 0
            assert value(found, KAFKAS + "group_count", protocol="share") == 1
            assert value(found, KAFKAS + "share_group_rebalance_count") == 3
            causes = {
                "member-joined": 2,
                "share-partitions-initialized": 1,
            }
            for cause, count in causes.items():
                count_of_cause = value(found, "konvene_rebalance_causes_total", protocol="share", cause=cause)
                assert count_of_cause == count, cause
            assert value(found, "konvene_rebalance_seconds_count", group="g", protocol="share") == 3
            await client.send(heartbeat(-1, "ann"))
            await client.send(heartbeat(-1, "bob"))
            found = await scrape(port)
            assert value(found, KAFKAS + "share_group_count", state="Empty") == 1
            assert value(found, KAFKAS + "share_group_rebalance_count") == 5

    asyncio.run(main())
