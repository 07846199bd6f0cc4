"""End-to-end runs uphold every invariant, are deterministic, and detect planted bugs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.hash_seeds import outputs_of_processes

from konvene.broker.net.connection import Connection
from konvene.groups.shard import GroupShard
from konvene.log.partition import PartitionLog
from konvene.log.producers import Producers
from konvene.runtime.coordinator import Coordinator
from konvene.runtime.timers import Timers
from konvene.shard.contract import Outcome
from konvene.sim.end_to_end import run_end_to_end
from konvene.sim.end_to_end.invariants import Violation

STEPS = 2_500


def trace_digest(seed: int, steps: int = STEPS) -> str:
    """Return the SHA-256 digest of a run's trace."""
    digest = hashlib.sha256()
    run_end_to_end(seed, steps, trace=lambda line: digest.update(line.encode() + b"\n"))
    return digest.hexdigest()


@pytest.mark.parametrize("seed", range(6))
def test_chaos_violates_no_invariant(seed: int) -> None:
    """Runs with faults acknowledge and read records without a violation."""
    report = run_end_to_end(seed, STEPS)
    assert report.steps >= STEPS
    assert report.records_acknowledged
    assert report.records_read


@pytest.mark.parametrize("seed", range(2))
def test_no_connection_fails_without_faults(seed: int) -> None:
    report = run_end_to_end(seed, STEPS, fault_free=True)
    assert report.faults == {}
    assert report.broker_lives == 2  # The second one checks the state after a clean shutdown.
    assert not [answer for answer in report.answers if "ConnectionLost" in answer or "TimedOut" in answer]


def test_trace_is_a_function_of_the_seed() -> None:
    """The trace is equal in this process and in processes with other hash seeds."""
    code = "from tests.sim.end_to_end.test_run import trace_digest; print(trace_digest(3))"
    found = outputs_of_processes(code, 1, 77)
    assert found == {f"{trace_digest(3)}\n"}
    assert trace_digest(3) == trace_digest(3) != trace_digest(4)


def test_report_as_json_and_as_text() -> None:
    report = run_end_to_end(5, STEPS)
    document = json.loads(json.dumps(report.as_dict()))
    assert document["seed"] == 5
    assert document["knobs"]["order"] in ("fifo", "hosts", "all")
    assert report.lines()[0].startswith(f"seed 5: {report.steps} steps, ")
    assert any(line.startswith("  deeds: ") for line in report.lines())


# --- planted bugs ----------------------------------------------------------------------------------


def find_violation(invariant: str, seeds: range = range(25), steps: int = 4_000) -> Violation:
    """Run the seeds until one violates an invariant; return the violation, which must be of `invariant`."""
    for seed in seeds:
        try:
            run_end_to_end(seed, steps)
        except Violation as violation:
            assert violation.invariant == invariant, violation
            return violation
    pytest.fail(f"no violation within {len(seeds)} seeds")


def test_violation_has_the_command_that_reproduces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinator, "_release_or_hold", lambda self, held: self._release(held))
    violation = find_violation("RepliesAreDurable")
    lines = str(violation).split("\n")
    assert "answers up to" in lines[0]
    assert lines[2] == "the last events:"
    assert lines[3].startswith("  ")
    command = lines[-1].split()
    assert command[:5] == ["konvene", "sim", "run", "--level", "2"]
    seed, steps = int(command[6]), int(command[8])
    with pytest.raises(Violation) as again:
        run_end_to_end(seed, steps)
    assert str(again.value) == str(violation)


def test_acknowledging_without_a_sync_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(self: PartitionLog) -> None:
        self.synced_offset = self.end_offset

    monkeypatch.setattr(PartitionLog, "sync", sync)
    with pytest.raises(Violation) as found:
        for seed in range(25):
            run_end_to_end(seed, 4_000)
    assert found.value.invariant in (
        "AcknowledgedRecordsStay",
        "CommittedOffsetsNeverRegress",
        "ReadInOrder",
        "NoUnexpectedErrors",
    )


def test_missing_deduplication_of_producers_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producers, "check", lambda *_args, **_more: None)
    assert "stands behind its number" in str(find_violation("OnlyWhatWasSent"))


def test_replayed_record_missing_from_the_log_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    append, chance = Coordinator._append, Random(1)

    def skip_some_appends(self: Coordinator, outcome: Outcome) -> int:
        if len(outcome.records) == 1 and chance.random() < 0.05 and isinstance(self.core, GroupShard):
            return self._journal.end_offset
        return append(self, outcome)

    monkeypatch.setattr(Coordinator, "_append", skip_some_appends)
    assert "by its log" in str(find_violation("ShardIsItsLog", range(1, 25)))


def test_unanswered_request_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    send, chance = Connection._send, Random(1)

    def send_most(self: Connection, *args: Any) -> None:
        if chance.random() > 0.03:
            send(self, *args)

    monkeypatch.setattr(Connection, "_send", send_most)
    with pytest.raises(Violation) as found:
        for seed in range(5):
            run_end_to_end(seed, STEPS, fault_free=True)
    assert found.value.invariant in ("StaysQuiet", "Settles", "NothingIsLeft")


def test_sessions_that_never_expire_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timers, "_fire_due", lambda self: None)
    find_violation("Settles")


@pytest.mark.parametrize(
    ("owner", "name", "invariant"),
    [(Connection, "connection_lost", "NoUnexpectedErrors"), (Timers, "disarm", "NoUnexpectedErrors")],
)
def test_unexpected_error_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, invariant: str
) -> None:
    def wrong(*_args: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(owner, name, wrong)
    assert "ValueError: planted" in str(find_violation(invariant))


def test_connection_leak_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: Callable[[Connection, Any], None] = Connection.connection_lost

    def keep_connection(self: Connection, error: Exception | None) -> None:
        lost(self, error)
        self._network.connections[self] = None

    monkeypatch.setattr(Connection, "connection_lost", keep_connection)
    assert "connections: " in str(find_violation("NothingIsLeft"))


def test_run_leaves_no_event_loop() -> None:
    """After a run the thread has no running event loop."""
    run_end_to_end(1, 500)
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
