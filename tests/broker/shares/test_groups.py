"""Share groups over a connection: members join, are given partitions, leave; an administrator looks on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.errors import Errors
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from konvene.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from konvene.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

AT_ONCE = {"group.share.assignment.interval.ms": "0", "share.coordinator.state.topic.num.partitions": "4"}


def beats(
    epoch: int, member: str = "m", names: tuple[str, ...] | None = None, group: str = "g", **more: Any
) -> ShareGroupHeartbeatRequest:
    if epoch == 0 and names is None:
        names = ("orders",)
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names, **more
    )


async def ready(client: BrokerClient, **topics: int) -> None:
    """There are coordinators, and topics to read."""
    await client.broker.groups.make_ready()
    await client.broker.groups.loaded()
    for name, partitions in (topics or {"orders": 3}).items():
        await client.topic(name, partitions)


async def until(client: BrokerClient, request: Any, found: Callable[[Any], bool]) -> Any:
    """The first answer of which that is true."""
    for _ in range(1000):
        answer = await client.send(request)
        if found(answer):
            return answer
        await asyncio.sleep(0.005)
    raise AssertionError(answer)


def assigned(answer: Any) -> list[int]:
    return [p for topic in answer.assignment.topic_partitions for p in topic.partitions]


async def joined(client: BrokerClient, member: str = "m", **more: Any) -> Any:
    """The answer with which the member hears of its partitions."""
    answer = await client.send(beats(0, member, **more))
    assert answer.error_code == Errors.NONE, answer
    if answer.assignment.topic_partitions:
        return answer
    group = more.get("group", "g")
    for _ in range(1000):
        epoch = answer.member_epoch
        answer = await client.send(beats(epoch, member, group=group))
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer
        await asyncio.sleep(0.005)
    raise AssertionError(answer)


def test_a_member_joins_and_has_all_partitions_once_they_have_begun(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        first = await client.send(beats(0))
        assert (first.error_code, first.member_id, first.member_epoch) == (0, "m", 2)
        assert assigned(first) == []
        second = await joined(client, "m")
        assert assigned(second) == [0, 1, 2]
        assert second.member_epoch == 3
        other = await client.send(beats(0, "n"))
        assert other.member_epoch == 4
        assert len(assigned(other)) == 1
        listed = await client.send(ListGroupsRequest(types_filter=("share",)))
        assert [(g.group_id, g.protocol_type, g.group_state) for g in listed.groups] == [
            ("g", "share", "Stable")
        ]
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 4, "simple")
        assert [m.member_id for m in group.members] == ["m", "n"]
        assert (await client.send(beats(-1, "m"))).member_epoch == -1
        assert (await client.send(beats(-1, "n"))).error_code == 0
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 6, 6)

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_a_broker_that_stops_while_share_partitions_begin_goes_on_with_them(tmp_path: Path) -> None:
    """SH11, SH14: members, epochs and assignments are there again, and what had to begin begins."""

    async def first(client: BrokerClient) -> None:
        await ready(client)
        assert (await client.send(beats(0))).member_epoch == 2

    async def second(client: BrokerClient) -> None:
        await client.broker.groups.loaded()
        answer = await client.send(beats(2))
        while answer.assignment is None:
            assert answer.error_code == Errors.NONE
            await asyncio.sleep(0.005)
            answer = await client.send(beats(answer.member_epoch))
        assert (answer.member_epoch, assigned(answer)) == (3, [0, 1, 2])

    async def third(client: BrokerClient) -> None:
        await client.broker.groups.loaded()
        quiet = await client.send(beats(3))
        assert (quiet.error_code, quiet.member_epoch, quiet.assignment) == (Errors.NONE, 3, None)
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        (member,) = group.members
        assert [p for t in member.assignment.topic_partitions for p in t.partitions] == [0, 1, 2]

    for scenario in (first, second, third):
        run_with_broker(tmp_path, scenario, AT_ONCE)


# --- offsets ---------------------------------------------------------------------------------------


def stands(group: str = "g", **topics: tuple[int, ...]) -> DescribeShareGroupOffsetsRequest:
    named = tuple(
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=some)
        for name, some in topics.items()
    )
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named or None)
    return DescribeShareGroupOffsetsRequest(groups=(asked,))


def moves(group: str = "g", **topics: dict[int, int]) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=tuple(
                    AlterShareGroupOffsetsRequestPartition(partition_index=p, start_offset=offset)
                    for p, offset in offsets.items()
                ),
            )
            for name, offsets in topics.items()
        ),
    )


def quits(*topics: str, group: str = "g") -> DeleteShareGroupOffsetsRequest:
    named = tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics)
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=named)


def told_offsets(answer: Any) -> dict[str, dict[int, tuple[int, int]]]:
    """Start offset and lag by topic and partition, of the one group."""
    (group,) = answer.groups
    assert group.error_code == Errors.NONE, group
    return {
        topic.topic_name: {p.partition_index: (p.start_offset, p.lag) for p in topic.partitions}
        for topic in group.topics
    }


def test_offsets_of_an_empty_group_are_altered_described_and_deleted(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=2)
        client.write("orders", b"a", b"b", b"c")
        assert told_offsets(await client.send(stands())) == {}
        await joined(client)
        assert told_offsets(await client.send(stands())) == {"orders": {0: (-1, -1), 1: (-1, -1)}}
        refused = await client.send(moves(orders={0: 1}))
        assert (refused.error_code, refused.error_message) == (
            Errors.NON_EMPTY_GROUP, "The group is not empty.",
        )  # fmt: skip
        refused = await client.send(quits("orders"))
        assert (refused.error_code, refused.responses) == (Errors.NON_EMPTY_GROUP, ())
        (result,) = (await client.send(DeleteGroupsRequest(groups_names=("g",)))).results
        assert result.error_code == Errors.NON_EMPTY_GROUP
        await client.send(beats(-1))
        altered = await client.send(moves(orders={0: 1, 7: 0}, nowhere={0: 0}))
        assert altered.error_code == Errors.NONE
        assert [(t.topic_name, [p.error_code for p in t.partitions]) for t in altered.responses] == [
            ("nowhere", [Errors.UNKNOWN_TOPIC_OR_PARTITION]),
            ("orders", [Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION]),
        ]
        assert told_offsets(await client.send(stands())) == {"orders": {0: (1, 2), 1: (-1, -1)}}
        named = told_offsets(await client.send(stands(nowhere=(0,), orders=(0,))))
        assert named == {"orders": {0: (1, 2)}, "nowhere": {0: (-1, -1)}}
        gone = await client.send(quits("orders", "nowhere"))
        assert [(t.topic_name, t.error_code) for t in gone.responses] == [
            ("orders", Errors.NONE), ("nowhere", Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ]  # fmt: skip
        assert told_offsets(await client.send(stands())) == {}
        (again,) = (await client.send(quits("orders"))).responses
        assert again.error_message == "There is no offset information to delete."

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_altered_offsets_raise_the_groups_epoch_and_last(tmp_path: Path) -> None:
    """Who serves a share partition from before is fenced by it. Offsets may be set before anybody joins."""

    async def first(client: BrokerClient) -> None:
        await ready(client, orders=1)
        client.write("orders", b"a", b"b", b"c")
        assert (await client.send(moves(orders={0: 2}))).error_code == Errors.NONE
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 2, 2)

    async def second(client: BrokerClient) -> None:
        await client.broker.groups.loaded()
        assert told_offsets(await client.send(stands())) == {"orders": {0: (2, 1)}}
        assert assigned(await client.send(beats(0))) == [0]
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert group.group_epoch == 3

    run_with_broker(tmp_path, first, AT_ONCE)
    run_with_broker(tmp_path, second, AT_ONCE)


def test_a_deleted_group_leaves_nothing_and_begins_anew(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=1)
        client.write("orders", b"a", b"b", b"c")
        await joined(client)
        await client.send(beats(-1))
        await client.send(moves(orders={0: 2}))
        (result,) = (await client.send(DeleteGroupsRequest(groups_names=("g",)))).results
        assert result.error_code == Errors.NONE
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.error_code, group.error_message) == (Errors.GROUP_ID_NOT_FOUND, "Group g not found.")
        assert told_offsets(await client.send(stands(orders=(0,)))) == {"orders": {0: (-1, -1)}}
        assert (await joined(client)).member_epoch == 3
        assert told_offsets(await client.send(stands())) == {"orders": {0: (-1, -1)}}

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_a_topic_that_is_made_again_under_its_name_begins_anew(tmp_path: Path) -> None:
    """Bug 88: state is kept by the topic's id. SH13."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=1)
        client.write("orders", b"a", b"b", b"c")
        await client.send(moves(orders={0: 2}))
        await client.drop("orders")
        again = await client.topic("orders")
        assert told_offsets(await client.send(stands())) == {}
        answer = await joined(client)
        assert [t.topic_id for t in answer.assignment.topic_partitions] == [again]
        assert told_offsets(await client.send(stands())) == {"orders": {0: (-1, -1)}}

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_partitions_that_are_added_begin_at_their_beginning(tmp_path: Path) -> None:
    """Bug 81: with `latest` nobody would have read what was written before a member heard of them. SH7."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=1)
        await joined(client)
        wanted = CreatePartitionsTopic(name="orders", count=2, assignments=None)
        await client.send(CreatePartitionsRequest(topics=(wanted,), timeout_ms=1000))
        client.write("orders", b"early", index=1)
        epoch = 3
        for _ in range(1000):
            answer = await client.send(beats(epoch))
            epoch = answer.member_epoch
            if answer.assignment is not None and assigned(answer) == [0, 1]:
                break
            await asyncio.sleep(0.005)
        assert told_offsets(await client.send(stands())) == {"orders": {0: (-1, -1), 1: (0, 1)}}

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_without_the_feature_nobody_shares(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
        assert (await client.send(UpdateFeaturesRequest(feature_updates=(off,)))).error_code == Errors.NONE
        no = Errors.UNSUPPORTED_VERSION
        assert (await client.send(beats(0))).error_code == no
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert group.error_code == no
        assert (await client.send(stands())).groups[0].error_code == no
        assert (await client.send(moves(orders={0: 0}))).error_code == no
        assert (await client.send(quits("orders"))).error_code == no

    run_with_broker(tmp_path, scenario, AT_ONCE)


# --- settings --------------------------------------------------------------------------------------


def test_there_may_be_a_limit_to_share_groups(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        assert (await client.send(beats(0, group="one"))).error_code == Errors.NONE
        assert (await client.send(beats(0, group="two"))).error_code == Errors.GROUP_MAX_SIZE_REACHED
        assert (await client.send(beats(0, "n", group="one"))).error_code == Errors.NONE

    run_with_broker(tmp_path, scenario, {**AT_ONCE, "group.share.max.groups": "1"})


def test_the_limit_holds_for_groups_that_are_made_by_altering_offsets(tmp_path: Path) -> None:
    """As by Kafka a group that is not there is made: it is in the list, though it never had a member."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=1)
        assert (await client.send(moves(orders={0: 2}))).error_code == Errors.NONE
        refused = await client.send(moves(orders={0: 2}).replace(group_id="two"))
        assert (refused.error_code, refused.responses) == (Errors.GROUP_MAX_SIZE_REACHED, ())
        assert (
            refused.error_message == "The maximum number of share groups (group.share.max.groups) is reached."
        )
        groups = (await client.send(ListGroupsRequest())).groups
        assert [(g.group_id, g.group_type, g.group_state) for g in groups] == [("g", "share", "Empty")]
        assert (await client.send(moves(orders={0: 1}))).error_code == Errors.NONE
        assert (await client.send(beats(0, group="two"))).error_code == Errors.GROUP_MAX_SIZE_REACHED

    run_with_broker(tmp_path, scenario, {**AT_ONCE, "group.share.max.groups": "1"})


def test_a_group_is_told_its_settings_by_kafkas_names_and_by_those_of_the_kip(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        for name, value in (
            ("share.heartbeat.interval.ms", "6000"),
            ("group.share.heartbeat.interval.ms", "7000"),
        ):
            wanted = AlterConfigsResource(
                resource_type=32, resource_name="g", configs=(AlterableConfig(name=name, value=value),)
            )
            (result,) = (await client.send(IncrementalAlterConfigsRequest(resources=(wanted,)))).responses
            assert result.error_code == Errors.NONE, result
            assert (await client.send(beats(0))).heartbeat_interval_ms == int(value)

    run_with_broker(tmp_path, scenario, {**AT_ONCE, "konvene.heartbeat.policy": "kafka"})
