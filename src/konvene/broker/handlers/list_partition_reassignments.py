"""ListPartitionReassignments: return none, since the cluster has one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import MESSAGES, Errors
from konvene.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    if not authorization.permits_cluster(context, Operation.DESCRIBE):
        return _denied(request)
    return ListPartitionReassignmentsResponse(error_message=None)


def _denied(request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """Return the error, with the requested partitions but without replicas, as Kafka does."""
    return ListPartitionReassignmentsResponse(
        error_code=Errors.CLUSTER_AUTHORIZATION_FAILED,
        error_message=MESSAGES[Errors.CLUSTER_AUTHORIZATION_FAILED],
        topics=tuple(
            OngoingTopicReassignment(
                name=topic.name,
                partitions=tuple(
                    OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        ),
    )
