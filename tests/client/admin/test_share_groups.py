"""Admin requests about share groups, against a broker with scripted responses."""

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


def with_admin(broker: ScriptedBroker, call_admin: Callable[[Admin], Awaitable[Any]]) -> Any:
    async def job() -> Any:
        async with Cluster(broker.address) as cluster:
            return await call_admin(Admin(cluster))

    return asyncio.run(job())


def test_unknown_values_are_none() -> None:
    """Without a start offset, without a lag (before version 1), and without in-flight records of other
    brokers."""
    response = offsets(
        row(partition_index=0, start_offset=-1, leader_epoch=-1, lag=-1),
        row(partition_index=1, start_offset=7, leader_epoch=3, lag=-1),
        row(partition_index=2, error_code=Errors.COORDINATOR_NOT_AVAILABLE, error_message="not yet"),
    )
    with ScriptedBroker(DescribeShareGroupOffsets=response) as broker:
        found = with_admin(broker, lambda admin: admin.list_share_group_offsets({"g": None}))["g"]
        assert broker.requests[-1].unknown_tags == ()
    assert found[TP] == SharePartitionOffset(None, None, None)
    assert found[TopicPartition("t", 1)] == SharePartitionOffset(7, 3, None)
    error = found[TopicPartition("t", 2)].error
    assert isinstance(error, KafkaError)
    assert str(error) == "the offset of t-2 in group g: COORDINATOR_NOT_AVAILABLE: not yet"


def test_in_flight_records_are_requested_and_decoded() -> None:
    held = InFlightRange(
        first_offset=3, last_offset=5, state=1, member_id="m", delivery_count=2, held_ms=10, lock_left_ms=20
    )
    free = InFlightRange(first_offset=6, last_offset=6, state=9, delivery_count=1)
    extension = encode(InFlightExtension(records=(held, free)), 0)
    response = offsets(row(start_offset=3).replace(unknown_tags=((IN_FLIGHT_EXTENSION, extension),)))
    with ScriptedBroker(DescribeShareGroupOffsets=response) as broker:
        found = with_admin(broker, lambda admin: admin.list_share_group_offsets({"g": [TP]}, in_flight=True))
        request = broker.requests[-1]
    assert request.unknown_tags == (REQUEST_FIELD,)
    assert request.groups[0].topics[0].partitions == (0,)
    assert found["g"][TP].in_flight == (
        InFlightRecords(3, 5, "acquired", "m", 2, 10, 20),
        InFlightRecords(6, 6, "9", None, 1, None, None),
    )


def test_undecodable_extension_is_a_bad_response() -> None:
    response = offsets(row(start_offset=3).replace(unknown_tags=((IN_FLIGHT_EXTENSION, b"\x05"),)))
    with ScriptedBroker(DescribeShareGroupOffsets=response) as broker, pytest.raises(BadResponse):
        with_admin(broker, lambda admin: admin.list_share_group_offsets({"g": None}, in_flight=True))


def test_cluster_without_share_groups_raises_unsupported_version() -> None:
    with ScriptedBroker() as broker, pytest.raises(UnsupportedVersion, match="does not support share groups"):
        with_admin(broker, lambda admin: admin.describe_share_group("g"))


def test_describe_works_on_a_cluster_without_share_groups() -> None:
    """A cluster without share groups has no such group."""
    none = DescribeGroupsResponse(groups=(Classic(group_id="g", group_state="Dead"),))
    with ScriptedBroker(DescribeGroups=none) as broker:
        result = call(broker, "groups", "describe", "g")
    assert (result.code, result.err.splitlines()[0]) == (1, "konvene: there is no group g")


def test_partitions_with_errors_are_listed_with_a_warning() -> None:
    none = DescribeGroupsResponse(groups=(Classic(group_id="g", group_state="Dead"),))
    group = DescribedGroup(group_id="g", group_state="Empty", assignor_name="simple")
    response = offsets(
        row(partition_index=0, start_offset=1, lag=2),
        row(partition_index=1, error_code=Errors.COORDINATOR_NOT_AVAILABLE),
    )
    with ScriptedBroker(
        DescribeGroups=none, ShareGroupDescribe=ShareGroupDescribeResponse(groups=(group,)),
        DescribeShareGroupOffsets=response,
    ) as broker:  # fmt: skip
        result = call(broker, "groups", "describe", "g")
        in_flight = call(broker, "groups", "describe", "g", "--in-flight")
    assert result.lines[1:] == [["g", "t", "0", "1", "2"], ["g", "t", "1", "-", "-"]]
    assert result.err == (
        "Share group 'g' has no active members.\n"
        "Warning: the offset of t-1 in group g: COORDINATOR_NOT_AVAILABLE\n"
    )
    assert in_flight.err.endswith("This broker does not report in-flight records; konvene brokers do.\n")
