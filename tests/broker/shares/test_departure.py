"""A member that leaves its share group may acknowledge its records during a grace period."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.shares.test_fetch import (
    ACCEPT,
    GROUP,
    TOPIC,
    Member,
    acquired,
    errors,
    joined,
    until_assigned,
)

from konvene.broker.shares import share_partitions
from konvene.delivery.sessions import FINAL_EPOCH
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

SETTINGS = {"share.coordinator.state.topic.num.partitions": "2"}


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_partitions, "LEAVE_GRACE_S", 0.2)


async def join_and_acquire_three(broker_client: BrokerClient, count: int) -> list[Member]:
    members = await joined(broker_client, count)
    for value in (b"a", b"b", b"c"):
        broker_client.write(TOPIC, value)
    assert acquired(await members[0].fetch(wait_ms=2000)) == [(0, 2, 1)]
    return members


async def leave(broker_client: BrokerClient, member: Member) -> None:
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=member.member_id, member_epoch=-1)
    assert not (await broker_client.send(request)).error_code


def test_a_member_that_left_may_still_acknowledge(tmp_path: Path) -> None:
    """Accepted records are completed; the others become available at once."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await join_and_acquire_three(broker_client, 2)
        await leave(broker_client, one)
        assert errors(await one.acknowledge([(1, 1, ACCEPT)], epoch=FINAL_EPOCH)) == [0]
        assert acquired(await other.fetch(wait_ms=900)) == [(0, 0, 2), (2, 2, 2)]

    run_with_broker(tmp_path, scenario, SETTINGS)


def test_the_last_member_may_acknowledge_after_leaving(tmp_path: Path, short_grace: None) -> None:
    """The group's share partitions are then unloaded; a new member starts after the accepted records."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await join_and_acquire_three(broker_client, 1)
        await leave(broker_client, one)
        assert errors(await one.acknowledge([(0, 1, ACCEPT)], epoch=FINAL_EPOCH)) == [0]
        await asyncio.sleep(0.6)
        assert not broker_client.broker.share_partitions.served
        await until_assigned(broker_client, one.member_id, 1)
        one.epoch = 0
        assert acquired(await one.fetch(wait_ms=2000)) == [(2, 2, 2)]

    run_with_broker(tmp_path, scenario, SETTINGS)


def test_unacknowledged_records_are_released_after_the_grace_period(
    tmp_path: Path, short_grace: None
) -> None:
    """Even though the connection stays open and the locks would last 30 s."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await join_and_acquire_three(broker_client, 2)
        await leave(broker_client, one)
        assert acquired(await other.fetch(wait_ms=9000)) == [(0, 2, 2)]
        assert broker_client.broker.share_partitions.sessions.get(GROUP, one.member_id) is None

    run_with_broker(tmp_path, scenario, SETTINGS)


def test_a_member_that_rejoins_within_the_grace_period_keeps_its_records(
    tmp_path: Path, short_grace: None
) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await join_and_acquire_three(broker_client, 1)
        await leave(broker_client, one)
        await until_assigned(broker_client, one.member_id, 1)
        assert acquired(await one.fetch()) == []
        await asyncio.sleep(0.6)
        assert errors(await one.acknowledge([(0, 2, ACCEPT)])) == [0]

    run_with_broker(tmp_path, scenario, SETTINGS)
