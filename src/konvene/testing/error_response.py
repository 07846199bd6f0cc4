"""Builds error responses to any request of the protocol, as a broker that rejects the request would send
them.

Most responses have one top-level error code. `BUILDERS` has the APIs whose responses need more: an error code
for each topic or partition of the request, or other fields with special values. `error_response` raises
`NoErrorField` for an API whose response has no error code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import Api
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from konvene.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from konvene.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from konvene.messages.join_group import JoinGroupRequest, JoinGroupResponse
from konvene.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from konvene.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from konvene.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_JOIN_WITHOUT_PROTOCOL = 7
FIRST_OFFSET_FETCH_WITH_ERROR = 2
FIRST_OFFSET_FETCH_OF_GROUPS = 8
FIRST_FIND_OF_KEYS = 4
FIRST_FETCH_WITH_ERROR = 7
FIRST_ADD_OF_TRANSACTIONS = 4


class NoErrorField(ValueError):
    """Raised when an error cannot be reported: the response of this API has no error code in this version."""


def error_response(api: Api, version: int, request: Struct, error: Errors) -> Struct:
    """Return the response to `request` that reports `error`. Raises `NoErrorField`."""
    builder = BUILDERS.get(api.name)
    if builder is not None:
        return builder(version, request, error)
    if not has_error_field(api, version):
        raise NoErrorField(f"the response to {api.name} v{version} has no error code")
    return api.response(error_code=error)


def has_error_field(api: Api, version: int | None = None) -> bool:
    """Return True if the API's response can report an error: in `version`, or, if that is None, in any
    version."""
    return api.name in BUILDERS or any(
        field.name == "error_code" and (version is None or version in field.versions)
        for field in api.response.__fields__
    )


def _join(version: int, request: JoinGroupRequest, error: Errors) -> Struct:
    no_protocol = None if version >= FIRST_JOIN_WITHOUT_PROTOCOL else ""
    return JoinGroupResponse(error_code=error, member_id=request.member_id, protocol_name=no_protocol)


def _commit(version: int, request: OffsetCommitRequest, error: Errors) -> Struct:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=t.name,
                topic_id=t.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error)
                    for p in t.partitions
                ),
            )
            for t in request.topics
        )
    )


def _offset_fetch(version: int, request: OffsetFetchRequest, error: Errors) -> Struct:
    if version < FIRST_OFFSET_FETCH_WITH_ERROR:
        return OffsetFetchResponse(
            topics=tuple(
                OffsetFetchResponseTopic(
                    name=t.name,
                    partitions=tuple(
                        OffsetFetchResponsePartition(
                            partition_index=index, committed_offset=-1, metadata="", error_code=error
                        )
                        for index in t.partition_indexes
                    ),
                )
                for t in request.topics or ()
            )
        )
    if version < FIRST_OFFSET_FETCH_OF_GROUPS:
        return OffsetFetchResponse(error_code=error)
    return OffsetFetchResponse(
        groups=tuple(OffsetFetchResponseGroup(group_id=g.group_id, error_code=error) for g in request.groups)
    )


def _find(version: int, request: FindCoordinatorRequest, error: Errors) -> Struct:
    if version < FIRST_FIND_OF_KEYS:
        return FindCoordinatorResponse(error_code=error, error_message=error.name, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=error.name)
            for key in request.coordinator_keys
        )
    )


def _produce(version: int, request: ProduceRequest, error: Errors) -> Struct:
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=t.name,
                topic_id=t.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(index=p.index, error_code=error, base_offset=-1)
                    for p in t.partition_data
                ),
            )
            for t in request.topic_data
        )
    )


def _fetch(version: int, request: FetchRequest, error: Errors) -> Struct:
    if version >= FIRST_FETCH_WITH_ERROR:
        return FetchResponse(error_code=error)
    return FetchResponse(
        responses=tuple(
            FetchableTopicResponse(
                topic=t.topic,
                partitions=tuple(
                    PartitionData(
                        partition_index=p.partition, error_code=error, high_watermark=-1, records=b""
                    )
                    for p in t.partitions
                ),
            )
            for t in request.topics
        )
    )


def _list_offsets(version: int, request: ListOffsetsRequest, error: Errors) -> Struct:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=t.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=error)
                    for p in t.partitions
                ),
            )
            for t in request.topics
        )
    )


def _metadata(version: int, request: MetadataRequest, error: Errors) -> Struct:
    return MetadataResponse(
        topics=tuple(
            MetadataResponseTopic(name=t.name or "", topic_id=t.topic_id, error_code=error)
            for t in request.topics or ()
        )
    )


def _add_partitions(version: int, request: AddPartitionsToTxnRequest, error: Errors) -> Struct:
    if version >= FIRST_ADD_OF_TRANSACTIONS:
        return AddPartitionsToTxnResponse(error_code=error)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=t.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(partition_index=p, partition_error_code=error)
                    for p in t.partitions
                ),
            )
            for t in request.v3_and_below_topics
        )
    )


def _txn_commit(version: int, request: TxnOffsetCommitRequest, error: Errors) -> Struct:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=t.name,
                topic_id=t.topic_id,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error)
                    for p in t.partitions
                ),
            )
            for t in request.topics
        )
    )


BUILDERS: dict[str, Callable[[int, Any, Errors], Struct]] = {
    "JoinGroup": _join,
    "OffsetCommit": _commit,
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _find,
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "AddPartitionsToTxn": _add_partitions,
    "TxnOffsetCommit": _txn_commit,
}
