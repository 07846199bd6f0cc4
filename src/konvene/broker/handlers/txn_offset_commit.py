"""TxnOffsetCommit: commit offsets of a group as part of a transaction.

The partition with the group's offsets has to be in the transaction. Requests since version 5 add it; for
older ones that is verified with the transaction coordinator (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import (
    permits_group,
    permits_transaction,
    requested_name,
    split_by_permission,
)
from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.broker.transactions import verification
from konvene.broker.transactions.verification import (
    PartitionErrors,
    SupportedOperation,
    TransactionalProducer,
)
from konvene.errors import Errors
from konvene.groups.offsets.transactional import FIRST_VERSION_WITH_TOPIC_IDS, resolve_topic
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from konvene.runtime.deferred import Answer, Deferred, then, value_of
from konvene.security.resources import Operation

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.storage.partitions import Partitions
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext

FIRST_VERSION_WITH_LOADING = 2
FIRST_VERSION_WITH_GENERIC_ERROR = 4
FIRST_VERSION_ADDING_PARTITIONS = 5


def handle(
    authorization: Authorization,
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    groups: GroupCoordinators,
    transactions: TransactionCoordinators,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> Answer[TxnOffsetCommitResponse]:
    def commit(permitted: TxnOffsetCommitRequest) -> Answer[TxnOffsetCommitResponse]:
        return _commit(loop, settings, catalogue, partitions, groups, transactions, permitted, context)

    if not authorization.is_enabled:
        return commit(request)
    error = _denied(authorization, request, context)
    if error is not Errors.NONE:
        return TxnOffsetCommitResponse(topics=tuple(_same_error(topic, error) for topic in request.topics))
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    permitted, denied = split_by_permission(
        authorization,
        context,
        Operation.READ,
        request.topics,
        lambda topic: requested_name(catalogue.topics, topic.name, topic.topic_id, by_id=by_id),
    )
    if not denied:
        return commit(request)
    rejected = tuple(_same_error(topic, Errors.TOPIC_AUTHORIZATION_FAILED) for topic in denied)
    if not permitted:
        return TxnOffsetCommitResponse(topics=rejected)
    return _with_rejected(commit(request.replace(topics=permitted)), rejected)


def _denied(authorization: Authorization, request: TxnOffsetCommitRequest, context: RequestContext) -> Errors:
    """Return the error if the client may not write to the transactional id or read the group, else NONE."""
    if not permits_transaction(authorization, context, request.transactional_id):
        return Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return Errors.GROUP_AUTHORIZATION_FAILED
    return Errors.NONE


def _with_rejected(
    answer: Answer[TxnOffsetCommitResponse], rejected: tuple[TxnOffsetCommitResponseTopic, ...]
) -> Answer[TxnOffsetCommitResponse]:
    def add(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        return response.replace(topics=rejected + response.topics)

    async def wait() -> TxnOffsetCommitResponse:
        return add(await value_of(answer))

    if isinstance(answer, TxnOffsetCommitResponse | Deferred):
        return then(answer, add)
    return wait()


def _same_error(topic: TxnOffsetCommitRequestTopic, error: Errors) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error)
            for p in topic.partitions
        ),
    )


def _commit(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    groups: GroupCoordinators,
    transactions: TransactionCoordinators,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> Answer[TxnOffsetCommitResponse]:
    def error_response(error: Errors) -> TxnOffsetCommitResponse:
        return _error_response(catalogue, request, context, error)

    if not request.group_id:
        return error_response(Errors.INVALID_GROUP_ID)
    if not _has_valid_partition(catalogue, request, context):
        return error_response(Errors.NONE)
    coordinator = groups.of(request.group_id)
    if coordinator is None:
        return error_response(Errors.NOT_COORDINATOR)
    index = groups.index_of(request.group_id)
    partition = partitions.get(OFFSETS_TOPIC, index)
    if partition is None:
        return error_response(Errors.NOT_COORDINATOR)
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    supported = _supported_operation(context)
    if verification.is_open(partition, producer) or not _requires_verification(settings, supported):
        return submit_to_group_coordinator(groups, request.group_id, request, context, error_response)
    if verification.is_fenced(partition, producer):
        return error_response(Errors.INVALID_PRODUCER_EPOCH)
    topic_partition = OFFSETS_TOPIC, index
    errors = verification.verify_or_add(loop, settings, transactions, producer, [topic_partition], supported)

    def commit(
        errors: PartitionErrors,
    ) -> TxnOffsetCommitResponse | Deferred[TxnOffsetCommitResponse]:
        error = Errors(errors[topic_partition])
        if error is Errors.NONE and not verification.is_still_open(transactions, producer, topic_partition):
            error = Errors.INVALID_TXN_STATE
        if error is not Errors.NONE:
            return error_response(_group_error(error, supported))
        return submit_to_group_coordinator(groups, request.group_id, request, context, error_response)

    return commit(errors) if isinstance(errors, dict) else _commit_when_verified(errors, commit)


async def _commit_when_verified(
    errors: Awaitable[PartitionErrors],
    commit: Callable[[PartitionErrors], TxnOffsetCommitResponse | Deferred[TxnOffsetCommitResponse]],
) -> TxnOffsetCommitResponse:
    return await value_of(commit(await errors))


def _requires_verification(settings: BrokerSettings, supported: SupportedOperation) -> bool:
    if supported is SupportedOperation.ADD_PARTITION:
        return True
    return bool(settings.config["transaction.partition.verification.enable"])


def _supported_operation(context: RequestContext) -> SupportedOperation:
    if context.api_version >= FIRST_VERSION_ADDING_PARTITIONS:
        return SupportedOperation.ADD_PARTITION
    if context.api_version >= FIRST_VERSION_WITH_GENERIC_ERROR:
        return SupportedOperation.GENERIC_ERROR_SUPPORTED
    return SupportedOperation.DEFAULT_ERROR


def _group_error(error: Errors, supported: SupportedOperation) -> Errors:
    """Map an error of the transaction coordinator to one that a group coordinator returns."""
    if error is Errors.PRODUCER_FENCED:
        return Errors.INVALID_PRODUCER_EPOCH
    if error is Errors.TRANSACTION_ABORTABLE and supported is SupportedOperation.DEFAULT_ERROR:
        return Errors.INVALID_TXN_STATE
    if error in (Errors.NETWORK_EXCEPTION, Errors.COORDINATOR_LOAD_IN_PROGRESS):
        return Errors.COORDINATOR_LOAD_IN_PROGRESS
    return error


def _has_valid_partition(
    catalogue: ClusterCatalogue, request: TxnOffsetCommitRequest, context: RequestContext
) -> bool:
    """Return True if at least one of the requested partitions exists."""
    for topic in request.topics:
        found, _ = resolve_topic(catalogue.topics, topic, context.api_version)
        if found is not None and any(0 <= p.partition_index < found.partitions for p in topic.partitions):
            return True
    return False


def _error_response(
    catalogue: ClusterCatalogue, request: TxnOffsetCommitRequest, context: RequestContext, error: Errors
) -> TxnOffsetCommitResponse:
    """Return a response with `error` for each partition that exists; missing ones have their own error."""
    if context.api_version < FIRST_VERSION_WITH_LOADING and error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
        error = Errors.COORDINATOR_NOT_AVAILABLE
    topics = []
    for topic in request.topics:
        found, missing_error = resolve_topic(catalogue.topics, topic, context.api_version)
        partition_count = 0
        if found is not None:
            partition_count, missing_error = found.partitions, Errors.UNKNOWN_TOPIC_OR_PARTITION
        partitions = tuple(
            TxnOffsetCommitResponsePartition(
                partition_index=p.partition_index,
                error_code=error if 0 <= p.partition_index < partition_count else missing_error,
            )
            for p in topic.partitions
        )
        topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return TxnOffsetCommitResponse(topics=tuple(topics))
