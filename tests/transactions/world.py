"""Both cores of transactions, the logs that they write to, and a shell that is as small as can be.

What the shell does is what `shard.contract` asks of one: records are appended and replayed; when they are
durable effects are done and replies leave. Markers are carried to one partition at a time, so that anything
may come in between, and a write that was let in is appended later (`arrive`), as in a broker that waited for
the disk. A `Fate` says how far a request comes.

A ledger keeps what the logs said: which transaction each write was part of, and how that was decided. It
never asks a core, and everything a core tells is held against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tests.groups.offsets.transacting import UNSTABLE, TransactionalHarness, txn_commit_request

from konvene.codec import batches as rb
from konvene.codec.compile import decode, encode
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.log.errors import Refused
from konvene.log.producers import Origin, Producers
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.records.coordinator import Record, decode_transaction_record, encode_transaction_record
from konvene.records.transactions import TransactionLogKey, TransactionLogValue
from konvene.shard.contract import Context, Ending, Outcome
from konvene.transactions.markers import (
    FETCH_PRODUCER_ID,
    WRITE_MARKERS,
    MarkersToWrite,
    MarkersWritten,
    ProducerIdFetched,
)
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    NO_EPOCH,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
)

SETTINGS = {"offsets.topic.num.partitions": "1", "transactional.id.expiration.ms": "600000"}
OFFSETS = ("__consumer_offsets", 0)
OUT = "orders"
PARTITIONS = (0, 1)
PLACES = (OFFSETS, *((OUT, partition) for partition in PARTITIONS))
FIRST_ID = 100
LAST_EPOCHS = 32_764
"""Some ids begin here, and have few epochs left."""


class Fate(Enum):
    """How far a request comes."""

    FINE = "it is answered"
    UNHEARD = "its answer is lost"
    LOST = "the broker dies before it is durable"
    DIED = "the broker dies when it is durable, before anything follows from it"


@dataclass(eq=False)
class Txn:
    """A transaction, as the log of its coordinator told it."""

    transactional_id: str
    producer_id: int
    outcome: bool | None = None
    complete: bool = False
    entries: list[Entry] = field(default_factory=list)


@dataclass(eq=False)
class Entry:
    """A record, or a commit of an offset, each with a number of its own; `counts` when that is decided."""

    number: int
    place: tuple[str, int]
    txn: Txn | None
    counts: bool | None = None


@dataclass(eq=False)
class Write:
    """What a producer wants in a partition: a record with a sequence, or else an offset."""

    transactional_id: str
    producer: tuple[int, int]
    generation: int
    partition: int
    number: int
    sequence: int | None

    @property
    def place(self) -> tuple[str, int]:
        return OFFSETS if self.sequence is None else (OUT, self.partition)


@dataclass(eq=False)
class Delivery:
    """Markers on their way."""

    markers: MarkersToWrite
    missing: list[tuple[str, int]]


class Log:
    """Who has written what to a partition, by the rules of a broker's logs."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end = 0

    def append(self, producer: tuple[int, int], sequence: int | None) -> bool:
        """Raises `Refused`; False for what stands here already."""
        data = rb.build_simple(
            [(None, b"v")], 0, base_offset=self.end, producer_id=producer[0], producer_epoch=producer[1],
            base_sequence=-1 if sequence is None else sequence, transactional=True,
        )  # fmt: skip
        header = rb.read_header(data)
        origin = Origin.COORDINATOR if sequence is None else Origin.CLIENT
        if self.producers.check(header, origin=origin) is not None:
            return False
        self.producers.note(header)
        self.end += 1
        return True

    def mark(self, ending: Ending) -> None:
        """Raises `Refused`."""
        who = ending.producer_id, ending.producer_epoch
        self.producers.check_marker(*who, ending.coordinator_epoch, ending.transaction_version)
        data = rb.end_marker(
            ending.committed, producer_id=who[0], producer_epoch=who[1], coordinator_epoch=0,
            timestamp_ms=0, base_offset=self.end,
        )  # fmt: skip
        self.producers.note_marker(rb.read_header(data), rb.EndMarker(ending.committed, 0))
        self.end += 1

    def is_open(self, producer: tuple[int, int]) -> bool:
        known = self.producers.by_id.get(producer[0])
        return known is not None and known.transaction_start is not None and known.epoch == producer[1]


class World:
    """See the top of this file."""

    def __init__(self, level: int, seeded: dict[str, int]) -> None:
        self.level = level
        self.config, _ = BrokerConfig.load(overrides=list(SETTINGS.items()))
        self.shard = TransactionShard()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.place = TransactionalHarness(offsets_topic_num_partitions="1")
        self.logs = {place: Log() for place in PLACES}
        self.deliveries: list[Delivery] = []
        self.waiting: list[Write] = []
        self.next_id = FIRST_ID
        self.numbers = 0
        self.current: dict[str, Txn] = {}
        self.entries: dict[tuple[str, int], list[Entry]] = {}
        """All writes in the order of their logs, by topic and partition; offsets by whose they are."""
        self.ids: dict[int, str] = {}
        for transactional_id, epoch in seeded.items():
            self._seed(transactional_id, epoch)

    def _seed(self, transactional_id: str, epoch: int) -> None:
        value = TransactionLogValue(
            producer_id=self.fresh_id(), producer_epoch=epoch, transaction_timeout_ms=60_000,
            transaction_status=0, transaction_partitions=None,
            transaction_last_update_timestamp_ms=self.place.now_ms, transaction_start_timestamp_ms=-1,
        )  # fmt: skip
        self.ids[value.producer_id] = transactional_id
        self._append(Outcome(records=(Record(TransactionLogKey(transactional_id=transactional_id), value),)))

    def fresh_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    @property
    def written(self) -> tuple[int, ...]:
        """How much stands in each log."""
        return (len(self.log), self.place.end_offset, *(log.end for log in self.logs.values()))

    def of(self, transactional_id: str) -> Transaction | None:
        return self.shard.transactions.get(transactional_id)

    # --- the transactions' coordinator ---

    def ask(self, request: Any, version: int, fate: Fate = Fate.FINE) -> Any:
        """The response of the coordinator of transactions, or None where it never came."""
        request = decode(type(request), version, encode(request, version))
        fresh = self.fresh_id() if self.shard.needs_producer_id(request, version) else -1
        return self._decide(lambda context: self.shard.handle(request, context), fate, version, fresh)

    def inform(self, news: Any, fate: Fate = Fate.FINE) -> None:
        self._decide(lambda context: self.shard.handle(news, context), fate)

    def ring(self, key: tuple[str], fate: Fate = Fate.FINE) -> None:
        self._decide(lambda context: self.shard.expire(key, context), fate)

    def _context(self, version: int = 0, fresh: int = -1) -> Context:
        return Context(
            self.place.now_ms, self.config, 1, version, fresh_producer_id=fresh,
            features={"transaction.version": self.level},
        )  # fmt: skip

    def _decide(
        self, decide: Callable[[Context], Outcome], fate: Fate, version: int = 0, fresh: int = -1
    ) -> Any:
        outcome = decide(self._context(version, fresh))
        if fate is Fate.LOST:
            return self.crash()
        self._append(outcome)
        if fate is Fate.DIED:
            return self.crash()
        self._perform(outcome)
        return outcome.replies[0].response if outcome.replies and fate is Fate.FINE else None

    def _append(self, outcome: Outcome) -> None:
        for record in outcome.records:
            pair = encode_transaction_record(record)
            self.log.append(pair)
            name = record.key.transactional_id
            before = self.of(name)
            self.shard.replay(decode_transaction_record(*pair))
            self._observe(name, before, self.of(name))
        for record in outcome.soft_records:
            self.shard.replay(record)

    def _perform(self, outcome: Outcome) -> None:
        for effect in outcome.effects:
            if effect.verb == WRITE_MARKERS:
                self.deliveries.append(Delivery(effect.subject, list(effect.subject.partitions)))
            else:
                assert effect.verb == FETCH_PRODUCER_ID
                self.inform(ProducerIdFetched(effect.subject, self.fresh_id()))

    def deliver(self, delivery: Delivery, fate: Fate = Fate.FINE) -> None:
        """One marker more; with the last of them the coordinator hears that it is done."""
        told = delivery.markers
        if delivery.missing:
            place = delivery.missing.pop(0)
            ending = Ending(
                told.producer_id, told.producer_epoch, 0, told.committed, told.transaction_version
            )
            self._mark(place, ending)
        if delivery.missing:
            return
        self.deliveries.remove(delivery)
        self.inform(MarkersWritten(told.transactional_id, told.producer_id, told.producer_epoch), fate)

    def _mark(self, place: tuple[str, int], ending: Ending) -> None:
        self.logs[place].mark(ending)
        if place == OFFSETS:
            self.place.ask(ending)
        for entry in self.undecided(ending.producer_id):
            if entry.place == place:
                assert entry.txn is not None and ending.committed is entry.txn.outcome, entry
                entry.counts = ending.committed

    def undecided(self, producer_id: int) -> list[Entry]:
        """What this producer has in a transaction that is open in some log."""
        return [
            entry
            for entries in self.entries.values()
            for entry in entries
            if entry.counts is None and entry.txn is not None and entry.txn.producer_id == producer_id
        ]

    def crash(self) -> None:
        """The process dies, and another one reads the logs."""
        self.deliveries, self.waiting = [], []
        before = {name: told_by_log(t, self.level) for name, t in self.shard.transactions.items()}
        self.shard = TransactionShard()
        for pair in self.log:
            self.shard.replay(decode_transaction_record(*pair))
        assert {n: told_by_log(t, self.level) for n, t in self.shard.transactions.items()} == before
        self.place.restart()
        self._perform(self.shard.load(self._context()))

    def compact(self) -> None:
        """Of each id the log keeps the last record, and nothing of those that are gone."""
        last = dict(self.log)
        self.log = [(key, value) for key, value in last.items() if value is not None]

    # --- writes ---

    def request(self, write: Write, fate: Fate = Fate.FINE) -> Errors | None:
        """Let a write in, as a broker does before it appends anything: its error, or None where it waits."""
        if self.logs[write.place].is_open(write.producer):
            self.waiting.append(write)
            return None
        is_enlisted = self._is_enlisted(write)
        error = self._enlist(write, fate)
        if write.generation == 1 and fate is Fate.FINE:
            assert (error is Errors.NONE) is is_enlisted, f"{write} is told {error.name}"
        if error is not Errors.NONE:
            return error
        assert self._is_enlisted(write), f"{write} is let in, and has no part in the transaction"
        self.waiting.append(write)
        return None

    def _enlist(self, write: Write, fate: Fate) -> Errors:
        """Add its partition to the transaction, or where older clients did that ask whether they have."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=write.transactional_id,
            producer_id=write.producer[0],
            producer_epoch=write.producer[1],
            verify_only=write.generation == 1,
            topics=(AddPartitionsToTxnTopic(name=write.place[0], partitions=(write.place[1],)),),
        )
        told = self.ask(AddPartitionsToTxnRequest(transactions=(transaction,)), 5, fate)
        if told is None:
            return Errors.REQUEST_TIMED_OUT
        result = told.results_by_transaction[0].topic_results[0].results_by_partition[0]
        return Errors(result.partition_error_code)

    def _is_enlisted(self, write: Write) -> bool:
        return self.shard.is_enlisted(write.transactional_id, *write.producer, *write.place)

    def arrive(self, write: Write, fate: Fate = Fate.FINE) -> Errors | None:
        """What was let in is appended, if it still may; None where the answer never came."""
        self.waiting.remove(write)
        log = self.logs[write.place]
        if not log.is_open(write.producer) and not self._is_enlisted(write):
            return Errors.INVALID_TXN_STATE
        if fate is Fate.LOST:
            return self.crash()
        try:
            is_new = log.append(write.producer, write.sequence)
        except Refused as refused:
            return Errors(refused.code)
        if is_new:
            self._note(write)
        if fate is Fate.DIED:
            return self.crash()
        return Errors.NONE if fate is Fate.FINE else None

    def _note(self, write: Write) -> None:
        """A write stands in a log, and its transaction is not decided there yet."""
        txn = self.current[write.transactional_id]
        assert not txn.complete, f"{write} stands behind the end of its transaction"
        known = self.of(write.transactional_id)
        assert known is not None
        owner = (known.producer_id, known.producer_epoch)
        assert write.producer == owner or known.is_ending, f"{write} is not {owner}'s"
        if write.sequence is None:
            request = txn_commit_request(
                write.number, write.producer[0], epoch=write.producer[1], partitions=(write.partition,)
            )
            (topic,) = self.place.ask(request, 5).topics
            assert topic.partitions[0].error_code == 0
        entry = Entry(write.number, write.place, txn)
        txn.entries.append(entry)
        self.entries.setdefault((write.place[0], write.partition), []).append(entry)

    def commit_plainly(self, partition: int) -> None:
        """An OffsetCommit that is in no transaction."""
        number = self.number()
        assert self.place.commit(number, partitions=(partition,)) is Errors.NONE
        entry = Entry(number, OFFSETS, None, True)
        self.entries.setdefault((OFFSETS[0], partition), []).append(entry)

    # --- the ledger ---

    def _observe(self, name: str, before: Transaction | None, after: Transaction | None) -> None:
        """Hold a record of the transactions' log against all before it."""
        if after is None:
            assert before is not None and before.state in AT_REST, f"{before} is forgotten"
            return
        self._owns(name, before, after)
        if after.state is ONGOING and (before is None or before.state in AT_REST):
            self.current[name] = Txn(name, after.producer_id)
        elif after.is_ending:
            if before is None or before.state is not ONGOING:
                self.current[name] = Txn(name, after.producer_id)
            txn = self.current[name]
            assert txn.outcome is None, f"{after} was decided before"
            txn.outcome = after.state is PREPARE_COMMIT
        elif after.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
            self._completed(self.current[name], after)

    def _owns(self, name: str, before: Transaction | None, after: Transaction) -> None:
        """Epochs and producer ids never go back, and no producer id is anybody else's."""
        assert self.ids.setdefault(after.producer_id, name) == name, f"{after} has another's producer id"
        assert 0 <= after.producer_epoch <= 32_767
        if before is not None:
            told = (after.producer_id, after.producer_epoch)
            assert told >= (before.producer_id, before.producer_epoch), f"{before!r} becomes {after!r}"

    def _completed(self, txn: Txn, after: Transaction) -> None:
        """Nothing of it lingers anywhere."""
        assert not txn.complete and txn.outcome is (after.state is COMPLETE_COMMIT), after
        assert not after.partitions, f"{after!r} has partitions, which the next one would begin with"
        txn.complete = True
        for entry in txn.entries:
            assert entry.counts is txn.outcome, f"{entry} of {txn}"
        for place, log in self.logs.items():
            known = log.producers.by_id.get(txn.producer_id)
            assert known is None or known.transaction_start is None, f"{txn} is open in {place}"
        assert txn.producer_id not in self.place.shard.pending.by_producer, txn

    def check_offsets(self) -> None:
        """The offset that counts is the last in the log of those that do; what is not decided is unstable."""
        for partition in PARTITIONS:
            entries = self.entries.get((OFFSETS[0], partition), [])
            counting = [entry.number for entry in entries if entry.counts]
            expected = counting[-1] if counting else -1
            assert self.place.fetch_offset(partition) == expected
            is_open = any(entry.counts is None for entry in entries)
            assert self.place.fetch_offset(partition, stable=True) == (UNSTABLE if is_open else expected)

    def settle(self) -> None:
        """Let everything come to its end: what waits arrives, markers too, and time runs out for the rest."""
        for write in tuple(self.waiting):
            self.arrive(write)
        for _ in range(2):
            while self.deliveries:
                self.deliver(self.deliveries[0])
            self.place.now_ms += 120_000
            self.ring(("timed-out",))
        assert not self.deliveries
        for name, txn in self.current.items():
            assert txn.complete, f"{name} is {self.of(name)!r} for ever"


def told_by_log(transaction: Transaction, level: int) -> Transaction:
    """What of a transaction a restart remembers."""
    found = replace(transaction, last_producer_epoch=NO_EPOCH)
    if level < 1:
        found = replace(found, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0)
    return found


def init(transactional_id: str, producer: tuple[int, int] = (-1, -1)) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=producer[0],
        producer_epoch=producer[1],
    )  # fmt: skip
