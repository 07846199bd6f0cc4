"""AlterPartitionReassignments: accept an assignment to this node, the only one, and reject all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import MESSAGES, Errors
from konvene.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: AlterPartitionReassignmentsRequest,
    context: RequestContext,
) -> AlterPartitionReassignmentsResponse:
    if not authorization.permits_cluster(context, Operation.ALTER):
        return _denied(request)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=tuple(
            ReassignableTopicResponse(
                name=t.name, partitions=tuple(_partition_response(catalogue, t.name, p) for p in t.partitions)
            )
            for t in request.topics
        ),
    )


def _denied(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    error, message = Errors.CLUSTER_AUTHORIZATION_FAILED, MESSAGES[Errors.CLUSTER_AUTHORIZATION_FAILED]
    return AlterPartitionReassignmentsResponse(
        error_code=error,
        error_message=message,
        responses=tuple(
            ReassignableTopicResponse(
                name=t.name,
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=p.partition_index, error_code=error, error_message=message
                    )
                    for p in t.partitions
                ),
            )
            for t in request.topics
        ),
    )


def _partition_response(
    catalogue: ClusterCatalogue, topic: str, partition: ReassignablePartition
) -> ReassignablePartitionResponse:
    error, message = _validate(catalogue, topic, partition)
    return ReassignablePartitionResponse(
        partition_index=partition.partition_index, error_code=error, error_message=message
    )


def _validate(
    catalogue: ClusterCatalogue, topic: str, partition: ReassignablePartition
) -> tuple[Errors, str | None]:
    index, replicas = partition.partition_index, partition.replicas
    if topic not in catalogue.topics.by_name:
        return Errors.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
    if not catalogue.topics.has(topic, index):
        return Errors.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
    if replicas is None:
        return Errors.NO_REASSIGNMENT_IN_PROGRESS, None
    prefix = "The manual partition assignment includes"
    if not replicas:
        return Errors.INVALID_REPLICA_ASSIGNMENT, f"{prefix} an empty replica list."
    for replica in sorted(replicas):
        if replica != catalogue.node_id:
            message = f"{prefix} broker {replica}, but no such broker is registered."
            return Errors.INVALID_REPLICA_ASSIGNMENT, message
    if len(replicas) > 1:
        return Errors.INVALID_REPLICA_ASSIGNMENT, f"{prefix} the broker {catalogue.node_id} more than once."
    return Errors.NONE, None
