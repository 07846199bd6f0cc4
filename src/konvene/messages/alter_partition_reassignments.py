"""AlterPartitionReassignments (API key 45): move partitions to other brokers."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string


class ReassignablePartition(Struct):
    partition_index: int = int32("0+")
    replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string("0+")
    partitions: tuple[ReassignablePartition, ...] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(Struct, key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: tuple[ReassignableTopic, ...] = array(ReassignableTopic, "0+")


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = string("0+")
    partitions: tuple[ReassignablePartitionResponse, ...] = array(ReassignablePartitionResponse, "0+")


class AlterPartitionReassignmentsResponse(Struct, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: tuple[ReassignableTopicResponse, ...] = array(ReassignableTopicResponse, "0+")
