"""Whole runs: they hold, they are the same every time, and what they invariant can be broken."""

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


def traced(seed: int, steps: int = STEPS) -> str:
    """The digest of a run's trace."""
    found = hashlib.sha256()
    run_end_to_end(seed, steps, trace=lambda line: found.update(line.encode() + b"\n"))
    return found.hexdigest()


@pytest.mark.parametrize("seed", range(6))
def test_chaos_violates_no_invariant(seed: int) -> None:
    """What acknowledged is stays, what is promised is kept, and in the end all is well."""
    report = run_end_to_end(seed, STEPS)
    assert report.steps >= STEPS
    assert report.records_acknowledged
    assert report.records_read


@pytest.mark.parametrize("seed", range(2))
def test_without_faults_nothing_is_refused(seed: int) -> None:
    report = run_end_to_end(seed, STEPS, fault_free=True)
    assert report.faults == {}
    assert report.broker_lives == 2  # The last one shows that a proper stop keeps everything.
    assert not [answer for answer in report.answers if "ConnectionLost" in answer or "TimedOut" in answer]


def test_the_same_seed_is_the_same_run() -> None:
    """To the byte: again in this process, and in others that order their sets otherwise."""
    code = "from tests.sim.end_to_end.test_run import traced; print(traced(3))"
    found = outputs_of_processes(code, 1, 77)
    assert found == {f"{traced(3)}\n"}
    assert traced(3) == traced(3) != traced(4)


def test_a_report_is_for_people_and_for_programs() -> None:
    report = run_end_to_end(5, STEPS)
    document = json.loads(json.dumps(report.as_dict()))
    assert document["seed"] == 5
    assert document["knobs"]["order"] in ("fifo", "hosts", "all")
    assert report.lines()[0].startswith(f"seed 5: {report.steps} steps, ")
    assert any(line.startswith("  deeds: ") for line in report.lines())


# --- invariants can be broken ----------------------------------------------------------------------


def broken(invariant: str, seeds: range = range(25), steps: int = 4_000) -> Violation:
    """The first violation among these seeds; it must be of this invariant."""
    for seed in seeds:
        try:
            run_end_to_end(seed, steps)
        except Violation as violation:
            assert violation.invariant == invariant, violation
            return violation
    pytest.fail(f"nobody noticed within {len(seeds)} seeds")


def test_violation_has_the_command_that_reproduces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinator, "_release_or_hold", lambda self, held: self._release(held))
    violation = broken("RepliesAreDurable")
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


def test_acknowledging_without_a_sync_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_producer_that_is_not_remembered_writes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producers, "check", lambda *_args, **_more: None)
    assert "stands behind its number" in str(broken("OnlyWhatWasSent"))


def test_records_that_are_replayed_and_not_written_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    append, chance = Coordinator._append, Random(1)

    def forgetful(self: Coordinator, outcome: Outcome) -> int:
        if len(outcome.records) == 1 and chance.random() < 0.05 and isinstance(self.core, GroupShard):
            return self._journal.end_offset
        return append(self, outcome)

    monkeypatch.setattr(Coordinator, "_append", forgetful)
    assert "by its log" in str(broken("ShardIsItsLog", range(1, 25)))


def test_a_request_that_is_not_answered_is_noticed_in_the_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    send, chance = Connection._send, Random(1)

    def deaf(self: Connection, *args: Any) -> None:
        if chance.random() > 0.03:
            send(self, *args)

    monkeypatch.setattr(Connection, "_send", deaf)
    with pytest.raises(Violation) as found:
        for seed in range(5):
            run_end_to_end(seed, STEPS, fault_free=True)
    assert found.value.invariant in ("StaysQuiet", "Settles", "NothingIsLeft")


def test_sessions_that_never_end_keep_groups_from_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timers, "_fire_due", lambda self: None)
    broken("Settles")


@pytest.mark.parametrize(
    ("where", "name", "invariant"),
    [(Connection, "connection_lost", "NoUnexpectedErrors"), (Timers, "disarm", "NoUnexpectedErrors")],
)
def test_unexpected_error_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, invariant: str
) -> None:
    def wrong(*_args: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(where, name, wrong)
    assert "ValueError: planted" in str(broken(invariant))


def test_a_connection_that_is_not_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: Callable[[Connection, Any], None] = Connection.connection_lost

    def forgetful(self: Connection, error: Exception | None) -> None:
        lost(self, error)
        self._network.connections[self] = None

    monkeypatch.setattr(Connection, "connection_lost", forgetful)
    assert "connections: " in str(broken("NothingIsLeft"))


def test_no_loop_is_left_behind() -> None:
    """A run leaves this thread as it was."""
    run_end_to_end(1, 500)
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
