"""Transactions that time out, and transactional ids that expire."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.transactions.harness import FIRST_ID, NEW, OLD, OUT, TIMEOUT_MS, TransactionHarness
from tests.transactions.test_init_producer_id import put

from konvene.errors import Errors
from konvene.shard.contract import NOTHING, Effect
from konvene.transactions.expiry import EXPIRED, MAX_BATCH_BYTES, NEXT_BATCH_MS, TIMED_OUT
from konvene.transactions.markers import FETCH_PRODUCER_ID, MarkersToWrite, ProducerIdFetched
from konvene.transactions.state import (
    AT_REST,
    COMPLETE_ABORT,
    LAST_EPOCH,
    NO_TIMEOUT_MS,
    ONGOING,
    PREPARE_ABORT,
    Transaction,
    TransactionSnapshot,
    TransactionState,
)

KEPT = tuple(s for s in TransactionState if s < TransactionState.DEAD)
WEEK_MS = 604_800_000


@pytest.mark.parametrize("level", [0, 1, 2])
def test_timed_out_transaction_is_aborted_and_its_producer_fenced(level: int) -> None:
    harness = TransactionHarness(level)
    producer = harness.init()
    harness.add(producer, version=5 if level == 2 else 3)
    began_ms = harness.now_ms
    harness.now_ms += TIMEOUT_MS
    assert harness.expire(TIMED_OUT).records == ()
    harness.now_ms += 1
    harness.expire(TIMED_OUT)
    assert harness.timers == {TIMED_OUT: 10_000}
    known = harness.transaction()
    assert (known.state, known.producer_epoch, known.start_ms) == (PREPARE_ABORT, 1, began_ms)
    assert known.last_producer_epoch == (0 if level == 2 else -1)
    assert harness.write_markers() == [
        MarkersToWrite("t", FIRST_ID, 1, False, 2 if level == 2 else 0, (OUT,))
    ]
    assert harness.transaction().state is COMPLETE_ABORT
    assert harness.add(producer, version=3) is Errors.PRODUCER_FENCED
    if level < 2:
        assert harness.end(producer, True, OLD) is Errors.PRODUCER_FENCED
        assert harness.init(producer) is Errors.PRODUCER_FENCED
    else:  # The abort counts as the client's own: it continues with the new epoch.
        assert harness.end(producer, True, NEW) is Errors.INVALID_TXN_STATE
        assert harness.end(producer, False, NEW) == (FIRST_ID, 1)
        assert harness.init(producer) == (FIRST_ID, 1)
    assert harness.expire(TIMED_OUT).records == ()


@pytest.mark.parametrize("level", [0, 1])
def test_fenced_producer_cannot_retry_with_its_last_epoch(level: int) -> None:
    harness = TransactionHarness(level)
    first = harness.init()
    producer = harness.init(first)
    harness.add(producer, version=3)
    harness.now_ms += TIMEOUT_MS + 1
    harness.expire(TIMED_OUT)
    harness.write_markers()
    assert harness.init(first) is Errors.PRODUCER_FENCED
    assert harness.init(producer) is Errors.PRODUCER_FENCED


def test_only_ongoing_transactions_time_out() -> None:
    for state in KEPT:
        harness = TransactionHarness()
        put(harness, state=state)
        assert bool(harness.expire(TIMED_OUT).records) is (state is ONGOING)


def test_two_phase_commit_transactions_never_time_out() -> None:
    harness = TransactionHarness()
    put(harness, state=ONGOING, timeout_ms=NO_TIMEOUT_MS)
    harness.now_ms = 2**40
    assert harness.expire(TIMED_OUT).records == ()


def test_many_timeouts_are_split_into_batches() -> None:
    """The size of each batch is bounded, and the next one follows at once."""
    harness = TransactionHarness()
    long = "x" * 200
    wide = frozenset((f"{long}{n}", 0) for n in range(100))
    for n in range(30):
        ongoing = Transaction(f"t{n}", n, n, -1, 0, -1, 1, ONGOING, wide, 1, 1)
        harness.shard.replay(TransactionSnapshot(ongoing))
    harness.expire(TIMED_OUT)
    checks = 1
    while harness.timers[TIMED_OUT] == NEXT_BATCH_MS:
        harness.expire(TIMED_OUT)
        checks += 1
    assert checks > 1
    assert harness.timers[TIMED_OUT] == 10_000
    assert [t.state for t in harness.shard.transactions.values()] == [PREPARE_ABORT] * 30
    assert sum(harness.batches) == 30
    largest = max(harness.batches) * (len(harness.log[0][0]) + len(harness.log[0][1] or b""))
    assert MAX_BATCH_BYTES / 2 < largest < MAX_BATCH_BYTES
    assert len({m.transactional_id for m in harness.write_markers()}) == 30


def test_transaction_larger_than_a_batch_is_aborted_alone() -> None:
    harness = TransactionHarness()
    wide = frozenset((f"{n:0249}", 0) for n in range(1200))
    for name, partitions in (("small", frozenset({OUT})), ("large", wide), ("last", frozenset({OUT}))):
        harness.shard.replay(
            TransactionSnapshot(Transaction(name, 7, 7, -1, 0, -1, 1, ONGOING, partitions, 1, 1))
        )
    for left in (2, 1, 0):
        harness.expire(TIMED_OUT)
        assert sum(t.state is ONGOING for t in harness.shard.transactions.values()) == left
        assert harness.timers[TIMED_OUT] == (NEXT_BATCH_MS if left else 10_000)


def test_producer_id_is_fetched_for_exhausted_epochs() -> None:
    harness = TransactionHarness()
    put(harness, state=ONGOING, producer_epoch=LAST_EPOCH - 1, partitions=frozenset({OUT}))
    harness.shard.replay(
        TransactionSnapshot(replace(harness.transaction(), transactional_id="u", producer_epoch=3))
    )
    harness.expire(TIMED_OUT)
    assert Effect(FETCH_PRODUCER_ID, "t") in harness.effects
    assert (harness.transaction("t").state, harness.transaction("u").state) == (ONGOING, PREPARE_ABORT)
    harness.inform(ProducerIdFetched("t", 4000))
    markers = {m.transactional_id: m for m in harness.write_markers()}["t"]
    assert markers == MarkersToWrite("t", 7, LAST_EPOCH, False, 2, (OUT,))
    known = harness.transaction()
    assert (known.producer_id, known.producer_epoch, known.state) == (4000, 0, COMPLETE_ABORT)
    assert harness.end((7, LAST_EPOCH - 1), False, NEW) == (4000, 0)
    assert harness.inform(ProducerIdFetched("t", 4001)) == NOTHING
    assert harness.inform(ProducerIdFetched("unknown", 4001)) == NOTHING


def test_late_producer_id_is_not_used() -> None:
    harness = TransactionHarness()
    put(harness, state=ONGOING, producer_epoch=3, start_ms=harness.now_ms)
    assert harness.inform(ProducerIdFetched("t", 4000)) == NOTHING
    put(harness, state=ONGOING, producer_epoch=3)
    harness.inform(ProducerIdFetched("t", 4000))
    assert harness.transaction().next_producer_id == -1
    assert harness.transaction().state is PREPARE_ABORT


@pytest.mark.parametrize("level", [0, 1])
def test_older_versions_fetch_no_producer_id(level: int) -> None:
    harness = TransactionHarness(level)
    put(harness, state=ONGOING, producer_epoch=LAST_EPOCH - 1)
    harness.expire(TIMED_OUT)
    assert [effect.verb for effect in harness.effects] == ["write-markers"]
    assert harness.transaction().producer_epoch == LAST_EPOCH


@pytest.mark.parametrize("state", KEPT)
def test_unused_transactional_id_expires(state: TransactionState) -> None:
    harness = TransactionHarness()
    put(harness, state=state, last_update_ms=harness.now_ms)
    harness.now_ms += WEEK_MS - 1
    assert harness.expire(EXPIRED).records == ()
    harness.now_ms += 1
    harness.expire(EXPIRED)
    assert bool(harness.shard.transactions) is (state not in AT_REST)
    assert harness.timers == {EXPIRED: 3_600_000}


def test_expired_transactional_id_gets_a_new_producer_id() -> None:
    harness = TransactionHarness()
    producer = harness.init()
    harness.now_ms += WEEK_MS
    harness.expire(EXPIRED)
    assert harness.log[-1][1] is None
    assert harness.restarted().shard.transactions == {}
    assert harness.add(producer) is Errors.INVALID_PRODUCER_ID_MAPPING
    assert harness.init(producer) == (FIRST_ID + 1, 0)


def test_many_expirations_are_split_into_batches() -> None:
    harness = TransactionHarness(settings={"transactional.id.expiration.ms": "1"})
    for n in range(10_000):
        harness.shard.replay(TransactionSnapshot(Transaction(f"t{n:05}", n, n, -1, 0, -1, 1)))
    harness.expire(EXPIRED)
    while harness.timers[EXPIRED] == NEXT_BATCH_MS:
        harness.expire(EXPIRED)
    assert harness.shard.transactions == {}
    assert 1 < len(harness.batches) < 10
    assert sum(harness.batches) == len({key for key, _ in harness.log}) == 10_000
    assert max(harness.batches) * len(harness.log[0][0]) < MAX_BATCH_BYTES
