"""FetchSnapshot (API key 59): reads a snapshot of the metadata log.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, INCONSISTENT_CLUSTER_ID,
NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE,
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, records, string, struct, uint16, uuid
from konvene.codec.uuid import Uuid

Buffer = bytes | memoryview


class SnapshotId(Struct):
    end_offset: int = int64("0+")
    """End offset of the epoch or snapshot, exclusive."""
    epoch: int = int32("0+")
    """Leader epoch of the snapshot."""


class PartitionSnapshot(Struct):
    partition: int = int32("0+")
    """Partition number."""
    current_leader_epoch: int = int32("0+")
    """Leader epoch that the client knows, to detect stale metadata; -1 if unknown."""
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    """Snapshot to read."""
    position: int = int64("0+")
    """Byte position in the snapshot."""
    replica_directory_id: Uuid = uuid("1+", tag=0, ignorable=True)
    """Id of the replica's log directory."""


class TopicSnapshot(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[PartitionSnapshot, ...] = array(PartitionSnapshot, "0+")
    """Partitions of the topic."""


class FetchSnapshotRequest(Struct, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None, tag=0)
    """Id of the cluster; None if it is not known."""
    replica_id: int = int32("0+", default=-1)
    """Id of the reading replica; -1 for a client."""
    max_bytes: int = int32("0+", default=2147483647)
    """Largest number of bytes in the answer."""
    topics: tuple[TopicSnapshot, ...] = array(TopicSnapshot, "0+")
    """Topics of the request, or of this part of the answer."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""


class ResponsePartitionSnapshot(Struct):
    index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    """Snapshot to read."""
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+", tag=0)
    """Leader of the partition, sent if the client's metadata is stale."""
    size: int = int64("0+")
    """Size of the snapshot, in bytes."""
    position: int = int64("0+")
    """Byte position in the snapshot."""
    unaligned_records: Buffer = records("0+")
    """Bytes of the snapshot, which may begin and end inside a record."""


class ResponseTopicSnapshot(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[ResponsePartitionSnapshot, ...] = array(ResponsePartitionSnapshot, "0+")
    """Partitions of the topic."""


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    """Id of the leader."""
    host: str = string("1+")
    """Host name of the endpoint."""
    port: int = uint16("1+")
    """Port of the endpoint."""


class FetchSnapshotResponse(Struct, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    topics: tuple[ResponseTopicSnapshot, ...] = array(ResponseTopicSnapshot, "0+")
    """Topics of the request, or of this part of the answer."""
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
    """Endpoints of the leaders named in the answer."""
