"""Heartbeats of share groups are held, and released as soon as the group changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.net.holds import hold_left, responsive
from tests.broker.net.raw_connections import Line, until

from konvene.broker.broker import Broker
from konvene.codec.compile import decode
from konvene.errors import Errors
from konvene.groups.share.decision import session_key
from konvene.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from konvene.messages.heartbeat_extensions import HEARTBEAT_EXTENSION, REQUEST_FIELD, HeartbeatExtension
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

SHARE_HEARTBEAT, SHARE_DESCRIBE, CREATE_PARTITIONS = 76, 77, 37
AT_ONCE = {
    "group_share_assignment_interval_ms": "0",
    "share_coordinator_state_topic_num_partitions": "2",
}


def heartbeat(member: str, epoch: int, *names: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=names or None
    )


async def join_and_hold(broker: Broker, line: Line, member: str = "a") -> int:
    """Let a member join, reach its assignment, and have a heartbeat held. Return its epoch."""
    before = len(broker.heartbeat_purgatory)
    response = await line.ask(SHARE_HEARTBEAT, 1, heartbeat(member, 0, "orders"))
    assert (response.error_code, response.heartbeat_interval_ms) == (0, 100), (
        "the group waits for its share partitions to be initialized"
    )
    while response.heartbeat_interval_ms == 100:
        response = await line.ask(SHARE_HEARTBEAT, 1, heartbeat(member, response.member_epoch))
        await asyncio.sleep(0.005)
    assert (response.member_epoch, response.heartbeat_interval_ms) == (3, 5000)
    line.send(SHARE_HEARTBEAT, 1, heartbeat(member, 3))
    await until(lambda: len(broker.heartbeat_purgatory) == before + 1)
    return 3


def partitions(answer: Any) -> list[int]:
    return [p for topic in answer.assignment.topic_partitions for p in topic.partitions]


def test_held_member_is_notified_of_a_joined_member(tmp_path: Path) -> None:
    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            await join_and_hold(broker, a)
            joined = await b.ask(SHARE_HEARTBEAT, 1, heartbeat("b", 0, "orders"))
            assert (joined.member_epoch, len(partitions(joined))) == (4, 1)
            _, response = await a.answer()
            assert (response.error_code, response.member_epoch, len(partitions(response))) == (0, 4, 1)
            assert partitions(joined) != partitions(response)

    asyncio.run(main())


def test_first_heartbeat_after_a_change_is_held_too(tmp_path: Path) -> None:
    """For less than the heartbeat interval that the response with the change had."""

    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            await join_and_hold(broker, a)
            assert (await b.ask(SHARE_HEARTBEAT, 1, heartbeat("b", 0, "orders"))).member_epoch == 4
            _, response = await a.answer()
            assert response.member_epoch == 4
            a.send(SHARE_HEARTBEAT, 1, heartbeat("a", 4))
            await until(lambda: len(broker.heartbeat_purgatory) == 1)
            assert 3.5 < hold_left(broker) <= 4.0
            assert (await b.ask(SHARE_HEARTBEAT, 1, heartbeat("b", -1))).error_code == 0
            _, response = await a.answer()
            assert (response.member_epoch, len(partitions(response))) == (5, 2)

    asyncio.run(main())


def test_first_heartbeat_of_a_connection_is_not_held(tmp_path: Path) -> None:
    """The previous response may have been lost with the other connection."""

    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a = await Line.to(broker)
            await join_and_hold(broker, a)
            again = await Line.to(broker)
            assert (await again.ask(SHARE_HEARTBEAT, 1, heartbeat("a", 3))).error_code == 0

    asyncio.run(main())


def test_held_member_gets_added_partitions_at_once(tmp_path: Path) -> None:
    """Its heartbeat is released and initializes them; the next ones return them."""

    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, admin = await Line.to(broker), await Line.to(broker)
            await join_and_hold(broker, a)
            wanted = CreatePartitionsTopic(name="orders", count=3, assignments=None)
            await admin.ask(CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=(wanted,)))
            _, response = await a.answer()
            while response.assignment is None or len(partitions(response)) < 3:
                assert response.heartbeat_interval_ms == 100
                response = await a.ask(SHARE_HEARTBEAT, 1, heartbeat("a", response.member_epoch))
                await asyncio.sleep(0.005)
            assert partitions(response) == [0, 1, 2]

    asyncio.run(main())


def test_expired_member_is_notified(tmp_path: Path) -> None:
    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a = await Line.to(broker)
            await join_and_hold(broker, a)
            coordinator = broker.groups.of("g")
            assert coordinator is not None
            assert coordinator.fire_timer(session_key("g", "a"))
            _, response = await a.answer()
            assert response.error_code == Errors.UNKNOWN_MEMBER_ID

    asyncio.run(main())


def test_held_members_are_described_on_request(tmp_path: Path) -> None:
    """In a tagged field of the group's description, only if the request has the field."""

    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, admin = await Line.to(broker), await Line.to(broker)
            await join_and_hold(broker, a)
            request = ShareGroupDescribeRequest(group_ids=("g",))
            (plain,) = (await admin.ask(SHARE_DESCRIBE, 1, request)).groups
            assert plain.unknown_tags == ()
            extended = request.replace(unknown_tags=(REQUEST_FIELD,))
            (group,) = (await admin.ask(SHARE_DESCRIBE, 1, extended)).groups
            ((tag, data),) = group.unknown_tags
            assert tag == HEARTBEAT_EXTENSION
            notes = decode(HeartbeatExtension, 0, data)
            members = [(m.member_id, m.interval_ms, m.is_held) for m in notes.members]
            assert (notes.policy, members) == ("responsive", [("a", 5000, True)])

    asyncio.run(main())
