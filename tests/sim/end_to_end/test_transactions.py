"""End-to-end runs with consume-transform-produce clients uphold exactly-once and detect planted bugs."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.broker.transactions.coordinators import MarkerDelivery
from konvene.groups.offsets.pending import Pending
from konvene.sim.end_to_end import run_end_to_end
from konvene.sim.end_to_end.invariant import Violation
from konvene.transactions.shard import TransactionShard

STEPS = 2_500


@pytest.mark.parametrize("seed", range(8))
def test_chaos_violates_no_invariant(seed: int) -> None:
    """Every input record has one output record, and no transaction stays open."""
    report = run_end_to_end(seed, STEPS, transactions=True)
    assert report.answers["EndTxn NONE"]
    assert report.answers["TxnOffsetCommit NONE"]


def test_default_runs_have_no_transactions() -> None:
    """Without the option no client sends requests of transactions."""
    report = run_end_to_end(1, 500)
    assert not [name for name in report.answers if "Txn" in name]


def find_violation(seeds: range = range(20)) -> str:
    for seed in seeds:
        try:
            run_end_to_end(seed, 4_000, transactions=True)
        except Violation as violation:
            assert "--groups transactional" in str(violation)
            return violation.invariant
    pytest.fail(f"no violation within {len(seeds)} seeds")


def test_committing_offsets_of_aborted_transactions_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The input of an aborted transaction is not read again."""
    end = Pending.end
    monkeypatch.setattr(Pending, "end", lambda self, producer_id, committed: end(self, producer_id, True))
    assert find_violation() in ("ExactlyOnce", "ShardIsItsLog")


def test_missing_transaction_marker_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator counts the marker as written although it is not."""

    def skip_append(self: MarkerDelivery, topic_partition: Any, partition: Any) -> None:
        self._written(topic_partition)

    monkeypatch.setattr(MarkerDelivery, "_append", skip_append)
    assert find_violation() in ("CompletedTransactionsAreClosed", "ExactlyOnce")


@pytest.mark.deep
def test_restart_that_drops_prepared_transactions_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no coordinator completes the prepared transactions."""
    load = TransactionShard.load
    monkeypatch.setattr(TransactionShard, "load", lambda self, value: load(self, value)._replace(effects=()))
    assert find_violation() in ("CompletedTransactionsAreClosed", "Settles", "ExactlyOnce")
