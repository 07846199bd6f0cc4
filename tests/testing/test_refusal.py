"""Every API that can say an error says it, in every version; the others are known."""

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
from konvene.testing.refusal import CannotRefuse, can_be_refused, refusal

ROUTES = routes(HANDLERS)

CANNOT = {
    "DescribeGroups", "CreateTopics", "DeleteTopics", "DeleteRecords", "OffsetForLeaderEpoch", "CreateAcls",
    "DeleteAcls", "DescribeConfigs", "AlterConfigs", "AlterReplicaLogDirs", "CreatePartitions",
    "DeleteGroups", "IncrementalAlterConfigs", "DescribeProducers", "ConsumerGroupDescribe",
    "ShareGroupDescribe", "StreamsGroupDescribe", "DescribeTopicPartitions", "DescribeTransactions",
    "WriteTxnMarkers", "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState",
    "DeleteShareGroupState", "ReadShareGroupStateSummary", "DescribeShareGroupOffsets",
}  # fmt: skip
"""They say errors row by row, and are no business of members."""

ASKED = {
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
"""Requests with a row, where errors are told in rows."""


def test_who_cannot_be_refused_is_known() -> None:
    """The list above is whole; asking for it is an error."""
    assert {r.api.name for r in ROUTES.values() if not can_be_refused(r.api)} == CANNOT
    with pytest.raises(CannotRefuse):
        refusal(ROUTES[15].api, 5, None, Errors.NOT_COORDINATOR)


@pytest.mark.parametrize(
    "route", [r for r in ROUTES.values() if can_be_refused(r.api)], ids=lambda r: r.api.name
)
def test_the_error_is_in_the_response(route: Route) -> None:
    """In each version it can be written, and what is read back holds the error."""
    request = ASKED.get(route.api.key, route.api.request())
    silent = []
    for version in range(route.first, route.last + 1):
        if not can_be_refused(route.api, version):
            silent.append(version)
            continue
        response = refusal(route.api, version, request, Errors.NOT_COORDINATOR)
        frame = b"".join(route.write(version, 7, response))
        header = 4 + (1 if route.api.response_header_version(version) else 0)
        found = decode(route.api.response, version, frame[4 + header :])
        assert "error_code=16" in repr(found).replace("<Errors.NOT_COORDINATOR: 16>", "16")
    assert silent == [v for v in NO_ERROR_YET.get(route.api.name, ()) if v >= route.first]


NO_ERROR_YET = {"DescribeLogDirs": (1, 2), "ElectLeaders": (0,)}
"""Versions whose response has no place for it."""
