"""Heartbeats of share groups are held as others are, and leave as soon as there is something to tell."""

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


def says(member: str, epoch: int, *names: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=names or None
    )


async def held(broker: Broker, line: Line, member: str = "a") -> int:
    """Let a member join, have its partitions, and be one whose heartbeat is held; its epoch."""
    before = len(broker.heartbeat_purgatory)
    told = await line.ask(SHARE_HEARTBEAT, 1, says(member, 0, "orders"))
    assert (told.error_code, told.heartbeat_interval_ms) == (0, 500), "it waits for what has to begin"
    while told.heartbeat_interval_ms == 500:
        told = await line.ask(SHARE_HEARTBEAT, 1, says(member, told.member_epoch))
        await asyncio.sleep(0.005)
    assert (told.member_epoch, told.heartbeat_interval_ms) == (3, 5000)
    line.send(SHARE_HEARTBEAT, 1, says(member, 3))
    await until(lambda: len(broker.heartbeat_purgatory) == before + 1)
    return 3


def partitions(answer: Any) -> list[int]:
    return [p for topic in answer.assignment.topic_partitions for p in topic.partitions]


def test_a_member_hears_at_once_who_joined(tmp_path: Path) -> None:
    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            await held(broker, a)
            joined = await b.ask(SHARE_HEARTBEAT, 1, says("b", 0, "orders"))
            assert (joined.member_epoch, len(partitions(joined))) == (4, 1)
            _, told = await a.answer()
            assert (told.error_code, told.member_epoch, len(partitions(told))) == (0, 4, 1)
            assert partitions(joined) != partitions(told)

    asyncio.run(main())


def test_a_member_that_has_just_heard_of_one_change_hears_at_once_of_the_next(tmp_path: Path) -> None:
    """The first heartbeat after news is held as well, for less than was told with the news."""

    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            await held(broker, a)
            assert (await b.ask(SHARE_HEARTBEAT, 1, says("b", 0, "orders"))).member_epoch == 4
            _, told = await a.answer()
            assert told.member_epoch == 4
            a.send(SHARE_HEARTBEAT, 1, says("a", 4))
            await until(lambda: len(broker.heartbeat_purgatory) == 1)
            assert 3.5 < hold_left(broker) <= 4.0
            assert (await b.ask(SHARE_HEARTBEAT, 1, says("b", -1))).error_code == 0
            _, told = await a.answer()
            assert (told.member_epoch, len(partitions(told))) == (5, 2)

    asyncio.run(main())


def test_on_a_new_connection_the_first_heartbeat_is_answered(tmp_path: Path) -> None:
    """What was told before may have been lost with the other one."""

    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a = await Line.to(broker)
            await held(broker, a)
            again = await Line.to(broker)
            assert (await again.ask(SHARE_HEARTBEAT, 1, says("a", 3))).error_code == 0

    asyncio.run(main())


def test_a_member_has_added_partitions_without_waiting_for_its_interval(tmp_path: Path) -> None:
    """Its heartbeat leaves, begins with them, and the next ones find that they have begun."""

    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, admin = await Line.to(broker), await Line.to(broker)
            await held(broker, a)
            wanted = CreatePartitionsTopic(name="orders", count=3, assignments=None)
            await admin.ask(CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=(wanted,)))
            _, told = await a.answer()
            while told.assignment is None or len(partitions(told)) < 3:
                assert told.heartbeat_interval_ms == 500
                told = await a.ask(SHARE_HEARTBEAT, 1, says("a", told.member_epoch))
                await asyncio.sleep(0.005)
            assert partitions(told) == [0, 1, 2]

    asyncio.run(main())


def test_a_member_whose_session_is_over_hears_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a = await Line.to(broker)
            await held(broker, a)
            coordinator = broker.groups.of("g")
            assert coordinator is not None
            assert coordinator.fire_timer(session_key("g", "a"))
            _, told = await a.answer()
            assert told.error_code == Errors.UNKNOWN_MEMBER_ID

    asyncio.run(main())


def test_who_is_held_is_told_to_who_asks(tmp_path: Path) -> None:
    """Beside the group's description, in a tagged field; and to nobody else."""

    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, admin = await Line.to(broker), await Line.to(broker)
            await held(broker, a)
            request = ShareGroupDescribeRequest(group_ids=("g",))
            (plain,) = (await admin.ask(SHARE_DESCRIBE, 1, request)).groups
            assert plain.unknown_tags == ()
            asked = request.replace(unknown_tags=(REQUEST_FIELD,))
            (group,) = (await admin.ask(SHARE_DESCRIBE, 1, asked)).groups
            ((tag, data),) = group.unknown_tags
            assert tag == HEARTBEAT_EXTENSION
            notes = decode(HeartbeatExtension, 0, data)
            told = [(m.member_id, m.interval_ms, m.is_held) for m in notes.members]
            assert (notes.policy, told) == ("responsive", [("a", 5000, True)])

    asyncio.run(main())
