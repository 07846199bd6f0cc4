"""InitializeShareGroupState (API key 83): start the delivery state of share partitions."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")


class InitializeStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class InitializeShareGroupStateRequest(Struct, key=83, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[InitializeStateData, ...] = array(InitializeStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


class InitializeShareGroupStateResponse(Struct, key=83, versions="0", flexible="0+"):
    results: tuple[InitializeStateResult, ...] = array(InitializeStateResult, "0+")
