"""ReadShareGroupState (API key 84): read the delivery state of share partitions."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class ReadShareGroupStateRequest(Struct, key=84, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[ReadStateData, ...] = array(ReadStateData, "0+")


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")


class ReadStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


class ReadShareGroupStateResponse(Struct, key=84, versions="0", flexible="0+"):
    results: tuple[ReadStateResult, ...] = array(ReadStateResult, "0+")
