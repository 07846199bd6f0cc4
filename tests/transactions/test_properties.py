"""What holds whatever is asked, in any order, by clients of either generation, at each level of the cluster.

Producers are drawn near the present one: it, the ones before and after, and the one it was before a rotation.
Epochs begin just below their end in every other run, so that producer ids rotate.
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

WHO = st.sampled_from(["now", "before", "after", "previous", "nobody"])
INIT = st.tuples(st.just("init"), st.sampled_from(["now", "before", "previous", "unsaid", "unsaid"]))
ADD = st.tuples(st.just("add"), WHO, st.sampled_from([3, 5]), st.sampled_from([OUT, ("in", 1)]))
OFFSETS = st.tuples(st.just("offsets"), WHO)
END = st.tuples(st.just("end"), WHO, st.sampled_from([OLD, NEW]), st.booleans())
ELSE = st.sampled_from(
    [("markers",), ("markers",), ("timed-out",), ("expired",), ("restart",), ("wait", 70_000)]
)
STEPS = st.lists(st.one_of(INIT, ADD, ADD, END, END, OFFSETS, ELSE, ELSE), max_size=40)


def who(harness: TransactionHarness, name: str) -> tuple[int, int]:
    known = harness.shard.transactions.get("t")
    if name == "unsaid":
        return -1, -1
    if known is None or name == "nobody":
        return 999, 0
    if name == "previous":
        return known.previous_producer_id, LAST_EPOCH - 1
    moved = {"now": 0, "before": -1, "after": 1}[name]
    return known.producer_id, max(min(known.producer_epoch + moved, LAST_EPOCH), 0)


def request_of(harness: TransactionHarness, step: Step) -> tuple[Struct, int] | None:
    """What a step asks for and in which version; None where it asks for nothing."""
    if step[0] == "init":
        producer_id, epoch = who(harness, step[1])
        told = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": epoch}
        return InitProducerIdRequest(transaction_timeout_ms=60_000, **told), 5
    if step[0] == "add":
        return add_request(who(harness, step[1]), [step[3]], step[2]), step[2]
    if step[0] == "offsets":
        producer_id, epoch = who(harness, step[1])
        request = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        return request, 3
    if step[0] == "end":
        return end_request(who(harness, step[1]), step[3]), step[2]
    return None


def code_of(response: Any) -> Errors:
    if hasattr(response, "error_code") and response.error_code:
        return Errors(response.error_code)
    topics = getattr(response, "results_by_topic_v3_and_below", ())
    topics += tuple(t for r in getattr(response, "results_by_transaction", ()) for t in r.topic_results)
    return Errors(next((r.partition_error_code for t in topics for r in t.results_by_partition), 0))


def go(harness: TransactionHarness, step: Step) -> TransactionHarness:
    """Take a step. Whoever is refused changed nothing, but for a new producer that fenced another."""
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
    found = request_of(harness, step)
    if found is not None:
        before, length = dict(harness.shard.transactions), len(harness.log)
        error = code_of(harness.ask(*found))
        fences = step[0] == "init" and error is Errors.CONCURRENT_TRANSACTIONS
        if error is not Errors.NONE and not fences:
            assert harness.shard.transactions == before
            assert len(harness.log) == length
    return harness


def logged(harness: TransactionHarness) -> list[Transaction | None]:
    found: list[Transaction | None] = []
    for pair in harness.log:
        record = decode_transaction_record(*pair)
        assert record is not None
        key, value = record
        assert isinstance(key, TransactionLogKey)
        found.append(from_record(key, value) if isinstance(value, TransactionLogValue) else None)
    return found


def begun(level: int, *, late: bool) -> TransactionHarness:
    harness = TransactionHarness(level)
    if late:
        put(harness, producer_id=FIRST_ID - 1, producer_epoch=LAST_EPOCH - 4)
    return harness


@settings(max_examples=depth.examples(300))
@given(st.sampled_from([0, 1, 2]), st.booleans(), STEPS)
def test_epochs_never_go_back_and_ids_are_never_used_again(level: int, late: bool, steps: list[Step]) -> None:
    """And no transaction moves but along the edges of its states."""
    harness = begun(level, late=late)
    for step in steps:
        harness = go(harness, step)
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
def test_a_restart_forgets_the_last_epoch_and_nothing_else(level: int, late: bool, steps: list[Step]) -> None:
    harness = begun(level, late=late)
    if late:
        harness.init((FIRST_ID - 1, LAST_EPOCH - 4))  # What was put there is not in the log.
    for step in steps:
        harness = go(harness, step)
        told = {name: replace(t, last_producer_epoch=-1) for name, t in harness.shard.transactions.items()}
        again = harness.restarted()
        assert again.shard.transactions == told
        ending = {name for name, t in told.items() if t.state in (PREPARE_COMMIT, PREPARE_ABORT)}
        assert {effect.subject.transactional_id for effect in again.effects} == ending


@settings(max_examples=depth.examples(200))
@given(st.booleans(), STEPS, st.booleans(), st.sampled_from([OLD, NEW]))
def test_an_end_whose_answer_was_lost_is_asked_for_again(
    late: bool, steps: list[Step], committed: bool, version: int
) -> None:
    """Once its markers are written the answer is the one that was lost, and nothing more is written."""
    harness = begun(2, late=late)
    for step in steps:
        harness = go(harness, step)
    request = end_request(who(harness, "now"), committed)
    lost = harness.ask(request, version)
    if lost.error_code:
        return
    harness.write_markers()
    harness = harness.restarted()
    length = len(harness.log)
    again = harness.ask(request, version)
    if version == NEW:
        assert (again.producer_id, again.producer_epoch) == (lost.producer_id, lost.producer_epoch)
    assert again.error_code == Errors.NONE
    assert len(harness.log) == length


@settings(max_examples=depth.examples(200))
@given(st.sampled_from([0, 1, 2]), st.booleans(), STEPS)
def test_only_the_owner_is_enlisted(level: int, late: bool, steps: list[Step]) -> None:
    """Once somebody was fenced no write of theirs is in a transaction again."""
    harness = begun(level, late=late)
    fenced: set[tuple[int, int]] = set()
    for step in steps:
        known = harness.shard.transactions.get("t")
        harness = go(harness, step)
        after = harness.shard.transactions.get("t")
        if known is not None:
            before = known.producer_id, known.producer_epoch
            if after is None or (after.producer_id, after.producer_epoch) != before:
                fenced.add(before)
        for producer in sorted(fenced):
            for partition in (OUT, ("in", 1)):
                assert not harness.shard.is_enlisted("t", *producer, *partition)
