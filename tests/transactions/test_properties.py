"""Properties of random sequences of requests, by older and newer clients, at each feature level.

Producers are drawn near the current one: the same, the previous and the next epoch, and the producer id
before a rotation. Epochs start near exhaustion in every other run, so that producer ids rotate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.transactions.harness import FIRST_ID, NEW, OLD, OUT, TransactionHarness, add_request, end_request
from tests.transactions.test_init_producer_id import put

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.records.coordinator import decode_transaction_record
from konvene.records.transactions import TransactionLogKey, TransactionLogValue
from konvene.transactions.expiry import EXPIRED, TIMED_OUT
from konvene.transactions.state import (
    LAST_EPOCH,
    PREDECESSORS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    from_record,
)

Step = tuple[Any, ...]

PRODUCERS = st.sampled_from(["now", "before", "after", "previous", "unknown"])
INIT = st.tuples(st.just("init"), st.sampled_from(["now", "before", "previous", "none", "none"]))
ADD = st.tuples(st.just("add"), PRODUCERS, st.sampled_from([3, 5]), st.sampled_from([OUT, ("in", 1)]))
OFFSETS = st.tuples(st.just("offsets"), PRODUCERS)
END = st.tuples(st.just("end"), PRODUCERS, st.sampled_from([OLD, NEW]), st.booleans())
EVENTS = st.sampled_from(
    [("markers",), ("markers",), ("timed-out",), ("expired",), ("restart",), ("wait", 70_000)]
)
STEPS = st.lists(st.one_of(INIT, ADD, ADD, END, END, OFFSETS, EVENTS, EVENTS), max_size=40)


def producer_of(harness: TransactionHarness, name: str) -> tuple[int, int]:
    known = harness.shard.transactions.get("t")
    if name == "none":
        return -1, -1
    if known is None or name == "unknown":
        return 999, 0
    if name == "previous":
        return known.previous_producer_id, LAST_EPOCH - 1
    moved = {"now": 0, "before": -1, "after": 1}[name]
    return known.producer_id, max(min(known.producer_epoch + moved, LAST_EPOCH), 0)


def request_of(harness: TransactionHarness, step: Step) -> tuple[Struct, int] | None:
    """Return the request of a step and its version, or None if the step sends none."""
    if step[0] == "init":
        producer_id, epoch = producer_of(harness, step[1])
        fields = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": epoch}
        return InitProducerIdRequest(transaction_timeout_ms=60_000, **fields), 5
    if step[0] == "add":
        return add_request(producer_of(harness, step[1]), [step[3]], step[2]), step[2]
    if step[0] == "offsets":
        producer_id, epoch = producer_of(harness, step[1])
        request = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        return request, 3
    if step[0] == "end":
        return end_request(producer_of(harness, step[1]), step[3]), step[2]
    return None


def code_of(response: Any) -> Errors:
    if hasattr(response, "error_code") and response.error_code:
        return Errors(response.error_code)
    topics = getattr(response, "results_by_topic_v3_and_below", ())
    topics += tuple(t for r in getattr(response, "results_by_transaction", ()) for t in r.topic_results)
    return Errors(next((r.partition_error_code for t in topics for r in t.results_by_partition), 0))


def take_step(harness: TransactionHarness, step: Step) -> TransactionHarness:
    """Take a step. A rejected request changes nothing; only InitProducerId may fence another producer."""
    if step[0] == "restart":
        return harness.restarted()
    if step[0] == "wait":
        harness.now_ms += step[1]
    elif step[0] == "markers":
        harness.write_markers()
    elif step[0] == "timed-out":
        harness.expire(TIMED_OUT)
    elif step[0] == "expired":
        harness.expire(EXPIRED)
    request = request_of(harness, step)
    if request is not None:
        before, length = dict(harness.shard.transactions), len(harness.log)
        error = code_of(harness.ask(*request))
        fences = step[0] == "init" and error is Errors.CONCURRENT_TRANSACTIONS
        if error is not Errors.NONE and not fences:
            assert harness.shard.transactions == before
            assert len(harness.log) == length
    return harness


def logged(harness: TransactionHarness) -> list[Transaction | None]:
    request: list[Transaction | None] = []
    for pair in harness.log:
        record = decode_transaction_record(*pair)
        assert record is not None
        key, value = record
        assert isinstance(key, TransactionLogKey)
        request.append(from_record(key, value) if isinstance(value, TransactionLogValue) else None)
    return request


def started(level: int, *, near_exhaustion: bool) -> TransactionHarness:
    harness = TransactionHarness(level)
    if near_exhaustion:
        put(harness, producer_id=FIRST_ID - 1, producer_epoch=LAST_EPOCH - 4)
    return harness


@settings(max_examples=depth.examples(300))
@given(st.sampled_from([0, 1, 2]), st.booleans(), STEPS)
def test_epochs_never_decrease_and_producer_ids_are_not_reused(
    level: int, near_exhaustion: bool, steps: list[Step]
) -> None:
    """Each state change of a transaction is a valid transition, too."""
    harness = started(level, near_exhaustion=near_exhaustion)
    for step in steps:
        harness = take_step(harness, step)
    known: Transaction | None = None
    highest: dict[int, int] = {}
    for after in logged(harness):
        if after is not None:
            assert after.producer_epoch >= highest.get(after.producer_id, 0)
            assert after.producer_id >= max(highest, default=0)
            highest[after.producer_id] = after.producer_epoch
            assert after.state in PREDECESSORS
            if known is not None:
                assert known.state in PREDECESSORS[after.state]
        known = after


@settings(max_examples=depth.examples(200))
@given(st.sampled_from([1, 2]), st.booleans(), STEPS)
def test_restart_loses_only_the_last_epoch(level: int, near_exhaustion: bool, steps: list[Step]) -> None:
    harness = started(level, near_exhaustion=near_exhaustion)
    if near_exhaustion:
        harness.init((FIRST_ID - 1, LAST_EPOCH - 4))  # The state set by `put` is not in the log.
    for step in steps:
        harness = take_step(harness, step)
        persisted = {
            name: replace(t, last_producer_epoch=-1) for name, t in harness.shard.transactions.items()
        }
        again = harness.restarted()
        assert again.shard.transactions == persisted
        ending = {name for name, t in persisted.items() if t.state in (PREPARE_COMMIT, PREPARE_ABORT)}
        assert {effect.subject.transactional_id for effect in again.effects} == ending


@settings(max_examples=depth.examples(200))
@given(st.booleans(), STEPS, st.booleans(), st.sampled_from([OLD, NEW]))
def test_repeated_end_gets_the_lost_response(
    near_exhaustion: bool, steps: list[Step], committed: bool, version: int
) -> None:
    """After the markers are written, a repeated EndTxn gets the same response and writes nothing."""
    harness = started(2, near_exhaustion=near_exhaustion)
    for step in steps:
        harness = take_step(harness, step)
    request = end_request(producer_of(harness, "now"), committed)
    lost_response = harness.ask(request, version)
    if lost_response.error_code:
        return
    harness.write_markers()
    harness = harness.restarted()
    length = len(harness.log)
    again = harness.ask(request, version)
    if version == NEW:
        assert (again.producer_id, again.producer_epoch) == (
            lost_response.producer_id,
            lost_response.producer_epoch,
        )
    assert again.error_code == Errors.NONE
    assert len(harness.log) == length


@settings(max_examples=depth.examples(200))
@given(st.sampled_from([0, 1, 2]), st.booleans(), STEPS)
def test_only_the_current_producer_is_enlisted(level: int, near_exhaustion: bool, steps: list[Step]) -> None:
    """A fenced producer is never part of a transaction again."""
    harness = started(level, near_exhaustion=near_exhaustion)
    fenced: set[tuple[int, int]] = set()
    for step in steps:
        known = harness.shard.transactions.get("t")
        harness = take_step(harness, step)
        after = harness.shard.transactions.get("t")
        if known is not None:
            before = known.producer_id, known.producer_epoch
            if after is None or (after.producer_id, after.producer_epoch) != before:
                fenced.add(before)
        for producer in sorted(fenced):
            for partition in (OUT, ("in", 1)):
                assert not harness.shard.is_enlisted("t", *producer, *partition)
