"""Delivery counts of share partitions, including closed ones."""

from __future__ import annotations

from pathlib import Path

from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.shares.test_fetch import (
    ACCEPT,
    GROUP,
    QUICK,
    REJECT,
    RELEASE,
    TOPIC,
    acquired,
    errors,
    joined,
)

from konvene.broker.metrics.group_gauges import collect_gauges
from konvene.broker.metrics.tables.all_metrics import read_all
from konvene.broker.metrics.tables.broker import Snapshot

Page = dict[tuple[str, ...], float]


async def shown(broker_client: BrokerClient) -> Page:
    """Return the share metrics by name and labels."""
    broker = broker_client.broker
    assert broker.meter is not None
    seen = Snapshot(broker, broker.meter, await collect_gauges(broker, broker.meter))
    return {
        (metric.name, *labels): value
        for metric, lines in read_all(seen)
        if "hare" in metric.name
        for labels, value in lines
        if isinstance(value, int | float)
    }


def test_deliveries_are_counted(tmp_path: Path) -> None:
    kafka, ours = "kafka_server_ShareGroupMetrics_Count", "konvene_share_"

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        for value in b"abc":
            broker_client.write(TOPIC, bytes((value,)))
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 2, 1)]
        page = await shown(broker_client)
        labels = (GROUP, TOPIC, "0")
        assert page["kafka_server_SharePartitionMetrics_Value", "InFlightMessageCount", *labels] == 3
        assert page["kafka_server_SharePartitionMetrics_Value", "InFlightBatchCount", *labels] == 1
        assert page[ours + "in_flight_records", GROUP] == 3
        assert page[ours + "sessions",] == 1
        assert errors(await one.acknowledge([(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)])) == [0]
        assert acquired(await one.fetch(wait_ms=1000)) == [(1, 1, 2)]
        expected = {"Accept": 1, "Release": 1, "Reject": 1, "Renew": 0}
        for _ in range(2):
            page = await shown(broker_client)
            for name, count in expected.items():
                assert page[kafka, "RecordAcknowledgementsPerSec", name, ""] == count
            assert page[kafka, "PartitionLoadTimeMs", "", ""] == 1
            assert page[ours + "delivered_records_total", GROUP] == 4
            assert page[ours + "redelivered_records_total", GROUP] == 1
            assert page[ours + "archived_records_total", GROUP] == 1
            broker_client.broker.share_partitions.member_removed(GROUP, one.member_id)
            broker_client.broker.share_partitions.group_empty(GROUP)
        assert (ours + "in_flight_records", GROUP) not in page

    run_with_broker(tmp_path, scenario, QUICK | {"konvene.metrics.port": "0"})
