"""AddPartitionsToTxn: add partitions to transactions, or verify that they have been added (KIP-890).

Up to version 3 clients send the request, for one transaction. Since version 4 brokers send it, for several
transactions, each of which has its own coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_transaction
from konvene.broker.handlers.transaction_requests import submit_to_transaction_coordinator
from konvene.errors import Errors
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from konvene.runtime.deferred import Answer, Deferred, value_of
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext

FIRST_VERSION_FOR_BROKERS = 4

Topics = tuple[AddPartitionsToTxnTopic, ...]
TopicResults = tuple[AddPartitionsToTxnTopicResult, ...]
PartitionErrors = dict[tuple[str, int], Errors]
"""Errors by topic name and partition index."""


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    transactions: TransactionCoordinators,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> Answer[AddPartitionsToTxnResponse]:
    if context.api_version >= FIRST_VERSION_FOR_BROKERS:
        if not authorization.permits_cluster(context, Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED)
        return _handle_batch(catalogue, transactions, request, context)

    topics = request.v3_and_below_topics

    def error_response(error: Errors) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_same_error(topics, error))

    if not permits_transaction(authorization, context, request.v3_and_below_transactional_id):
        return error_response(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    names = [topic.name for topic in topics if topic.name not in INTERNAL_TOPICS]
    writable = authorization.permitted_topics(context, Operation.WRITE, names)
    invalid = _invalid_partitions(catalogue, topics, writable)
    if invalid:
        results = _not_attempted(topics, invalid)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return submit_to_transaction_coordinator(
        transactions, request.v3_and_below_transactional_id, request, context, error_response
    )


async def _handle_batch(
    catalogue: ClusterCatalogue,
    transactions: TransactionCoordinators,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> AddPartitionsToTxnResponse:
    results: list[AddPartitionsToTxnResult] = []
    for transaction in request.transactions:
        invalid = _invalid_partitions(catalogue, transaction.topics)
        if invalid:
            topic_results = _not_attempted(transaction.topics, invalid)
            results.append(
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=topic_results
                )
            )
            continue
        response = submit_for_transaction(transactions, transaction, context)
        results += (await value_of(response)).results_by_transaction
    return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))


def submit_for_transaction(
    transactions: TransactionCoordinators,
    transaction: AddPartitionsToTxnTransaction,
    context: RequestContext,
) -> AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse]:
    """Submit one transaction of a batched request to its own coordinator."""

    def error_response(error: Errors) -> AddPartitionsToTxnResponse:
        result = AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=_same_error(transaction.topics, error),
        )
        return AddPartitionsToTxnResponse(results_by_transaction=(result,))

    request = AddPartitionsToTxnRequest(transactions=(transaction,))
    return submit_to_transaction_coordinator(
        transactions, transaction.transactional_id, request, context, error_response
    )


def _invalid_partitions(
    catalogue: ClusterCatalogue, topics: Topics, writable: set[str] | None = None
) -> PartitionErrors:
    """Return the errors of partitions that cannot be added; if there are any, the caller adds none.

    A partition must exist. `writable`: the topics to which the client may write, which internal topics never
    are; None if a broker sent the request."""
    errors: PartitionErrors = {}
    for topic in topics:
        for index in topic.partitions:
            if writable is not None and topic.name not in writable:
                errors[topic.name, index] = Errors.TOPIC_AUTHORIZATION_FAILED
            elif not catalogue.topics.has(topic.name, index):
                errors[topic.name, index] = Errors.UNKNOWN_TOPIC_OR_PARTITION
    return errors


def _same_error(topics: Topics, error: Errors) -> TopicResults:
    return _topic_results(topics, lambda topic, index: error)


def _not_attempted(topics: Topics, errors: PartitionErrors) -> TopicResults:
    """Return the errors of the invalid partitions, and OPERATION_NOT_ATTEMPTED for the others."""
    return _topic_results(
        topics, lambda topic, index: errors.get((topic, index), Errors.OPERATION_NOT_ATTEMPTED)
    )


def _topic_results(topics: Topics, error_of: Callable[[str, int], Errors]) -> TopicResults:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=error_of(topic.name, index)
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
