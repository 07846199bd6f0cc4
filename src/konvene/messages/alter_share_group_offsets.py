"""AlterShareGroupOffsets (API key 91): move where a share group stands in partitions."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...] = array(
        AlterShareGroupOffsetsRequestPartition, "0+"
    )


class AlterShareGroupOffsetsRequest(Struct, key=91, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...] = array(AlterShareGroupOffsetsRequestTopic, "0+")


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...] = array(
        AlterShareGroupOffsetsResponsePartition, "0+"
    )


class AlterShareGroupOffsetsResponse(Struct, key=91, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = array(
        AlterShareGroupOffsetsResponseTopic, "0+"
    )
