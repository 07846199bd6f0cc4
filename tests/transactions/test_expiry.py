"""Transactions that take too long, and ids that nobody uses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.transactions.asking import FIRST_ID, NEW, OLD, OUT, TIMEOUT_MS, Asked
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
def test_what_takes_too_long_is_aborted_and_its_producer_fenced(level: int) -> None:
    asked = Asked(level)
    producer = asked.init()
    asked.add(producer, version=5 if level == 2 else 3)
    began_ms = asked.now_ms
    asked.now_ms += TIMEOUT_MS
    assert asked.ring(TIMED_OUT).records == ()
    asked.now_ms += 1
    asked.ring(TIMED_OUT)
    assert asked.timers == {TIMED_OUT: 10_000}
    known = asked.of()
    assert (known.state, known.producer_epoch, known.start_ms) == (PREPARE_ABORT, 1, began_ms)
    assert known.last_producer_epoch == (0 if level == 2 else -1)
    assert asked.write_markers() == [MarkersToWrite("t", FIRST_ID, 1, False, 2 if level == 2 else 0, (OUT,))]
    assert asked.of().state is COMPLETE_ABORT
    assert asked.add(producer, version=3) is Errors.PRODUCER_FENCED
    if level < 2:
        assert asked.end(producer, True, OLD) is Errors.PRODUCER_FENCED
        assert asked.init(producer) is Errors.PRODUCER_FENCED
    else:  # The coordinator's abort is a retry's abort: the client goes on at the epoch that it brought.
        assert asked.end(producer, True, NEW) is Errors.INVALID_TXN_STATE
        assert asked.end(producer, False, NEW) == (FIRST_ID, 1)
        assert asked.init(producer) == (FIRST_ID, 1)
    assert asked.ring(TIMED_OUT).records == ()


@pytest.mark.parametrize("level", [0, 1])
def test_who_was_fenced_has_no_last_epoch_to_come_back_with(level: int) -> None:
    asked = Asked(level)
    first = asked.init()
    producer = asked.init(first)
    asked.add(producer, version=3)
    asked.now_ms += TIMEOUT_MS + 1
    asked.ring(TIMED_OUT)
    asked.write_markers()
    assert asked.init(first) is Errors.PRODUCER_FENCED
    assert asked.init(producer) is Errors.PRODUCER_FENCED


def test_only_transactions_under_way_take_time() -> None:
    for state in KEPT:
        asked = Asked()
        put(asked, state=state)
        assert bool(asked.ring(TIMED_OUT).records) is (state is ONGOING)


def test_in_two_phases_nobody_waits_for_the_clock() -> None:
    asked = Asked()
    put(asked, state=ONGOING, timeout_ms=NO_TIMEOUT_MS)
    asked.now_ms = 2**40
    assert asked.ring(TIMED_OUT).records == ()


def test_many_at_once_go_in_batches() -> None:
    """Each is bounded, and one follows the other."""
    asked = Asked()
    long = "x" * 200
    wide = frozenset((f"{long}{n}", 0) for n in range(100))
    for n in range(30):
        told = Transaction(f"t{n}", n, n, -1, 0, -1, 1, ONGOING, wide, 1, 1)
        asked.shard.replay(TransactionSnapshot(told))
    asked.ring(TIMED_OUT)
    rings = 1
    while asked.timers[TIMED_OUT] == NEXT_BATCH_MS:
        asked.ring(TIMED_OUT)
        rings += 1
    assert rings > 1
    assert asked.timers[TIMED_OUT] == 10_000
    assert [t.state for t in asked.shard.transactions.values()] == [PREPARE_ABORT] * 30
    assert sum(asked.batches) == 30
    largest = max(asked.batches) * (len(asked.log[0][0]) + len(asked.log[0][1] or b""))
    assert MAX_BATCH_BYTES / 2 < largest < MAX_BATCH_BYTES
    assert len({m.transactional_id for m in asked.write_markers()}) == 30


def test_one_that_is_larger_than_a_batch_of_many_is_aborted_alone() -> None:
    asked = Asked()
    wide = frozenset((f"{n:0249}", 0) for n in range(1200))
    for name, partitions in (("small", frozenset({OUT})), ("large", wide), ("last", frozenset({OUT}))):
        asked.shard.replay(
            TransactionSnapshot(Transaction(name, 7, 7, -1, 0, -1, 1, ONGOING, partitions, 1, 1))
        )
    for left in (2, 1, 0):
        asked.ring(TIMED_OUT)
        assert sum(t.state is ONGOING for t in asked.shard.transactions.values()) == left
        assert asked.timers[TIMED_OUT] == (NEXT_BATCH_MS if left else 10_000)


def test_an_id_is_fetched_for_who_has_no_epoch_left() -> None:
    asked = Asked()
    put(asked, state=ONGOING, producer_epoch=LAST_EPOCH - 1, partitions=frozenset({OUT}))
    asked.shard.replay(TransactionSnapshot(replace(asked.of(), transactional_id="u", producer_epoch=3)))
    asked.ring(TIMED_OUT)
    assert Effect(FETCH_PRODUCER_ID, "t") in asked.effects
    assert (asked.of("t").state, asked.of("u").state) == (ONGOING, PREPARE_ABORT)
    asked.inform(ProducerIdFetched("t", 4000))
    told = {m.transactional_id: m for m in asked.write_markers()}["t"]
    assert told == MarkersToWrite("t", 7, LAST_EPOCH, False, 2, (OUT,))
    known = asked.of()
    assert (known.producer_id, known.producer_epoch, known.state) == (4000, 0, COMPLETE_ABORT)
    assert asked.end((7, LAST_EPOCH - 1), False, NEW) == (4000, 0)
    assert asked.inform(ProducerIdFetched("t", 4001)) == NOTHING
    assert asked.inform(ProducerIdFetched("nobody", 4001)) == NOTHING


def test_an_id_that_came_too_late_is_not_used() -> None:
    asked = Asked()
    put(asked, state=ONGOING, producer_epoch=3, start_ms=asked.now_ms)
    assert asked.inform(ProducerIdFetched("t", 4000)) == NOTHING
    put(asked, state=ONGOING, producer_epoch=3)
    asked.inform(ProducerIdFetched("t", 4000))
    assert asked.of().next_producer_id == -1
    assert asked.of().state is PREPARE_ABORT


@pytest.mark.parametrize("level", [0, 1])
def test_where_fencing_takes_no_id_none_is_fetched(level: int) -> None:
    asked = Asked(level)
    put(asked, state=ONGOING, producer_epoch=LAST_EPOCH - 1)
    asked.ring(TIMED_OUT)
    assert [effect.verb for effect in asked.effects] == ["write-markers"]
    assert asked.of().producer_epoch == LAST_EPOCH


@pytest.mark.parametrize("state", KEPT)
def test_an_unused_id_is_forgotten(state: TransactionState) -> None:
    asked = Asked()
    put(asked, state=state, last_update_ms=asked.now_ms)
    asked.now_ms += WEEK_MS - 1
    assert asked.ring(EXPIRED).records == ()
    asked.now_ms += 1
    asked.ring(EXPIRED)
    assert bool(asked.shard.transactions) is (state not in AT_REST)
    assert asked.timers == {EXPIRED: 3_600_000}


def test_who_comes_back_after_that_is_somebody_new() -> None:
    asked = Asked()
    producer = asked.init()
    asked.now_ms += WEEK_MS
    asked.ring(EXPIRED)
    assert asked.log[-1][1] is None
    assert asked.restarted().shard.transactions == {}
    assert asked.add(producer) is Errors.INVALID_PRODUCER_ID_MAPPING
    assert asked.init(producer) == (FIRST_ID + 1, 0)


def test_many_are_forgotten_in_batches() -> None:
    asked = Asked(settings={"transactional.id.expiration.ms": "1"})
    for n in range(10_000):
        asked.shard.replay(TransactionSnapshot(Transaction(f"t{n:05}", n, n, -1, 0, -1, 1)))
    asked.ring(EXPIRED)
    while asked.timers[EXPIRED] == NEXT_BATCH_MS:
        asked.ring(EXPIRED)
    assert asked.shard.transactions == {}
    assert 1 < len(asked.batches) < 10
    assert sum(asked.batches) == len({key for key, _ in asked.log}) == 10_000
    assert max(asked.batches) * len(asked.log[0][0]) < MAX_BATCH_BYTES
