"""End-to-end runs with share consumers uphold every invariant, are deterministic, and detect planted bugs.

No record is lost, acquired by two members at once, or delivered again after its acknowledgement.
"""

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
"""A seed in which a share group reads the output of transactions."""


def trace_digest(seed: int, steps: int = STEPS) -> str:
    """Return the SHA-256 digest of a run's trace."""
    digest = hashlib.sha256()
    run_end_to_end(seed, steps, share=True, trace=lambda line: digest.update(line.encode() + b"\n"))
    return digest.hexdigest()


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_chaos_violates_no_invariant(seed: int) -> None:
    """Every record is delivered and archived."""
    report = run_end_to_end(seed, STEPS, share=True)
    assert report.records_shared
    assert report.answers["ShareFetch NONE"]
    assert report.answers["ShareGroupHeartbeat NONE"]


def test_share_group_completes_transactional_records() -> None:
    report = run_end_to_end(TRANSACTIONAL, STEPS, share=True, transactions=True)
    assert report.records_shared
    assert report.answers["EndTxn NONE"]


def test_trace_is_a_function_of_the_seed() -> None:
    """The trace is equal in this process and in a process with another hash seed."""
    code = "from tests.sim.end_to_end.test_share import trace_digest; print(trace_digest(1, 300))"
    assert outputs_of_processes(code, 77) == {f"{trace_digest(1, 300)}\n"}


def test_share_clients_do_not_change_the_other_draws() -> None:
    """With share groups a seed draws the same faults, settings and other clients as without."""
    for seed in range(20):
        with_share, without_share = draw(seed, share=True), draw(seed)
        assert with_share.clients[: len(without_share.clients)] == without_share.clients
        assert with_share.faults == without_share.faults
        assert with_share.settings.items() >= without_share.settings.items()


def test_job_has_the_command_that_repeats_it() -> None:
    job = Job(Run(7, ("share", "transactional"), 900), 2)
    assert job.command() == "konvene sim run --level 2 --seed 7 --steps 900 --groups transactional+share"
    assert job.groups == "whole broker, transactional, share"


# --- planted bugs ----------------------------------------------------------------------------------


def find_violation(seeds: range = range(12), steps: int = STEPS, **kwargs: Any) -> str:
    for seed in seeds:
        try:
            run_end_to_end(seed, steps, share=True, **kwargs)
        except Violation as violation:
            assert "--groups share" in str(violation)
            return violation.invariant
    pytest.fail(f"no violation within {len(seeds)} seeds")


def test_response_without_a_stored_acknowledgement_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is lost, but the member gets a success response."""

    def resolve_unwritten(self: SharePartitionServer, change: Change, waiter: Any) -> None:
        self.core.finished(change, Errors.NONE)
        if waiter is not None:
            waiter.resolve((Errors.NONE, None))

    monkeypatch.setattr(SharePartitionServer, "_write", resolve_unwritten)
    assert find_violation() == "AcknowledgementsAreStored"


def test_locks_that_never_expire_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharePartitionServer, "_set_timer", lambda self: None)
    monkeypatch.setattr(share_clients, "_habits", lambda chance: Habits(stalls=0.5))
    assert find_violation(fault_free=True) == "RecordsHaveOneOwner"


def test_start_offset_beyond_acquired_records_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = SharePartition.acquire

    def acquire_and_trim(self: SharePartition, *args: Any, **kwargs: Any) -> Any:
        acquired, change = acquire(self, *args, **kwargs)
        if acquired and acquired[0].delivery_count > 1:
            self._window.trim(acquired[0].last_offset + 1)
        return acquired, change

    monkeypatch.setattr(SharePartition, "acquire", acquire_and_trim)
    assert find_violation() == "NoRecordIsLost"


def test_pending_fetches_that_never_complete_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharePartitionServer, "complete_waiting", lambda self: None)
    patient = Habits(explicit=True, terms=FetchTerms(max_wait_ms=5_000), weights=(1, 4, 0, 0))
    monkeypatch.setattr(share_clients, "_habits", lambda chance: patient)
    assert find_violation(fault_free=True) == "AvailableRecordsAreDelivered"
