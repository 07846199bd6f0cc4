"""What admins ask of share groups, against brokers that answer what a test tells them to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.cli.commands import call
from tests.client.scripted import ScriptedBroker

from konvene.client.admin.admin import Admin
from konvene.client.admin.share_groups import InFlightRecords, SharePartitionOffset
from konvene.client.errors import BadResponse, KafkaError, UnsupportedVersion
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.compile import encode
from konvene.errors import Errors
from konvene.messages.describe_groups import DescribedGroup as Classic
from konvene.messages.describe_groups import DescribeGroupsResponse
from konvene.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from konvene.messages.in_flight_extensions import (
    IN_FLIGHT_EXTENSION,
    REQUEST_FIELD,
    InFlightExtension,
    InFlightRange,
)
from konvene.messages.share_group_describe import DescribedGroup, ShareGroupDescribeResponse

TP = TopicPartition("t", 0)


def offsets(
    *partitions: DescribeShareGroupOffsetsResponsePartition,
) -> DescribeShareGroupOffsetsResponse:
    topic = DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=partitions)
    group = DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=(topic,))
    return DescribeShareGroupOffsetsResponse(groups=(group,))


def row(**fields: Any) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(**fields)


def ask(broker: ScriptedBroker, question: Callable[[Admin], Awaitable[Any]]) -> Any:
    async def job() -> Any:
        async with Cluster(broker.address) as cluster:
            return await question(Admin(cluster))

    return asyncio.run(job())


def test_what_a_broker_does_not_know_or_say_is_none() -> None:
    """No start offset yet; no lag before version 1; nothing beside it from brokers that are not ours."""
    told = offsets(
        row(partition_index=0, start_offset=-1, leader_epoch=-1, lag=-1),
        row(partition_index=1, start_offset=7, leader_epoch=3, lag=-1),
        row(partition_index=2, error_code=Errors.COORDINATOR_NOT_AVAILABLE, error_message="not yet"),
    )
    with ScriptedBroker(DescribeShareGroupOffsets=told) as broker:
        found = ask(broker, lambda admin: admin.list_share_group_offsets({"g": None}))["g"]
        assert broker.requests[-1].unknown_tags == ()
    assert found[TP] == SharePartitionOffset(None, None, None)
    assert found[TopicPartition("t", 1)] == SharePartitionOffset(7, 3, None)
    error = found[TopicPartition("t", 2)].error
    assert isinstance(error, KafkaError)
    assert str(error) == "the offset of t-2 in group g: COORDINATOR_NOT_AVAILABLE: not yet"


def test_who_has_which_records_is_asked_for_and_read() -> None:
    held = InFlightRange(
        first_offset=3, last_offset=5, state=1, member_id="m", delivery_count=2, held_ms=10, lock_left_ms=20
    )
    free = InFlightRange(first_offset=6, last_offset=6, state=9, delivery_count=1)
    notes = encode(InFlightExtension(records=(held, free)), 0)
    told = offsets(row(start_offset=3).replace(unknown_tags=((IN_FLIGHT_EXTENSION, notes),)))
    with ScriptedBroker(DescribeShareGroupOffsets=told) as broker:
        found = ask(broker, lambda admin: admin.list_share_group_offsets({"g": [TP]}, in_flight=True))
        asked = broker.requests[-1]
    assert asked.unknown_tags == (REQUEST_FIELD,)
    assert asked.groups[0].topics[0].partitions == (0,)
    assert found["g"][TP].in_flight == (
        InFlightRecords(3, 5, "acquired", "m", 2, 10, 20),
        InFlightRecords(6, 6, "9", None, 1, None, None),
    )


def test_notes_that_cannot_be_read_are_no_answer() -> None:
    told = offsets(row(start_offset=3).replace(unknown_tags=((IN_FLIGHT_EXTENSION, b"\x05"),)))
    with ScriptedBroker(DescribeShareGroupOffsets=told) as broker, pytest.raises(BadResponse):
        ask(broker, lambda admin: admin.list_share_group_offsets({"g": None}, in_flight=True))


def test_a_cluster_without_share_groups_says_so() -> None:
    with ScriptedBroker() as broker, pytest.raises(UnsupportedVersion, match="does not support share groups"):
        ask(broker, lambda admin: admin.describe_share_group("g"))


def test_an_older_cluster_is_shown_what_it_can_have() -> None:
    """It has no share groups; then there is no such group."""
    none = DescribeGroupsResponse(groups=(Classic(group_id="g", group_state="Dead"),))
    with ScriptedBroker(DescribeGroups=none) as broker:
        said = call(broker, "groups", "describe", "g")
    assert (said.code, said.err.splitlines()[0]) == (1, "konvene: there is no group g")


def test_partitions_of_which_nothing_is_known_are_told_beside_the_others() -> None:
    none = DescribeGroupsResponse(groups=(Classic(group_id="g", group_state="Dead"),))
    group = DescribedGroup(group_id="g", group_state="Empty", assignor_name="simple")
    told = offsets(
        row(partition_index=0, start_offset=1, lag=2),
        row(partition_index=1, error_code=Errors.COORDINATOR_NOT_AVAILABLE),
    )
    with ScriptedBroker(
        DescribeGroups=none, ShareGroupDescribe=ShareGroupDescribeResponse(groups=(group,)),
        DescribeShareGroupOffsets=told,
    ) as broker:  # fmt: skip
        said = call(broker, "groups", "describe", "g")
        shown = call(broker, "groups", "describe", "g", "--in-flight")
    assert said.lines[1:] == [["g", "t", "0", "1", "2"], ["g", "t", "1", "-", "-"]]
    assert said.err == (
        "Share group 'g' has no active members.\n"
        "Warning: the offset of t-1 in group g: COORDINATOR_NOT_AVAILABLE\n"
    )
    assert shown.err.endswith("This broker does not report in-flight records; konvene brokers do.\n")
