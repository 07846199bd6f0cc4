"""Metrics and descriptions of groups with members of the classic protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.metrics.scraping import measured, scrape, value
from tests.broker.shares.test_groups import ready
from tests.groups.streams.classic.threads import Thread

from konvene.broker.metrics.group_gauges import GroupGauges
from konvene.broker.metrics.instruments import OTHER
from konvene.broker.metrics.meter import Meter
from konvene.errors import Errors
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.group import Member as ConsumerMember
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.messages.sync_group import SyncGroupRequestAssignment
from konvene.sim.transcript.streams_commands import topology_of

METRIC = "konvene_group_classic_members"
SETTINGS = {
    "konvene.streams.mode": "kip",
    "konvene.heartbeat.policy": "kafka",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}


def heartbeat(epoch: int) -> StreamsGroupHeartbeatRequest:
    joins = {"process_id": "p", "rebalance_timeout_ms": 30_000, "topology": topology_of("0:orders!counts"),
             "active_tasks": (), "standby_tasks": (), "warmup_tasks": ()} if not epoch else {}  # fmt: skip
    return StreamsGroupHeartbeatRequest(group_id="g", member_id="bob", member_epoch=epoch, **joins)


def test_classic_members_of_a_consumer_group_are_counted() -> None:
    group = ConsumerGroup("g")
    group.put(ConsumerMember("ann", classic=ClassicProtocolMetadata(10_000, ())))
    group.put(ConsumerMember("bob"))
    census = GroupGauges(Meter(0))
    census.add(group)
    assert census.classic_members == {(OTHER, "consumer"): 1}


def test_streams_group_is_reported_during_upgrade_and_downgrade(tmp_path: Path) -> None:
    """After a downgrade, or without classic members, the count is zero."""

    async def main() -> None:
        async with measured(tmp_path, SETTINGS) as (broker, port):
            client = BrokerClient(broker)
            await ready(client, orders=2, counts=2)
            ann = Thread("ann")
            while ann.joined(await client.send(ann.join_request(), 9)):
                pass
            given = SyncGroupRequestAssignment(member_id=ann.member_id, assignment=b"")
            sync = ann.sync_request().replace(assignments=(given,))
            assert (await client.send(sync, 4)).error_code == Errors.NONE
            labels = {"group": "g", "protocol": "streams"}
            assert (await types(client), value(await scrape(port), METRIC, **labels)) == (["classic"], 0)
            assert (await client.send(heartbeat(0), 1)).error_code == Errors.NONE
            assert (await types(client), value(await scrape(port), METRIC, **labels)) == (["streams"], 1)
            (group,) = (await client.send(StreamsGroupDescribeRequest(group_ids=("g",)), 1)).groups
            assert {m.member_id: m.is_classic for m in group.members} == {ann.member_id: True, "bob": False}
            left = (MemberIdentity(member_id=ann.member_id),)
            await client.send(LeaveGroupRequest(group_id="g", members=left), 5)
            assert value(await scrape(port), METRIC, **labels) == 0

    asyncio.run(main())


async def types(client: BrokerClient) -> list[str]:
    listed: Any = await client.send(ListGroupsRequest(), 5)
    return [group.group_type for group in listed.groups]
