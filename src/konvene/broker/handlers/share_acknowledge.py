"""ShareAcknowledge: acknowledge acquired records, and respond once the acknowledgements are persisted."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from konvene.broker.handlers.share_requests import (
    LEADER_CHANGED_ERRORS,
    PendingAcknowledgements,
    RequestRejected,
    check_request,
    denied_topics,
    leader_epoch,
    lock_timeout_ms,
)
from konvene.broker.shares.share_partition import PartitionResult
from konvene.delivery.sessions import FINAL_EPOCH, SessionError, TopicIdPartition
from konvene.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from konvene.runtime.deferred import Answer, Deferred

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.codec.uuid import Uuid
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    share_partitions: SharePartitions,
    request: ShareAcknowledgeRequest,
    context: RequestContext,
) -> Answer[ShareAcknowledgeResponse]:
    try:
        check_request(authorization, catalogue, request, context)
        assert request.group_id is not None and request.member_id is not None
        share_partitions.sessions.acknowledge(
            request.group_id, request.member_id, request.share_session_epoch
        )
    except (RequestRejected, SessionError) as rejected:
        return ShareAcknowledgeResponse(error_code=rejected.error)
    denied = denied_topics(authorization, catalogue, context, (topic.topic_id for topic in request.topics))
    return _DelayedResponse(settings, catalogue, share_partitions, request, context, denied).deferred


class _DelayedResponse:
    """A ShareAcknowledge request whose response waits until its acknowledgements are persisted."""

    __slots__ = ("advertised", "catalogue", "deferred", "pending", "request", "settings", "share_partitions")

    def __init__(
        self,
        settings: BrokerSettings,
        catalogue: ClusterCatalogue,
        share_partitions: SharePartitions,
        request: ShareAcknowledgeRequest,
        context: RequestContext,
        denied: frozenset[Uuid],
    ) -> None:
        self.settings, self.catalogue, self.share_partitions = settings, catalogue, share_partitions
        self.advertised = catalogue.advertised_to(context.session.listener)
        self.request = request
        self.deferred: Deferred[ShareAcknowledgeResponse] = Deferred()
        self.pending = PendingAcknowledgements(self._respond)
        acknowledgements = [
            ((topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
            for topic in request.topics
            for partition in topic.partitions
        ]
        self.pending.submit(catalogue, share_partitions, request, context, acknowledgements, denied)

    def _respond(self) -> None:
        request, catalogue = self.request, self.catalogue
        assert request.group_id is not None and request.member_id is not None
        if request.share_session_epoch == FINAL_EPOCH:
            self.share_partitions.release(request.group_id, request.member_id)
        results = self.pending.results
        leader_changed = any(error in LEADER_CHANGED_ERRORS for error, _ in results.values())
        topics = tuple(
            ShareAcknowledgeTopicResponse(
                topic_id=topic_id,
                partitions=tuple(self._partition(partition, result) for partition, result in group),
            )
            for topic_id, group in groupby(results.items(), key=lambda item: item[0][0])
        )
        host, port = self.advertised
        self.deferred.resolve(
            ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=lock_timeout_ms(self.settings, request.group_id),
                responses=topics,
                node_endpoints=(NodeEndpoint(node_id=catalogue.node_id, host=host, port=port),)
                if leader_changed
                else (),
            )
        )

    def _partition(self, partition: TopicIdPartition, result: PartitionResult) -> PartitionData:
        error, message = result
        data = PartitionData(partition_index=partition[1], error_code=error, error_message=message)
        if error not in LEADER_CHANGED_ERRORS:
            return data
        leader = LeaderIdAndEpoch(
            leader_id=self.catalogue.node_id, leader_epoch=leader_epoch(self.catalogue, partition)
        )
        return data.replace(current_leader=leader)
