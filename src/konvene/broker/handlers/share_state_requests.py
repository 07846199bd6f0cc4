"""Submits requests of the share state APIs to the share coordinators, one share partition at a time.

Such a request comes from another broker or from a client that inspects the state. If a coordinator is not
ready, it fails at once, with Kafka's messages. Services of this node do not use these APIs: they call
`broker.shares.state_coordinators`, and wait for the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from konvene.codec.uuid import Uuid
from konvene.errors import MESSAGES, Errors
from konvene.security.resources import Operation
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.state_coordinators import AnyAnswer, Request, ShareCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Deferred

T = TypeVar("T")
P = TypeVar("P")

YIELD_INTERVAL = 200
"""Number of partitions after which other tasks may run."""


class PartitionData(Protocol):
    """The part of a share state request that concerns one partition."""

    @property
    def partition(self) -> int: ...


D = TypeVar("D", bound=PartitionData)
D_co = TypeVar("D_co", bound=PartitionData, covariant=True)


class TopicData(Protocol[D_co]):
    """The part of a share state request that concerns one topic, with its partitions."""

    @property
    def topic_id(self) -> Uuid: ...
    @property
    def partitions(self) -> tuple[D_co, ...]: ...


class StateRequest(Protocol[D_co]):
    """A request of any share state API: a group, and topics with partitions."""

    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> tuple[TopicData[D_co], ...]: ...


def is_empty(request: StateRequest[PartitionData]) -> bool:
    """Return True if a request has no group or no topics; its response is then empty, as in Kafka."""
    return not request.group_id or not request.topics


def has_empty_topic(request: StateRequest[PartitionData]) -> bool:
    return any(not topic.partitions for topic in request.topics)


class Failed(NamedTuple):
    """The result for a share partition whose coordinator rejected the request."""

    error: Errors
    message: str


Results = dict[Uuid, dict[int, "AnyAnswer | Failed"]]
"""Results by topic id and partition: the coordinator's answer, or `Failed`."""


def denied_results(
    authorization: Authorization, request: StateRequest[PartitionData], context: RequestContext
) -> Results | None:
    """Return an error for each partition if the client may not perform cluster actions, else None."""
    if authorization.permits_cluster(context, Operation.CLUSTER_ACTION):
        return None
    error = Errors.CLUSTER_AUTHORIZATION_FAILED
    denied: Results = {}
    for topic in request.topics:
        for partition in topic.partitions:
            denied.setdefault(topic.topic_id, {})[partition.partition] = Failed(error, MESSAGES[error])
    return denied


async def submit_each_partition(
    share_coordinators: ShareCoordinators,
    request: StateRequest[D],
    operation: str,
    partition_request: Callable[[SharePartitionKey, D], Request],
) -> Results:
    """Submit `partition_request(key, partition)` for each partition of `request`; return the results.

    A repeated partition has one result. `operation` completes the error message "Unable to ..."."""
    submitted: list[tuple[Uuid, int, Deferred[AnyAnswer | Errors]]] = []
    for topic in request.topics:
        for partition in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, partition.partition)
            pending = share_coordinators.submit_without_retry(partition_request(key, partition))
            submitted.append((topic.topic_id, partition.partition, pending))
            if len(submitted) % YIELD_INTERVAL == 0:
                await asyncio.sleep(0)
    results: Results = {}
    for topic_id, index, pending in submitted:
        result: AnyAnswer | Failed | Errors = await pending
        if isinstance(result, Errors):
            result = Failed(result, f"Unable to {operation}: {MESSAGES.get(result, result.name)}")
        results.setdefault(topic_id, {})[index] = result
    return results


def topic_results(
    results: Results,
    topic_type: Callable[..., T],
    partition_type: Callable[..., P],
    success: Callable[[int, Any], P] | None = None,
) -> tuple[T, ...]:
    """Return the `results` of a response: a `topic_type` per topic, with a `partition_type` per partition.

    `success` builds the message of a partition from its index and result if the request succeeded. Without it
    the message has the index only."""

    def build(index: int, result: AnyAnswer | Failed) -> P:
        if result.error:
            return partition_type(partition=index, error_code=result.error, error_message=result.message)
        return partition_type(partition=index) if success is None else success(index, result)

    return tuple(
        topic_type(topic_id=topic_id, partitions=tuple(build(*item) for item in partitions.items()))
        for topic_id, partitions in results.items()
    )
