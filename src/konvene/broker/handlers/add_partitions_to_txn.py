"""AddPartitionsToTxn: partitions take part in a transaction from now on, or are held against it.

Clients send it up to version 3, for one transaction; brokers since, for several at once, each of which has
its own coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.transaction_requests import ask
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
from konvene.runtime.deferred import Answer, Deferred

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext

FIRST_BETWEEN_BROKERS = 4


def handle(
    catalogue: ClusterCatalogue,
    transactions: TransactionCoordinators,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> Answer[AddPartitionsToTxnResponse]:
    if context.api_version >= FIRST_BETWEEN_BROKERS:
        return _of_a_broker(catalogue, transactions, request, context)

    def refused(error: Errors) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_all(request.v3_and_below_topics, error)
        )

    wrong = _wrong(catalogue, request.v3_and_below_topics, of_client=True)
    if wrong:
        results = _some(request.v3_and_below_topics, wrong)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return ask(transactions, request.v3_and_below_transactional_id, request, context, refused)


async def _of_a_broker(
    catalogue: ClusterCatalogue,
    transactions: TransactionCoordinators,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> AddPartitionsToTxnResponse:
    results: list[AddPartitionsToTxnResult] = []
    for asked in request.transactions:
        wrong = _wrong(catalogue, asked.topics, of_client=False)
        if wrong:
            told = _some(asked.topics, wrong)
            results.append(
                AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=told)
            )
            continue
        answer = enlist(transactions, asked, context)
        results += (await answer if isinstance(answer, Deferred) else answer).results_by_transaction
    return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))


def enlist(
    transactions: TransactionCoordinators, asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> Any:
    """Ask the coordinator of one transaction, in the words of brokers."""

    def refused(error: Errors) -> AddPartitionsToTxnResponse:
        told = AddPartitionsToTxnResult(
            transactional_id=asked.transactional_id, topic_results=_all(asked.topics, error)
        )
        return AddPartitionsToTxnResponse(results_by_transaction=(told,))

    request = AddPartitionsToTxnRequest(transactions=(asked,))
    return ask(transactions, asked.transactional_id, request, context, refused)


def _wrong(
    catalogue: ClusterCatalogue, topics: tuple[AddPartitionsToTxnTopic, ...], *, of_client: bool
) -> dict[tuple[str, int], Errors]:
    """Partitions that cannot take part, and why. One of them, and no other is attempted."""
    wrong: dict[tuple[str, int], Errors] = {}
    for topic in topics:
        for index in topic.partitions:
            if of_client and topic.name in INTERNAL_TOPICS:
                wrong[topic.name, index] = Errors.TOPIC_AUTHORIZATION_FAILED
            elif not catalogue.topics.has(topic.name, index):
                wrong[topic.name, index] = Errors.UNKNOWN_TOPIC_OR_PARTITION
    return wrong


Topics = tuple[AddPartitionsToTxnTopic, ...]
Results = tuple[AddPartitionsToTxnTopicResult, ...]


def _all(topics: Topics, error: Errors) -> Results:
    return _told(topics, lambda topic, index: error)


def _some(topics: Topics, wrong: dict[tuple[str, int], Errors]) -> Results:
    return _told(topics, lambda topic, index: wrong.get((topic, index), Errors.OPERATION_NOT_ATTEMPTED))


def _told(topics: Topics, error: Callable[[str, int], Errors]) -> Results:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=error(topic.name, index)
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
