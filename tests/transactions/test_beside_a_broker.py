"""A broker and a transaction shard answer the same random requests, at each level of `transaction.version`.

Each request goes to a shard and to a broker in another process. Responses, states and, at the end, all log
records are compared. With konvene, the default, the test shows that the layers between the wire and the shard
change nothing; with `KONVENE_AGAINST=kafka`, that the shard decides as Kafka does.

Producer ids of both sides are mapped to each other; times are not compared.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.against.brokers import Broker, Unavailable, chosen
from tests.broker.hostile.wire import Client, Target
from tests.transactions.harness import NEW, OLD, TransactionHarness, add_request, end_request

from konvene.codec import batches as rb
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.end_txn import EndTxnResponse
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from konvene.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from konvene.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from konvene.records.coordinator import decode_transaction_record
from konvene.records.transactions import TransactionLogKey, TransactionLogValue
from konvene.shard.errors import TransactionError
from konvene.transactions.expiry import TIMED_OUT
from konvene.transactions.state import LAST_EPOCH

STEPS = int(os.environ.get("KONVENE_STEPS", "250"))
"""Requests at each level."""

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
PARTITIONS = [("in", 0), ("out", 0), ("out", 1)]
LIST_FILTERS: list[dict[str, Any]] = [
    {},
    {"state_filters": ("Ongoing", "Strange")},
    {"transactional_id_pattern": "[t-z]-[0-9]+|x+"},
    {"transactional_id_pattern": "("},
    {"duration_filter": 10**12},
]
UPGRADE, SAFE_DOWNGRADE = 1, 2

Producer = tuple[int, int]


@contextmanager
def running_broker(path: Path) -> Iterator[Broker]:
    try:
        broker = chosen()(path / "broker", SETTINGS)
    except Unavailable as missing:
        pytest.skip(f"the broker to test beside is missing: {missing}")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


class Walk:
    """A shard, a broker, and the mapping between their producer ids."""

    def __init__(self, broker: Broker, client: Client, seed: int) -> None:
        self.feature_delay_s = 0.5 if broker.name == "kafka" else 0
        """Time until Kafka's coordinator applies a new feature level; no response shows when it does."""
        self.random = random.Random(seed)
        self.client = client
        self.harness = TransactionHarness(settings={"offsets.topic.num.partitions": "4"})
        self.names: list[str] = []
        """Transactional ids of this level only: Kafka's do not survive a downgrade after newer clients."""
        self.broker_ids: dict[int, int] = {}
        """The broker's producer id of each of the shard's."""
        self.shard_ids: dict[int, int] = {}
        """The shard's producer id of each of the broker's."""

    def await_coordinators(self) -> None:
        """Wait until the broker has coordinators and producer ids."""
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=("t",))
        eventually(lambda: not self.client.ask(find, 4).coordinators[0].error_code)
        idempotent_init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        eventually(lambda: not self.client.ask(idempotent_init, 5).error_code)
        compare_states = DescribeTransactionsRequest(transactional_ids=("t",))
        missing = Errors.TRANSACTIONAL_ID_NOT_FOUND
        eventually(lambda: self.client.ask(compare_states, 0).transaction_states[0].error_code == missing)

    def set_level(self, level: int) -> None:
        update = FeatureUpdateKey(
            feature="transaction.version",
            max_version_level=level,
            upgrade_type=UPGRADE if level > self.harness.level else SAFE_DOWNGRADE,
        )
        answer = self.client.ask(UpdateFeaturesRequest(feature_updates=(update,)), 1)
        assert answer.error_code == Errors.NONE, answer
        time.sleep(self.feature_delay_s)
        self.harness.level = level
        self.names = [f"t-{len(self.harness.log)}"] * 3 + [f"u-{len(self.harness.log)}"]

    # --- one step ---

    def step(self) -> None:
        name = self.random.choice(self.names)
        kind = self.random.choice(["init", "init", "add", "add", "add", "offsets", "verify", "list", *ENDS])
        producer = self._draw_producer(name)
        make, version = getattr(self, f"_{kind}")(name, producer)
        self.ask_both(name, producer, make, version)

    def ask_both(
        self, name: str, producer: Producer, make: Callable[[Producer], Struct], version: int
    ) -> Any:
        """Send a request to the broker and to the shard, compare, and return the response of the shard."""
        response = self.client.ask(
            make((self.broker_ids.get(producer[0], producer[0]), producer[1])), version
        )
        self.harness.now_ms = int(time.time() * 1000)
        try:
            expected = self.harness.ask(make(producer), version)
        except TransactionError as rejected:
            expected = ListTransactionsResponse(error_code=rejected.error)
        self.harness.write_markers()
        assert comparable(response) == comparable(expected), (
            make(producer),
            version,
            self.harness.shard.transactions.get(name),
        )
        if isinstance(response, InitProducerIdResponse | EndTxnResponse):
            self._match_ids(response.producer_id, expected.producer_id)
        self.compare_states(name)
        return expected

    def time_out(self, name: str) -> None:
        """Let a transaction time out in the broker and in the shard."""
        request = DescribeTransactionsRequest(transactional_ids=(name,))
        eventually(
            lambda: self.client.ask(request, 0).transaction_states[0].transaction_state == "CompleteAbort"
        )
        self.harness.now_ms += 60_000
        self.harness.expire(TIMED_OUT)
        self.harness.write_markers()
        self.compare_states(name)

    def _match_ids(self, broker_id: int, shard_id: int) -> None:
        assert self.shard_ids.setdefault(broker_id, shard_id) == shard_id
        assert self.broker_ids.setdefault(shard_id, broker_id) == broker_id

    def compare_states(self, name: str) -> None:
        """Compare both states of a transaction after the broker has written its markers."""
        request = DescribeTransactionsRequest(transactional_ids=(name,))
        (expected,) = self.harness.ask(request, 0).transaction_states
        states: list[Any] = []

        def settled() -> bool:
            states[:] = self.client.ask(request, 0).transaction_states
            return not states[0].transaction_state.startswith("Prepare")

        eventually(settled)
        assert comparable(states[0]) == comparable(expected)
        self._match_ids(states[0].producer_id, expected.producer_id)

    def _draw_producer(self, name: str) -> Producer:
        known = self.harness.shard.transactions.get(name)
        kind = self.random.choice(["now"] * 9 + ["before", "after", "previous", "unknown"])
        if known is None or kind == "unknown":
            return 999_999, 0
        if kind == "previous":
            return known.previous_producer_id, LAST_EPOCH - 1
        return known.producer_id, max(0, known.producer_epoch + {"now": 0, "before": -1, "after": 1}[kind])

    # --- requests: a function of the producer, and a version ---

    def _init(self, name: str, producer: Producer) -> Any:
        version = self.random.choice([2, 3, 4, 5])
        fields: dict[str, Any] = {
            "transactional_id": name,
            "transaction_timeout_ms": self.random.choice([600_000] * 6 + [0, 900_001, -1]),
        }
        sends_producer = version >= 3 and self.random.random() < 0.4
        return lambda sender: InitProducerIdRequest(
            **fields,
            producer_id=sender[0] if sends_producer else -1,
            producer_epoch=sender[1] if sends_producer else -1,
        ), version

    def _add(self, name: str, producer: Producer) -> Any:
        version = self.random.randrange(6 if self.harness.level else 4)
        partitions = sorted(self.random.sample(PARTITIONS, self.random.choice([1, 1, 2])))
        return lambda sender: add_request(sender, partitions, version, name), version

    def _verify(self, name: str, producer: Producer) -> Any:
        version = self.random.choice([4, 5])
        partitions = sorted(self.random.sample(PARTITIONS, 2))
        return lambda sender: add_request(sender, partitions, version, name, verify_only=True), version

    def _offsets(self, name: str, producer: Producer) -> Any:
        group_id = f"g{self.random.randrange(9)}"
        return lambda sender: AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=sender[0], producer_epoch=sender[1], group_id=group_id
        ), self.random.randrange(5)

    def _end(self, name: str, producer: Producer) -> Any:
        committed = self.random.random() < 0.5
        newer = self.random.random() < (0.6 if self.harness.level == 2 else 0.3) and self.harness.level
        version = 5 if newer else self.random.randrange(OLD + 1)
        return lambda sender: end_request(sender, committed, name), version

    def _list(self, name: str, producer: Producer) -> Any:
        filters = self.random.choice(LIST_FILTERS)
        return lambda sender: ListTransactionsRequest(**filters), 2


ENDS = ["end"] * 4


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.003)


def comparable(answer: Struct) -> Any:
    """Return the comparable part of a response: no producer ids, no times, no order of a hash table."""
    fields: Any = answer
    if isinstance(answer, AddPartitionsToTxnResponse):
        topics = [*answer.results_by_topic_v3_and_below]
        topics += [topic for result in answer.results_by_transaction for topic in result.topic_results]
        return sorted(
            (topic.name, result.partition_index, Errors(result.partition_error_code).name)
            for topic in topics
            for result in topic.results_by_partition
        )
    if isinstance(answer, ListTransactionsResponse):
        states = sorted(
            (state.transactional_id, state.transaction_state) for state in fields.transaction_states
        )
        return Errors(fields.error_code).name, sorted(fields.unknown_state_filters), states
    if hasattr(answer, "transaction_state"):
        topics = [(topic.topic, sorted(topic.partitions)) for topic in fields.topics]
        times = fields.transaction_timeout_ms, fields.transaction_start_time_ms == -1
        return (
            Errors(fields.error_code).name,
            fields.transaction_state,
            fields.producer_epoch,
            times,
            sorted(topics),
        )
    return Errors(fields.error_code).name, getattr(fields, "producer_epoch", None)


def written(pairs: list[tuple[bytes, bytes | None]], names: dict[int, int]) -> list[Any]:
    """Return the records with their versions; producer ids are translated by `names`."""
    found = []
    for pair in pairs:
        record = decode_transaction_record(*pair)
        assert record is not None
        key, value = record
        assert isinstance(key, TransactionLogKey)
        assert isinstance(value, TransactionLogValue)
        partitions = value.transaction_partitions
        ids = [value.producer_id, value.previous_producer_id, value.next_producer_id]
        found.append((
            type(record), key.transactional_id, [names.get(i, i) for i in ids], value.producer_epoch,
            value.next_producer_epoch, value.transaction_timeout_ms, value.transaction_status,
            None if partitions is None else sorted((p.topic, sorted(p.partition_ids)) for p in partitions),
            value.transaction_start_timestamp_ms == -1, value.client_transaction_version,
            len(pair[1] or b""),
        ))  # fmt: skip
    return found


def log_of(broker: Broker) -> list[tuple[bytes, bytes | None]]:
    found: list[tuple[bytes, bytes | None]] = []
    for file in sorted((broker.directory / "data" / "__transaction_state-0").glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            for record in rb.records(batch, header):
                value = None if record.value is None else bytes(record.value)
                found.append((bytes(record.key or b""), value))
    return found


@contextmanager
def walking(path: Path) -> Iterator[Walk]:
    """Yield a walk; compare the records of broker and shard afterwards."""
    with running_broker(path) as broker:
        for name in ("in", "out"):
            Target(broker).topic(name, 2)
        with Client(broker.port) as client:
            walk = Walk(broker, client, seed=int(os.environ.get("KONVENE_SEED", "1")))
            walk.await_coordinators()
            yield walk
    assert written(log_of(broker), walk.shard_ids) == written(walk.harness.log, {})


def test_broker_answers_as_the_shard_decides(tmp_path: Path) -> None:
    with walking(tmp_path) as walk:
        for level in (2, 1, 0, 2):
            walk.set_level(level)
            for _ in range(STEPS):
                walk.step()
        assert len(walk.harness.log) > STEPS


def test_broker_times_out_transactions_as_the_shard_does(tmp_path: Path) -> None:
    """A timed-out transaction is aborted; then its producer sends each possible request."""
    with walking(tmp_path) as walk:
        for level in (2, 1, 0):
            walk.set_level(level)
            generation = NEW if level == 2 else OLD
            for number, next_request in enumerate(REQUESTS_AFTER_TIMEOUT):
                name = f"slow-{level}-{number}"
                init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=20)
                producer_state = walk.ask_both(name, (-1, -1), lambda _, init=init: init, 5)
                producer = producer_state.producer_id, producer_state.producer_epoch
                version = 5 if level == 2 else 3
                add = walk.harness.ask(add_request(producer, PARTITIONS, version, name), version)
                broker_producer = walk.broker_ids[producer[0]], producer[1]
                response = walk.client.ask(add_request(broker_producer, PARTITIONS, version, name), version)
                assert comparable(response) == comparable(add)
                walk.time_out(name)
                walk.ask_both(name, producer, *next_request(name, generation))


REQUESTS_AFTER_TIMEOUT: list[Callable[[str, int], Any]] = [
    lambda name, generation: (lambda sender: end_request(sender, True, name), generation),
    lambda name, generation: (lambda sender: end_request(sender, False, name), generation),
    lambda name, generation: (lambda sender: add_request(sender, PARTITIONS, 3, name), 3),
    lambda name, generation: (
        lambda sender: InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=9, producer_id=sender[0], producer_epoch=sender[1]
        ),
        5,
    ),
]
