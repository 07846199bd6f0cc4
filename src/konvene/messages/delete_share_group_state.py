"""DeleteShareGroupState (API key 86): drop the delivery state of share partitions."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition: int = int32("0+")


class DeleteStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(Struct, key=86, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[DeleteStateData, ...] = array(DeleteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Struct, key=86, versions="0", flexible="0+"):
    results: tuple[DeleteStateResult, ...] = array(DeleteStateResult, "0+")
