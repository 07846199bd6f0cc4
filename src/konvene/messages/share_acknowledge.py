"""ShareAcknowledge (API key 79): accepts, releases, rejects or renews acquired records (KIP-932).

Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH,
INVALID_RECORD_STATE, INVALID_REQUEST, FENCED_STATE_EPOCH, KAFKA_STORAGE_ERROR, UNKNOWN_SERVER_ERROR,
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, int64, string, struct, uuid
from konvene.codec.uuid import Uuid


class AcknowledgementBatch(Struct):
    first_offset: int = int64("0+")
    """First offset of the range."""
    last_offset: int = int64("0+")
    """Last offset of the range, inclusive."""
    acknowledge_types: tuple[int, ...] = array(int8, "0+")
    """Acknowledgement of each record, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


class AcknowledgePartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = array(AcknowledgementBatch, "0+")
    """Acknowledgements of acquired records."""


class AcknowledgeTopic(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[AcknowledgePartition, ...] = array(AcknowledgePartition, "0+")
    """Acknowledgements or results, by partition."""


class ShareAcknowledgeRequest(Struct, key=79, versions="1-2", flexible="0+"):
    group_id: str | None = string("0+", nullable="0+", default=None)
    """Id of the group."""
    member_id: str | None = string("0+", nullable="0+")
    """Id of the member."""
    share_session_epoch: int = int32("0+")
    """Epoch of the share session; 0 opens it, -1 closes it."""
    is_renew_ack: bool = boolean("2+")
    """True if the request has acknowledgements that renew the acquisition lock."""
    topics: tuple[AcknowledgeTopic, ...] = array(AcknowledgeTopic, "0+")
    """Acknowledgements, by topic."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+")
    """Latest leader epoch; -1 if it is not known."""


class PartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")
    """Leader of the partition, sent if the client's metadata is stale."""


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Acknowledgements or results, by partition."""


class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    """Id of the broker."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = int32("0+")
    """Port of the endpoint."""
    rack: str | None = string("0+", nullable="0+", default=None)
    """Rack of the broker; None if it is not configured."""


class ShareAcknowledgeResponse(Struct, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    """Time for which acquired records stay locked, in milliseconds."""
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = array(ShareAcknowledgeTopicResponse, "0+")
    """Results, by topic or resource."""
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "0+")
    """Endpoints of the leaders named in the answer."""
