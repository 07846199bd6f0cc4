"""Share groups over a connection: members join, are given partitions, leave; an administrator looks on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.handlers.asking import Asking, told

from konvene.errors import Errors
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

AT_ONCE = {"group.share.assignment.interval.ms": "0", "share.coordinator.state.topic.num.partitions": "4"}


def beats(
    epoch: int, member: str = "m", names: tuple[str, ...] | None = None, group: str = "g", **more: Any
) -> ShareGroupHeartbeatRequest:
    if epoch == 0 and names is None:
        names = ("orders",)
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names, **more
    )


async def ready(client: Asking, **topics: int) -> None:
    """There are coordinators, and topics to read."""
    await client.broker.groups.make_ready()
    await client.broker.groups.loaded()
    for name, partitions in (topics or {"orders": 3}).items():
        await client.topic(name, partitions)


async def until(client: Asking, request: Any, found: Callable[[Any], bool]) -> Any:
    """The first answer of which that is true."""
    for _ in range(1000):
        answer = await client.ask(request)
        if found(answer):
            return answer
        await asyncio.sleep(0.005)
    raise AssertionError(answer)


def assigned(answer: Any) -> list[int]:
    return [p for topic in answer.assignment.topic_partitions for p in topic.partitions]


async def joined(client: Asking, member: str = "m", **more: Any) -> Any:
    """The answer with which the member hears of its partitions."""
    answer = await client.ask(beats(0, member, **more))
    assert answer.error_code == Errors.NONE, answer
    if answer.assignment.topic_partitions:
        return answer
    group = more.get("group", "g")
    for _ in range(1000):
        epoch = answer.member_epoch
        answer = await client.ask(beats(epoch, member, group=group))
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer
        await asyncio.sleep(0.005)
    raise AssertionError(answer)


def test_a_member_joins_and_has_all_partitions_once_they_have_begun(tmp_path: Path) -> None:
    async def story(client: Asking) -> None:
        await ready(client)
        first = await client.ask(beats(0))
        assert (first.error_code, first.member_id, first.member_epoch) == (0, "m", 2)
        assert assigned(first) == []
        second = await joined(client, "m")
        assert assigned(second) == [0, 1, 2]
        assert second.member_epoch == 3
        other = await client.ask(beats(0, "n"))
        assert other.member_epoch == 4
        assert len(assigned(other)) == 1
        listed = await client.ask(ListGroupsRequest(types_filter=("share",)))
        assert [(g.group_id, g.protocol_type, g.group_state) for g in listed.groups] == [
            ("g", "share", "Stable")
        ]
        (group,) = (await client.ask(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 4, "simple")
        assert [m.member_id for m in group.members] == ["m", "n"]
        assert (await client.ask(beats(-1, "m"))).member_epoch == -1
        assert (await client.ask(beats(-1, "n"))).error_code == 0
        (group,) = (await client.ask(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 6, 6)

    told(tmp_path, story, AT_ONCE)
