"""A transactional producer of a simulated client, which retries as Kafka's producer does.

It runs one script at a time: a generator that yields a request or a delay, and is sent the response. A script
ends with the life of its client.

    retriable error     the producer sends the same request again after a backoff
    fencing error       it requests its next epoch with its own id and epoch, or stops
    other error         it aborts the transaction
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from konvene.codec.batches import Record, build
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.txn_offset_commit import TxnOffsetCommitRequest
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.process import Process
    from konvene.sim.world.world import World

BACKOFF_MS = 100

RETRIABLE = frozenset({
    Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.UNKNOWN_SERVER_ERROR, Errors.CONCURRENT_TRANSACTIONS, Errors.NOT_ENOUGH_REPLICAS,
})  # fmt: skip

FENCED = frozenset({
    Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH, Errors.INVALID_PRODUCER_ID_MAPPING,
    Errors.INVALID_TXN_STATE, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, Errors.UNKNOWN_PRODUCER_ID,
})  # fmt: skip
"""Errors after another producer took the transactional id, or the transaction timed out."""

EPOCH_PER_TRANSACTION = 2
"""Lowest `transaction.version` that permits a new epoch for each transaction (KIP-890)."""

Script = Generator[Any, Any, Any]


class Aborted(Exception):
    """Raised in a script when one of its requests failed with an `error` that is not retriable: the
    transaction has to be aborted."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


class Producer:
    """A transactional producer in the simulated client `owner`.

    `on_fatal_error` is called with an error after which the producer stops."""

    def __init__(
        self, owner: Process, transactional_id: str, on_fatal_error: Callable[[Errors], None]
    ) -> None:
        self.owner = owner
        self.world: World = owner.world
        self.transactional_id = transactional_id
        self.id = self.epoch = -1
        self.is_old = (
            self.world.options["transaction.version"] < EPOCH_PER_TRANSACTION
            or self.world.random.random() < 0.3
        )
        """Whether it uses the protocol before KIP-890, with one epoch for all transactions."""
        self._on_fatal_error = on_fatal_error
        self._sequences: dict[int, int] = {}
        self._script: Script | None = None
        self._count = 0
        self._started = False

    def __repr__(self) -> str:
        return f"<producer {self.transactional_id}: {self.id} at epoch {self.epoch}>"

    @property
    def is_ready(self) -> bool:
        """Whether the producer has a producer id and runs no script."""
        return self._script is None and self.id >= 0

    def label(self) -> str:
        """Return a label for the next transaction, which is unique in the run."""
        self._count += 1
        return f"{self.owner.name}.{self.owner.life}#{self._count}"

    # --- scripts ---

    def play(self, script: Script) -> None:
        """Start a script, in place of the one that is still running, if any."""
        self._script = script
        self._resume(script, None)

    def _resume(self, script: Script, response: tuple[Answer] | None) -> None:
        if self._script is not script:
            return
        try:
            step = script.send(response)
        except StopIteration:
            self._script = None
            return
        if isinstance(step, int):
            self.owner.schedule(step, self._resume, script, None)
        else:
            request, version = step
            self.owner.send(request, version, lambda response: self._resume(script, (response,)))

    def _request(self, request: Struct, version: int) -> Generator[Any, Any, Any]:
        """Send a request, again after each retriable error, and return the successful response.

        Raises `Aborted` for any other error."""
        while True:
            (response,) = yield request, version
            error = first_error(response)
            if error is Errors.NONE:
                return response
            is_fatal = error is Errors.UNKNOWN_SERVER_ERROR and isinstance(request, InitProducerIdRequest)
            if is_fatal or (error is not None and error not in RETRIABLE):
                raise Aborted(error or Errors.NONE)
            yield BACKOFF_MS + self.world.random.randint(0, BACKOFF_MS)

    # --- transactions ---

    def begin(self) -> Script:
        """Send InitProducerId: for a producer id, which fences earlier producers of the transactional id, or,
        if the producer has one already, for its next epoch."""
        version = self.world.random.choice([4, 5] if self.id < 0 else [3, 4, 5])
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.world.options["transaction.timeout.ms"],
            producer_id=self.id,
            producer_epoch=self.epoch,
        )
        try:
            response = yield from self._request(request, version)
        except Aborted as aborted:
            if aborted.error is not Errors.UNKNOWN_SERVER_ERROR:
                self._on_fatal_error(aborted.error)
                return
            self._set_identity(-1, -1)  # Its epochs may be exhausted: it needs a new producer id.
            yield BACKOFF_MS
            yield from self.begin()
            return
        self._set_identity(response.producer_id, response.producer_epoch)

    def _set_identity(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self.id, self.epoch = producer_id, epoch
            self._sequences.clear()

    def transaction(
        self,
        values: dict[int, list[bytes]],
        commit: TxnOffsetCommitRequest,
        done: Callable[[Errors | None], None],
    ) -> Script:
        """Run a transaction that writes `values` by output partition, and the offsets of `commit`.

        `done` is called with NONE if it was committed, with the error if it failed, and with None if the
        application aborted it."""
        self._started = False
        try:
            commits = yield from self._work(values, commit)
            result = Errors.NONE if commits else None
        except Aborted as aborted:
            commits, result = False, aborted.error
        if result not in FENCED and self._started:
            try:
                yield from self._end(commits)
            except Aborted as aborted:
                result = aborted.error
        if result in FENCED:
            yield from self._recover(result or Errors.NONE)
        done(result)

    def _recover(self, error: Errors) -> Script:
        """Handle a fencing error: with probability 0.3, unless faults have ended, stop; otherwise request the
        next epoch, as the coordinator may only have aborted a transaction that timed out (KIP-588)."""
        if not self.world.faults_disabled and self.world.random.random() < 0.3:
            self._on_fatal_error(error)
            return
        yield from self.begin()

    def _work(self, values: dict[int, list[bytes]], commit: TxnOffsetCommitRequest) -> Script:
        """Write the records and the offsets of a transaction; return False if the application is to abort it,
        else True. The caller ends the transaction."""
        conditions, random = self.world.conditions, self.world.random
        if self.is_old and values:
            topic = AddPartitionsToTxnTopic(name="output", partitions=tuple(values))
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id, v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch, v3_and_below_topics=(topic,),
            )  # fmt: skip
            yield from self._request(request, 3)
            self._started = True
        for index, rows in values.items():
            yield from self._write(index, rows)
        if conditions["dawdle"] and random.random() < conditions["dawdle"]:
            yield random.randint(1, 2 * self.world.options["transaction.timeout.ms"])
        if conditions["abort"] and random.random() < conditions["abort"] / 2:
            return False
        yield from self._commit(commit)
        return not (conditions["abort"] and random.random() < conditions["abort"] / 2)

    def _write(self, index: int, rows: list[bytes]) -> Script:
        first = self._sequences.get(index, 0)
        data = build(
            [Record(i, 0, None, value, ()) for i, value in enumerate(rows)], producer_id=self.id,
            producer_epoch=self.epoch, base_sequence=first, transactional=True,
        )  # fmt: skip
        row = PartitionProduceData(index=index, records=data)
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=1_000,
            topic_data=(TopicProduceData(name="output", partition_data=(row,)),),
        )  # fmt: skip
        self._started = self._started or not self.is_old
        yield from self._request(request, 11 if self.is_old else 12)
        self._sequences[index] = first + len(rows)

    def _commit(self, commit: TxnOffsetCommitRequest) -> Script:
        identity: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }
        if self.is_old:
            yield from self._request(AddOffsetsToTxnRequest(group_id=commit.group_id, **identity), 3)
        self._started = True
        yield from self._request(commit.replace(**identity), 4 if self.is_old else 5)

    def _end(self, committed: bool) -> Script:
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch,
            committed=committed,
        )  # fmt: skip
        response = yield from self._request(request, 4 if self.is_old else 5)
        if not self.is_old:
            self._set_identity(response.producer_id, response.producer_epoch)


def first_error(response: Answer, depth: int = 4) -> Errors | None:
    """Return the first error code in a response, or NONE if it has none; None if there is no response.

    Structs in the response are searched, too, nested down to `depth` levels."""
    if response is None or isinstance(response, Errors):
        return response
    return Errors(_code(response, depth))


def _code(response: object, depth: int) -> int:
    for name in ("error_code", "partition_error_code"):
        code: int = getattr(response, name, 0)
        if code:
            return code
    for field in getattr(response, "__fields__", ()) if depth else ():
        value = getattr(response, field.name)
        if isinstance(value, tuple):
            code = next((code for entry in value if (code := _code(entry, depth - 1))), 0)
            if code:
                return code
    return 0
