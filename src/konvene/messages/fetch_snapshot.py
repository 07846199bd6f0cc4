"""FetchSnapshot (API key 59): read a snapshot of the metadata log."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, records, string, struct, uint16, uuid
from konvene.codec.uuid import Uuid

Buffer = bytes | memoryview


class SnapshotId(Struct):
    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class PartitionSnapshot(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    position: int = int64("0+")
    replica_directory_id: Uuid = uuid("1+", tag=0, ignorable=True)


class TopicSnapshot(Struct):
    name: str = string("0+")
    partitions: tuple[PartitionSnapshot, ...] = array(PartitionSnapshot, "0+")


class FetchSnapshotRequest(Struct, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None, tag=0)
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=2147483647)
    topics: tuple[TopicSnapshot, ...] = array(TopicSnapshot, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class ResponsePartitionSnapshot(Struct):
    index: int = int32("0+")
    error_code: int = int16("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+", tag=0)
    size: int = int64("0+")
    position: int = int64("0+")
    unaligned_records: Buffer = records("0+")


class ResponseTopicSnapshot(Struct):
    name: str = string("0+")
    partitions: tuple[ResponsePartitionSnapshot, ...] = array(ResponsePartitionSnapshot, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Struct, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    topics: tuple[ResponseTopicSnapshot, ...] = array(ResponseTopicSnapshot, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
