"""Hostile queries of transactions: very long lists, unknown states, and slow regular expressions.

The expected responses are Kafka's; `KONVENE_AGAINST=kafka` checks them again.
"""

from __future__ import annotations

import time

import pytest
from tests.broker.hostile.transacting import find, init_producer
from tests.broker.hostile.wire import Target

from konvene.errors import Errors
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.list_transactions import ListTransactionsRequest


@pytest.fixture(scope="module", autouse=True)
def ready(target: Target) -> None:
    find(target, "hostile-unknown")


def test_very_long_describe_requests(target: Target) -> None:
    """Each id is answered; repeated ids may be answered once."""
    request = DescribeTransactionsRequest(transactional_ids=("hostile-unknown",) * 10_000)
    assert 1 <= len(target.ask(request, 0).transaction_states) <= 10_000
    names = tuple(f"hostile-none-{n}" for n in range(10_000))
    states = target.ask(DescribeTransactionsRequest(transactional_ids=names), 0).transaction_states
    assert len(states) == len(names)


def test_unknown_state_filters(target: Target) -> None:
    producer = init_producer(target, "hostile-listed")
    response = target.ask(ListTransactionsRequest(state_filters=("Nonsense", "Empty", "")), 1)
    assert set(response.unknown_state_filters) == {"Nonsense", ""}
    assert producer.transactional_id in {s.transactional_id for s in response.transaction_states}
    response = target.ask(ListTransactionsRequest(producer_id_filters=(-1, -(2**63))), 1)
    assert response.transaction_states == () and response.error_code == 0


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{2,1}", "(?P<", "\\", "(?=a)", "\\1"])
def test_invalid_patterns(target: Target, pattern: str) -> None:
    response = target.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert Errors(response.error_code) is Errors.INVALID_REGULAR_EXPRESSION
    assert response.transaction_states == ()


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a|a?)+$", "(.*a){25}", "(?:a?){30}a{30}"])
def test_patterns_with_exponential_backtracking(target: Target, pattern: str) -> None:
    """Matching takes a bounded time."""
    init_producer(target, "a" * 40 + "!")
    began = time.monotonic()
    response = target.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert response is not None
    assert time.monotonic() - began < 60, "the search backtracks"


@pytest.mark.parametrize("names", [("",), ("x" * 32_000,), ("same",) * 1000], ids=["empty", "long", "same"])
def test_coordinators_of_unusual_transactional_ids(target: Target, names: tuple[str, ...]) -> None:
    response = target.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=names), 4)
    assert len(response.coordinators) == len(names)
