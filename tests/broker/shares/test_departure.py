"""A member that leaves its group may still say what became of its records, for a moment."""

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
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_partitions, "LEAVE_GRACE_S", 0.2)


async def has_three(broker_client: BrokerClient, count: int) -> list[Member]:
    members = await joined(broker_client, count)
    for value in (b"a", b"b", b"c"):
        broker_client.write(TOPIC, value)
    assert acquired(await members[0].fetch(wait_ms=2000)) == [(0, 2, 1)]
    return members


async def leaves(broker_client: BrokerClient, member: Member) -> None:
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=member.member_id, member_epoch=-1)
    assert not (await broker_client.send(request)).error_code


def test_who_has_left_may_still_answer(tmp_path: Path) -> None:
    """What it accepts is nobody else's, and the rest is, at once."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await has_three(broker_client, 2)
        await leaves(broker_client, one)
        assert errors(await one.acknowledge([(1, 1, ACCEPT)], epoch=FINAL_EPOCH)) == [0]
        assert acquired(await other.fetch(wait_ms=900)) == [(0, 0, 2), (2, 2, 2)]

    run_with_broker(tmp_path, scenario, SETTINGS)


def test_the_last_one_may_too(tmp_path: Path, short: None) -> None:
    """Then nothing of the group is kept in memory, and who comes later begins behind what was accepted."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await has_three(broker_client, 1)
        await leaves(broker_client, one)
        assert errors(await one.acknowledge([(0, 1, ACCEPT)], epoch=FINAL_EPOCH)) == [0]
        await asyncio.sleep(0.6)
        assert not broker_client.broker.share_partitions.served
        await until_assigned(broker_client, one.member_id, 1)
        one.epoch = 0
        assert acquired(await one.fetch(wait_ms=2000)) == [(2, 2, 2)]

    run_with_broker(tmp_path, scenario, SETTINGS)


def test_what_nobody_answers_for_comes_to_others(tmp_path: Path, short: None) -> None:
    """Its connection stays, and its locks would last for 30 s."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await has_three(broker_client, 2)
        await leaves(broker_client, one)
        assert acquired(await other.fetch(wait_ms=9000)) == [(0, 2, 2)]
        assert broker_client.broker.share_partitions.sessions.get(GROUP, one.member_id) is None

    run_with_broker(tmp_path, scenario, SETTINGS)


def test_who_is_back_in_time_keeps_what_it_has(tmp_path: Path, short: None) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await has_three(broker_client, 1)
        await leaves(broker_client, one)
        await until_assigned(broker_client, one.member_id, 1)
        assert acquired(await one.fetch()) == []
        await asyncio.sleep(0.6)
        assert errors(await one.acknowledge([(0, 2, ACCEPT)])) == [0]

    run_with_broker(tmp_path, scenario, SETTINGS)
