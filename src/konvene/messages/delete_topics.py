"""DeleteTopics (API key 20): deletes topics, by name or id.

Errors: TOPIC_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST, TOPIC_DELETION_DISABLED,
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    """Name of the topic; None if it is given by id."""
    topic_id: Uuid = uuid("6+")
    """Id of the topic."""


class DeleteTopicsRequest(Struct, key=20, versions="1-6", flexible="4+"):
    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, "6+")
    """Topics to delete, by name or id (version 6 and later)."""
    topic_names: tuple[str, ...] = array(string, "0-5", ignorable=True)
    """Names of the topics to delete (up to version 5)."""
    timeout_ms: int = int32("0+")
    """Time after which the request gives up, in milliseconds."""


class DeletableTopicResult(Struct):
    name: str | None = string("0+", nullable="6+")
    """Name of the topic."""
    topic_id: Uuid = uuid("6+", ignorable=True)
    """Id of the topic."""
    error_code: int = int16("0+")
    """Error of the topic; 0 if there is none."""
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Explanation of the error; None if there is none."""


class DeleteTopicsResponse(Struct, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult, "0+")
    """Results, by topic or resource."""
