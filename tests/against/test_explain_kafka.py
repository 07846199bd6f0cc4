"""`konvene explain` on a live Apache Kafka: what descriptions and the broker's own log settle.

Members of three groups join, leave and are killed. Kafka's records name several causes for a departure. A
follower's descriptions show that a member that had just joined left; the broker's log names each cause.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import call

from konvene.client.admin.admin import GROUP_CONFIG, Admin
from konvene.client.net.cluster import Cluster
from konvene.pipeline.answers.observations.evidence import OBSERVATIONS_NAME
from konvene.pipeline.sources.group_polls import GroupPoller
from konvene.pipeline.sources.live import LiveReader

from .brokers import Kafka, Unavailable, kafka_log_jars
from .clients import Client, Fleet, eventually, fleet_of

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
}
CONFIG = """shutdownHook=disable
status=error
appender.file.type=File
appender.file.name=file
appender.file.fileName={path}
appender.file.append=true
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""
LEFT, EXPIRED = "member-left", "session-expired"


class LoggedKafka(Kafka):
    """Kafka that writes its application log, as its distribution does, in UTC."""

    @property
    def server_log(self) -> Path:
        return self.directory / "server.log"

    def prepare(self) -> None:
        (self.directory / "log4j2.properties").write_text(CONFIG.format(path=self.server_log))
        super().prepare()

    def java(self) -> list[str]:
        java, *words, jars = super().java()
        config = self.directory / "log4j2.properties"
        return [
            java, f"-Dlog4j2.configurationFile={config}", "-Duser.timezone=UTC", *words,
            f"{jars}:{kafka_log_jars()}/*",
        ]  # fmt: skip


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedKafka]:
    try:
        broker = LoggedKafka(tmp_path_factory.mktemp("kafka") / "broker", SETTINGS)
        kafka_log_jars()
    except Unavailable as why:
        pytest.skip(str(why))
    broker.start()
    try:
        yield broker
    finally:
        broker.kill9()


async def prepare(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster:
        admin = Admin(cluster)
        await admin.create_topic("orders", partitions=2)
        await admin.alter_configs(GROUP_CONFIG, "leaving", {"consumer.session.timeout.ms": "600000"})


def departures(path: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Return the rebalance of each group after which a member was missing."""
    output = call(None, "explain", str(path), "--json", *options)
    assert output.code == 0, output.err
    rows = [json.loads(line) for line in output.out.splitlines()]
    return {row["group"]: row for row in rows if row["gone"] and row["members"] == 1}


def pair(fleet: Fleet, group: str, **settings: Any) -> tuple[Client, Client]:
    """Return two members of a group, each with one of two partitions."""
    common: dict[str, Any] = {"group": group, "topics": ["orders"]} | settings
    both = [fleet.consumer("confluent-kafka", f"{group}-{name}", **common) for name in ("ann", "bob")]
    eventually("one each", lambda: all(len(client.holds()) == 1 for client in both), 60, among=both)
    return both[0], both[1]


def test_descriptions_and_the_brokers_log_settle_departures(kafka: LoggedKafka, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    path = spool / OBSERVATIONS_NAME
    asyncio.run(prepare(kafka.bootstrap))
    with (
        fleet_of(kafka.bootstrap, tmp_path / "clients") as fleet,
        LiveReader(kafka.bootstrap, spool, log_ends=False) as reader,
    ):
        poller = GroupPoller(path)
        classic = pair(fleet, "classic", session_timeout_ms=3000)
        expiring = pair(fleet, "expiring", protocol="consumer")
        ann = fleet.consumer(
            "confluent-kafka", "leaving-ann", group="leaving", topics=["orders"], protocol="consumer"
        )
        eventually("both", lambda: len(ann.holds()) == 2, 60, among=[ann])
        reader.catch_up()
        assert reader.describe_groups(poller) == []
        bob = fleet.consumer(
            "confluent-kafka", "leaving-bob", group="leaving", topics=["orders"], protocol="consumer"
        )
        eventually("one each", lambda: len(ann.holds()) == len(bob.holds()) == 1, 60, among=[ann, bob])
        assert reader.describe_groups(poller) == []
        classic[1].kill()
        expiring[1].kill()
        bob.close()
        left = [classic[0], expiring[0], ann]
        eventually("both", lambda: all(len(client.holds()) == 2 for client in left), 60, among=left)
        assert reader.describe_groups(poller) == []
        reader.catch_up()
    found = departures(spool)
    assert {group: row["cause"] for group, row in found.items()} == {
        "classic": f"{LEFT}|{EXPIRED}", "expiring": f"{LEFT}|{EXPIRED}", "leaving": LEFT,
    }  # fmt: skip
    assert {group for group, row in found.items() if row["by_description"]} == {"leaving"}

    logs = kafka.directory / "data"
    known = departures(logs)
    assert {row["cause"] for row in known.values()} == {f"{LEFT}|{EXPIRED}"}
    observed = departures(logs, "--broker-log", str(kafka.server_log), "--broker-log-zone", "UTC")
    assert {group: row["cause"] for group, row in observed.items()} == {
        "classic": EXPIRED, "expiring": EXPIRED, "leaving": LEFT,
    }  # fmt: skip
    assert all(row["evidence"] == "observed" and row["by_broker_log"] for row in observed.values())
