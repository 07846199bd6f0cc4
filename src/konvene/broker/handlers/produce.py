"""Produce: each partition's batch is checked, given its offsets and appended; each is answered by itself.

With acks=0 nothing is answered, and an error can only be told by closing the connection, as by Kafka. What is
wrong is told by its code; in words only of single records (`konvene.log.validation`).
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

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.storage.partitions import Partitions
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext

NO_ACKS, ALL_ACKS = 0, -1

AT_ONCE = 16
"""A request for more partitions lets others be served in between."""

SLICE_S = 0.005
"""How long such a request may hold the event loop at a time."""

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_GENERIC_ERROR = 11
FIRST_VERSION_THAT_ENLISTS = 12

Produced = ProduceResponse | HangUp | None
"""What a request is answered: nothing with acks=0, and then an error closes the connection."""

Key = tuple[str, Uuid, int]
"""How a partition was asked for: the topic's name, or its id, and the index."""

_State = tuple[
    dict[Key, tuple[Partition, Buffer]],
    dict[Key, PartitionProduceResponse],
    dict[Key, PartitionProduceResponse],
    dict[Key, Partition],
]
"""Of one request: what was found, what was not, the answers, and what has to be synced."""

INTERNAL_CLIENT_ID = "__admin_client"
"""The client id with which Kafka's tools may write to internal topics."""

STARTS_UNTOLD = frozenset(
    (
        Errors.CORRUPT_MESSAGE,
        Errors.INVALID_TOPIC_EXCEPTION,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.MESSAGE_TOO_LARGE,
        Errors.RECORD_LIST_TOO_LARGE,
    )
)
"""Refusals of an append with which Kafka does not tell where the log starts."""


def handle(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    transactions: TransactionCoordinators,
    request: ProduceRequest,
    context: RequestContext,
) -> Answer[Produced]:
    wanted = _wanted(request)
    try:
        _check_transactions(request, wanted)
        found, refused = _find_all(catalogue, partitions, wanted, context)
        ours = _transaction(settings, transactions, request, context, found)
    except Refused as error:
        answers = {key: _error_response(key, error.error, error.message) for key, _ in wanted}
        return _finish(request, answers, {})
    state: _State = found, refused, {}, {}
    if ours is not None and ours.unknown:
        errors = verification.verify_or_add(
            loop, settings, transactions, ours.writer, list(ours.unknown), ours.generation
        )
        if not isinstance(errors, dict):
            return _enlisted(loop, request, ours, context, state, errors)
        ours.learn(errors)
    return _go_on(loop, request, ours, context, state)


def _go_on(
    loop: asyncio.AbstractEventLoop,
    request: ProduceRequest,
    ours: _Transaction | None,
    context: RequestContext,
    state: _State,
) -> Answer[Produced]:
    found, _, answers, unsynced = state
    steps = _write(request, ours, context, state)
    if len(found) > AT_ONCE:
        return _slowly(loop, request, steps, answers, unsynced)
    for _ in steps:
        pass
    return _finish(request, answers, unsynced)


async def _enlisted(
    loop: asyncio.AbstractEventLoop,
    request: ProduceRequest,
    ours: _Transaction,
    context: RequestContext,
    state: _State,
    errors: Awaitable[PartitionErrors],
) -> Produced:
    """The coordinator's answer is waited for."""
    ours.learn(await errors)
    answer = _go_on(loop, request, ours, context, state)
    return await value_of(answer)


async def _slowly(
    loop: asyncio.AbstractEventLoop,
    request: ProduceRequest,
    steps: Iterator[None],
    answers: dict[Key, PartitionProduceResponse],
    unsynced: dict[Key, Partition],
) -> Produced:
    """Others are served in between: each batch may be unpacked, and that may take its time."""
    until = loop.time() + SLICE_S
    try:
        for _ in steps:
            if loop.time() > until:
                await asyncio.sleep(0)
                until = loop.time() + SLICE_S
    except asyncio.CancelledError:
        _begin(unsynced)  # The client hung up; what it wrote so far is there to be read.
        raise
    answer = _finish(request, answers, unsynced)
    return await value_of(answer)


def _finish(
    request: ProduceRequest, answers: dict[Key, PartitionProduceResponse], unsynced: dict[Key, Partition]
) -> Answer[Produced]:
    if request.acks == NO_ACKS:
        if any(answer.error_code for answer in answers.values()):
            return HANG_UP
        return _sync_untold(_begin(unsynced)) if unsynced else None
    if unsynced:
        return _when_durable(answers, _begin(unsynced))
    return _response(answers)


def _check_transactions(request: ProduceRequest, wanted: list[tuple[Key, Buffer]]) -> None:
    """Whoever speaks of transactions says in which. Raises `Refused`, which is the whole request's answer.

    So is, as by Kafka, what looks like no batch at all: this is where it is found.
    """
    for _, data in wanted:
        if is_transactional(data):
            if request.transactional_id is None:
                raise Refused(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return


def _find_all(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    wanted: list[tuple[Key, Buffer]],
    context: RequestContext,
) -> tuple[dict[Key, tuple[Partition, Buffer]], dict[Key, PartitionProduceResponse]]:
    """The partitions that can be found, and what is told of the others. Who is named twice takes the last."""
    found: dict[Key, tuple[Partition, Buffer]] = {}
    refused: dict[Key, PartitionProduceResponse] = {}
    for key, data in wanted:
        try:
            found[key] = _find(catalogue, partitions, key, data, context)
        except Refused as error:
            refused[key] = _error_response(key, error.error)
    return found, refused


class _Transaction:
    """The transaction of which a request brings records."""

    __slots__ = ("_transactions", "errors", "generation", "unknown", "writer")

    def __init__(
        self,
        transactions: TransactionCoordinators,
        writer: TransactionalProducer,
        generation: SupportedOperation,
    ) -> None:
        self._transactions = transactions
        self.writer = writer
        self.generation = generation
        self.unknown: dict[tuple[str, int], None] = {}
        """Partitions in which it has no record yet."""
        self.errors: dict[tuple[str, int], int] = {}

    def learn(self, errors: PartitionErrors) -> None:
        """What the coordinator said of partitions in which the transaction has nothing yet."""
        self.errors.update((place, error) for place, error in errors.items() if error)

    def refused(self, partition: Partition, key: Key) -> PartitionProduceResponse | None:
        """What is told where the coordinator does not have the partition in the transaction."""
        error = self.errors.get((partition.topic, partition.index))
        return (
            None
            if error is None
            else _error_response(key, *verification.producer_error(error, self.generation))
        )

    def append(self, partition: Partition, batch: Buffer, key: Key) -> PartitionProduceResponse:
        """Append a batch to a partition that takes part in the transaction."""
        place = partition.topic, partition.index
        begins = False
        if is_transactional(batch) and not verification.is_open(partition, self.writer):
            if not verification.is_still_open(self._transactions, self.writer, place):
                return _error_response(
                    key, *verification.producer_error(Errors.INVALID_TXN_STATE, self.generation)
                )
            begins = self.generation is SupportedOperation.ADD_PARTITION
        return _append(partition, batch, key, begins=begins)


def _transaction(
    settings: BrokerSettings,
    transactions: TransactionCoordinators,
    request: ProduceRequest,
    context: RequestContext,
    found: dict[Key, tuple[Partition, Buffer]],
) -> _Transaction | None:
    """Whose transaction the request is about, and what of it is not known. Raises `Refused`."""
    if request.transactional_id is None:
        return None
    generation = SupportedOperation.DEFAULT_ERROR
    if context.api_version >= FIRST_VERSION_THAT_ENLISTS:
        generation = SupportedOperation.ADD_PARTITION
    elif context.api_version >= FIRST_VERSION_WITH_GENERIC_ERROR:
        generation = SupportedOperation.GENERIC_ERROR_SUPPORTED
    verifies = settings.config["transaction.partition.verification.enable"]
    if generation is not SupportedOperation.ADD_PARTITION and not verifies:
        return None
    ours: _Transaction | None = None
    for partition, batch in found.values():
        if not is_transactional(batch):
            continue
        header = read_header(batch)
        if not header.has_producer_id:
            continue
        writer = TransactionalProducer(request.transactional_id, header.producer_id, header.producer_epoch)
        if ours is None:
            ours = _Transaction(transactions, writer, generation)
        elif writer != ours.writer:
            raise Refused(Errors.INVALID_PRODUCER_ID_MAPPING)
        place = partition.topic, partition.index
        if verification.is_fenced(partition, writer):
            ours.errors[place] = Errors.INVALID_PRODUCER_EPOCH
        elif not verification.is_open(partition, writer):
            ours.unknown[place] = None
    return ours


def _write(
    request: ProduceRequest, ours: _Transaction | None, context: RequestContext, state: _State
) -> Iterator[None]:
    """Append to all partitions that were found.

    Partition by partition, into `answers`; those that have to be synced, into `unsynced`.
    """
    found, refused, answers, unsynced = state
    for key, (partition, batch) in found.items():
        unenlisted = None if ours is None else ours.refused(partition, key)
        if unenlisted is not None:
            answers[key] = unenlisted
        elif request.acks not in (NO_ACKS, 1, ALL_ACKS):
            answers[key] = _error_response(key, Errors.INVALID_REQUIRED_ACKS)
        elif partition.topic in INTERNAL_TOPICS and context.client_id != INTERNAL_CLIENT_ID:
            answers[key] = _error_response(key, Errors.INVALID_TOPIC_EXCEPTION)
        else:
            append = _append if ours is None else ours.append
            answers[key] = append(partition, batch, key)
            if partition.syncs and not answers[key].error_code:
                unsynced[key] = partition
        yield
    if refused:
        written = answers | refused
        answers.clear()
        answers.update((key, written[key]) for key, _ in _wanted(request))


def _wanted(request: ProduceRequest) -> list[tuple[Key, Buffer]]:
    """Each partition of a request and what is for it."""
    return [
        ((topic.name, topic.topic_id, wanted.index), wanted.records or b"")
        for topic in request.topic_data
        for wanted in topic.partition_data
    ]


def _find(
    catalogue: ClusterCatalogue, partitions: Partitions, key: Key, data: Buffer, context: RequestContext
) -> tuple[Partition, Buffer]:
    """The partition and the batch for it. Raises `Refused`."""
    name, topic_id, index = key
    missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
    if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic = catalogue.topics.by_id.get(topic_id)
        if topic is None:
            raise Refused(Errors.UNKNOWN_TOPIC_ID)
        name = topic.name
    partition = partitions.get(name, index)
    if partition is None:
        raise Refused(partitions.why_not(name, index, missing))
    return partition, single_batch(data, zstd=context.api_version >= FIRST_VERSION_WITH_ZSTD)


def _append(
    partition: Partition, batch: Buffer, key: Key, *, begins: bool = False
) -> PartitionProduceResponse:
    """`begins`: with it a producer begins that numbers its records from 0."""
    try:
        done = partition.produce(batch, sequence_zero=begins)
    except Refused as refused:
        told = refused.record_errors
        return PartitionProduceResponse(
            index=partition.index,
            error_code=refused.error,
            base_offset=-1,
            log_start_offset=-1 if refused.error in STARTS_UNTOLD else partition.start_offset,
            record_errors=tuple(
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
                for index, why in told
            ),
            error_message=refused.message if told else None,
        )
    return PartitionProduceResponse(
        index=partition.index,
        base_offset=done.base_offset,
        log_append_time_ms=done.log_append_time_ms,
        log_start_offset=partition.start_offset,
    )


async def _sync_untold(begun: dict[Key, asyncio.Task[None]]) -> HangUp | None:
    """Nobody waits for an answer, but the next request waits."""
    for syncing in begun.values():
        try:
            await asyncio.shield(syncing)
        except LogError:
            return HANG_UP
    return None


async def _when_durable(
    answers: dict[Key, PartitionProduceResponse], begun: dict[Key, asyncio.Task[None]]
) -> ProduceResponse:
    """`konvene.log.fsync.topics`, `flush.messages`: on the disk before it is acknowledged, or refused."""
    for key, syncing in begun.items():
        try:
            await asyncio.shield(syncing)
        except LogError as error:
            answers[key] = _error_response(key, Errors(error.code))
    return _response(answers)


def _begin(unsynced: dict[Key, Partition]) -> dict[Key, asyncio.Task[None]]:
    """Begin to sync all of them. It goes on if the client hangs up: others wait to read what it wrote."""
    begun = {key: asyncio.ensure_future(partition.sync()) for key, partition in unsynced.items()}
    for syncing in begun.values():
        syncing.add_done_callback(_forget)
    return begun


def _forget(syncing: asyncio.Task[None]) -> None:
    """A failure is the log's to remember; that nobody waits for this one any more is no news."""
    if not syncing.cancelled():
        syncing.exception()


def _response(answers: dict[Key, PartitionProduceResponse]) -> ProduceResponse:
    topics: dict[tuple[str, Uuid], list[PartitionProduceResponse]] = {}
    for (name, topic_id, _), answer in answers.items():
        topics.setdefault((name, topic_id), []).append(answer)
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=tuple(partitions))
            for (name, topic_id), partitions in topics.items()
        )
    )


def _error_response(key: Key, error: Errors, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=key[2], error_code=error, base_offset=-1, error_message=message)
