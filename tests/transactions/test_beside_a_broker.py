"""A broker answers as the core decides it: a walk of requests at each level of `transaction.version`.

Each step is asked of a shard and of a broker in a process of its own. Answers, states and, at the end, all
records of the log are compared. With konvene, which is the default, that shows that what stands between the
wire and the shard adds nothing; with `KONVENE_AGAINST=kafka`, that the shard decides what Kafka does.

Producer ids are who they are by what they stand for; times are left out.
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
"""At each level."""

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
PLACES = [("in", 0), ("out", 0), ("out", 1)]
LISTS: list[dict[str, Any]] = [
    {},
    {"state_filters": ("Ongoing", "Strange")},
    {"transactional_id_pattern": "[t-z]-[0-9]+|x+"},
    {"transactional_id_pattern": "("},
    {"duration_filter": 10**12},
]
UPGRADE, SAFE_DOWNGRADE = 1, 2

Producer = tuple[int, int]


@contextmanager
def a_broker(path: Path) -> Iterator[Broker]:
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
    """A shard, a broker, and which producer ids of the one are which of the other."""

    def __init__(self, broker: Broker, client: Client, seed: int) -> None:
        self.hears_within_s = 0.5 if broker.name == "kafka" else 0
        """A coordinator of Kafka's hears of a feature some time later, and tells nobody when."""
        self.random = random.Random(seed)
        self.client = client
        self.harness = TransactionHarness(settings={"offsets.topic.num.partitions": "4"})
        self.names: list[str] = []
        """Ids of this level alone: Kafka's do not come down a level with what newer clients left of them."""
        self.theirs: dict[int, int] = {}
        self.ours: dict[int, int] = {}

    def ready(self) -> None:
        """Return when there are coordinators and producer ids."""
        looking = FindCoordinatorRequest(key_type=1, coordinator_keys=("t",))
        eventually(lambda: not self.client.ask(looking, 4).coordinators[0].error_code)
        plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        eventually(lambda: not self.client.ask(plain, 5).error_code)
        described = DescribeTransactionsRequest(transactional_ids=("t",))
        missing = Errors.TRANSACTIONAL_ID_NOT_FOUND
        eventually(lambda: self.client.ask(described, 0).transaction_states[0].error_code == missing)

    def at_level(self, level: int) -> None:
        update = FeatureUpdateKey(
            feature="transaction.version",
            max_version_level=level,
            upgrade_type=UPGRADE if level > self.harness.level else SAFE_DOWNGRADE,
        )
        answer = self.client.ask(UpdateFeaturesRequest(feature_updates=(update,)), 1)
        assert answer.error_code == Errors.NONE, answer
        time.sleep(self.hears_within_s)
        self.harness.level = level
        self.names = [f"t-{len(self.harness.log)}"] * 3 + [f"u-{len(self.harness.log)}"]

    # --- one step ---

    def step(self) -> None:
        name = self.random.choice(self.names)
        kind = self.random.choice(["init", "init", "add", "add", "add", "offsets", "verify", "list", *ENDS])
        producer = self._who(name)
        make, version = getattr(self, f"_{kind}")(name, producer)
        self.both(name, producer, make, version)

    def both(self, name: str, producer: Producer, make: Callable[[Producer], Struct], version: int) -> Any:
        """Ask both. The answer is the shard's."""
        told = self.client.ask(make((self.theirs.get(producer[0], producer[0]), producer[1])), version)
        self.harness.now_ms = int(time.time() * 1000)
        try:
            own = self.harness.ask(make(producer), version)
        except TransactionError as refused:
            own = ListTransactionsResponse(error_code=refused.error)
        self.harness.write_markers()
        assert seen(told) == seen(own), (make(producer), version, self.harness.shard.transactions.get(name))
        if isinstance(told, InitProducerIdResponse | EndTxnResponse):
            self._same(told.producer_id, own.producer_id)
        self.described(name)
        return own

    def too_long(self, name: str) -> None:
        """Let both see that a transaction takes too long."""
        request = DescribeTransactionsRequest(transactional_ids=(name,))
        eventually(
            lambda: self.client.ask(request, 0).transaction_states[0].transaction_state == "CompleteAbort"
        )
        self.harness.now_ms += 60_000
        self.harness.expire(TIMED_OUT)
        self.harness.write_markers()
        self.described(name)

    def _same(self, theirs: int, ours: int) -> None:
        assert self.ours.setdefault(theirs, ours) == ours
        assert self.theirs.setdefault(ours, theirs) == theirs

    def described(self, name: str) -> None:
        """The states are the same, once the markers are written that the broker is still at."""
        request = DescribeTransactionsRequest(transactional_ids=(name,))
        (own,) = self.harness.ask(request, 0).transaction_states
        told: list[Any] = []

        def settled() -> bool:
            told[:] = self.client.ask(request, 0).transaction_states
            return not told[0].transaction_state.startswith("Prepare")

        eventually(settled)
        assert seen(told[0]) == seen(own)
        self._same(told[0].producer_id, own.producer_id)

    def _who(self, name: str) -> Producer:
        known = self.harness.shard.transactions.get(name)
        who = self.random.choice(["now"] * 9 + ["before", "after", "previous", "nobody"])
        if known is None or who == "nobody":
            return 999_999, 0
        if who == "previous":
            return known.previous_producer_id, LAST_EPOCH - 1
        return known.producer_id, max(0, known.producer_epoch + {"now": 0, "before": -1, "after": 1}[who])

    # --- what is asked: a function of the producer, and a version ---

    def _init(self, name: str, producer: Producer) -> Any:
        version = self.random.choice([2, 3, 4, 5])
        told: dict[str, Any] = {
            "transactional_id": name,
            "transaction_timeout_ms": self.random.choice([600_000] * 6 + [0, 900_001, -1]),
        }
        says = version >= 3 and self.random.random() < 0.4
        return lambda who: InitProducerIdRequest(
            **told, producer_id=who[0] if says else -1, producer_epoch=who[1] if says else -1
        ), version

    def _add(self, name: str, producer: Producer) -> Any:
        version = self.random.randrange(6 if self.harness.level else 4)
        places = sorted(self.random.sample(PLACES, self.random.choice([1, 1, 2])))
        return lambda who: add_request(who, places, version, name), version

    def _verify(self, name: str, producer: Producer) -> Any:
        version = self.random.choice([4, 5])
        places = sorted(self.random.sample(PLACES, 2))
        return lambda who: add_request(who, places, version, name, verify_only=True), version

    def _offsets(self, name: str, producer: Producer) -> Any:
        group_id = f"g{self.random.randrange(9)}"
        return lambda who: AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id=group_id
        ), self.random.randrange(5)

    def _end(self, name: str, producer: Producer) -> Any:
        committed = self.random.random() < 0.5
        newer = self.random.random() < (0.6 if self.harness.level == 2 else 0.3) and self.harness.level
        version = 5 if newer else self.random.randrange(OLD + 1)
        return lambda who: end_request(who, committed, name), version

    def _list(self, name: str, producer: Producer) -> Any:
        told = self.random.choice(LISTS)
        return lambda who: ListTransactionsRequest(**told), 2


ENDS = ["end"] * 4


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.003)


def seen(answer: Struct) -> Any:
    """What does not differ from broker to broker: no producer ids, no times, no order of a hash table."""
    told: Any = answer
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
            (state.transactional_id, state.transaction_state) for state in told.transaction_states
        )
        return Errors(told.error_code).name, sorted(told.unknown_state_filters), states
    if hasattr(answer, "transaction_state"):
        topics = [(topic.topic, sorted(topic.partitions)) for topic in told.topics]
        times = told.transaction_timeout_ms, told.transaction_start_time_ms == -1
        return (
            Errors(told.error_code).name,
            told.transaction_state,
            told.producer_epoch,
            times,
            sorted(topics),
        )
    return Errors(told.error_code).name, getattr(told, "producer_epoch", None)


def written(pairs: list[tuple[bytes, bytes | None]], names: dict[int, int]) -> list[Any]:
    """Records, each with its version; producer ids as the shard has them."""
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
def a_walk(path: Path) -> Iterator[Walk]:
    """Behind it the records of both are compared."""
    with a_broker(path) as broker:
        for name in ("in", "out"):
            Target(broker).topic(name, 2)
        with Client(broker.port) as client:
            walk = Walk(broker, client, seed=int(os.environ.get("KONVENE_SEED", "1")))
            walk.ready()
            yield walk
    assert written(log_of(broker), walk.ours) == written(walk.harness.log, {})


def test_a_broker_answers_as_the_core_decides(tmp_path: Path) -> None:
    with a_walk(tmp_path) as walk:
        for level in (2, 1, 0, 2):
            walk.at_level(level)
            for _ in range(STEPS):
                walk.step()
        assert len(walk.harness.log) > STEPS


def test_a_broker_is_as_patient_as_the_core(tmp_path: Path) -> None:
    """What takes too long is aborted, and then its producer asks once more for anything that it may want."""
    with a_walk(tmp_path) as walk:
        for level in (2, 1, 0):
            walk.at_level(level)
            generation = NEW if level == 2 else OLD
            for number, wants in enumerate(AFTERWARDS):
                name = f"slow-{level}-{number}"
                begins = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=20)
                took = walk.both(name, (-1, -1), lambda _, begins=begins: begins, 5)
                producer = took.producer_id, took.producer_epoch
                version = 5 if level == 2 else 3
                add = walk.harness.ask(add_request(producer, PLACES, version, name), version)
                theirs = walk.theirs[producer[0]], producer[1]
                told = walk.client.ask(add_request(theirs, PLACES, version, name), version)
                assert seen(told) == seen(add)
                walk.too_long(name)
                walk.both(name, producer, *wants(name, generation))


AFTERWARDS: list[Callable[[str, int], Any]] = [
    lambda name, generation: (lambda who: end_request(who, True, name), generation),
    lambda name, generation: (lambda who: end_request(who, False, name), generation),
    lambda name, generation: (lambda who: add_request(who, PLACES, 3, name), 3),
    lambda name, generation: (
        lambda who: InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=9, producer_id=who[0], producer_epoch=who[1]
        ),
        5,
    ),
]
