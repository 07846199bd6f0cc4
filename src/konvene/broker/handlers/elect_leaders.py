"""ElectLeaders: respond with ELECTION_NOT_NEEDED, since this node leads every partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import MESSAGES, Errors
from konvene.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext

PREFERRED, UNCLEAN = 0, 1
FIRST_VERSION_WITH_ERROR = 1


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: ElectLeadersRequest,
    context: RequestContext,
) -> ElectLeadersResponse:
    if not authorization.permits_cluster(context, Operation.ALTER):
        return _denied(request, context.api_version)
    if request.topic_partitions is None:
        # Without requested partitions Kafka omits those for which no election was needed.
        results = tuple(ReplicaElectionResult(topic=name) for name in catalogue.topics.by_name)
        return ElectLeadersResponse(replica_election_results=results)
    is_valid = request.election_type in (PREFERRED, UNCLEAN)
    return ElectLeadersResponse(
        # Version 0 has neither a top-level error code nor an election type: its election is always valid.
        error_code=Errors.NONE if is_valid else Errors.INVALID_REQUEST,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=t.topic,
                partition_result=tuple(
                    _elect(catalogue, t.topic, index)
                    if is_valid
                    else _result(
                        index, Errors.INVALID_REQUEST, f"Unknown election type {request.election_type}"
                    )
                    for index in t.partitions
                ),
            )
            for t in request.topic_partitions
        ),
    )


def _denied(request: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
    error, message = Errors.CLUSTER_AUTHORIZATION_FAILED, MESSAGES[Errors.CLUSTER_AUTHORIZATION_FAILED]
    return ElectLeadersResponse(
        error_code=error if version >= FIRST_VERSION_WITH_ERROR else Errors.NONE,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=t.topic,
                partition_result=tuple(_result(index, error, message) for index in t.partitions),
            )
            for t in request.topic_partitions or ()
        ),
    )


def _elect(catalogue: ClusterCatalogue, topic: str, index: int) -> PartitionResult:
    if topic not in catalogue.topics.by_name:
        return _result(index, Errors.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not catalogue.topics.has(topic, index):
        return _result(index, Errors.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    return _result(index, Errors.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def _result(index: int, error: Errors, message: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error, error_message=message)
