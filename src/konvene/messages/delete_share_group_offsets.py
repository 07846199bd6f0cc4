"""DeleteShareGroupOffsets (API key 92): forget where a share group stands in topics."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")


class DeleteShareGroupOffsetsRequest(Struct, key=92, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...] = array(DeleteShareGroupOffsetsRequestTopic, "0+")


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Struct, key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = array(
        DeleteShareGroupOffsetsResponseTopic, "0+"
    )
