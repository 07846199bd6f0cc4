"""DeleteShareGroupOffsets (API key 92): deletes a share group's offsets of topics.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, INVALID_GROUP_ID, UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""


class DeleteShareGroupOffsetsRequest(Struct, key=92, versions="0", flexible="0+"):
    group_id: str = string("0+")
    """Id of the group."""
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...] = array(DeleteShareGroupOffsetsRequestTopic, "0+")
    """Topics of the request, or of this part of the answer."""


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    error_code: int = int16("0+")
    """Error of the topic; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""


class DeleteShareGroupOffsetsResponse(Struct, key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = array(
        DeleteShareGroupOffsetsResponseTopic, "0+"
    )
    """Results, by topic or resource."""
