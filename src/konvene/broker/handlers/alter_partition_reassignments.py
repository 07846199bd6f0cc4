"""AlterPartitionReassignments: a partition may be moved to where it is, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext


def handle(
    catalogue: ClusterCatalogue, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=tuple(
            ReassignableTopicResponse(
                name=t.name, partitions=tuple(_reassign(catalogue, t.name, p) for p in t.partitions)
            )
            for t in request.topics
        ),
    )


def _reassign(
    catalogue: ClusterCatalogue, topic: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    error, why = _what_is_wrong(catalogue, topic, wanted)
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=error, error_message=why
    )


def _what_is_wrong(
    catalogue: ClusterCatalogue, topic: str, wanted: ReassignablePartition
) -> tuple[Errors, str | None]:
    index, replicas = wanted.partition_index, wanted.replicas
    if topic not in catalogue.topics.by_name:
        return Errors.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
    if not catalogue.topics.has(topic, index):
        return Errors.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
    if replicas is None:
        return Errors.NO_REASSIGNMENT_IN_PROGRESS, None
    assigned = "The manual partition assignment includes"
    if not replicas:
        return Errors.INVALID_REPLICA_ASSIGNMENT, f"{assigned} an empty replica list."
    for replica in sorted(replicas):
        if replica != catalogue.node_id:
            why = f"{assigned} broker {replica}, but no such broker is registered."
            return Errors.INVALID_REPLICA_ASSIGNMENT, why
    if len(replicas) > 1:
        return Errors.INVALID_REPLICA_ASSIGNMENT, f"{assigned} the broker {catalogue.node_id} more than once."
    return Errors.NONE, None
