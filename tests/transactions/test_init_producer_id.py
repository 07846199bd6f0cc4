"""InitProducerId: who is given which id and epoch, and who is turned away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.transactions.asking import FIRST_ID, OLD, TIMEOUT_MS, Asked

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


def put(asked: Asked, **told: Any) -> None:
    """Let the shard have an id in some state."""
    known = Transaction("t", 7, 7, producer_epoch=3, timeout_ms=TIMEOUT_MS, start_ms=1, last_update_ms=1)
    asked.shard.replay(TransactionSnapshot(replace(known, **told)))


def test_a_new_id_is_written_whole() -> None:
    asked = Asked()
    assert asked.init() == (FIRST_ID, 0)
    assert asked.of() == Transaction(
        "t", FIRST_ID, FIRST_ID, -1, 0, -1, TIMEOUT_MS, EMPTY, frozenset(), -1, asked.now_ms, 0
    )
    assert asked.restarted().of() == asked.of()
    assert asked.effects == []


def test_each_new_producer_has_the_next_epoch() -> None:
    asked = Asked()
    assert [asked.init() for _ in range(3)] == [(FIRST_ID, 0), (FIRST_ID, 1), (FIRST_ID, 2)]


@pytest.mark.parametrize(
    ("told", "error"),
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
def test_what_no_state_allows(told: dict[str, Any], error: Errors) -> None:
    asked = Asked()
    assert asked.init(version=6, **told) is error
    assert asked.log == []


def test_the_longest_timeout_is_allowed() -> None:
    asked = Asked()
    assert asked.init(transaction_timeout_ms=900_000) == (FIRST_ID, 0)
    assert asked.of().timeout_ms == 900_000


def test_in_two_phases_there_is_no_timeout() -> None:
    asked = Asked(settings={"transaction.two.phase.commit.enable": "true"})
    assert asked.init(version=6, enable2_pc=True, transaction_timeout_ms=-5) == (FIRST_ID, 0)
    assert asked.of().timeout_ms == NO_TIMEOUT_MS


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
def test_in_each_state(state: TransactionState, answer: Any, producer: tuple[int, int]) -> None:
    asked = Asked()
    put(asked, state=state)
    assert asked.init(producer) == answer


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_under_way_is_aborted_first(level: int) -> None:
    """The abort takes one epoch and the new producer the next one; the old producer is fenced at once."""
    asked = Asked(level)
    old = asked.init()
    asked.add(old, [("out", 1), ("in", 0)], version=5 if level == 2 else 3)
    assert asked.init() is Errors.CONCURRENT_TRANSACTIONS
    version = 2 if level == 2 else 0
    told = MarkersToWrite("t", FIRST_ID, 1, False, version, (("in", 0), ("out", 1)))
    assert asked.effects == [Effect(WRITE_MARKERS, told)]
    assert asked.of().state is PREPARE_ABORT
    assert asked.of().client_transaction_version == version
    assert asked.end(old, True, OLD) is Errors.PRODUCER_FENCED
    assert asked.init() is Errors.CONCURRENT_TRANSACTIONS
    asked.write_markers()
    assert asked.of().state is COMPLETE_ABORT
    assert asked.init() == (FIRST_ID, 2)


OWNER, FENCED = 7, Errors.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("producer", "last", "answer"),
    [
        ((7, 3), -1, (7, 4)),  # the owner
        ((7, 2), 2, (7, 3)),  # the owner, who did not hear of it
        ((7, 2), -1, FENCED),  # somebody came after it
        ((7, 1), 2, FENCED),
        ((7, 4), -1, FENCED),  # an epoch that nobody had
        ((6, 3), -1, FENCED),  # another id
        ((6, 3), 3, FENCED),
        ((6, LAST_EPOCH - 1), -1, FENCED),  # neither this id nor the one before
    ],
)
def test_a_producer_that_goes_on(producer: tuple[int, int], last: int, answer: Any) -> None:
    asked = Asked()
    put(asked, last_producer_epoch=last)
    assert asked.init(producer) == answer


def test_nothing_is_left_of_the_transaction_before() -> None:
    asked = Asked()
    put(asked, state=COMPLETE_ABORT, partitions=frozenset({("out", 0)}), start_ms=5)
    assert asked.init() == (7, 4)
    assert (asked.of().partitions, asked.of().start_ms) == (frozenset(), -1)
    assert asked.restarted().of() == asked.of()


def test_a_producer_asks_again_until_another_comes() -> None:
    """The last epoch is what tells a retry from a zombie; a restart forgets it, as in Kafka."""
    asked = Asked()
    asked.init()
    assert asked.init((FIRST_ID, 0)) == (FIRST_ID, 1)
    assert asked.init((FIRST_ID, 0)) == (FIRST_ID, 1)
    assert asked.restarted().init((FIRST_ID, 0)) is Errors.PRODUCER_FENCED
    assert asked.init() == (FIRST_ID, 2)
    assert asked.init((FIRST_ID, 0)) is Errors.PRODUCER_FENCED
    assert asked.init((FIRST_ID, 1)) is Errors.PRODUCER_FENCED


def test_an_unknown_id_is_taken_by_whoever_says_it_had_it() -> None:
    """Its id expired, and with it who it was: it has a new one."""
    assert Asked().init((99, 5)) == (FIRST_ID, 0)


def test_epochs_run_out_and_the_next_id_begins() -> None:
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH - 1)
    assert asked.init() == (FIRST_ID, 0)
    assert asked.of().previous_producer_id == 7
    assert asked.of().last_producer_epoch == -1


def test_the_owner_hears_of_its_new_id_though_the_answer_was_lost() -> None:
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH - 1)
    assert asked.init((7, LAST_EPOCH - 1)) == (FIRST_ID, 0)
    assert asked.of().last_producer_epoch == LAST_EPOCH - 1
    assert asked.init((7, LAST_EPOCH - 1)) == (FIRST_ID, 0)
    assert asked.init((7, LAST_EPOCH - 2)) is Errors.PRODUCER_FENCED
    assert asked.next_id == FIRST_ID + 1


@pytest.mark.parametrize(
    "producer",
    [
        (6, 2),  # the id before, which had epochs left
        (5, LAST_EPOCH - 1),  # neither id
        (7, 2),  # the present id, which was at no such epoch
    ],
)
def test_nobody_else_hears_of_a_rotation(producer: tuple[int, int]) -> None:
    asked = Asked()
    put(asked, previous_producer_id=6, last_producer_epoch=producer[1], producer_epoch=0)
    if producer[0] == 7:
        put(asked, previous_producer_id=6, last_producer_epoch=LAST_EPOCH - 1, producer_epoch=0)
    assert asked.init(producer) is Errors.PRODUCER_FENCED


def test_used_up_epochs_and_an_epoch_that_is_not_the_present_one() -> None:
    """Kafka fails here; a client that gets it gives up."""
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH - 1, last_producer_epoch=LAST_EPOCH - 2)
    assert asked.init((7, LAST_EPOCH - 2)) is Errors.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("level", [0, 1])
def test_the_last_epoch_of_all_fences(level: int) -> None:
    """Of an id whose epochs are used up the transaction is aborted at the one that no producer has."""
    asked = Asked(level)
    put(asked, producer_epoch=LAST_EPOCH - 1, state=ONGOING, partitions=frozenset({("out", 0)}))
    assert asked.init() is Errors.CONCURRENT_TRANSACTIONS
    assert asked.of().producer_epoch == LAST_EPOCH
    asked.write_markers()
    assert asked.of().producer_epoch == LAST_EPOCH
    took = asked.init()
    assert took[0] != 7
    assert took[1] == 0


def test_where_each_transaction_has_its_epoch_fencing_rotates_at_once() -> None:
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH - 1, state=ONGOING, partitions=frozenset({("out", 0)}))
    assert asked.init() is Errors.CONCURRENT_TRANSACTIONS
    (told,) = asked.write_markers()
    assert (told.producer_id, told.producer_epoch) == (7, LAST_EPOCH)
    assert (asked.of().producer_id, asked.of().producer_epoch) == (FIRST_ID, 0)
    assert asked.init() == (FIRST_ID, 1)


@pytest.mark.parametrize("version", range(7))
def test_old_clients_hear_an_older_word(version: int) -> None:
    asked = Asked()
    put(asked)
    fenced = Errors.INVALID_PRODUCER_EPOCH if version < 4 else Errors.PRODUCER_FENCED
    assert asked.init((7, 9), version) is fenced


@pytest.mark.parametrize("told", [{}, {"producer_epoch": LAST_EPOCH - 1}])
def test_without_an_id_to_give_the_client_is_to_ask_again(told: dict[str, int]) -> None:
    asked = Asked()
    if told:
        put(asked, **told)
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
    assert asked.shard.needs_producer_id(request, 5)
    before = dict(asked.shard.transactions)
    outcome = asked.carry_out(asked.shard.handle(request, asked.context(5)))
    (reply,) = outcome.replies
    assert reply.response.error_code == Errors.CONCURRENT_TRANSACTIONS  # type: ignore[attr-defined]
    assert not outcome.records
    assert asked.shard.transactions == before


def test_nobody_fetches_an_id_for_nothing() -> None:
    asked = Asked()
    asked.init()
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
    assert not asked.shard.needs_producer_id(request, 5)
    assert not asked.shard.needs_producer_id(InitProducerIdRequest(transactional_id=""), 5)
    assert not asked.shard.needs_producer_id(InitProducerIdRequest(transactional_id=None), 5)
