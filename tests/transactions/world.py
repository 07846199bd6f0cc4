"""The transaction coordinator, the group coordinator and their logs in a minimal shell for random tests.

The shell follows `shard.contract`: it appends and replays records, and performs effects and sends replies
once the records are durable. Markers reach one partition at a time, so that other events may come in between.
An accepted write is appended later (`append`), as in a broker that waits for the disk. A `Fate` selects the
point at which a request fails.

A ledger records the transaction of each write and its outcome from the logs alone. The states of both
coordinators are checked against it.
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
TOPIC_PARTITIONS = (OFFSETS, *((OUT, partition) for partition in PARTITIONS))
FIRST_ID = 100
LAST_EPOCHS = 32_764
"""First epoch of some transactional ids, which therefore have few epochs left."""


class Fate(Enum):
    """The point at which a request fails."""

    ANSWERED = "the request is answered"
    RESPONSE_LOST = "the response is lost"
    CRASH_BEFORE_WRITE = "the broker crashes before the records are durable"
    CRASH_AFTER_WRITE = "the broker crashes after the records are durable, before their effects"


@dataclass(eq=False)
class Txn:
    """A transaction, as recorded in the log of its coordinator."""

    transactional_id: str
    producer_id: int
    outcome: bool | None = None
    complete: bool = False
    entries: list[Entry] = field(default_factory=list)


@dataclass(eq=False)
class Entry:
    """A record or an offset commit with a unique number; `committed` is None until its outcome is decided."""

    number: int
    topic_partition: tuple[str, int]
    txn: Txn | None
    committed: bool | None = None


@dataclass(eq=False)
class Write:
    """A producer's write to a partition: a record with a sequence number, or an offset commit without one."""

    transactional_id: str
    producer: tuple[int, int]
    generation: int
    partition: int
    number: int
    sequence: int | None

    @property
    def topic_partition(self) -> tuple[str, int]:
        return OFFSETS if self.sequence is None else (OUT, self.partition)


@dataclass(eq=False)
class Delivery:
    """Markers and the partitions that they have not reached yet."""

    markers: MarkersToWrite
    remaining: list[tuple[str, int]]


class Log:
    """The producer state of a partition, by the rules of a broker's logs."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end = 0

    def append(self, producer: tuple[int, int], sequence: int | None) -> bool:
        """Append a batch and return True, or False for a duplicate. Raises `Refused`."""
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
        """Append a transaction marker. Raises `Refused`."""
        producer = ending.producer_id, ending.producer_epoch
        self.producers.check_marker(*producer, ending.coordinator_epoch, ending.transaction_version)
        data = rb.end_marker(
            ending.committed, producer_id=producer[0], producer_epoch=producer[1], coordinator_epoch=0,
            timestamp_ms=0, base_offset=self.end,
        )  # fmt: skip
        self.producers.note_marker(rb.read_header(data), rb.EndMarker(ending.committed, 0))
        self.end += 1

    def is_open(self, producer: tuple[int, int]) -> bool:
        known = self.producers.by_id.get(producer[0])
        return known is not None and known.transaction_start is not None and known.epoch == producer[1]


class World:
    """The coordinators, their logs and the ledger."""

    def __init__(self, level: int, seeded: dict[str, int]) -> None:
        self.level = level
        self.config, _ = BrokerConfig.load(overrides=list(SETTINGS.items()))
        self.shard = TransactionShard()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.offsets = TransactionalHarness(offsets_topic_num_partitions="1")
        self.logs = {topic_partition: Log() for topic_partition in TOPIC_PARTITIONS}
        self.deliveries: list[Delivery] = []
        self.accepted_writes: list[Write] = []
        self.next_id = FIRST_ID
        self.numbers = 0
        self.current: dict[str, Txn] = {}
        self.entries: dict[tuple[str, int], list[Entry]] = {}
        """All writes in log order, by topic and partition; offset commits by the partition they refer to."""
        self.ids: dict[int, str] = {}
        for transactional_id, epoch in seeded.items():
            self._seed(transactional_id, epoch)

    def _seed(self, transactional_id: str, epoch: int) -> None:
        value = TransactionLogValue(
            producer_id=self.new_producer_id(), producer_epoch=epoch, transaction_timeout_ms=60_000,
            transaction_status=0, transaction_partitions=None,
            transaction_last_update_timestamp_ms=self.offsets.now_ms, transaction_start_timestamp_ms=-1,
        )  # fmt: skip
        self.ids[value.producer_id] = transactional_id
        self._append(Outcome(records=(Record(TransactionLogKey(transactional_id=transactional_id), value),)))

    def new_producer_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    @property
    def log_ends(self) -> tuple[int, ...]:
        """Return the end offset of each log."""
        return (len(self.log), self.offsets.end_offset, *(log.end for log in self.logs.values()))

    def transaction(self, transactional_id: str) -> Transaction | None:
        return self.shard.transactions.get(transactional_id)

    # --- the transaction coordinator ---

    def ask(self, request: Any, version: int, fate: Fate = Fate.ANSWERED) -> Any:
        """Return the response of the transaction coordinator, or None if it was lost."""
        request = decode(type(request), version, encode(request, version))
        fresh = self.new_producer_id() if self.shard.needs_producer_id(request, version) else -1
        return self._decide(lambda context: self.shard.handle(request, context), fate, version, fresh)

    def inform(self, event: Any, fate: Fate = Fate.ANSWERED) -> None:
        self._decide(lambda context: self.shard.handle(event, context), fate)

    def expire(self, key: tuple[str], fate: Fate = Fate.ANSWERED) -> None:
        self._decide(lambda context: self.shard.expire(key, context), fate)

    def _context(self, version: int = 0, fresh: int = -1) -> Context:
        return Context(
            self.offsets.now_ms, self.config, 1, version, fresh_producer_id=fresh,
            features={"transaction.version": self.level},
        )  # fmt: skip

    def _decide(
        self, decide: Callable[[Context], Outcome], fate: Fate, version: int = 0, fresh: int = -1
    ) -> Any:
        outcome = decide(self._context(version, fresh))
        if fate is Fate.CRASH_BEFORE_WRITE:
            return self.crash()
        self._append(outcome)
        if fate is Fate.CRASH_AFTER_WRITE:
            return self.crash()
        self._perform(outcome)
        return outcome.replies[0].response if outcome.replies and fate is Fate.ANSWERED else None

    def _append(self, outcome: Outcome) -> None:
        for record in outcome.records:
            pair = encode_transaction_record(record)
            self.log.append(pair)
            name = record.key.transactional_id
            before = self.transaction(name)
            self.shard.replay(decode_transaction_record(*pair))
            self._check_transition(name, before, self.transaction(name))
        for record in outcome.soft_records:
            self.shard.replay(record)

    def _perform(self, outcome: Outcome) -> None:
        for effect in outcome.effects:
            if effect.verb == WRITE_MARKERS:
                self.deliveries.append(Delivery(effect.subject, list(effect.subject.partitions)))
            else:
                assert effect.verb == FETCH_PRODUCER_ID
                self.inform(ProducerIdFetched(effect.subject, self.new_producer_id()))

    def deliver(self, delivery: Delivery, fate: Fate = Fate.ANSWERED) -> None:
        """Write one more marker; after the last one, inform the coordinator."""
        markers = delivery.markers
        if delivery.remaining:
            topic_partition = delivery.remaining.pop(0)
            ending = Ending(
                markers.producer_id, markers.producer_epoch, 0, markers.committed, markers.transaction_version
            )
            self._mark(topic_partition, ending)
        if delivery.remaining:
            return
        self.deliveries.remove(delivery)
        self.inform(
            MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch), fate
        )

    def _mark(self, topic_partition: tuple[str, int], ending: Ending) -> None:
        self.logs[topic_partition].mark(ending)
        if topic_partition == OFFSETS:
            self.offsets.ask(ending)
        for entry in self.undecided_entries(ending.producer_id):
            if entry.topic_partition == topic_partition:
                assert entry.txn is not None and ending.committed is entry.txn.outcome, entry
                entry.committed = ending.committed

    def undecided_entries(self, producer_id: int) -> list[Entry]:
        """Return the writes of a producer whose transaction is open in their log."""
        return [
            entry
            for entries in self.entries.values()
            for entry in entries
            if entry.committed is None and entry.txn is not None and entry.txn.producer_id == producer_id
        ]

    def crash(self) -> None:
        """Crash the broker and start another one from the logs."""
        self.deliveries, self.accepted_writes = [], []
        before = {name: as_logged(t, self.level) for name, t in self.shard.transactions.items()}
        self.shard = TransactionShard()
        for pair in self.log:
            self.shard.replay(decode_transaction_record(*pair))
        assert {n: as_logged(t, self.level) for n, t in self.shard.transactions.items()} == before
        self.offsets.restart()
        self._perform(self.shard.load(self._context()))

    def compact(self) -> None:
        """Compact the log: keep the last record of each id, and drop tombstones."""
        last = dict(self.log)
        self.log = [(key, value) for key, value in last.items() if value is not None]

    # --- writes ---

    def accept(self, write: Write, fate: Fate = Fate.ANSWERED) -> Errors | None:
        """Accept a write, as a broker does before it appends it; return the error, or None on success."""
        if self.logs[write.topic_partition].is_open(write.producer):
            self.accepted_writes.append(write)
            return None
        is_enlisted = self._is_enlisted(write)
        error = self._enlist(write, fate)
        if write.generation == 1 and fate is Fate.ANSWERED:
            assert (error is Errors.NONE) is is_enlisted, f"{write} is answered {error.name}"
        if error is not Errors.NONE:
            return error
        assert self._is_enlisted(write), f"{write} is accepted but not part of the transaction"
        self.accepted_writes.append(write)
        return None

    def _enlist(self, write: Write, fate: Fate) -> Errors:
        """Add the partition of a write to the transaction; for older clients, verify that it was added."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=write.transactional_id,
            producer_id=write.producer[0],
            producer_epoch=write.producer[1],
            verify_only=write.generation == 1,
            topics=(
                AddPartitionsToTxnTopic(
                    name=write.topic_partition[0], partitions=(write.topic_partition[1],)
                ),
            ),
        )
        response = self.ask(AddPartitionsToTxnRequest(transactions=(transaction,)), 5, fate)
        if response is None:
            return Errors.REQUEST_TIMED_OUT
        result = response.results_by_transaction[0].topic_results[0].results_by_partition[0]
        return Errors(result.partition_error_code)

    def _is_enlisted(self, write: Write) -> bool:
        return self.shard.is_enlisted(write.transactional_id, *write.producer, *write.topic_partition)

    def append(self, write: Write, fate: Fate = Fate.ANSWERED) -> Errors | None:
        """Append an accepted write if still allowed; return the error, or None if the response is lost."""
        self.accepted_writes.remove(write)
        log = self.logs[write.topic_partition]
        if not log.is_open(write.producer) and not self._is_enlisted(write):
            return Errors.INVALID_TXN_STATE
        if fate is Fate.CRASH_BEFORE_WRITE:
            return self.crash()
        try:
            is_new = log.append(write.producer, write.sequence)
        except Refused as rejected:
            return Errors(rejected.code)
        if is_new:
            self._record_write(write)
        if fate is Fate.CRASH_AFTER_WRITE:
            return self.crash()
        return Errors.NONE if fate is Fate.ANSWERED else None

    def _record_write(self, write: Write) -> None:
        """Record an appended write in the ledger."""
        txn = self.current[write.transactional_id]
        assert not txn.complete, f"{write} was appended after the end of its transaction"
        known = self.transaction(write.transactional_id)
        assert known is not None
        owner = (known.producer_id, known.producer_epoch)
        assert write.producer == owner or known.is_ending, f"{write} does not come from {owner}"
        if write.sequence is None:
            request = txn_commit_request(
                write.number, write.producer[0], epoch=write.producer[1], partitions=(write.partition,)
            )
            (topic,) = self.offsets.ask(request, 5).topics
            assert topic.partitions[0].error_code == 0
        entry = Entry(write.number, write.topic_partition, txn)
        txn.entries.append(entry)
        self.entries.setdefault((write.topic_partition[0], write.partition), []).append(entry)

    def commit_outside_transactions(self, partition: int) -> None:
        """Commit an offset outside of transactions."""
        number = self.number()
        assert self.offsets.commit(number, partitions=(partition,)) is Errors.NONE
        entry = Entry(number, OFFSETS, None, True)
        self.entries.setdefault((OFFSETS[0], partition), []).append(entry)

    # --- the ledger ---

    def _check_transition(self, name: str, before: Transaction | None, after: Transaction | None) -> None:
        """Check a state change in the transaction log against the ones before it."""
        if after is None:
            assert before is not None and before.state in AT_REST, f"{before} is forgotten"
            return
        self._check_ownership(name, before, after)
        if after.state is ONGOING and (before is None or before.state in AT_REST):
            self.current[name] = Txn(name, after.producer_id)
        elif after.is_ending:
            if before is None or before.state is not ONGOING:
                self.current[name] = Txn(name, after.producer_id)
            txn = self.current[name]
            assert txn.outcome is None, f"{after} was decided before"
            txn.outcome = after.state is PREPARE_COMMIT
        elif after.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
            self._check_completed(self.current[name], after)

    def _check_ownership(self, name: str, before: Transaction | None, after: Transaction) -> None:
        """Epochs and producer ids never decrease, and each producer id belongs to one transactional id."""
        assert self.ids.setdefault(after.producer_id, name) == name, (
            f"{after} has the producer id of another transactional id"
        )
        assert 0 <= after.producer_epoch <= 32_767
        if before is not None:
            owner = (after.producer_id, after.producer_epoch)
            assert owner >= (before.producer_id, before.producer_epoch), f"{before!r} becomes {after!r}"

    def _check_completed(self, txn: Txn, after: Transaction) -> None:
        """A complete transaction is closed in every log and pending in no coordinator."""
        assert not txn.complete and txn.outcome is (after.state is COMPLETE_COMMIT), after
        assert not after.partitions, f"{after!r} still has partitions"
        txn.complete = True
        for entry in txn.entries:
            assert entry.committed is txn.outcome, f"{entry} of {txn}"
        for topic_partition, log in self.logs.items():
            known = log.producers.by_id.get(txn.producer_id)
            assert known is None or known.transaction_start is None, f"{txn} is open in {topic_partition}"
        assert txn.producer_id not in self.offsets.shard.pending.by_producer, txn

    def check_offsets(self) -> None:
        """The committed offset is the last committed one in the log; undecided commits make it unstable."""
        for partition in PARTITIONS:
            entries = self.entries.get((OFFSETS[0], partition), [])
            counting = [entry.number for entry in entries if entry.committed]
            expected = counting[-1] if counting else -1
            assert self.offsets.fetch_offset(partition) == expected
            is_open = any(entry.committed is None for entry in entries)
            assert self.offsets.fetch_offset(partition, stable=True) == (UNSTABLE if is_open else expected)

    def settle(self) -> None:
        """Append all accepted writes, deliver all markers, and let open transactions time out."""
        for write in tuple(self.accepted_writes):
            self.append(write)
        for _ in range(2):
            while self.deliveries:
                self.deliver(self.deliveries[0])
            self.offsets.now_ms += 120_000
            self.expire(("timed-out",))
        assert not self.deliveries
        for name, txn in self.current.items():
            assert txn.complete, f"{name} never completes: {self.transaction(name)!r}"


def as_logged(transaction: Transaction, level: int) -> Transaction:
    """Return the part of a transaction that survives a restart."""
    found = replace(transaction, last_producer_epoch=NO_EPOCH)
    if level < 1:
        found = replace(found, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0)
    return found


def init(transactional_id: str, producer: tuple[int, int] = (-1, -1)) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=producer[0],
        producer_epoch=producer[1],
    )  # fmt: skip
