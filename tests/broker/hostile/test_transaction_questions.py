"""Questions about transactions that nobody honest asks: without an end, of states that there are not, with
expressions that take for ever. The answers are Kafka's (`KONVENE_AGAINST=kafka`).
"""

from __future__ import annotations

import time

import pytest
from tests.broker.hostile.transacting import begun, find
from tests.broker.hostile.wire import Target

from konvene.errors import Errors
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.list_transactions import ListTransactionsRequest


@pytest.fixture(scope="module", autouse=True)
def ready(target: Target) -> None:
    find(target, "hostile-nobody")


def test_questions_without_an_end(target: Target) -> None:
    """As many answers as there are names, the same name included."""
    asked = DescribeTransactionsRequest(transactional_ids=("hostile-nobody",) * 10_000)
    assert 1 <= len(target.ask(asked, 0).transaction_states) <= 10_000
    names = tuple(f"hostile-none-{n}" for n in range(10_000))
    told = target.ask(DescribeTransactionsRequest(transactional_ids=names), 0).transaction_states
    assert len(told) == len(names)


def test_states_that_there_are_not(target: Target) -> None:
    producer = begun(target, "hostile-listed")
    told = target.ask(ListTransactionsRequest(state_filters=("Nonsense", "Empty", "")), 1)
    assert set(told.unknown_state_filters) == {"Nonsense", ""}
    assert producer.transactional_id in {s.transactional_id for s in told.transaction_states}
    told = target.ask(ListTransactionsRequest(producer_id_filters=(-1, -(2**63))), 1)
    assert told.transaction_states == () and told.error_code == 0


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{2,1}", "(?P<", "\\", "(?=a)", "\\1"])
def test_patterns_that_are_none(target: Target, pattern: str) -> None:
    told = target.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert Errors(told.error_code) is Errors.INVALID_REGULAR_EXPRESSION
    assert told.transaction_states == ()


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a|a?)+$", "(.*a){25}", "(?:a?){30}a{30}"])
def test_patterns_that_take_for_ever(target: Target, pattern: str) -> None:
    """To look for one takes no time that others would notice."""
    begun(target, "a" * 40 + "!")
    began = time.monotonic()
    told = target.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert told is not None
    assert time.monotonic() - began < 60, "the search backtracks"


@pytest.mark.parametrize("names", [("",), ("x" * 32_000,), ("same",) * 1000], ids=["empty", "long", "same"])
def test_coordinators_of_odd_names(target: Target, names: tuple[str, ...]) -> None:
    told = target.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=names), 4)
    assert len(told.coordinators) == len(names)
