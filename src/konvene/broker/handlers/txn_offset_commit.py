"""TxnOffsetCommit: offsets that count when a transaction is committed.

The partition that has the group's offsets must take part in the transaction; clients of the newer generation
enlist it by this very request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.broker.transactions import verification
from konvene.broker.transactions.verification import (
    PartitionErrors,
    SupportedOperation,
    TransactionalProducer,
)
from konvene.errors import Errors
from konvene.groups.offsets.transactional import resolve_topic
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from konvene.runtime.deferred import Answer, Deferred

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.storage.partitions import Partitions
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext

FIRST_VERSION_WITH_LOADING = 2
FIRST_VERSION_WITH_GENERIC_ERROR = 4
FIRST_VERSION_THAT_ENLISTS = 5


def handle(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    groups: GroupCoordinators,
    transactions: TransactionCoordinators,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> Answer[TxnOffsetCommitResponse]:
    def refused(error: Errors) -> TxnOffsetCommitResponse:
        return _error_response(catalogue, request, context, error)

    if not request.group_id:
        return refused(Errors.INVALID_GROUP_ID)
    if not _has_any(catalogue, request, context):
        return refused(Errors.NONE)
    coordinator = groups.of(request.group_id)
    if coordinator is None:
        return refused(Errors.NOT_COORDINATOR)
    index = groups.index_of(request.group_id)
    partition = partitions.get(OFFSETS_TOPIC, index)
    if partition is None:
        return refused(Errors.NOT_COORDINATOR)
    writer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    generation = _generation(context)
    if verification.is_open(partition, writer) or not _is_verified(settings, generation):
        return submit_to_group_coordinator(groups, request.group_id, request, context, refused)
    if verification.is_fenced(partition, writer):
        return refused(Errors.INVALID_PRODUCER_EPOCH)
    place = OFFSETS_TOPIC, index
    errors = verification.verify_or_add(loop, settings, transactions, writer, [place], generation)

    def enlisted(errors: PartitionErrors) -> Any:
        error = Errors(errors[place])
        if error is Errors.NONE and not verification.is_still_open(transactions, writer, place):
            error = Errors.INVALID_TXN_STATE
        if error is not Errors.NONE:
            return refused(_as_told(error, generation))
        return submit_to_group_coordinator(groups, request.group_id, request, context, refused)

    return enlisted(errors) if isinstance(errors, dict) else _when_known(errors, enlisted)


async def _when_known(errors: Awaitable[PartitionErrors], enlisted: Callable[[PartitionErrors], Any]) -> Any:
    answer = enlisted(await errors)
    return await answer if isinstance(answer, Deferred) else answer


def _is_verified(settings: BrokerSettings, generation: SupportedOperation) -> bool:
    if generation is SupportedOperation.ADD_PARTITION:
        return True
    return bool(settings.config["transaction.partition.verification.enable"])


def _generation(context: RequestContext) -> SupportedOperation:
    if context.api_version >= FIRST_VERSION_THAT_ENLISTS:
        return SupportedOperation.ADD_PARTITION
    if context.api_version >= FIRST_VERSION_WITH_GENERIC_ERROR:
        return SupportedOperation.GENERIC_ERROR_SUPPORTED
    return SupportedOperation.DEFAULT_ERROR


def _as_told(error: Errors, generation: SupportedOperation) -> Errors:
    """The error of the transaction's coordinator as a group's coordinator tells it."""
    if error is Errors.PRODUCER_FENCED:
        return Errors.INVALID_PRODUCER_EPOCH
    if error is Errors.TRANSACTION_ABORTABLE and generation is SupportedOperation.DEFAULT_ERROR:
        return Errors.INVALID_TXN_STATE
    if error in (Errors.NETWORK_EXCEPTION, Errors.COORDINATOR_LOAD_IN_PROGRESS):
        return Errors.COORDINATOR_LOAD_IN_PROGRESS
    return error


def _has_any(catalogue: ClusterCatalogue, request: TxnOffsetCommitRequest, context: RequestContext) -> bool:
    """Whether there is a partition of which an offset could be committed at all."""
    for topic in request.topics:
        known, _ = resolve_topic(catalogue.topics, topic, context.api_version)
        if known is not None and any(0 <= p.partition_index < known.partitions for p in topic.partitions):
            return True
    return False


def _error_response(
    catalogue: ClusterCatalogue, request: TxnOffsetCommitRequest, context: RequestContext, error: Errors
) -> TxnOffsetCommitResponse:
    """The same for every partition, but for those that do not exist."""
    if context.api_version < FIRST_VERSION_WITH_LOADING and error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
        error = Errors.COORDINATOR_NOT_AVAILABLE
    topics = []
    for topic in request.topics:
        known, missing = resolve_topic(catalogue.topics, topic, context.api_version)
        there = 0
        if known is not None:
            there, missing = known.partitions, Errors.UNKNOWN_TOPIC_OR_PARTITION
        partitions = tuple(
            TxnOffsetCommitResponsePartition(
                partition_index=p.partition_index,
                error_code=error if 0 <= p.partition_index < there else missing,
            )
            for p in topic.partitions
        )
        told = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        topics.append(told)
    return TxnOffsetCommitResponse(topics=tuple(topics))
