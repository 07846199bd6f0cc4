"""What is known of transactions while a log is read from its start."""

from __future__ import annotations

from konvene.codec.batches import ControlType
from konvene.log.cleaner.transactions import CleanedTransactions
from konvene.log.producers import AbortedTransaction

ABORTED = AbortedTransaction(7, 10, 20, 21)


def test_a_batch_of_an_aborted_transaction_goes_and_its_marker_stays_once() -> None:
    transactions = CleanedTransactions([ABORTED], 0)
    assert not transactions.on_batch(7, 9)
    assert transactions.on_batch(7, 12)
    assert not transactions.on_batch(8, 13)
    assert not transactions.on_marker(7, 20, ControlType.ABORT)
    assert transactions.pop_kept() == [ABORTED]
    assert transactions.pop_kept() == []
    assert not transactions.on_batch(7, 21)


def test_a_marker_of_which_nothing_was_seen_may_go() -> None:
    transactions = CleanedTransactions([ABORTED], 0)
    assert transactions.on_marker(7, 20, ControlType.ABORT)
    assert transactions.on_marker(8, 21, ControlType.COMMIT)
    assert transactions.on_marker(9, 22, None)
    assert not transactions.on_marker(-1, 23, ControlType.LEADER_CHANGE)
    assert transactions.pop_kept() == []


def test_a_commit_stays_while_a_batch_of_it_is_there() -> None:
    transactions = CleanedTransactions([], 0)
    transactions.on_batch(8, 5)
    assert not transactions.on_marker(8, 6, ControlType.COMMIT)
    assert transactions.on_marker(8, 7, ControlType.COMMIT)


def test_an_abort_whose_marker_is_missing_does_not_take_what_follows() -> None:
    later = AbortedTransaction(7, 30, 40, 41)
    transactions = CleanedTransactions([ABORTED, later], 0)
    assert transactions.on_batch(7, 12)
    assert not transactions.on_batch(7, 25)
    assert transactions.on_batch(7, 31)
    assert not transactions.on_marker(7, 40, ControlType.ABORT)
    assert transactions.pop_kept() == [later]


def test_what_ended_before_the_start_is_not_waited_for() -> None:
    transactions = CleanedTransactions([ABORTED], 21)
    assert not transactions.on_batch(7, 25)
    assert repr(transactions) == "Transactions(0 aborted and 1 committed ones open)"
