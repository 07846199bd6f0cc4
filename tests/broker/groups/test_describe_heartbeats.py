"""Group descriptions include the members' heartbeat intervals if the request has the tag."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.net.holds import alter, join_and_hold, responsive
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


def intervals(group: GroupDescription) -> list[tuple[int | None, bool]]:
    return [tuple(m.heartbeats) for m in group.members if m.heartbeats is not None]


def test_advised_intervals_and_held_members(tmp_path: Path) -> None:
    """A stable member is held; a waiting one, and the one it waits for, get a short interval."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker, None)
            await join_and_hold(broker, a)
            group = await described(broker)
            assert (group.heartbeat_policy, intervals(group)) == ("responsive", [(5000, True)])
            await b.beat(joining("b", "orders"))
            await a.answer()
            assert intervals(await described(broker)) == [(500, False), (500, False)]
            await alter(broker, konvene_heartbeat_policy="kafka")
            group = await described(broker)
            assert (group.heartbeat_policy, intervals(group)) == ("kafka", [(5000, False), (5000, False)])

    asyncio.run(main())


def test_responses_without_the_tag_are_kafkas(tmp_path: Path) -> None:
    """There is no extra field without the tag, with another tag, or for an unknown group."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker, None)
            await join_and_hold(broker, a)
            plain = await described(broker, heartbeats=False)
            assert (plain.heartbeat_policy, intervals(plain)) == (None, [])
            for version in (0, 1):
                for tags in ((), ((99, b"x"),), (REQUEST_FIELD,)):
                    request = ConsumerGroupDescribeRequest(group_ids=("g", "no")).replace(unknown_tags=tags)
                    answer = await b.ask(CONSUMER_GROUP_DESCRIBE, version, request)
                    assert answer.unknown_tags == ()
                    assert [bool(g.unknown_tags) for g in answer.groups] == [tags == (REQUEST_FIELD,), False]

    asyncio.run(main())


@pytest.mark.parametrize("beats", [1, 4])
def test_classic_members_have_no_interval_and_may_be_held(tmp_path: Path, beats: int) -> None:
    """They are held once their interval is known."""

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
