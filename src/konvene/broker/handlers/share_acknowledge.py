"""ShareAcknowledge: a member says what became of records, and hears it when that is written."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.share_requests import (
    MOVED,
    Acknowledging,
    Refused,
    check,
    leader_epoch,
    lock_timeout_ms,
)
from konvene.broker.shares.share_partition import Told
from konvene.delivery.sessions import FINAL_EPOCH, Place, SessionError
from konvene.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from konvene.runtime.deferred import Deferred

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


def handle(broker: Broker, request: ShareAcknowledgeRequest, call: Call) -> Any:
    try:
        check(broker, request)
        assert request.group_id is not None and request.member_id is not None
        broker.sharing.sessions.acknowledge(request.group_id, request.member_id, request.share_session_epoch)
    except (Refused, SessionError) as refused:
        return ShareAcknowledgeResponse(error_code=refused.error)
    return _Answer(broker, request, call).later


class _Answer:
    """An answer that waits for its acknowledgements."""

    __slots__ = ("acknowledging", "broker", "later", "request")

    def __init__(self, broker: Broker, request: ShareAcknowledgeRequest, call: Call) -> None:
        self.broker, self.request = broker, request
        self.later: Deferred[ShareAcknowledgeResponse] = Deferred()
        self.acknowledging = Acknowledging(self._done)
        places: list[tuple[Place, Any]] = [
            ((topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
            for topic in request.topics
            for partition in topic.partitions
        ]
        self.acknowledging.take(broker, request, call, places)

    def _done(self) -> None:
        request, broker = self.request, self.broker
        assert request.group_id is not None and request.member_id is not None
        if request.share_session_epoch == FINAL_EPOCH:
            broker.sharing.release(request.group_id, request.member_id)
        results = self.acknowledging.results
        moved = any(error in MOVED for error, _ in results.values())
        topics = tuple(
            ShareAcknowledgeTopicResponse(
                topic_id=topic_id,
                partitions=tuple(self._partition(place, told) for place, told in group),
            )
            for topic_id, group in groupby(results.items(), key=lambda item: item[0][0])
        )
        host, port = broker.advertised
        self.later.resolve(
            ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=lock_timeout_ms(broker, request.group_id),
                responses=topics,
                node_endpoints=(NodeEndpoint(node_id=broker.node_id, host=host, port=port),) if moved else (),
            )
        )

    def _partition(self, place: Place, told: Told) -> PartitionData:
        error, message = told
        data = PartitionData(partition_index=place[1], error_code=error, error_message=message)
        if error not in MOVED:
            return data
        leader = LeaderIdAndEpoch(
            leader_id=self.broker.node_id, leader_epoch=leader_epoch(self.broker, place)
        )
        return data.replace(current_leader=leader)
