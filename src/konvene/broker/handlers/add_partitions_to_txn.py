"""AddPartitionsToTxn: partitions take part in a transaction from now on, or are held against it.

Clients send it up to version 3, for one transaction; brokers since, for several at once, each of which has
its own coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.transactions_call import ask
from konvene.broker.later import Later
from konvene.errors import Errors
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call

FIRST_BETWEEN_BROKERS = 4


def handle(broker: Broker, request: AddPartitionsToTxnRequest, call: Call) -> Any:
    if call.api_version >= FIRST_BETWEEN_BROKERS:
        return _of_a_broker(broker, request, call)

    def refused(error: Errors) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_all(request.v3_and_below_topics, error)
        )

    return ask(broker, request.v3_and_below_transactional_id, request, call, refused)


async def _of_a_broker(
    broker: Broker, request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse:
    results: list[AddPartitionsToTxnResult] = []
    for asked in request.transactions:
        answer = enlist(broker, asked, call)
        results += (await answer if isinstance(answer, Later) else answer).results_by_transaction
    return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))


def enlist(broker: Broker, asked: AddPartitionsToTxnTransaction, call: Call) -> Any:
    """Ask the coordinator of one transaction, in the words of brokers."""

    def refused(error: Errors) -> AddPartitionsToTxnResponse:
        told = AddPartitionsToTxnResult(
            transactional_id=asked.transactional_id, topic_results=_all(asked.topics, error)
        )
        return AddPartitionsToTxnResponse(results_by_transaction=(told,))

    request = AddPartitionsToTxnRequest(transactions=(asked,))
    return ask(broker, asked.transactional_id, request, call, refused)


def _all(
    topics: tuple[AddPartitionsToTxnTopic, ...], error: Errors
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
