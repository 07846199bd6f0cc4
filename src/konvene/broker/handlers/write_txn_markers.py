"""WriteTxnMarkers: append commit or abort markers to partitions.

The request comes from a transaction coordinator, or from an administrator who aborts a hanging transaction.
For a partition of `__consumer_offsets` the group coordinator appends the marker, and applies or discards the
transaction's offsets before the response is sent.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.log.errors import LogError
from konvene.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from konvene.runtime.coordinator import RequestContext
from konvene.security.resources import Operation
from konvene.shard.contract import Ending

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.environment import Environment

NOT_READY = frozenset(
    (Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR)
)
"""Group coordinator's errors that are mapped to NOT_LEADER_OR_FOLLOWER, so that the marker is sent again."""


async def handle(
    authorization: Authorization,
    environment: Environment,
    partitions: Partitions,
    groups: GroupCoordinators,
    request: WriteTxnMarkersRequest,
    context: RequestContext,
) -> WriteTxnMarkersResponse:
    permitted = authorization.permits_cluster(
        context, Operation.ALTER, logs_denied=False
    ) or authorization.permits_cluster(context, Operation.CLUSTER_ACTION)
    results: dict[int, dict[tuple[str, int], int]] = {}
    for marker in request.markers:
        errors = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for index in topic.partition_indexes:
                errors[topic.name, index] = (
                    await _write(environment, partitions, groups, marker, topic.name, index)
                    if permitted
                    else Errors.CLUSTER_AUTHORIZATION_FAILED
                )
    return WriteTxnMarkersResponse(
        markers=tuple(_result(producer_id, errors) for producer_id, errors in results.items())
    )


async def _write(
    environment: Environment,
    partitions: Partitions,
    groups: GroupCoordinators,
    marker: WritableTxnMarker,
    topic: str,
    index: int,
) -> int:
    partition = partitions.get(topic, index)
    if partition is None:
        return Errors.UNKNOWN_TOPIC_OR_PARTITION
    ending = Ending(
        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result,
        marker.transaction_version,
    )  # fmt: skip
    if topic == OFFSETS_TOPIC:
        coordinator = groups.at(index)
        if coordinator is None:
            return Errors.NOT_LEADER_OR_FOLLOWER
        result: object = await coordinator.submit(ending, RequestContext(client_id="broker"))
        if not isinstance(result, Errors):
            return Errors.NONE
        return Errors.NOT_LEADER_OR_FOLLOWER if result in NOT_READY else result
    try:
        partition.append_marker(ending, environment.wall_clock_ms())
        if partition.syncs:
            await partition.sync()
    except LogError as error:
        return error.code
    return Errors.NONE


def _result(producer_id: int, errors: dict[tuple[str, int], int]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=producer_id,
        topics=tuple(
            WritableTxnMarkerTopicResult(
                name=name,
                partitions=tuple(
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                    for (_, index), error in of_topic
                ),
            )
            for name, of_topic in groupby(errors.items(), key=lambda item: item[0][0])
        ),
    )
