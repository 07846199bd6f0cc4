"""OffsetCommit: refused as a whole, every partition is told so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.groups_call import ask
from konvene.errors import Errors
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call


def handle(broker: Broker, request: OffsetCommitRequest, call: Call) -> Any:
    def refused(error: Errors) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=t.name,
                    topic_id=t.topic_id,
                    partitions=tuple(
                        OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error)
                        for p in t.partitions
                    ),
                )
                for t in request.topics
            )
        )

    return ask(broker, request.group_id, request, call, refused)
