"""Share groups over a connection: membership, assignment, offsets, group configs."""

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


def heartbeat(
    epoch: int, member: str = "m", names: tuple[str, ...] | None = None, group: str = "g", **more: Any
) -> ShareGroupHeartbeatRequest:
    if epoch == 0 and names is None:
        names = ("orders",)
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names, **more
    )


async def ready(client: BrokerClient, **topics: int) -> None:
    """Wait until the group coordinators have loaded, and create topics."""
    await client.broker.groups.make_ready()
    await client.broker.groups.loaded()
    for name, partitions in (topics or {"orders": 3}).items():
        await client.topic(name, partitions)


async def until(client: BrokerClient, request: Any, found: Callable[[Any], bool]) -> Any:
    """Repeat a request until `found` accepts the response; return it."""
    for _ in range(1000):
        answer = await client.send(request)
        if found(answer):
            return answer
        await asyncio.sleep(0.005)
    raise AssertionError(answer)


def assigned(answer: Any) -> list[int]:
    return [p for topic in answer.assignment.topic_partitions for p in topic.partitions]


async def joined(client: BrokerClient, member: str = "m", **more: Any) -> Any:
    """Join, send heartbeats until partitions are assigned, and return that response."""
    answer = await client.send(heartbeat(0, member, **more))
    assert answer.error_code == Errors.NONE, answer
    if answer.assignment.topic_partitions:
        return answer
    group = more.get("group", "g")
    for _ in range(1000):
        epoch = answer.member_epoch
        answer = await client.send(heartbeat(epoch, member, group=group))
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer
        await asyncio.sleep(0.005)
    raise AssertionError(answer)


def test_a_member_is_assigned_all_partitions_once_they_are_initialized(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        first = await client.send(heartbeat(0))
        assert (first.error_code, first.member_id, first.member_epoch) == (0, "m", 2)
        assert assigned(first) == []
        second = await joined(client, "m")
        assert assigned(second) == [0, 1, 2]
        assert second.member_epoch == 3
        other = await client.send(heartbeat(0, "n"))
        assert other.member_epoch == 4
        assert len(assigned(other)) == 1
        listed = await client.send(ListGroupsRequest(types_filter=("share",)))
        assert [(g.group_id, g.protocol_type, g.group_state) for g in listed.groups] == [
            ("g", "share", "Stable")
        ]
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 4, "simple")
        assert [m.member_id for m in group.members] == ["m", "n"]
        assert (await client.send(heartbeat(-1, "m"))).member_epoch == -1
        assert (await client.send(heartbeat(-1, "n"))).error_code == 0
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 6, 6)

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_initialization_of_share_partitions_continues_after_a_restart(tmp_path: Path) -> None:
    """SH11, SH14: members, epochs and assignments are restored, and pending initializations complete."""

    async def first(client: BrokerClient) -> None:
        await ready(client)
        assert (await client.send(heartbeat(0))).member_epoch == 2

    async def second(client: BrokerClient) -> None:
        await client.broker.groups.loaded()
        answer = await client.send(heartbeat(2))
        while answer.assignment is None or not assigned(answer):
            assert answer.error_code == Errors.NONE
            await asyncio.sleep(0.005)
            answer = await client.send(heartbeat(answer.member_epoch))
        assert (answer.member_epoch, assigned(answer)) == (3, [0, 1, 2])

    async def third(client: BrokerClient) -> None:
        await client.broker.groups.loaded()
        again = await client.send(heartbeat(3))  # The first one of a connection has the assignment.
        assert (again.error_code, again.member_epoch, assigned(again)) == (Errors.NONE, 3, [0, 1, 2])
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        (member,) = group.members
        assert [p for t in member.assignment.topic_partitions for p in t.partitions] == [0, 1, 2]

    for scenario in (first, second, third):
        run_with_broker(tmp_path, scenario, AT_ONCE)


# --- offsets ---------------------------------------------------------------------------------------


def describe_offsets(group: str = "g", **topics: tuple[int, ...]) -> DescribeShareGroupOffsetsRequest:
    named = tuple(
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=some)
        for name, some in topics.items()
    )
    requested = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named or None)
    return DescribeShareGroupOffsetsRequest(groups=(requested,))


def alter_offsets(group: str = "g", **topics: dict[int, int]) -> AlterShareGroupOffsetsRequest:
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


def delete_offsets(*topics: str, group: str = "g") -> DeleteShareGroupOffsetsRequest:
    named = tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics)
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=named)


def described_offsets(answer: Any) -> dict[str, dict[int, tuple[int, int]]]:
    """Return start offset and lag by topic and partition of the only group in the response."""
    (group,) = answer.groups
    assert group.error_code == Errors.NONE, group
    return {
        topic.topic_name: {p.partition_index: (p.start_offset, p.lag) for p in topic.partitions}
        for topic in group.topics
    }


def test_offsets_of_an_empty_group_can_be_altered_described_and_deleted(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=2)
        client.write("orders", b"a", b"b", b"c")
        assert described_offsets(await client.send(describe_offsets())) == {}
        await joined(client)
        assert described_offsets(await client.send(describe_offsets())) == {
            "orders": {0: (-1, -1), 1: (-1, -1)}
        }
        refused = await client.send(alter_offsets(orders={0: 1}))
        assert (refused.error_code, refused.error_message) == (
            Errors.NON_EMPTY_GROUP, "The group is not empty.",
        )  # fmt: skip
        refused = await client.send(delete_offsets("orders"))
        assert (refused.error_code, refused.responses) == (Errors.NON_EMPTY_GROUP, ())
        (result,) = (await client.send(DeleteGroupsRequest(groups_names=("g",)))).results
        assert result.error_code == Errors.NON_EMPTY_GROUP
        await client.send(heartbeat(-1))
        altered = await client.send(alter_offsets(orders={0: 1, 7: 0}, nowhere={0: 0}))
        assert altered.error_code == Errors.NONE
        assert [(t.topic_name, [p.error_code for p in t.partitions]) for t in altered.responses] == [
            ("nowhere", [Errors.UNKNOWN_TOPIC_OR_PARTITION]),
            ("orders", [Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION]),
        ]
        assert described_offsets(await client.send(describe_offsets())) == {
            "orders": {0: (1, 2), 1: (-1, -1)}
        }
        named = described_offsets(await client.send(describe_offsets(nowhere=(0,), orders=(0,))))
        assert named == {"orders": {0: (1, 2)}, "nowhere": {0: (-1, -1)}}
        deleted = await client.send(delete_offsets("orders", "nowhere"))
        assert [(t.topic_name, t.error_code) for t in deleted.responses] == [
            ("orders", Errors.NONE), ("nowhere", Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ]  # fmt: skip
        assert described_offsets(await client.send(describe_offsets())) == {}
        (again,) = (await client.send(delete_offsets("orders"))).responses
        assert again.error_message == "There is no offset information to delete."

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_altered_offsets_bump_the_group_epoch_and_survive_a_restart(tmp_path: Path) -> None:
    """Servers of the old state epoch are fenced. Offsets can be altered before the first member joins."""

    async def first(client: BrokerClient) -> None:
        await ready(client, orders=1)
        client.write("orders", b"a", b"b", b"c")
        assert (await client.send(alter_offsets(orders={0: 2}))).error_code == Errors.NONE
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 2, 2)

    async def second(client: BrokerClient) -> None:
        await client.broker.groups.loaded()
        assert described_offsets(await client.send(describe_offsets())) == {"orders": {0: (2, 1)}}
        assert assigned(await client.send(heartbeat(0))) == [0]
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert group.group_epoch == 3

    run_with_broker(tmp_path, first, AT_ONCE)
    run_with_broker(tmp_path, second, AT_ONCE)


def test_a_deleted_group_leaves_no_state(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=1)
        client.write("orders", b"a", b"b", b"c")
        await joined(client)
        await client.send(heartbeat(-1))
        await client.send(alter_offsets(orders={0: 2}))
        (result,) = (await client.send(DeleteGroupsRequest(groups_names=("g",)))).results
        assert result.error_code == Errors.NONE
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert (group.error_code, group.error_message) == (Errors.GROUP_ID_NOT_FOUND, "Group g not found.")
        assert described_offsets(await client.send(describe_offsets(orders=(0,)))) == {
            "orders": {0: (-1, -1)}
        }
        assert (await joined(client)).member_epoch == 3
        assert described_offsets(await client.send(describe_offsets())) == {"orders": {0: (-1, -1)}}

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_a_recreated_topic_starts_without_state(tmp_path: Path) -> None:
    """Bug 88, SH13: state is keyed by topic id."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=1)
        client.write("orders", b"a", b"b", b"c")
        await client.send(alter_offsets(orders={0: 2}))
        await client.drop("orders")
        again = await client.topic("orders")
        assert described_offsets(await client.send(describe_offsets())) == {}
        answer = await joined(client)
        assert [t.topic_id for t in answer.assignment.topic_partitions] == [again]
        assert described_offsets(await client.send(describe_offsets())) == {"orders": {0: (-1, -1)}}

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_added_partitions_start_at_their_first_offset(tmp_path: Path) -> None:
    """Bug 81, SH7: with `latest`, records written before the assignment would not be delivered."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=1)
        await joined(client)
        wanted = CreatePartitionsTopic(name="orders", count=2, assignments=None)
        await client.send(CreatePartitionsRequest(topics=(wanted,), timeout_ms=1000))
        client.write("orders", b"early", index=1)
        epoch = 3
        for _ in range(1000):
            answer = await client.send(heartbeat(epoch))
            epoch = answer.member_epoch
            if answer.assignment is not None and assigned(answer) == [0, 1]:
                break
            await asyncio.sleep(0.005)
        assert described_offsets(await client.send(describe_offsets())) == {
            "orders": {0: (-1, -1), 1: (0, 1)}
        }

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_share_requests_are_rejected_without_the_feature(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
        assert (await client.send(UpdateFeaturesRequest(feature_updates=(off,)))).error_code == Errors.NONE
        no = Errors.UNSUPPORTED_VERSION
        assert (await client.send(heartbeat(0))).error_code == no
        (group,) = (await client.send(ShareGroupDescribeRequest(group_ids=("g",)))).groups
        assert group.error_code == no
        assert (await client.send(describe_offsets())).groups[0].error_code == no
        assert (await client.send(alter_offsets(orders={0: 0}))).error_code == no
        assert (await client.send(delete_offsets("orders"))).error_code == no

    run_with_broker(tmp_path, scenario, AT_ONCE)


# --- settings --------------------------------------------------------------------------------------


def test_the_number_of_share_groups_is_limited(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        assert (await client.send(heartbeat(0, group="one"))).error_code == Errors.NONE
        assert (await client.send(heartbeat(0, group="two"))).error_code == Errors.GROUP_MAX_SIZE_REACHED
        assert (await client.send(heartbeat(0, "n", group="one"))).error_code == Errors.NONE

    run_with_broker(tmp_path, scenario, {**AT_ONCE, "group.share.max.groups": "1"})


def test_the_limit_includes_groups_created_by_altering_offsets(tmp_path: Path) -> None:
    """Altering offsets creates an unknown group, as in Kafka; it is listed without ever having a member."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client, orders=1)
        assert (await client.send(alter_offsets(orders={0: 2}))).error_code == Errors.NONE
        refused = await client.send(alter_offsets(orders={0: 2}).replace(group_id="two"))
        assert (refused.error_code, refused.responses) == (Errors.GROUP_MAX_SIZE_REACHED, ())
        assert (
            refused.error_message == "The maximum number of share groups (group.share.max.groups) is reached."
        )
        groups = (await client.send(ListGroupsRequest())).groups
        assert [(g.group_id, g.group_type, g.group_state) for g in groups] == [("g", "share", "Empty")]
        assert (await client.send(alter_offsets(orders={0: 1}))).error_code == Errors.NONE
        assert (await client.send(heartbeat(0, group="two"))).error_code == Errors.GROUP_MAX_SIZE_REACHED

    run_with_broker(tmp_path, scenario, {**AT_ONCE, "group.share.max.groups": "1"})


def test_group_configs_are_accepted_by_kafkas_names_and_by_those_of_the_kip(tmp_path: Path) -> None:
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
            assert (await client.send(heartbeat(0))).heartbeat_interval_ms == int(value)

    run_with_broker(tmp_path, scenario, {**AT_ONCE, "konvene.heartbeat.policy": "kafka"})
