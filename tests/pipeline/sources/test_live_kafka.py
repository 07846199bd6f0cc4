"""Apache Kafka's logs are fetched byte for byte. Needs Kafka: `KONVENE_AGAINST=kafka`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.against.brokers import Broker, Kafka, Unavailable
from tests.pipeline.sources.test_live import GROUPS, commit, logs

from konvene.client import Admin, Cluster
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.sources.live import LiveReader
from konvene.pipeline.warehouse.read import table
from konvene.pipeline.warehouse.warehouse import Warehouse

pytestmark = pytest.mark.skipif(
    os.environ.get("KONVENE_AGAINST") != "kafka", reason="Apache Kafka is asked for by KONVENE_AGAINST=kafka"
)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Broker]:
    try:
        broker = Kafka(tmp_path / "kafka")
    except Unavailable as why:
        pytest.skip(str(why))
    broker.start(120)
    yield broker
    broker.kill9()


def create_topic(broker: Broker, name: str, partitions: int) -> None:
    async def ask() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await Admin(cluster).create_topic(name, partitions=partitions)

    asyncio.run(ask())


def test_fetched_logs_equal_kafkas_files(kafka: Broker, tmp_path: Path) -> None:
    """The committed offsets of the groups are built from them."""
    create_topic(kafka, "orders", 2)
    commit(kafka, GROUPS, 1)
    spool = tmp_path / "spool"
    with LiveReader(kafka.bootstrap, spool) as reader:
        assert reader.catch_up()
        commit(kafka, GROUPS[:5], 2)
        assert reader.poll(wait_ms=5000)
        reader.catch_up()
    kafka.stop()
    assert logs(spool) == logs(tmp_path / "kafka" / "data")
    warehouse = Warehouse(tmp_path / "warehouse")
    ingest(warehouse, [spool], Local())
    build(warehouse, Local())
    commits = table(warehouse, "offset_commit", ["group", "committed_offset"]).to_pylist()
    assert len(commits) == len(GROUPS) + 5
    assert {row["group"] for row in commits if row["committed_offset"] == 2} == set(GROUPS[:5])
    names = table(warehouse, "topic_name").to_pylist()
    assert "orders" in {row["topic"] for row in names}
