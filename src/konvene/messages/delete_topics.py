"""DeleteTopics (API key 20): delete topics, by name or by id."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: Uuid = uuid("6+")


class DeleteTopicsRequest(Struct, key=20, versions="1-6", flexible="4+"):
    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, "6+")
    topic_names: tuple[str, ...] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Struct):
    name: str | None = string("0+", nullable="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Struct, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult, "0+")
