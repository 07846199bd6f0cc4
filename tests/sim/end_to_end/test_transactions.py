"""Whole brokers with clients that consume, transform and produce in transactions: of each record one is made,
whatever dies; and invariants of that can be broken."""

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
    """What is in the output is there once, and nothing stays open."""
    report = run_end_to_end(seed, STEPS, transactions=True)
    assert report.answers["EndTxn NONE"]
    assert report.answers["TxnOffsetCommit NONE"]


def test_other_runs_are_as_they_were() -> None:
    """Without the option no client uses transactions."""
    report = run_end_to_end(1, 500)
    assert not [name for name in report.answers if "Txn" in name]


def broken(seeds: range = range(20)) -> str:
    for seed in seeds:
        try:
            run_end_to_end(seed, 4_000, transactions=True)
        except Violation as violation:
            assert "--groups transactional" in str(violation)
            return violation.invariant
    pytest.fail(f"nobody noticed within {len(seeds)} seeds")


def test_offsets_that_are_not_held_make_records_come_twice_or_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aborted records are not read again."""
    end = Pending.end
    monkeypatch.setattr(Pending, "end", lambda self, producer_id, committed: end(self, producer_id, True))
    assert broken() in ("ExactlyOnce", "ShardIsItsLog")


def test_a_marker_that_is_not_written_leaves_a_transaction_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker is reported as written to its partition."""

    def lost(self: MarkerDelivery, topic_partition: Any, partition: Any) -> None:
        self._written(topic_partition)

    monkeypatch.setattr(MarkerDelivery, "_append", lost)
    assert broken() in ("CompletedTransactionsAreClosed", "ExactlyOnce")


@pytest.mark.deep
def test_a_restart_that_forgets_what_ends_leaves_transactions_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients wait for ever."""
    load = TransactionShard.load
    monkeypatch.setattr(TransactionShard, "load", lambda self, value: load(self, value)._replace(effects=()))
    assert broken() in ("CompletedTransactionsAreClosed", "Settles", "ExactlyOnce")
