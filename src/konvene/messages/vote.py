"""Vote (API key 52): requests a vote in the metadata quorum.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, INCONSISTENT_CLUSTER_ID,
FENCED_LEADER_EPOCH, INVALID_REQUEST, INCONSISTENT_VOTER_SET, UNKNOWN_TOPIC_OR_PARTITION, INVALID_VOTER_KEY.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string, uint16, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    replica_epoch: int = int32("0+")
    """Epoch of the candidate."""
    replica_id: int = int32("0+")
    """Id of the candidate."""
    replica_directory_id: Uuid = uuid("1+", ignorable=True)
    """Id of the replica's log directory."""
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    """Id of the voter's log directory."""
    last_offset_epoch: int = int32("0+")
    """Epoch of the last record in the candidate's log."""
    last_offset: int = int64("0+")
    """End offset of the candidate's log."""
    pre_vote: bool = boolean("2+")
    """True for a pre-vote, which changes no epoch."""


class TopicData(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class VoteRequest(Struct, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    """Id of the cluster; None if it is not known."""
    voter_id: int = int32("1+", default=-1, ignorable=True)
    """Id of the voter."""
    topics: tuple[TopicData, ...] = array(TopicData, "0+")
    """Topics of the request, or of this part of the answer."""


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""
    vote_granted: bool = boolean("0+")
    """True if the vote was granted."""


class ResponseTopicData(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")
    """Partitions of the topic."""


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    """Id of the leader."""
    host: str = string("1+")
    """Host name of the endpoint."""
    port: int = uint16("1+")
    """Port of the endpoint."""


class VoteResponse(Struct, key=52, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
    """Topics of the request, or of this part of the answer."""
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
    """Endpoints of the leaders named in the answer."""
