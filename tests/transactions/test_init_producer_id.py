"""InitProducerId: producer ids, epochs, fencing and rejections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.transactions.harness import FIRST_ID, OLD, TIMEOUT_MS, TransactionHarness

from konvene.errors import Errors
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.shard.contract import Effect
from konvene.transactions.markers import WRITE_MARKERS, MarkersToWrite
from konvene.transactions.state import (
    COMPLETE_ABORT,
    EMPTY,
    LAST_EPOCH,
    NO_TIMEOUT_MS,
    ONGOING,
    PREPARE_ABORT,
    Transaction,
    TransactionSnapshot,
    TransactionState,
)


def put(harness: TransactionHarness, **fields: Any) -> None:
    """Put a transactional id into a state by replaying a snapshot."""
    known = Transaction("t", 7, 7, producer_epoch=3, timeout_ms=TIMEOUT_MS, start_ms=1, last_update_ms=1)
    harness.shard.replay(TransactionSnapshot(replace(known, **fields)))


def test_new_transactional_id_is_written() -> None:
    harness = TransactionHarness()
    assert harness.init() == (FIRST_ID, 0)
    assert harness.transaction() == Transaction(
        "t", FIRST_ID, FIRST_ID, -1, 0, -1, TIMEOUT_MS, EMPTY, frozenset(), -1, harness.now_ms, 0
    )
    assert harness.restarted().transaction() == harness.transaction()
    assert harness.effects == []


def test_each_new_producer_gets_the_next_epoch() -> None:
    harness = TransactionHarness()
    assert [harness.init() for _ in range(3)] == [(FIRST_ID, 0), (FIRST_ID, 1), (FIRST_ID, 2)]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, Errors.INVALID_REQUEST),
        ({"producer_id": 5}, Errors.INVALID_REQUEST),
        ({"producer_epoch": 5}, Errors.INVALID_REQUEST),
        ({"enable2_pc": True}, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"enable2_pc": True, "keep_prepared_txn": True}, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared_txn": True}, Errors.UNSUPPORTED_VERSION),
        ({"keep_prepared_txn": True, "transaction_timeout_ms": 0}, Errors.UNSUPPORTED_VERSION),
        ({"transaction_timeout_ms": 0}, Errors.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -1}, Errors.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, Errors.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_invalid_requests_are_rejected(fields: dict[str, Any], error: Errors) -> None:
    harness = TransactionHarness()
    assert harness.init(version=6, **fields) is error
    assert harness.log == []


def test_the_longest_timeout_is_allowed() -> None:
    harness = TransactionHarness()
    assert harness.init(transaction_timeout_ms=900_000) == (FIRST_ID, 0)
    assert harness.transaction().timeout_ms == 900_000


def test_two_phase_commit_has_no_timeout() -> None:
    harness = TransactionHarness(settings={"transaction.two.phase.commit.enable": "true"})
    assert harness.init(version=6, enable2_pc=True, transaction_timeout_ms=-5) == (FIRST_ID, 0)
    assert harness.transaction().timeout_ms == NO_TIMEOUT_MS


STATES = [
    (EMPTY, (7, 4)),
    (TransactionState.COMPLETE_COMMIT, (7, 4)),
    (COMPLETE_ABORT, (7, 4)),
    (ONGOING, Errors.CONCURRENT_TRANSACTIONS),
    (TransactionState.PREPARE_COMMIT, Errors.CONCURRENT_TRANSACTIONS),
    (PREPARE_ABORT, Errors.CONCURRENT_TRANSACTIONS),
]


@pytest.mark.parametrize("producer", [(-1, -1), (7, 3)])
@pytest.mark.parametrize(("state", "answer"), STATES)
def test_init_in_each_state(state: TransactionState, answer: Any, producer: tuple[int, int]) -> None:
    harness = TransactionHarness()
    put(harness, state=state)
    assert harness.init(producer) == answer


@pytest.mark.parametrize("level", [0, 1, 2])
def test_ongoing_transaction_is_aborted_first(level: int) -> None:
    """The abort takes one epoch and the new producer the next one; the old producer is fenced at once."""
    harness = TransactionHarness(level)
    old = harness.init()
    harness.add(old, [("out", 1), ("in", 0)], version=5 if level == 2 else 3)
    assert harness.init() is Errors.CONCURRENT_TRANSACTIONS
    version = 2 if level == 2 else 0
    markers = MarkersToWrite("t", FIRST_ID, 1, False, version, (("in", 0), ("out", 1)))
    assert harness.effects == [Effect(WRITE_MARKERS, markers)]
    assert harness.transaction().state is PREPARE_ABORT
    assert harness.transaction().client_transaction_version == version
    assert harness.end(old, True, OLD) is Errors.PRODUCER_FENCED
    assert harness.init() is Errors.CONCURRENT_TRANSACTIONS
    harness.write_markers()
    assert harness.transaction().state is COMPLETE_ABORT
    assert harness.init() == (FIRST_ID, 2)


OWNER, FENCED = 7, Errors.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("producer", "last", "answer"),
    [
        ((7, 3), -1, (7, 4)),  # the owner
        ((7, 2), 2, (7, 3)),  # the owner, after a lost response
        ((7, 2), -1, FENCED),  # replaced by another producer
        ((7, 1), 2, FENCED),
        ((7, 4), -1, FENCED),  # an epoch that no producer had
        ((6, 3), -1, FENCED),  # another id
        ((6, 3), 3, FENCED),
        ((6, LAST_EPOCH - 1), -1, FENCED),  # neither this id nor the one before
    ],
)
def test_recovery_with_a_producer_id(producer: tuple[int, int], last: int, answer: Any) -> None:
    harness = TransactionHarness()
    put(harness, last_producer_epoch=last)
    assert harness.init(producer) == answer


def test_init_clears_the_previous_transaction() -> None:
    harness = TransactionHarness()
    put(harness, state=COMPLETE_ABORT, partitions=frozenset({("out", 0)}), start_ms=5)
    assert harness.init() == (7, 4)
    assert (harness.transaction().partitions, harness.transaction().start_ms) == (frozenset(), -1)
    assert harness.restarted().transaction() == harness.transaction()


def test_init_can_be_repeated_until_another_producer_starts() -> None:
    """The last epoch distinguishes a retry from a zombie; it is not in the log, as in Kafka."""
    harness = TransactionHarness()
    harness.init()
    assert harness.init((FIRST_ID, 0)) == (FIRST_ID, 1)
    assert harness.init((FIRST_ID, 0)) == (FIRST_ID, 1)
    assert harness.restarted().init((FIRST_ID, 0)) is Errors.PRODUCER_FENCED
    assert harness.init() == (FIRST_ID, 2)
    assert harness.init((FIRST_ID, 0)) is Errors.PRODUCER_FENCED
    assert harness.init((FIRST_ID, 1)) is Errors.PRODUCER_FENCED


def test_unknown_transactional_id_accepts_any_previous_producer() -> None:
    """The transactional id expired with its producer id: the producer gets a new one."""
    assert TransactionHarness().init((99, 5)) == (FIRST_ID, 0)


def test_exhausted_epochs_rotate_the_producer_id() -> None:
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH - 1)
    assert harness.init() == (FIRST_ID, 0)
    assert harness.transaction().previous_producer_id == 7
    assert harness.transaction().last_producer_epoch == -1


def test_owner_gets_its_new_id_again_after_a_lost_response() -> None:
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH - 1)
    assert harness.init((7, LAST_EPOCH - 1)) == (FIRST_ID, 0)
    assert harness.transaction().last_producer_epoch == LAST_EPOCH - 1
    assert harness.init((7, LAST_EPOCH - 1)) == (FIRST_ID, 0)
    assert harness.init((7, LAST_EPOCH - 2)) is Errors.PRODUCER_FENCED
    assert harness.next_id == FIRST_ID + 1


@pytest.mark.parametrize(
    "producer",
    [
        (6, 2),  # the previous id, which was not exhausted
        (5, LAST_EPOCH - 1),  # neither id
        (7, 2),  # the current id, which never had this epoch
    ],
)
def test_rotation_is_repeated_to_the_owner_only(producer: tuple[int, int]) -> None:
    harness = TransactionHarness()
    put(harness, previous_producer_id=6, last_producer_epoch=producer[1], producer_epoch=0)
    if producer[0] == 7:
        put(harness, previous_producer_id=6, last_producer_epoch=LAST_EPOCH - 1, producer_epoch=0)
    assert harness.init(producer) is Errors.PRODUCER_FENCED


def test_previous_epoch_after_exhaustion_is_a_server_error() -> None:
    """As in Kafka; the client treats the error as fatal."""
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH - 1, last_producer_epoch=LAST_EPOCH - 2)
    assert harness.init((7, LAST_EPOCH - 2)) is Errors.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("level", [0, 1])
def test_fencing_epoch_aborts_the_ongoing_transaction(level: int) -> None:
    """With exhausted epochs, the abort uses the last epoch, which no producer has."""
    harness = TransactionHarness(level)
    put(harness, producer_epoch=LAST_EPOCH - 1, state=ONGOING, partitions=frozenset({("out", 0)}))
    assert harness.init() is Errors.CONCURRENT_TRANSACTIONS
    assert harness.transaction().producer_epoch == LAST_EPOCH
    harness.write_markers()
    assert harness.transaction().producer_epoch == LAST_EPOCH
    response = harness.init()
    assert response[0] != 7
    assert response[1] == 0


def test_fencing_with_an_epoch_per_transaction_rotates_at_once() -> None:
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH - 1, state=ONGOING, partitions=frozenset({("out", 0)}))
    assert harness.init() is Errors.CONCURRENT_TRANSACTIONS
    (markers,) = harness.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (7, LAST_EPOCH)
    assert (harness.transaction().producer_id, harness.transaction().producer_epoch) == (FIRST_ID, 0)
    assert harness.init() == (FIRST_ID, 1)


@pytest.mark.parametrize("version", range(7))
def test_old_versions_get_invalid_producer_epoch(version: int) -> None:
    harness = TransactionHarness()
    put(harness)
    fenced = Errors.INVALID_PRODUCER_EPOCH if version < 4 else Errors.PRODUCER_FENCED
    assert harness.init((7, 9), version) is fenced


@pytest.mark.parametrize("fields", [{}, {"producer_epoch": LAST_EPOCH - 1}])
def test_missing_producer_id_is_retriable(fields: dict[str, int]) -> None:
    harness = TransactionHarness()
    if fields:
        put(harness, **fields)
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
    assert harness.shard.needs_producer_id(request, 5)
    before = dict(harness.shard.transactions)
    outcome = harness.apply(harness.shard.handle(request, harness.context(5)))
    (reply,) = outcome.replies
    assert reply.response.error_code == Errors.CONCURRENT_TRANSACTIONS  # type: ignore[attr-defined]
    assert not outcome.records
    assert harness.shard.transactions == before


def test_producer_id_is_fetched_only_if_needed() -> None:
    harness = TransactionHarness()
    harness.init()
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
    assert not harness.shard.needs_producer_id(request, 5)
    assert not harness.shard.needs_producer_id(InitProducerIdRequest(transactional_id=""), 5)
    assert not harness.shard.needs_producer_id(InitProducerIdRequest(transactional_id=None), 5)
