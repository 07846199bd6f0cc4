"""DescribeTransactions and ListTransactions: descriptions, filters and errors."""

from __future__ import annotations

from typing import Any

import pytest
from tests.transactions.harness import TransactionHarness

from konvene.errors import Errors
from konvene.messages.describe_transactions import DescribeTransactionsRequest, TopicData
from konvene.messages.describe_transactions import TransactionState as Described
from konvene.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from konvene.shard.errors import TransactionError
from konvene.transactions.state import (
    BY_NAME,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    Transaction,
    TransactionSnapshot,
)


def with_transactions() -> TransactionHarness:
    harness = TransactionHarness()
    wide = frozenset({("out", 10), ("out", 2), ("in", 0)})
    for transaction in (
        Transaction("orders-1", 1, 1, -1, 5, -1, 60_000, ONGOING, wide, 999_000, 999_500),
        Transaction("orders-2", 2, 2, -1, 0, -1, 60_000, EMPTY),
        Transaction("bills", 3, 3, -1, 1, -1, 30_000, COMPLETE_COMMIT, frozenset(), 990_000, 990_100),
        Transaction("orders-3", 4, 4, -1, 1, -1, 30_000, PREPARE_ABORT, wide, 999_900, 999_950),
    ):
        harness.shard.replay(TransactionSnapshot(transaction))
    return harness


def test_states_have_kafkas_names() -> None:
    assert [*BY_NAME] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip


def test_a_transaction_is_described() -> None:
    request = DescribeTransactionsRequest(transactional_ids=("orders-1", "unknown", "", "orders-2"))
    assert with_transactions().ask(request, 0).transaction_states == (
        Described(
            transactional_id="orders-1",
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=999_000,
            producer_id=1,
            producer_epoch=5,
            topics=(TopicData(topic="in", partitions=(0,)), TopicData(topic="out", partitions=(2, 10))),
        ),
        Described(transactional_id="unknown", error_code=Errors.TRANSACTIONAL_ID_NOT_FOUND),
        Described(transactional_id="", error_code=Errors.INVALID_REQUEST),
        Described(
            transactional_id="orders-2",
            transaction_state="Empty",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=-1,
            producer_id=2,
            producer_epoch=0,
        ),
    )


ALL = ["orders-1", "orders-2", "bills", "orders-3"]


@pytest.mark.parametrize(
    ("fields", "listed_ids"),
    [
        ({}, ALL),
        ({"state_filters": ("Ongoing", "Empty")}, ["orders-1", "orders-2"]),
        ({"state_filters": ("ongoing",)}, []),
        ({"state_filters": ("Dead",)}, []),
        ({"producer_id_filters": (4, 3, 99)}, ["bills", "orders-3"]),
        ({"producer_id_filters": (99,)}, []),
        (
            {"duration_filter": 1000},
            ["orders-2", "bills"],
        ),  # A transaction without a start time matches every duration.
        ({"duration_filter": 999}, ["orders-1", "orders-2", "bills"]),
        ({"duration_filter": 0}, ALL),
        ({"duration_filter": -1}, ALL),
        ({"transactional_id_pattern": "orders-.*"}, ["orders-1", "orders-2", "orders-3"]),
        ({"transactional_id_pattern": "orders"}, []),
        ({"transactional_id_pattern": ""}, ALL),
        ({"transactional_id_pattern": None}, ALL),
        ({"transactional_id_pattern": ".*-[13]", "producer_id_filters": (4,)}, ["orders-3"]),
    ],
)
def test_transactions_are_listed(fields: dict[str, Any], listed_ids: list[str]) -> None:
    answer = with_transactions().ask(ListTransactionsRequest(**fields), 2)
    assert [state.transactional_id for state in answer.transaction_states] == listed_ids


def test_list_reports_unknown_state_filters() -> None:
    request = ListTransactionsRequest(state_filters=("Ongoing", "Odd", "Strange", "Odd"))
    listed = TransactionState(transactional_id="orders-1", producer_id=1, transaction_state="Ongoing")
    assert with_transactions().ask(request, 0) == ListTransactionsResponse(
        unknown_state_filters=("Odd", "Strange"), transaction_states=(listed,)
    )


def test_duration_filter_with_a_clock_before_the_start_lists_nothing() -> None:
    harness = with_transactions()
    harness.now_ms = -5
    assert harness.ask(ListTransactionsRequest(duration_filter=0), 1).transaction_states == ()
    assert len(harness.ask(ListTransactionsRequest(), 1).transaction_states) == 4


def test_invalid_pattern_is_rejected() -> None:
    with pytest.raises(TransactionError, match=r"Transaction ID pattern `a\(` is not a valid") as rejected:
        with_transactions().ask(ListTransactionsRequest(transactional_id_pattern="a("), 2)
    assert rejected.value.error is Errors.INVALID_REGULAR_EXPRESSION
