"""State machine of a transactional producer: calls allowed in each state, and effects of errors."""

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


def transaction_state(state: State, version: int = 2) -> TransactionState:
    producer = TransactionState("id")
    producer.set_identity(ProducerIdentity(7, 0))
    producer.set_version(version)
    producer.state = state
    if state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
        producer.error = KafkaError(Errors.MESSAGE_TOO_LARGE)
    return producer


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", CALLS)
def test_an_invalid_call_is_rejected_in_each_state(call: str, state: State) -> None:
    producer = transaction_state(state)
    if state in CALLS[call]:
        producer.call(call)
        return
    expected: type[ClientError] = OutOfTurn
    if state is State.FATAL_ERROR:
        expected = KafkaError
    elif state is State.ABORTABLE_ERROR:
        expected = TransactionFailed
    with pytest.raises(expected):
        producer.call(call)
    assert producer.state is state


def test_every_state_except_fatal_error_can_reach_ready() -> None:
    """Following the allowed transitions."""
    for state in State:
        seen, edge = {state}, {state}
        while edge:
            edge = {after for each in edge for after in EXITS[each]} - seen
            seen |= edge
        assert (State.READY in seen) is (state is not State.FATAL_ERROR)


def test_an_invalid_state_transition_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="READY to COMMITTING"):
        transaction_state(State.READY).move(State.COMMITTING)


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
def test_coordinator_errors_are_abortable_or_fatal(code: Errors, state: State) -> None:
    producer = transaction_state(State.IN_TRANSACTION)
    error = KafkaError(code)
    assert producer.handle_error(error) is error
    assert (producer.state, producer.error) == (state, error)


@pytest.mark.parametrize("code", [Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH])
def test_two_error_codes_mean_producer_fenced(code: Errors) -> None:
    producer = transaction_state(State.COMMITTING)
    error = producer.handle_error(KafkaError(code, about="committing"))
    assert isinstance(error, ProducerFenced)
    assert str(error) == "committing: PRODUCER_FENCED"
    assert producer.state is State.FATAL_ERROR
    with pytest.raises(ProducerFenced):
        producer.call("abort_transaction")


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
def test_errors_of_records_are_abortable_or_fatal(error: ClientError, state: State) -> None:
    producer = transaction_state(State.IN_TRANSACTION)
    producer.handle_lost_records(error)
    assert producer.state is state
    with pytest.raises(TransactionFailed if state is State.ABORTABLE_ERROR else type(error)):
        producer.call("commit_transaction")


def test_the_first_error_is_kept_unless_a_fatal_one_follows() -> None:
    producer = transaction_state(State.IN_TRANSACTION)
    first = KafkaError(Errors.MESSAGE_TOO_LARGE)
    producer.handle_lost_records(first)
    producer.handle_lost_records(KafkaError(Errors.INVALID_RECORD))
    assert producer.error is first
    producer.handle_lost_records(KafkaError(Errors.PRODUCER_FENCED))
    assert producer.state is State.FATAL_ERROR


def test_only_version_1_requests_a_new_epoch_after_an_error() -> None:
    """With version 2 the response to each EndTxn has a new epoch."""
    for version, bump in ((0, True), (1, True), (2, False)):
        producer = transaction_state(State.IN_TRANSACTION, version)
        producer.handle_lost_records(KafkaError(Errors.MESSAGE_TOO_LARGE))
        assert producer.bump is bump


def test_an_upgrade_to_version_2_requests_a_new_epoch() -> None:
    """Otherwise the broker could add a partition of the last transaction to the next one."""
    producer = transaction_state(State.COMMITTING, version=1)
    producer.set_version(1)
    assert not producer.bump
    producer.set_version(2)
    assert producer.bump and not producer.adds_partitions


def test_sequences_start_at_0_with_each_epoch() -> None:
    producer = transaction_state(State.IN_TRANSACTION)
    producer.advance_sequence(TP, 5)
    producer.advance_sequence(TP, 2)
    producer.set_identity(ProducerIdentity(7, 0))
    assert producer.next_sequence(TP) == 7
    producer.set_identity(ProducerIdentity(7, 1))
    assert producer.next_sequence(TP) == 0


def test_sequences_wrap_to_0() -> None:
    producer = transaction_state(State.IN_TRANSACTION)
    producer.advance_sequence(TP, 0x7FFF_FFFE)
    producer.advance_sequence(TP, 1)
    assert producer.next_sequence(TP) == 0x7FFF_FFFF
    producer.advance_sequence(TP, 3)
    assert producer.next_sequence(TP) == 2


def test_the_end_of_a_transaction_resets_its_state() -> None:
    producer = transaction_state(State.IN_TRANSACTION, version=1)
    producer.add_partitions([TP])
    producer.handle_lost_records(KafkaError(Errors.MESSAGE_TOO_LARGE))
    producer.move(State.ABORTING)
    producer.reset()
    assert (producer.state, producer.error, producer.started, producer.bump, producer.enlisted) == (
        State.READY, None, False, False, set()
    )  # fmt: skip
    assert repr(producer) == "<id READY, producer 7, epoch 0>"
