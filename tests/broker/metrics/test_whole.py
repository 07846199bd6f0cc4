"""Metrics of a broker with members agree with its groups, ListGroups and audit rows."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.broker.groups.test_audit import join_and_leave, rows
from tests.broker.metrics.scraping import Samples, measured, scrape, value
from tests.broker.net.holds import join_and_hold
from tests.broker.net.raw_connections import Line, joining, staying, until
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.broker.metrics.group_types import STABLE, begins, ends
from konvene.broker.metrics.instruments import OTHER
from konvene.broker.metrics.meter import Meter
from konvene.client import Admin, Cluster, Consumer, TopicPartition
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.internal_topics import AUDIT_TOPIC
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from konvene.runtime.coordinator import RequestContext

KAFKAS = "kafka_server_group_coordinator_metrics_"
SOON = {"konvene.heartbeat.policy": "responsive", "group.consumer.assignment.interval.ms": "0"}


@asynccontextmanager
async def running_with_topic(
    path: Path, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[Broker, int, Cluster]]:
    """Start a broker with a topic `orders` of four partitions; yield it, its metrics port, and a client."""
    more = SOON | {"num.partitions": "4"} | (settings or {})
    async with measured(path, more) as (broker, port):
        await broker.groups.make_ready()
        await broker.groups.loaded()
        await broker.topic_creator.create_missing(["orders"])
        cluster = Cluster(f"127.0.0.1:{broker.catalogue.advertised[1]}")
        try:
            yield broker, port, cluster
        finally:
            await cluster.close()


def meter_of(broker: Broker) -> Meter:
    assert broker.meter is not None
    return broker.meter


def state_of(broker: Broker, group: str) -> str:
    """Return member count and state of a group; empty if it is unknown or its coordinator holds responses."""
    coordinator = broker.groups.of(group)
    assert coordinator is not None
    assert isinstance(coordinator.core, GroupShard)
    found = coordinator.core.groups.get(group)
    return "" if found is None or coordinator._held else f"{len(found.members)} {found.state}"


async def poll_until(consumers: list[Consumer], stop: asyncio.Event) -> None:
    """Poll the consumers until the event is set."""

    async def poll(consumer: Consumer) -> None:
        while not stop.is_set():
            await consumer.poll(50)

    await asyncio.gather(*map(poll, consumers))


def rebalances_by_cause(found: Samples) -> Counter[tuple[str, str, str]]:
    """Return the scraped rebalance counts by group, protocol and cause."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for (name, labels), count in found.items():
        if name == "konvene_rebalances_total":
            label = dict(labels)
            counts[label["group"], label["protocol"], label["cause"]] += int(count)
    return counts


async def check_against_audit(broker: Broker, port: int, cluster: Cluster, names: dict[str, str]) -> Samples:
    """Scrape, and compare with ListGroups and the audit rows. `names`: group types by group id."""
    found = await scrape(port)
    listed = Counter((g.type, g.state) for g in (await Admin(cluster).list_groups()))
    for (kind, state), count in listed.items():
        assert value(found, f"{KAFKAS}{kind}_group_count", state=state) == count
    for kind in ("classic", "consumer"):
        of_kind = sum(count for (group_type, _), count in listed.items() if group_type == kind)
        assert value(found, KAFKAS + "group_count", protocol=kind) == of_kind
    audit_rows = rows(broker)
    assert sum(rebalances_by_cause(found).values()) == sum(map(begins, audit_rows))
    causes = Counter(
        (row.group_type, cause.kind) for row in audit_rows if begins(row) for cause in row.causes
    )
    for (kind, cause), count in causes.items():
        assert value(found, "konvene_rebalance_causes_total", protocol=kind, cause=cause) == count
    for group, kind in names.items():
        ended = sum(row.group_type == kind for row in audit_rows if ends(row))
        assert value(found, "konvene_rebalance_seconds_count", group=group, protocol=kind) == ended
    return found


def test_classic_and_consumer_groups_are_counted_from_join_to_deletion(tmp_path: Path) -> None:
    """Two members join each group, then all leave, then a group is deleted."""

    async def main() -> None:
        async with running_with_topic(tmp_path) as (broker, port, cluster):
            kinds = {"old": "classic", "new": "consumer"}
            members = {
                group: [Consumer(cluster, group, group_protocol=kind) for _ in range(2)]
                for group, kind in kinds.items()
            }
            done = asyncio.Event()
            for consumer in (*members["old"], *members["new"]):
                consumer.subscribe(["orders"])
            polls = asyncio.ensure_future(poll_until([*members["old"], *members["new"]], done))
            await until(lambda: all(state_of(broker, group) == "2 Stable" for group in kinds), 20)
            done.set()
            await polls
            found = await check_against_audit(broker, port, cluster, kinds)
            for group, kind in kinds.items():
                labels = {"group": group, "protocol": kind}
                assert value(found, "konvene_group_members", **labels) == 2
                assert value(found, "konvene_group_members_waiting", **labels) == 0
                last = max(row.epoch for row in rows(broker) if row.group_type == kind)
                assert value(found, "konvene_group_epoch", **labels) == last
                assert value(found, "konvene_moved_units_total", **labels) >= 4
            for consumer in (*members["old"], *members["new"]):
                await consumer.close()
            await until(lambda: all(state_of(broker, group) == "0 Empty" for group in kinds))
            found = await check_against_audit(broker, port, cluster, kinds)
            counts = rebalances_by_cause(found)
            assert counts["new", "consumer", "member-left"] == 2
            assert counts["old", "classic", "member-left"] >= 1
            completed = sum(row.state == STABLE for row in rows(broker) if row.group_type == "classic")
            raised = len({row.epoch for row in rows(broker) if row.group_type == "consumer"})
            assert value(found, KAFKAS + "group_completed_rebalance_count") == completed
            assert value(found, KAFKAS + "consumer_group_rebalance_count") == raised
            assert value(found, KAFKAS + "consumer_group_rebalance_rate") > 0
            await Admin(cluster).delete_groups(["old"])
            found = await scrape(port)
            assert not any(("group", "old") in labels for _, labels in found)
            assert value(found, "konvene_group_members", group="new", protocol="consumer") == 0

    asyncio.run(main())


def test_committed_and_deleted_offsets_are_counted(tmp_path: Path) -> None:
    """Offsets that are deleted with their group count as neither deleted nor expired."""

    async def main() -> None:
        async with running_with_topic(tmp_path) as (_, port, cluster):
            admin = Admin(cluster)
            orders = [TopicPartition("orders", index) for index in range(4)]
            await admin.alter_offsets("g", dict.fromkeys(orders, 7))
            await admin.alter_offsets("g", {orders[0]: 8})
            await admin.delete_offsets("g", orders[:1])
            found = await scrape(port)
            assert value(found, KAFKAS + "offset_commit_count") == 5
            assert value(found, KAFKAS + "offset_deletion_count") == 1
            assert value(found, KAFKAS + "offset_count") == 3
            await admin.delete_groups(["g"])
            found = await scrape(port)
            assert value(found, KAFKAS + "offset_deletion_count") == 1
            assert value(found, KAFKAS + "offset_count") == 0

    asyncio.run(main())


def test_expired_offsets_are_counted(tmp_path: Path) -> None:
    """The retention timer is fired by the test, thirty days later."""

    async def main() -> None:
        async with running_with_topic(tmp_path) as (broker, port, cluster):
            await Admin(cluster).alter_offsets("g", {TopicPartition("orders", 0): 7})
            now_ms = broker.environment.wall_clock_ms()
            coordinator = broker.groups.of("g")
            assert coordinator is not None
            coordinator._wall_clock_ms = lambda: now_ms + 30 * 86_400_000
            assert coordinator.fire_timer(("retention",))
            found = await scrape(port)
            assert value(found, KAFKAS + "offset_expiration_count") == 1
            assert value(found, KAFKAS + "offset_deletion_count") == 0
            assert value(found, "konvene_coordinator_decision_seconds_count", event="retention timer") == 1

    asyncio.run(main())


def test_requests_are_counted_by_error_including_cached_ones(tmp_path: Path) -> None:
    """A heartbeat answered from the response cache counts like a decoded one."""

    async def main() -> None:
        async with running_with_topic(tmp_path, {"konvene.heartbeat.hold.enable": "false"}) as (
            broker,
            port,
            _,
        ):
            line = await Line.to(broker)
            joined = await line.beat(joining("a", "orders"))
            for _ in range(5):
                assert (await line.beat(staying("a", joined.member_epoch))).error_code == 0
            assert (await line.beat(staying("x", 1))).error_code == Errors.UNKNOWN_MEMBER_ID
            found = await scrape(port)
            heartbeat = "ConsumerGroupHeartbeat"
            assert value(found, "konvene_requests_total", api=heartbeat, error="NONE") == 6
            assert value(found, "konvene_requests_total", api=heartbeat, error="UNKNOWN_MEMBER_ID") == 1
            assert value(found, "konvene_requests_total", api="ApiVersions", error="NONE") == 1
            assert value(found, "konvene_heartbeat_interval_seconds_count") == 6
            assert value(found, "konvene_coordinator_decision_seconds_count", event=heartbeat) < 7
            assert sum(meter_of(broker).cached_responses.values()) >= 3
            assert value(found, "konvene_connections") == 1
            assert value(found, "konvene_heartbeat_policy_info", policy="responsive", holds="false") == 1

    asyncio.run(main())


def test_held_heartbeats_are_counted(tmp_path: Path) -> None:
    """In a gauge while they are held, and in a counter."""

    async def main() -> None:
        async with running_with_topic(tmp_path, {"konvene.heartbeat.interval.ms": "5000"}) as (
            broker,
            port,
            _,
        ):
            line = await Line.to(broker)
            await join_and_hold(broker, line)
            found = await scrape(port)
            assert value(found, "konvene_held_heartbeats") == 1
            assert value(found, "konvene_heartbeats_held_total") == 1
            assert value(found, "konvene_requests_total", api="ConsumerGroupHeartbeat", error="NONE") == 2
            broker.heartbeat_purgatory.release_all()
            await line.answer()
            found = await scrape(port)
            assert value(found, "konvene_held_heartbeats") == 0
            assert value(found, "konvene_heartbeats_held_total") == 1
            assert value(found, "konvene_requests_total", api="ConsumerGroupHeartbeat", error="NONE") == 3
            assert value(found, "konvene_heartbeat_policy_info", policy="responsive", holds="true") == 1

    asyncio.run(main())


def test_waiting_members_are_counted(tmp_path: Path) -> None:
    """Ann owns all partitions and revokes none, so bob waits for her; when she leaves, none is waiting."""

    async def main() -> None:
        async with running_with_topic(tmp_path) as (broker, port, _):
            ann, bob = await Line.to(broker), await Line.to(broker)
            first = await ann.beat(joining("ann", "orders"))
            await bob.beat(joining("bob", "orders"))
            labels = {"group": "g", "protocol": "consumer"}
            found = await scrape(port)
            assert value(found, "konvene_group_members_waiting", **labels) == 2
            assert value(found, KAFKAS + "consumer_group_count", state="Reconciling") == 1
            assert value(found, "konvene_rebalance_seconds_count", **labels) == 1
            await ann.beat(staying("ann", -1))
            epoch = (await bob.beat(staying("bob", first.member_epoch + 1))).member_epoch
            assert epoch > first.member_epoch
            found = await scrape(port)
            assert value(found, "konvene_group_members", **labels) == 1
            assert value(found, "konvene_group_members_waiting", **labels) == 0
            assert value(found, "konvene_rebalance_seconds_count", **labels) == 2

    asyncio.run(main())


def streams_heartbeat(member: str, epoch: int, **more: Any) -> StreamsGroupHeartbeatRequest:
    """Return a heartbeat of a member of a stateless topology that reads `orders`, in its own process."""
    fields: dict[str, Any] = {"member_id": member, "member_epoch": epoch} | more
    if not epoch:
        read = Subtopology(subtopology_id="0", source_topics=("orders",))
        fields |= {
            "topology": Topology(epoch=1, subtopologies=(read,)),
            "rebalance_timeout_ms": 10_000, "process_id": member, "client_tags": (),
            "active_tasks": (), "standby_tasks": (), "warmup_tasks": (),
        }  # fmt: skip
    return StreamsGroupHeartbeatRequest(group_id="s", **fields)


def test_a_streams_group_is_counted(tmp_path: Path) -> None:
    """Ann has all tasks and bob waits for two of them; after she revoked those, none is waiting."""

    async def main() -> None:
        settings = {
            "group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0",
        }  # fmt: skip
        async with running_with_topic(tmp_path, settings) as (broker, port, cluster):
            line = await Line.to(broker)

            async def beat(member: str, epoch: int, **more: Any) -> StreamsGroupHeartbeatResponse:
                request = streams_heartbeat(member, epoch, **more)
                response: StreamsGroupHeartbeatResponse = await line.ask(88, 1, request)
                assert response.error_code == 0, response
                return response

            labels = {"group": "s", "protocol": "streams"}
            ann = await beat("ann", 0)
            bob = await beat("bob", 0)
            found = await scrape(port)
            assert value(found, KAFKAS + "group_count", protocol="streams") == 1
            assert value(found, KAFKAS + "streams_group_count", state="Reconciling") == 1
            assert value(found, "konvene_group_members_waiting", **labels) == 2
            assert ann.active_tasks is not None
            ann = await beat("ann", ann.member_epoch)
            assert ann.active_tasks is not None
            empty: dict[str, Any] = {"standby_tasks": (), "warmup_tasks": ()}
            await beat("ann", ann.member_epoch, active_tasks=ann.active_tasks, **empty)
            bob = await beat("bob", bob.member_epoch)
            await until(lambda: state_of(broker, "s") == "2 Stable")
            found = await check_against_audit(broker, port, cluster, {"s": "streams"})
            assert value(found, KAFKAS + "streams_group_count", state="Stable") == 1
            assert value(found, "konvene_group_members", **labels) == 2
            assert value(found, "konvene_group_members_waiting", **labels) == 0
            assert value(found, "konvene_group_epoch", **labels) == bob.member_epoch
            assert value(found, "konvene_moved_units_total", **labels) == 4 + 2
            raised = {row.epoch for row in rows(broker) if row.group_type == "streams"}
            assert value(found, KAFKAS + "streams_group_rebalance_count") == len(raised)
            assert value(found, "konvene_rebalances_total", cause="member-joined", **labels) >= 1

    asyncio.run(main())


async def join(broker: Broker, group: str) -> None:
    """Join as a classic member, without syncing."""
    coordinator = broker.groups.of(group)
    assert coordinator is not None
    protocols = (JoinGroupRequestProtocol(name="range", metadata=b""),)
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=protocols,
    )  # fmt: skip
    call = RequestContext(api_version=3, client_id="ann", client_host="/127.0.0.1", fresh_ids=("1",))
    assert not isinstance(await coordinator.submit(request, call), Errors)


def test_groups_above_the_limit_share_one_line(tmp_path: Path) -> None:
    """Three of thirty groups have lines of their own; totals include all."""

    async def main() -> None:
        async with running_with_topic(tmp_path, {"konvene.metrics.groups": "3"}) as (broker, port, _):
            for number in range(30):
                await join(broker, f"g{number}")
            found = await scrape(port)
            lines = {
                dict(labels)["group"]: n
                for (name, labels), n in found.items()
                if name == "konvene_group_members"
            }
            assert len(lines) == 4
            assert lines[OTHER] == 27
            assert value(found, "konvene_group_members_waiting", group=OTHER, protocol="classic") == 27
            assert value(found, KAFKAS + "group_count", protocol="classic") == 30
            epochs = [dict(labels)["group"] for name, labels in found if name == "konvene_group_epoch"]
            assert (len(epochs), OTHER in epochs) == (3, False)

    asyncio.run(main())


def test_group_ids_are_escaped(tmp_path: Path) -> None:
    """Quotes, newlines and `# EOF` in a group id stay inside its label."""

    async def main() -> None:
        async with running_with_topic(tmp_path) as (broker, port, _):
            names = ['a"b\\c', "line\nend", "{}=,", "группа", "# EOF", " "]
            for name in names:
                await join(broker, name)
            found = await scrape(port)
            for name in names:
                assert value(found, "konvene_group_members", group=name, protocol="classic") == 1

    asyncio.run(main())


def test_logs_and_coordinators_have_metrics(tmp_path: Path) -> None:
    """Two partitions are loaded and active; what is appended is synced."""

    async def main() -> None:
        async with running_with_topic(tmp_path) as (broker, port, _):
            await join(broker, "g")
            found = await scrape(port)
            assert value(found, KAFKAS + "num_partitions", state="active") == 2
            assert value(found, KAFKAS + "partition_load_time_max") > 0
            for log in ("__consumer_offsets", "__cluster_metadata"):
                assert value(found, "konvene_log_appends_total", log=log) >= 1
                assert value(found, "konvene_log_appended_bytes_total", log=log) > 60
                assert value(found, "konvene_log_sync_seconds_count", log=log) >= 1

    asyncio.run(main())


def test_rows_derived_after_a_crash_are_not_counted(tmp_path: Path) -> None:
    """They were counted by the previous process; gauges have the current groups."""

    async def main() -> None:
        async with measured(tmp_path) as (broker, _):
            await join_and_leave(broker)
        (tmp_path / ".kafka_cleanshutdown").unlink()
        shutil.rmtree(tmp_path / f"{AUDIT_TOPIC}-0")
        points = tmp_path / "recovery-point-offset-checkpoint"
        kept = [line for line in points.read_text().splitlines()[2:] if AUDIT_TOPIC not in line]
        points.write_text("\n".join(["0", str(len(kept)), *kept, ""]))
        async with measured(tmp_path) as (broker, port):
            await broker.groups.loaded()
            await until(lambda: len(rows(broker)) == 2)
            assert all(row.inferred for row in rows(broker))
            found = await scrape(port)
            assert rebalances_by_cause(found) == {}
            assert value(found, KAFKAS + "group_completed_rebalance_count") == 0
            assert value(found, KAFKAS + "classic_group_count", state="Empty") == 1

    asyncio.run(main())


def test_a_reloaded_shard_continues_its_counts(tmp_path: Path) -> None:
    """The new shard reports to the same meter."""

    async def main() -> None:
        async with running_with_topic(tmp_path) as (broker, port, _):
            await join(broker, "g")
            loads = meter_of(broker).loads.count
            coordinator = broker.groups.of("g")
            assert coordinator is not None
            coordinator.reload()
            await until(lambda: coordinator.state == "active")
            await join(broker, "g2")
            found = await scrape(port)
            assert meter_of(broker).loads.count == loads + 1
            assert value(found, "konvene_coordinator_decision_seconds_count", event="JoinGroup") == 2
            assert value(found, KAFKAS + "num_partitions", state="active") == 2

    asyncio.run(main())


def test_a_broker_without_metrics_counts_nothing(tmp_path: Path) -> None:
    """There is no meter, and the shards are plain ones."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.groups.make_ready()
            assert broker.meter is None
            assert {type(coordinator.core) for coordinator in broker.groups.all()} == {GroupShard}

    asyncio.run(main())
