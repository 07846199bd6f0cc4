"""A transactional producer of a simulated client: it asks until it knows, as Kafka's does.

What it does is a script: a generator that yields what is to be asked, or how long to wait, and is sent the
answer. There is one at a time. A script ends with its life; nobody remembers where it was.

    an answer that says to ask again      it asks again, the same, after a while
    one that says that it was followed    it asks for its next epoch, saying who it is, or dies
    any other error                       the transaction is aborted
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from konvene.codec.batches import Record, build
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

ASKED_AGAIN = frozenset({
    Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.UNKNOWN_SERVER_ERROR, Errors.CONCURRENT_TRANSACTIONS, Errors.NOT_ENOUGH_REPLICAS,
})  # fmt: skip

FOLLOWED = frozenset({
    Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH, Errors.INVALID_PRODUCER_ID_MAPPING,
    Errors.INVALID_TXN_STATE, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, Errors.UNKNOWN_PRODUCER_ID,
})  # fmt: skip
"""Somebody else has the transactional id, or the coordinator aborted what took too long."""

NEWER = 2
"""The level of `transaction.version` with which a client may speak the newer generation."""

Script = Generator[Any, Any, Any]


class Aborted(Exception):
    """The transaction comes to nothing."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


class Producer:
    """See the top of this file. `owner` is the client whose producer it is."""

    def __init__(self, owner: Process, transactional_id: str, stops: Callable[[Errors], None]) -> None:
        self.owner = owner
        self.world: World = owner.world
        self.transactional_id = transactional_id
        self.id = self.epoch = -1
        self.is_old = self.world.options["transaction.version"] < NEWER or self.world.random.random() < 0.3
        """Whether it is of the generation that has one epoch for all of its transactions."""
        self._stops = stops
        self._sequences: dict[int, int] = {}
        self._script: Script | None = None
        self._count = 0
        self._started = False

    def __repr__(self) -> str:
        return f"<producer {self.transactional_id}: {self.id} at epoch {self.epoch}>"

    @property
    def is_ready(self) -> bool:
        """Whether it has its id, and nothing is under way."""
        return self._script is None and self.id >= 0

    def label(self) -> str:
        """Of the next transaction."""
        self._count += 1
        return f"{self.owner.name}.{self.owner.life}#{self._count}"

    # --- scripts ---

    def play(self, script: Script) -> None:
        """Begin a script."""
        self._script = script
        self._go_on(script, None)

    def _go_on(self, script: Script, answer: Any) -> None:
        if self._script is not script:
            return
        try:
            wanted = script.send(answer)
        except StopIteration:
            self._script = None
            return
        if isinstance(wanted, int):
            self.owner.schedule(wanted, self._go_on, script, None)
        else:
            request, version = wanted
            self.owner.send(request, version, lambda heard: self._go_on(script, (heard,)))

    def _asked(self, request: Any, version: int) -> Generator[Any, Any, Any]:
        """Ask until there is an answer that says something. Raises `Aborted` with the error in it."""
        while True:
            (answer,) = yield request, version
            error = worst_of(answer)
            if error is Errors.NONE:
                return answer
            fails = error is Errors.UNKNOWN_SERVER_ERROR and isinstance(request, InitProducerIdRequest)
            if fails or (error is not None and error not in ASKED_AGAIN):
                raise Aborted(error or Errors.NONE)
            yield BACKOFF_MS + self.world.random.randint(0, BACKOFF_MS)

    # --- what it does ---

    def begin(self) -> Script:
        """Take the transactional id; whoever has it is fenced. With an epoch, go on as who one is."""
        version = self.world.random.choice([4, 5] if self.id < 0 else [3, 4, 5])
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.world.options["transaction.timeout.ms"],
            producer_id=self.id,
            producer_epoch=self.epoch,
        )
        try:
            answer = yield from self._asked(request, version)
        except Aborted as refused:
            if refused.error is not Errors.UNKNOWN_SERVER_ERROR:
                self._stops(refused.error)
                return
            self._is(-1, -1)  # Its epochs may be used up: it begins as somebody new.
            yield BACKOFF_MS
            yield from self.begin()
            return
        self._is(answer.producer_id, answer.producer_epoch)

    def _is(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self.id, self.epoch = producer_id, epoch
            self._sequences.clear()

    def transaction(
        self,
        values: dict[int, list[bytes]],
        commit: TxnOffsetCommitRequest,
        over: Callable[[Errors | None], None],
    ) -> Script:
        """A whole transaction: records by partition of the output, and offsets. `over` is told NONE where it
        was committed, else why not; None where the application did not want it."""
        self._started = False
        try:
            wanted = yield from self._work(values, commit)
            why = Errors.NONE if wanted else None
        except Aborted as aborted:
            wanted, why = False, aborted.error
        if why not in FOLLOWED and self._started:
            try:
                yield from self._end(wanted)
            except Aborted as refused:
                why = refused.error
        if why in FOLLOWED:
            yield from self._was_followed(why or Errors.NONE)
        over(why)

    def _was_followed(self, error: Errors) -> Script:
        """KIP-588: it may be that the coordinator aborted what took too long, and nobody else came."""
        if not self.world.faults_disabled and self.world.random.random() < 0.3:
            self._stops(error)
            return
        yield from self.begin()

    def _work(self, values: dict[int, list[bytes]], commit: TxnOffsetCommitRequest) -> Script:
        """What goes in. Whether it is to be committed."""
        conditions, random = self.world.conditions, self.world.random
        if self.is_old and values:
            topic = AddPartitionsToTxnTopic(name="output", partitions=tuple(values))
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id, v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch, v3_and_below_topics=(topic,),
            )  # fmt: skip
            yield from self._asked(request, 3)
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
        yield from self._asked(request, 11 if self.is_old else 12)
        self._sequences[index] = first + len(rows)

    def _commit(self, commit: TxnOffsetCommitRequest) -> Script:
        who: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }
        if self.is_old:
            yield from self._asked(AddOffsetsToTxnRequest(group_id=commit.group_id, **who), 3)
        self._started = True
        yield from self._asked(commit.replace(**who), 4 if self.is_old else 5)

    def _end(self, committed: bool) -> Script:
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch,
            committed=committed,
        )  # fmt: skip
        answer = yield from self._asked(request, 4 if self.is_old else 5)
        if not self.is_old:
            self._is(answer.producer_id, answer.producer_epoch)


def worst_of(answer: Answer, depth: int = 4) -> Errors | None:
    """The first error in an answer; None where nothing was heard."""
    if answer is None or isinstance(answer, Errors):
        return answer
    return Errors(_code(answer, depth))


def _code(answer: Any, depth: int) -> int:
    for name in ("error_code", "partition_error_code"):
        code: int = getattr(answer, name, 0)
        if code:
            return code
    for field in getattr(answer, "__fields__", ()) if depth else ():
        value = getattr(answer, field.name)
        if isinstance(value, tuple):
            code = next((code for each in value if (code := _code(each, depth - 1))), 0)
            if code:
                return code
    return 0
