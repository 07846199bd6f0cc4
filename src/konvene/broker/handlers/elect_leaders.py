"""ElectLeaders: the one node leads everything already, so no election is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext

PREFERRED, UNCLEAN = 0, 1


def handle(
    catalogue: ClusterCatalogue, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    if request.topic_partitions is None:
        # Of all partitions only those are told where something was done.
        nothing = tuple(ReplicaElectionResult(topic=name) for name in catalogue.topics.by_name)
        return ElectLeadersResponse(replica_election_results=nothing)
    known = request.election_type in (PREFERRED, UNCLEAN)
    return ElectLeadersResponse(
        # Before version 1 there is no error for the whole, and no other kind of election to name either.
        error_code=Errors.NONE if known else Errors.INVALID_REQUEST,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=t.topic,
                partition_result=tuple(
                    _elect(catalogue, t.topic, index)
                    if known
                    else _result(
                        index, Errors.INVALID_REQUEST, f"Unknown election type {request.election_type}"
                    )
                    for index in t.partitions
                ),
            )
            for t in request.topic_partitions
        ),
    )


def _elect(catalogue: ClusterCatalogue, topic: str, index: int) -> PartitionResult:
    if topic not in catalogue.topics.by_name:
        return _result(index, Errors.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not catalogue.topics.has(topic, index):
        return _result(index, Errors.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    return _result(index, Errors.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def _result(index: int, error: Errors, why: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error, error_message=why)
