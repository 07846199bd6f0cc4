"""Error responses: every API with an error code reports it in every version; the APIs without one are
listed."""

from __future__ import annotations

import pytest

from konvene.broker.net.frames import Route, routes
from konvene.broker.net.router import HANDLERS
from konvene.codec.compile import decode
from konvene.errors import Errors
from konvene.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from konvene.testing.error_response import NoErrorField, error_response, has_error_field

ROUTES = routes(HANDLERS)

WITHOUT_TOP_LEVEL_ERROR = {
    "AlterClientQuotas", "AlterUserScramCredentials", "DescribeGroups", "CreateTopics", "DeleteTopics",
    "DeleteRecords", "OffsetForLeaderEpoch", "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterConfigs",
    "AlterReplicaLogDirs", "CreatePartitions", "DeleteGroups", "IncrementalAlterConfigs",
    "DescribeProducers", "ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe",
    "DescribeTopicPartitions", "DescribeTransactions", "WriteTxnMarkers", "InitializeShareGroupState",
    "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
    "DescribeShareGroupOffsets",
}  # fmt: skip
"""APIs that report errors only row by row and that group members do not use."""

REQUESTS = {
    request.__key__: request
    for request in (
        ProduceRequest(topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(),)),)),
        FetchRequest(topics=(FetchTopic(topic="t", partitions=(FetchPartition(),)),)),
        ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=(ListOffsetsPartition(),)),)),
        MetadataRequest(topics=(MetadataRequestTopic(name="t"),)),
        OffsetCommitRequest(
            topics=(OffsetCommitRequestTopic(name="t", partitions=(OffsetCommitRequestPartition(),)),)
        ),
        OffsetFetchRequest(
            group_id="g",
            topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),),
            groups=(OffsetFetchRequestGroup(group_id="g"),),
        ),
        FindCoordinatorRequest(key="g", coordinator_keys=("g",)),
        JoinGroupRequest(group_id="g"),
        AddPartitionsToTxnRequest(v3_and_below_topics=(AddPartitionsToTxnTopic(name="t", partitions=(0,)),)),
        TxnOffsetCommitRequest(
            topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(TxnOffsetCommitRequestPartition(),)),)
        ),
    )
}
"""Requests with one row, for APIs that report errors row by row."""


def test_apis_without_error_code_are_listed() -> None:
    """`WITHOUT_TOP_LEVEL_ERROR` is complete; `error_response` raises for these APIs."""
    assert {r.api.name for r in ROUTES.values() if not has_error_field(r.api)} == WITHOUT_TOP_LEVEL_ERROR
    with pytest.raises(NoErrorField):
        error_response(ROUTES[15].api, 5, None, Errors.NOT_COORDINATOR)


@pytest.mark.parametrize(
    "route", [r for r in ROUTES.values() if has_error_field(r.api)], ids=lambda r: r.api.name
)
def test_response_has_the_error_in_every_version(route: Route) -> None:
    """The encoded response decodes to one with the error code."""
    request = REQUESTS.get(route.api.key, route.api.request())
    without_error = []
    for version in range(route.first, route.last + 1):
        if not has_error_field(route.api, version):
            without_error.append(version)
            continue
        response = error_response(route.api, version, request, Errors.NOT_COORDINATOR)
        frame = b"".join(route.write(version, 7, response))
        header = 4 + (1 if route.api.response_header_version(version) else 0)
        decoded = decode(route.api.response, version, frame[4 + header :])
        assert "error_code=16" in repr(decoded).replace("<Errors.NOT_COORDINATOR: 16>", "16")
    assert without_error == [v for v in VERSIONS_WITHOUT_ERROR.get(route.api.name, ()) if v >= route.first]


VERSIONS_WITHOUT_ERROR = {"DescribeLogDirs": (1, 2), "ElectLeaders": (0,)}
"""Versions whose response has no error code."""
