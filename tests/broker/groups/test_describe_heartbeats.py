"""Group descriptions include the members' heartbeat intervals and ages if the request has the tag."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.broker.net.holds import alter, join_and_hold, responsive
from tests.broker.net.raw_connections import Line, joining, staying, until
from tests.broker.net.test_hold_classic import Classic

from konvene.broker.broker import Broker
from konvene.client.admin.admin import Admin
from konvene.client.admin.groups import GroupDescription
from konvene.client.admin.heartbeats import Heartbeats
from konvene.client.net.cluster import Cluster
from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.groups.classic.decision import session_key
from konvene.messages import streams_group_heartbeat as wire
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat_extensions import REQUEST_FIELD, HeartbeatExtension, MemberHeartbeat
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS = 69, 15


async def described(broker: Broker, *, heartbeats: bool = True) -> GroupDescription:
    async with Cluster([("127.0.0.1", broker.catalogue.advertised[1])]) as cluster:
        return await Admin(cluster).describe_group("g", heartbeats=heartbeats)


def intervals(group: GroupDescription) -> list[tuple[int | None, bool]]:
    return [m.heartbeats[:2] for m in group.members if m.heartbeats is not None]


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
            assert intervals(found) == [(None, beats == 4)]
            line = await Line.to(broker, None)
            for version in (4, 5):
                request = DescribeGroupsRequest(groups=("g",))
                answer = await line.ask(DESCRIBE_GROUPS, version, request)
                assert answer.groups[0].unknown_tags == ()

    asyncio.run(main())


def set_age(broker: Broker, member_id: str, timeout_ms: int, age_ms: int) -> float:
    """Set the member's session timer as if its last heartbeat had arrived `age_ms` ago; return that time."""
    coordinator = broker.groups.of("g")
    assert coordinator is not None
    coordinator._timers.arm(session_key("g", member_id), timeout_ms - age_ms)
    return broker.loop.time() - age_ms / 1000


async def assert_age(
    broker: Broker, since: float, describe: Callable[[], Awaitable[Heartbeats | None]]
) -> None:
    """Assert that the described age is the time since `since`, by the loop's clock."""
    earliest_ms = (broker.loop.time() - since) * 1000
    heartbeats = await describe()
    latest_ms = (broker.loop.time() - since) * 1000
    assert heartbeats is not None
    assert heartbeats.age_ms is not None
    assert earliest_ms - 2 <= heartbeats.age_ms <= latest_ms + 2


def test_age_of_a_consumer_member_follows_its_session(tmp_path: Path) -> None:
    """It is unknown if the session timer is not armed, or if the timeout of the session is unknown."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker, None)
            before = broker.loop.time()
            joined = await a.beat(joining("a", "orders"))

            async def heartbeats() -> Heartbeats | None:
                return (await described(broker)).members[0].heartbeats

            found = await heartbeats()
            assert found is not None
            assert found.age_ms is not None
            assert 0 <= found.age_ms <= (broker.loop.time() - before) * 1000 + 2
            await assert_age(broker, set_age(broker, "a", 45_000, 20_000), heartbeats)
            assert (await a.beat(staying("a", joined.member_epoch))).error_code == 0
            found = await heartbeats()
            assert found is not None
            assert (found.age_ms or 0) < 20_000
            set_age(broker, "a", 45_000, -30_000)
            assert await heartbeats() == found._replace(age_ms=None)
            coordinator = broker.groups.of("g")
            assert coordinator is not None
            assert coordinator._timers.disarm(session_key("g", "a"))
            assert await heartbeats() == found._replace(age_ms=None)

    asyncio.run(main())


def test_age_of_a_disconnected_member_is_unknown(tmp_path: Path) -> None:
    """Its session was shortened, so that the deadline does not give the time of its last heartbeat."""

    async def main() -> None:
        async with responsive(tmp_path, konvene_session_disconnect_grace_ms="5000") as broker:
            a = await Line.to(broker, None)
            await a.beat(joining("a", "orders"))
            ages = [m.heartbeats.age_ms for m in (await described(broker)).members if m.heartbeats]
            assert ages != [None]
            a.close()
            await until(lambda: broker.groups.is_disconnected("g", "a"), 30)
            (member,) = (await described(broker)).members
            assert member.heartbeats is not None
            assert member.heartbeats.age_ms is None

    asyncio.run(main())


def test_age_of_a_classic_member(tmp_path: Path) -> None:
    async def main() -> None:
        async with responsive(tmp_path) as broker:
            group = Classic(broker, ("kafka-python", "3.0.12"))
            await group.join()
            broker.network.loop = asyncio.get_running_loop()

            async def heartbeats() -> Heartbeats | None:
                return (await described(broker)).members[0].heartbeats

            since = set_age(broker, group.request.member_id, 10_000, 4_000)
            await assert_age(broker, since, heartbeats)

    asyncio.run(main())


SHARE_JOIN = ShareGroupHeartbeatRequest(group_id="g", member_id="a", subscribed_topic_names=("orders",))
STREAMS_JOIN = StreamsGroupHeartbeatRequest(
    group_id="g",
    member_id="a",
    rebalance_timeout_ms=10_000,
    topology=wire.Topology(subtopologies=(wire.Subtopology(subtopology_id="0", source_topics=("orders",)),)),
    active_tasks=(),
    standby_tasks=(),
    warmup_tasks=(),
    process_id="p",
    user_endpoint=None,
    client_tags=(),
    task_offsets=None,
    task_end_offsets=None,
)


@pytest.mark.parametrize(
    ("key", "join", "describe"),
    [(76, SHARE_JOIN, "describe_share_group"), (88, STREAMS_JOIN, "describe_streams_group")],
)
def test_share_and_streams_members_have_heartbeats(
    tmp_path: Path, key: int, join: Struct, describe: str
) -> None:
    """Without the argument `heartbeats` their descriptions are Kafka's."""

    async def main() -> None:
        two = {"share_coordinator_state_topic_num_partitions": "2"}
        async with responsive(tmp_path, **two) as broker:
            line = await Line.to(broker, None)
            joined = await line.ask(key, 1, join)
            assert joined.error_code == 0, joined.error_message
            async with Cluster([("127.0.0.1", broker.catalogue.advertised[1])]) as cluster:
                call = getattr(Admin(cluster), describe)

                async def heartbeats() -> Heartbeats | None:
                    (member,) = (await call("g", heartbeats=True)).members
                    found: Heartbeats | None = member.heartbeats
                    return found

                await assert_age(broker, set_age(broker, "a", 45_000, 30_000), heartbeats)
                found = await heartbeats()
                assert found is not None
                assert found.interval_ms in (100, 500, 5000)
                assert (await call("g", heartbeats=True)).heartbeat_policy == "responsive"
                plain = await call("g")
                assert (plain.heartbeat_policy, plain.members[0].heartbeats) == (None, None)

    asyncio.run(main())


def test_streams_group_has_both_extensions(tmp_path: Path) -> None:
    """Tagged fields are in ascending order, as the protocol requires."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            line = await Line.to(broker, None)
            assert (await line.ask(88, 1, STREAMS_JOIN)).error_code == 0
            async with Cluster([("127.0.0.1", broker.catalogue.advertised[1])]) as cluster:
                group = await Admin(cluster).describe_streams_group(
                    "g", pending_revocations=True, heartbeats=True
                )
            assert group.num_warmup_replicas is not None
            assert group.members[0].heartbeats is not None

    asyncio.run(main())


def test_extension_of_an_older_broker_has_no_age() -> None:
    """The age is a tagged field, which is absent if it is unknown; an older client skips it."""
    members = (MemberHeartbeat(member_id="a", interval_ms=1000),)
    plain = encode(HeartbeatExtension(policy="kafka", members=members), 0)
    assert plain == b"\x06kafka\x02\x02a\x00\x00\x03\xe8\x00\x00\x00"
    assert decode(HeartbeatExtension, 0, plain).members[0].age_ms == -1
    aged = encode(HeartbeatExtension(policy="kafka", members=(members[0].replace(age_ms=7),)), 0)
    assert aged[:-1] == plain[:-2] + b"\x01\x00\x08" + (7).to_bytes(8, "big")
