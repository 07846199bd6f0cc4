"""How members heartbeat is told with the description of their group, to whoever asks and to nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.net.holds import alter, held, responsive
from tests.broker.net.raw_connections import Line, joining
from tests.broker.net.test_hold_classic import Classic

from konvene.broker.broker import Broker
from konvene.client.admin.admin import Admin
from konvene.client.admin.groups import GroupDescription, Heartbeats
from konvene.client.net.cluster import Cluster
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat_extensions import REQUEST_FIELD

CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS = 69, 15


async def described(broker: Broker, *, heartbeats: bool = True) -> GroupDescription:
    async with Cluster([("127.0.0.1", broker.catalogue.advertised[1])]) as cluster:
        return await Admin(cluster).describe_group("g", heartbeats=heartbeats)


def told(group: GroupDescription) -> list[tuple[int | None, bool]]:
    return [tuple(m.heartbeats) for m in group.members if m.heartbeats is not None]


def test_who_is_told_what_and_who_is_held(tmp_path: Path) -> None:
    """A settled member is held; one that waits, and the one it waits for, are told to be back soon."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker, None)
            await held(broker, a)
            group = await described(broker)
            assert (group.heartbeat_policy, told(group)) == ("responsive", [(5000, True)])
            await b.beat(joining("b", "orders"))
            await a.answer()
            assert told(await described(broker)) == [(500, False), (500, False)]
            await alter(broker, konvene_heartbeat_policy="kafka")
            group = await described(broker)
            assert (group.heartbeat_policy, told(group)) == ("kafka", [(5000, False), (5000, False)])

    asyncio.run(main())


def test_who_does_not_ask_is_answered_as_by_kafka(tmp_path: Path) -> None:
    """Nothing is beside the group; nor for another tag, nor where there is no such group."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker, None)
            await held(broker, a)
            plain = await described(broker, heartbeats=False)
            assert (plain.heartbeat_policy, told(plain)) == (None, [])
            for version in (0, 1):
                for tags in ((), ((99, b"x"),), (REQUEST_FIELD,)):
                    request = ConsumerGroupDescribeRequest(group_ids=("g", "no")).replace(unknown_tags=tags)
                    answer = await b.ask(CONSUMER_GROUP_DESCRIBE, version, request)
                    assert answer.unknown_tags == ()
                    assert [bool(g.unknown_tags) for g in answer.groups] == [tags == (REQUEST_FIELD,), False]

    asyncio.run(main())


@pytest.mark.parametrize("beats", [1, 4])
def test_members_of_classic_groups_are_told_nothing_and_may_be_held(tmp_path: Path, beats: int) -> None:
    """Once their interval is known."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            loop, group = broker.loop, Classic(broker, ("kafka-python", "3.0.12"))
            await group.join()
            for _ in range(beats):
                group.beat()
            broker.network.loop = loop
            found = await described(broker)
            assert (found.heartbeat_policy, found.type) == ("responsive", "classic")
            assert [m.heartbeats for m in found.members] == [Heartbeats(None, beats == 4)]
            line = await Line.to(broker, None)
            for version in (4, 5):
                request = DescribeGroupsRequest(groups=("g",))
                answer = await line.ask(DESCRIBE_GROUPS, version, request)
                assert answer.groups[0].unknown_tags == ()

    asyncio.run(main())
