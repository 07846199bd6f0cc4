"""Where a transactional producer stands: each call in its states, and what each error leaves."""

from __future__ import annotations

import pytest

from konvene.client.errors import (
    ClientError,
    ConnectionLost,
    KafkaError,
    OutOfTurn,
    ProducerFenced,
    TransactionFailed,
    UnsupportedVersion,
)
from konvene.client.net.cluster import TopicPartition
from konvene.client.producer.transaction_state import CALLS, EXITS, ProducerIdentity, State, TransactionState
from konvene.errors import Errors

TP = TopicPartition("t", 0)


def standing(state: State, version: int = 2) -> TransactionState:
    made = TransactionState("id")
    made.identified(ProducerIdentity(7, 0))
    made.speaks(version)
    made.state = state
    if state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
        made.error = KafkaError(Errors.MESSAGE_TOO_LARGE)
    return made


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_out_of_turn_says_where_the_producer_stands(call: str, state: State) -> None:
    here = standing(state)
    if state in CALLS[call]:
        here.call(call)
        return
    expected: type[ClientError] = OutOfTurn
    if state is State.FATAL_ERROR:
        expected = KafkaError
    elif state is State.ABORTABLE_ERROR:
        expected = TransactionFailed
    with pytest.raises(expected):
        here.call(call)
    assert here.state is state


def test_every_state_but_the_fatal_one_can_come_to_an_end() -> None:
    """From each of them READY is reached by exits alone."""
    for state in State:
        seen, edge = {state}, {state}
        while edge:
            edge = {after for each in edge for after in EXITS[each]} - seen
            seen |= edge
        assert (State.READY in seen) is (state is not State.FATAL_ERROR)


def test_what_cannot_follow_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="READY to COMMITTING"):
        standing(State.READY).move(State.COMMITTING)


@pytest.mark.parametrize(
    "code, state",
    [
        (Errors.TRANSACTION_ABORTABLE, State.ABORTABLE_ERROR),
        (Errors.GROUP_AUTHORIZATION_FAILED, State.ABORTABLE_ERROR),
        (Errors.ILLEGAL_GENERATION, State.ABORTABLE_ERROR),
        (Errors.UNKNOWN_PRODUCER_ID, State.ABORTABLE_ERROR),
        (Errors.INVALID_TXN_STATE, State.FATAL_ERROR),
        (Errors.INVALID_PRODUCER_ID_MAPPING, State.FATAL_ERROR),
        (Errors.UNKNOWN_SERVER_ERROR, State.FATAL_ERROR),
    ],
)
def test_what_a_coordinator_refuses(code: Errors, state: State) -> None:
    here = standing(State.IN_TRANSACTION)
    error = KafkaError(code)
    assert here.refused(error) is error
    assert (here.state, here.error) == (state, error)


@pytest.mark.parametrize("code", [Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH])
def test_a_coordinator_fences_with_either_of_two_codes(code: Errors) -> None:
    here = standing(State.COMMITTING)
    error = here.refused(KafkaError(code, about="committing"))
    assert isinstance(error, ProducerFenced)
    assert str(error) == "committing: PRODUCER_FENCED"
    assert here.state is State.FATAL_ERROR
    with pytest.raises(ProducerFenced):
        here.call("abort_transaction")


@pytest.mark.parametrize(
    "error, state",
    [
        (KafkaError(Errors.MESSAGE_TOO_LARGE), State.ABORTABLE_ERROR),
        (KafkaError(Errors.INVALID_PRODUCER_EPOCH), State.ABORTABLE_ERROR),
        (ConnectionLost("gone"), State.ABORTABLE_ERROR),
        (KafkaError(Errors.PRODUCER_FENCED), State.FATAL_ERROR),
        (KafkaError(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), State.FATAL_ERROR),
        (UnsupportedVersion("too old"), State.FATAL_ERROR),
    ],
)
def test_what_a_lost_record_leaves(error: ClientError, state: State) -> None:
    here = standing(State.IN_TRANSACTION)
    here.lost(error)
    assert here.state is state
    with pytest.raises(TransactionFailed if state is State.ABORTABLE_ERROR else type(error)):
        here.call("commit_transaction")


def test_the_first_error_counts() -> None:
    here = standing(State.IN_TRANSACTION)
    first = KafkaError(Errors.MESSAGE_TOO_LARGE)
    here.lost(first)
    here.lost(KafkaError(Errors.INVALID_RECORD))
    assert here.error is first
    here.lost(KafkaError(Errors.PRODUCER_FENCED))
    assert here.state is State.FATAL_ERROR


def test_only_the_first_generation_has_to_ask_for_the_next_epoch() -> None:
    """In the second the end of each transaction brings one."""
    for version, bump in ((0, True), (1, True), (2, False)):
        here = standing(State.IN_TRANSACTION, version)
        here.lost(KafkaError(Errors.MESSAGE_TOO_LARGE))
        assert here.bump is bump


def test_who_comes_to_the_second_generation_needs_another_epoch() -> None:
    """The broker then takes no partition of the last transaction for one of the next."""
    here = standing(State.COMMITTING, version=1)
    here.speaks(1)
    assert not here.bump
    here.speaks(2)
    assert here.bump and not here.adds_partitions


def test_sequences_go_on_under_an_epoch_and_begin_anew_under_another() -> None:
    here = standing(State.IN_TRANSACTION)
    here.written(TP, 5)
    here.written(TP, 2)
    here.identified(ProducerIdentity(7, 0))
    assert here.next_sequence(TP) == 7
    here.identified(ProducerIdentity(7, 1))
    assert here.next_sequence(TP) == 0


def test_after_the_largest_sequence_comes_0() -> None:
    here = standing(State.IN_TRANSACTION)
    here.written(TP, 0x7FFF_FFFE)
    here.written(TP, 1)
    assert here.next_sequence(TP) == 0x7FFF_FFFF
    here.written(TP, 3)
    assert here.next_sequence(TP) == 2


def test_nothing_is_left_of_a_transaction_that_is_over() -> None:
    here = standing(State.IN_TRANSACTION, version=1)
    here.added([TP])
    here.lost(KafkaError(Errors.MESSAGE_TOO_LARGE))
    here.move(State.ABORTING)
    here.ended()
    assert (here.state, here.error, here.started, here.bump, here.enlisted) == (
        State.READY, None, False, False, set()
    )  # fmt: skip
    assert repr(here) == "<id READY, producer 7, epoch 0>"
