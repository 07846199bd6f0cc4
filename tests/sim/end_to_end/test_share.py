"""Whole brokers with share consumers: no record is lost, had by two, or seen again after it was acknowledged,
whatever dies; and invariants of that can be broken."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.hash_seeds import outputs_of_processes

from konvene.broker.shares.share_partition import SharePartitionServer
from konvene.delivery.contract import Change
from konvene.delivery.partition import SharePartition
from konvene.errors import Errors
from konvene.sim.end_to_end import run_end_to_end, share_clients
from konvene.sim.end_to_end.invariant import Violation
from konvene.sim.end_to_end.parameters import draw
from konvene.sim.end_to_end.share_clients import FetchTerms, Habits
from konvene.sim.runs.parallel import Job
from konvene.sim.runs.run import Run

STEPS = 600
TRANSACTIONAL = 1
"""A seed in which a share group reads what transactions write."""


def traced(seed: int, steps: int = STEPS) -> str:
    """The digest of a run's trace."""
    found = hashlib.sha256()
    run_end_to_end(seed, steps, share=True, trace=lambda line: found.update(line.encode() + b"\n"))
    return found.hexdigest()


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_chaos_violates_no_invariant(seed: int) -> None:
    """Every record is delivered and archived."""
    report = run_end_to_end(seed, STEPS, share=True)
    assert report.records_shared
    assert report.answers["ShareFetch NONE"]
    assert report.answers["ShareGroupHeartbeat NONE"]


def test_who_reads_what_transactions_write_is_through_with_it_as_well() -> None:
    report = run_end_to_end(TRANSACTIONAL, STEPS, share=True, transactions=True)
    assert report.records_shared
    assert report.answers["EndTxn NONE"]


def test_the_same_seed_is_the_same_run() -> None:
    """To the byte, also in a process that orders its sets otherwise."""
    code = "from tests.sim.end_to_end.test_share import traced; print(traced(1, 300))"
    assert outputs_of_processes(code, 77) == {f"{traced(1, 300)}\n"}


def test_what_else_a_seed_decides_is_as_it_was() -> None:
    """Share groups come beside the others, and change nothing of them."""
    for seed in range(20):
        with_them, without = draw(seed, share=True), draw(seed)
        assert with_them.clients[: len(without.clients)] == without.clients
        assert with_them.faults == without.faults
        assert with_them.settings.items() >= without.settings.items()


def test_job_has_the_command_that_repeats_it() -> None:
    job = Job(Run(7, ("share", "transactional"), 900), 2)
    assert job.command() == "konvene sim run --level 2 --seed 7 --steps 900 --groups transactional+share"
    assert job.groups == "whole broker, transactional, share"


# --- invariants can be broken ----------------------------------------------------------------------


def broken(seeds: range = range(12), steps: int = STEPS, **more: Any) -> str:
    for seed in seeds:
        try:
            run_end_to_end(seed, steps, share=True, **more)
        except Violation as violation:
            assert "--groups share" in str(violation)
            return violation.invariant
    pytest.fail(f"nobody noticed within {len(seeds)} seeds")


def test_what_is_answered_before_it_is_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is lost, but the member gets a success response."""

    def forgetful(self: SharePartitionServer, change: Change, waiter: Any) -> None:
        self.core.finished(change, Errors.NONE)
        if waiter is not None:
            waiter.resolve((Errors.NONE, None))

    monkeypatch.setattr(SharePartitionServer, "_write", forgetful)
    assert broken() == "AcknowledgementsAreStored"


def test_locks_that_never_end_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharePartitionServer, "_set_timer", lambda self: None)
    monkeypatch.setattr(share_clients, "_habits", lambda chance: Habits(stalls=0.5))
    assert broken(fault_free=True) == "RecordsHaveOneOwner"


def test_a_start_that_passes_over_what_is_held_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = SharePartition.acquire

    def hasty(self: SharePartition, *args: Any, **more: Any) -> Any:
        got, change = acquire(self, *args, **more)
        if got and got[0].delivery_count > 1:
            self._window.trim(got[0].last_offset + 1)
        return got, change

    monkeypatch.setattr(SharePartition, "acquire", hasty)
    assert broken() == "NoRecordIsLost"


def test_waiting_fetches_that_are_never_completed_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharePartitionServer, "complete_waiting", lambda self: None)
    patient = Habits(explicit=True, terms=FetchTerms(max_wait_ms=5_000), weights=(1, 4, 0, 0))
    monkeypatch.setattr(share_clients, "_habits", lambda chance: patient)
    assert broken(fault_free=True) == "AvailableRecordsAreDelivered"
