"""A transaction shard with a log and a clock, and short methods for the requests of producers.

Records are encoded into the log and decoded again before they are replayed, so that every test covers them.
`restarted` returns another shard that replayed the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from konvene.codec.schema import Struct
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.records.coordinator import decode_transaction_record, encode_transaction_record
from konvene.shard.contract import Arm, Context, Effect, Outcome
from konvene.shard.image import NO_TOPICS, Topics
from konvene.transactions.markers import WRITE_MARKERS, MarkersToWrite, MarkersWritten
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import Partition, Transaction

DEFAULTS, _ = BrokerConfig.load()
TIMEOUT_MS = 60_000
FIRST_ID = 1000
OUT: Partition = ("out", 0)
OLD, NEW = 4, 5
"""Versions of EndTxn: with one epoch for all transactions, and with a new epoch for each (KIP-890)."""


class TransactionHarness:
    """A transaction shard with its log, timers and pending effects."""

    def __init__(self, level: int = 2, settings: dict[str, str] | None = None) -> None:
        self.shard = TransactionShard()
        self.level = level
        self.config = BrokerConfig.load(overrides=settings.items())[0] if settings else DEFAULTS
        self.topics: Topics = NO_TOPICS
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.batches: list[int] = []
        self.effects: list[Effect] = []
        self.timers: dict[Any, int] = {}
        self.next_id = FIRST_ID

    def context(self, version: int, fresh: int = -1) -> Context:
        return Context(
            self.now_ms, self.config, 1, version, topics=self.topics, fresh_producer_id=fresh,
            features={"transaction.version": self.level},
        )  # fmt: skip

    def ask(self, request: Struct, version: int) -> Any:
        """Return the response to a request. A producer id is supplied if the shard needs one."""
        fresh = -1
        if self.shard.needs_producer_id(request, version):
            fresh, self.next_id = self.next_id, self.next_id + 1
        (reply,) = self.apply(self.shard.handle(request, self.context(version, fresh))).replies
        return reply.response

    def inform(self, completion: Any) -> Outcome:
        return self.apply(self.shard.handle(completion, self.context(0)))

    def expire(self, key: tuple[str]) -> Outcome:
        return self.apply(self.shard.expire(key, self.context(0)))

    def apply(self, outcome: Outcome) -> Outcome:
        if outcome.records:
            self.batches.append(len(outcome.records))
        for record in outcome.records:
            pair = encode_transaction_record(record)
            self.log.append(pair)
            decoded = decode_transaction_record(*pair)
            assert decoded == record
            assert type(decoded) is type(record)
            self.shard.replay(decoded)
        for record in outcome.soft_records:
            self.shard.replay(record)
        for timer in outcome.timers:
            assert isinstance(timer, Arm)
            self.timers[timer.key] = timer.after_ms
        self.effects += outcome.effects
        return outcome

    def write_markers(self) -> list[MarkersToWrite]:
        """Complete all requested markers, and return them."""
        effects, self.effects = self.effects, []
        requested = [effect.subject for effect in effects if effect.verb == WRITE_MARKERS]
        for markers in requested:
            self.inform(MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch))
        return requested

    def restarted(self) -> TransactionHarness:
        """Return another coordinator that loaded the log."""
        other = TransactionHarness(self.level)
        other.config, other.topics, other.next_id = self.config, self.topics, self.next_id
        other.now_ms, other.log = self.now_ms, list(self.log)
        for pair in self.log:
            other.shard.replay(decode_transaction_record(*pair))
        other.apply(other.shard.load(other.context(0)))
        return other

    def transaction(self, transactional_id: str = "t") -> Transaction:
        return self.shard.transactions[transactional_id]

    # --- requests of producers ---

    def init(self, producer: tuple[int, int] = (-1, -1), version: int = 5, **more: Any) -> Any:
        """Return the new producer id and epoch, or the error."""
        fields: dict[str, Any] = {"transactional_id": "t", "transaction_timeout_ms": TIMEOUT_MS}
        fields |= {"producer_id": producer[0], "producer_epoch": producer[1]}
        answer = self.ask(InitProducerIdRequest(**fields | more), version)
        if answer.error_code:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
            return Errors(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def add(
        self,
        producer: tuple[int, int],
        partitions: Iterable[Partition] = (OUT,),
        version: int = 5,
        **more: Any,
    ) -> Any:
        """Return the error that all partitions have in common; with `verify_only` the error of each."""
        answer = self.ask(add_request(producer, partitions, version, **more), version)
        results = answer.results_by_topic_v3_and_below
        if version >= 4:
            (result,) = answer.results_by_transaction
            results = result.topic_results
        codes = {
            (topic.name, result.partition_index): Errors(result.partition_error_code)
            for topic in results
            for result in topic.results_by_partition
        }
        assert list(codes) == list(dict.fromkeys(partitions))
        return codes if more.get("verify_only") else next(iter({*codes.values()}))

    def add_offsets(self, producer: tuple[int, int], group_id: str = "g", version: int = 3) -> Errors:
        request = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], group_id=group_id
        )
        return Errors(self.ask(request, version).error_code)

    def end(self, producer: tuple[int, int], committed: bool, version: int = NEW, name: str = "t") -> Any:
        """Return the new producer id and epoch, or the error; for older versions the error, also NONE."""
        answer = self.ask(end_request(producer, committed, name), version)
        if answer.error_code or version < NEW:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
            return Errors(answer.error_code)
        return answer.producer_id, answer.producer_epoch


def end_request(producer: tuple[int, int], committed: bool, name: str = "t") -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )


def topics_of(partitions: Iterable[Partition]) -> tuple[AddPartitionsToTxnTopic, ...]:
    by_name: dict[str, list[int]] = {}
    for name, index in partitions:
        by_name.setdefault(name, []).append(index)
    return tuple(AddPartitionsToTxnTopic(name=name, partitions=tuple(ids)) for name, ids in by_name.items())


def add_request(
    producer: tuple[int, int],
    partitions: Iterable[Partition],
    version: int,
    name: str = "t",
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    producer_id, epoch = producer
    topics = topics_of(partitions)
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=(transaction,))
