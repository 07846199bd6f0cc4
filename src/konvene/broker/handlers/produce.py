"""Produce: validate each partition's record batch, assign its offsets and append it to the log.

Each partition has its own result. With acks=0 there is no response, and an error closes the connection, as in
Kafka. Errors have a code; a message only describes invalid records (`konvene.log.validation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING

from konvene.broker.storage.partitions import Partition, Refused, is_transactional, single_batch
from konvene.broker.transactions import verification
from konvene.broker.transactions.verification import (
    PartitionErrors,
    SupportedOperation,
    TransactionalProducer,
)
from konvene.codec.batches import read_header
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.log.errors import LogError
from konvene.messages.produce import (
    BatchIndexAndErrorMessage,
    Buffer,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from konvene.runtime.deferred import HANG_UP, Answer, HangUp, value_of
from konvene.security.resources import Operation, transactional_id

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.storage.partitions import Partitions
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext

NO_ACKS, ALL_ACKS = 0, -1

MAX_UNSLICED_PARTITIONS = 16
"""Number of partitions above which a request yields to other tasks between partitions."""

SLICE_S = 0.005
"""Time in seconds after which such a request yields to other tasks."""

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_GENERIC_ERROR = 11
FIRST_VERSION_ADDING_PARTITIONS = 12

Produced = ProduceResponse | HangUp | None
"""A response; with acks=0 None, or `HANG_UP` after an error."""

Key = tuple[str, Uuid, int]
"""A requested partition: the topic's name, its id, and the index. Either the name or the id is empty."""

_Progress = tuple[
    dict[Key, tuple[Partition, Buffer]],
    dict[Key, PartitionProduceResponse],
    dict[Key, PartitionProduceResponse],
    dict[Key, Partition],
]
"""State of one request: partitions with their batches, results of rejected partitions, results of the others,
and partitions to sync."""

INTERNAL_CLIENT_ID = "__admin_client"
"""Client id with which Kafka's tools may write to internal topics."""

_NONE_DENIED: frozenset[str] = frozenset()

ERRORS_WITHOUT_START_OFFSET = frozenset(
    (
        Errors.CORRUPT_MESSAGE,
        Errors.INVALID_TOPIC_EXCEPTION,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.MESSAGE_TOO_LARGE,
        Errors.RECORD_LIST_TOO_LARGE,
    )
)
"""Errors of an append whose result does not have the log start offset, as in Kafka."""


def handle(
    loop: asyncio.AbstractEventLoop,
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    transactions: TransactionCoordinators,
    request: ProduceRequest,
    context: RequestContext,
) -> Answer[Produced]:
    requested = _requested_batches(request)
    try:
        _check_transactional_id(authorization, request, requested, context)
        denied = _NONE_DENIED
        if authorization.is_enabled:
            denied = _denied_topics(authorization, catalogue, requested, context)
        found, rejected = _find_all(catalogue, partitions, requested, denied, context)
        transaction = _transaction(settings, transactions, request, context, found)
    except Refused as error:
        results = {key: _error_result(key, error.error, error.message) for key, _ in requested}
        return _respond(request, results, {})
    progress: _Progress = found, rejected, {}, {}
    if transaction is not None and transaction.unverified:
        errors = verification.verify_or_add(
            loop,
            settings,
            transactions,
            transaction.producer,
            list(transaction.unverified),
            transaction.supported,
        )
        if not isinstance(errors, dict):
            return _append_when_verified(loop, request, transaction, context, progress, errors)
        transaction.add_errors(errors)
    return _append_all(loop, request, transaction, context, progress)


def _append_all(
    loop: asyncio.AbstractEventLoop,
    request: ProduceRequest,
    transaction: _Transaction | None,
    context: RequestContext,
    progress: _Progress,
) -> Answer[Produced]:
    found, _, results, unsynced = progress
    steps = _append_steps(request, transaction, context, progress)
    if len(found) > MAX_UNSLICED_PARTITIONS:
        return _append_in_slices(loop, request, steps, results, unsynced)
    for _ in steps:
        pass
    return _respond(request, results, unsynced)


async def _append_when_verified(
    loop: asyncio.AbstractEventLoop,
    request: ProduceRequest,
    transaction: _Transaction,
    context: RequestContext,
    progress: _Progress,
    errors: Awaitable[PartitionErrors],
) -> Produced:
    transaction.add_errors(await errors)
    return await value_of(_append_all(loop, request, transaction, context, progress))


async def _append_in_slices(
    loop: asyncio.AbstractEventLoop,
    request: ProduceRequest,
    steps: Iterator[None],
    results: dict[Key, PartitionProduceResponse],
    unsynced: dict[Key, Partition],
) -> Produced:
    """Run `steps` (`_append_steps`), yielding to other tasks every `SLICE_S`; then return the response.

    The steps fill `results` and `unsynced`, the partitions to sync. Slices are needed because validation may
    have to decompress many batches."""
    slice_end_s = loop.time() + SLICE_S
    try:
        for _ in steps:
            if loop.time() > slice_end_s:
                await asyncio.sleep(0)
                slice_end_s = loop.time() + SLICE_S
    except asyncio.CancelledError:
        _start_syncs(unsynced)  # The client disconnected; the batches appended so far stay.
        raise
    return await value_of(_respond(request, results, unsynced))


def _respond(
    request: ProduceRequest, results: dict[Key, PartitionProduceResponse], unsynced: dict[Key, Partition]
) -> Answer[Produced]:
    if request.acks == NO_ACKS:
        if any(result.error_code for result in results.values()):
            return HANG_UP
        return _sync_without_response(_start_syncs(unsynced)) if unsynced else None
    if unsynced:
        return _when_durable(results, _start_syncs(unsynced))
    return _response(results)


def _check_transactional_id(
    authorization: Authorization,
    request: ProduceRequest,
    requested: list[tuple[Key, Buffer]],
    context: RequestContext,
) -> None:
    """Raise `Refused` if a batch is transactional but the request has no transactional id that it may use.

    As in Kafka, only the data up to the first transactional batch is examined, and `Refused` is also raised
    if some of it is not a batch."""
    for _, data in requested:
        if is_transactional(data):
            name = request.transactional_id
            if name is None or not authorization.permits(context, Operation.WRITE, transactional_id(name)):
                raise Refused(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return


def _denied_topics(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    requested: list[tuple[Key, Buffer]],
    context: RequestContext,
) -> frozenset[str]:
    """Return the names of the topics to which the client may not write."""
    if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        found = (catalogue.topics.by_id.get(topic_id) for (_, topic_id, _), _ in requested)
        names = {topic.name for topic in found if topic is not None}
    else:
        names = {name for (name, _, _), _ in requested}
    return frozenset(names - authorization.permitted_topics(context, Operation.WRITE, names))


def _find_all(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    requested: list[tuple[Key, Buffer]],
    denied: frozenset[str],
    context: RequestContext,
) -> tuple[dict[Key, tuple[Partition, Buffer]], dict[Key, PartitionProduceResponse]]:
    """Return the existing partitions with their batches, and error results of the others.

    If a partition is repeated, its last batch counts."""
    found: dict[Key, tuple[Partition, Buffer]] = {}
    rejected: dict[Key, PartitionProduceResponse] = {}
    for key, data in requested:
        try:
            found[key] = _find(catalogue, partitions, key, data, denied, context)
        except Refused as error:
            rejected[key] = _error_result(key, error.error)
    return found, rejected


class _Transaction:
    """The transaction that a request writes to, and the errors of partitions that it may not write to."""

    __slots__ = ("_transactions", "errors", "producer", "supported", "unverified")

    def __init__(
        self,
        transactions: TransactionCoordinators,
        producer: TransactionalProducer,
        supported: SupportedOperation,
    ) -> None:
        self._transactions = transactions
        self.producer = producer
        self.supported = supported
        self.unverified: dict[tuple[str, int], None] = {}
        """Partitions in which the transaction has no records yet, so that the coordinator must verify it."""
        self.errors: dict[tuple[str, int], int] = {}

    def add_errors(self, errors: PartitionErrors) -> None:
        """Store the errors with which the transaction coordinator rejected partitions; ignore NONE."""
        self.errors.update((partition, error) for partition, error in errors.items() if error)

    def error_result(self, partition: Partition, key: Key) -> PartitionProduceResponse | None:
        """Return an error result if the transaction may not write to the partition, else None."""
        error = self.errors.get((partition.topic, partition.index))
        if error is None:
            return None
        return _error_result(key, *verification.producer_error(error, self.supported))

    def append(self, partition: Partition, batch: Buffer, key: Key) -> PartitionProduceResponse:
        """Append a batch; return an error if it is transactional and its transaction has ended meanwhile."""
        topic_partition = partition.topic, partition.index
        sequence_zero = False
        if is_transactional(batch) and not verification.is_open(partition, self.producer):
            if not verification.is_still_open(self._transactions, self.producer, topic_partition):
                return _error_result(
                    key, *verification.producer_error(Errors.INVALID_TXN_STATE, self.supported)
                )
            sequence_zero = self.supported is SupportedOperation.ADD_PARTITION
        return _append(partition, batch, key, sequence_zero=sequence_zero)


def _transaction(
    settings: BrokerSettings,
    transactions: TransactionCoordinators,
    request: ProduceRequest,
    context: RequestContext,
    found: dict[Key, tuple[Partition, Buffer]],
) -> _Transaction | None:
    """Return the transaction of the request, or None if nothing in it has to be verified.

    Raises `Refused` if its batches are of different producers."""
    if request.transactional_id is None:
        return None
    supported = SupportedOperation.DEFAULT_ERROR
    if context.api_version >= FIRST_VERSION_ADDING_PARTITIONS:
        supported = SupportedOperation.ADD_PARTITION
    elif context.api_version >= FIRST_VERSION_WITH_GENERIC_ERROR:
        supported = SupportedOperation.GENERIC_ERROR_SUPPORTED
    verification_enabled = settings.config["transaction.partition.verification.enable"]
    if supported is not SupportedOperation.ADD_PARTITION and not verification_enabled:
        return None
    transaction: _Transaction | None = None
    for partition, batch in found.values():
        if not is_transactional(batch):
            continue
        header = read_header(batch)
        if not header.has_producer_id:
            continue
        producer = TransactionalProducer(request.transactional_id, header.producer_id, header.producer_epoch)
        if transaction is None:
            transaction = _Transaction(transactions, producer, supported)
        elif producer != transaction.producer:
            raise Refused(Errors.INVALID_PRODUCER_ID_MAPPING)
        topic_partition = partition.topic, partition.index
        if verification.is_fenced(partition, producer):
            transaction.errors[topic_partition] = Errors.INVALID_PRODUCER_EPOCH
        elif not verification.is_open(partition, producer):
            transaction.unverified[topic_partition] = None
    return transaction


def _append_steps(
    request: ProduceRequest, transaction: _Transaction | None, context: RequestContext, progress: _Progress
) -> Iterator[None]:
    """Append one partition's batch per step, adding to the results and the partitions to sync in `progress`.

    The last step puts the results in the order of the request."""
    found, rejected, results, unsynced = progress
    for key, (partition, batch) in found.items():
        error_result = None if transaction is None else transaction.error_result(partition, key)
        if error_result is not None:
            results[key] = error_result
        elif request.acks not in (NO_ACKS, 1, ALL_ACKS):
            results[key] = _error_result(key, Errors.INVALID_REQUIRED_ACKS)
        elif partition.topic in INTERNAL_TOPICS and context.client_id != INTERNAL_CLIENT_ID:
            results[key] = _error_result(key, Errors.INVALID_TOPIC_EXCEPTION)
        else:
            append = _append if transaction is None else transaction.append
            results[key] = append(partition, batch, key)
            if partition.syncs and not results[key].error_code:
                unsynced[key] = partition
        yield
    if rejected:
        unordered = results | rejected
        results.clear()
        results.update((key, unordered[key]) for key, _ in _requested_batches(request))


def _requested_batches(request: ProduceRequest) -> list[tuple[Key, Buffer]]:
    """Return the key and the data of each requested partition."""
    return [
        ((topic.name, topic.topic_id, partition.index), partition.records or b"")
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


def _find(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    key: Key,
    data: Buffer,
    denied: frozenset[str],
    context: RequestContext,
) -> tuple[Partition, Buffer]:
    """Return a partition and the only batch in `data`.

    Raises `Refused` if either is missing or invalid, or if the topic is in `denied`."""
    name, topic_id, index = key
    missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
    if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic = catalogue.topics.by_id.get(topic_id)
        if topic is None:
            raise Refused(Errors.UNKNOWN_TOPIC_ID)
        name = topic.name
    if name in denied:
        raise Refused(Errors.TOPIC_AUTHORIZATION_FAILED)
    partition = partitions.get(name, index)
    if partition is None:
        raise Refused(partitions.missing_error(name, index, missing))
    return partition, single_batch(data, zstd=context.api_version >= FIRST_VERSION_WITH_ZSTD)


def _append(
    partition: Partition, batch: Buffer, key: Key, *, sequence_zero: bool = False
) -> PartitionProduceResponse:
    """Append a batch. `sequence_zero`: the producer's first batch must have sequence number 0."""
    try:
        appended = partition.produce(batch, sequence_zero=sequence_zero)
    except Refused as rejected:
        record_errors = rejected.record_errors
        return PartitionProduceResponse(
            index=partition.index,
            error_code=rejected.error,
            base_offset=-1,
            log_start_offset=-1 if rejected.error in ERRORS_WITHOUT_START_OFFSET else partition.start_offset,
            record_errors=tuple(
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in record_errors
            ),
            error_message=rejected.message if record_errors else None,
        )
    return PartitionProduceResponse(
        index=partition.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.start_offset,
    )


async def _sync_without_response(syncs: dict[Key, asyncio.Task[None]]) -> HangUp | None:
    """Wait for the syncs of a request with acks=0, which delays the connection's next request.

    Return `HANG_UP` if a sync fails."""
    for sync in syncs.values():
        try:
            await asyncio.shield(sync)
        except LogError:
            return HANG_UP
    return None


async def _when_durable(
    results: dict[Key, PartitionProduceResponse], syncs: dict[Key, asyncio.Task[None]]
) -> ProduceResponse:
    """Return the response once the syncs are done (`konvene.log.fsync.topics`, `flush.messages`)."""
    for key, sync in syncs.items():
        try:
            await asyncio.shield(sync)
        except LogError as error:
            results[key] = _error_result(key, Errors(error.code))
    return _response(results)


def _start_syncs(unsynced: dict[Key, Partition]) -> dict[Key, asyncio.Task[None]]:
    """Start to sync partitions. The syncs continue if the client disconnects: consumers wait for them."""
    syncs = {key: asyncio.ensure_future(partition.sync()) for key, partition in unsynced.items()}
    for sync in syncs.values():
        sync.add_done_callback(_retrieve_exception)
    return syncs


def _retrieve_exception(sync: asyncio.Task[None]) -> None:
    """Retrieve the error of a sync, so that asyncio does not log it; the partition's log has recorded it."""
    if not sync.cancelled():
        sync.exception()


def _response(results: dict[Key, PartitionProduceResponse]) -> ProduceResponse:
    topics: dict[tuple[str, Uuid], list[PartitionProduceResponse]] = {}
    for (name, topic_id, _), result in results.items():
        topics.setdefault((name, topic_id), []).append(result)
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=tuple(partitions))
            for (name, topic_id), partitions in topics.items()
        )
    )


def _error_result(key: Key, error: Errors, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=key[2], error_code=error, base_offset=-1, error_message=message)
