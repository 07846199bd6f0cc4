"""Runs are deterministic, reach all states and faults, and report violations that shrink to scenarios."""

from __future__ import annotations

import hashlib
from random import Random

import pytest
from tests.hash_seeds import outputs_of_processes

from konvene.groups.classic import join
from konvene.groups.classic.group import ClassicGroup, Member
from konvene.groups.shard import TIMERS
from konvene.shard.contract import NOTHING
from konvene.sim.members import kinds
from konvene.sim.runs.run import Run, simulate
from konvene.sim.runs.shrink import NothingToShrink, shrink
from konvene.sim.transcript.scenario import Scenario
from konvene.sim.world.faults import ALL_FAULTS, ALL_PARAMETERS, FAULTS, PARAMETERS, Options

BOTH = ("classic", "static")
FAULT_FREE = tuple((parameter.name, str(parameter.fault_free)) for parameter in ALL_PARAMETERS) + tuple(
    (f"fault.{f.name}", "0") for f in ALL_FAULTS
)


def trace_digest(seed: int) -> str:
    """Return the SHA-256 digest of a run's trace."""
    lines: list[str] = []
    simulate(Run(seed, BOTH, 2_000), trace=lines.append)
    assert len(lines) > 1_000
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_trace_is_a_function_of_the_seed() -> None:
    """G10: the trace is equal under every hash seed."""
    code = "from tests.sim.runs.test_run import trace_digest; print([trace_digest(seed) for seed in (3, 4)])"
    outputs = outputs_of_processes(code, 1, 77)
    assert outputs == {f"{[trace_digest(3), trace_digest(4)]}\n"}


def test_different_seeds_have_different_runs() -> None:
    assert trace_digest(3) != trace_digest(4)
    assert Run(3).options().lines() != Run(4).options().lines()


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_fault_free_run_has_no_errors(kind: str) -> None:
    """A fault-free run injects no fault and gets only the error codes of a rebalance."""
    report = simulate(Run(1, (kind,), 2_000, sets=FAULT_FREE))
    assert report.options == ()
    assert report.violation is None
    assert report.counts.get("timer join") or kinds()[kind].assigned
    answered = {
        name for name in report.counts if name.split()[0] in ("Heartbeat", "OffsetCommit", "SyncGroup")
    }
    assert answered <= {
        "Heartbeat NONE", "Heartbeat REBALANCE_IN_PROGRESS", "OffsetCommit NONE", "SyncGroup NONE",
        "SyncGroup waits", "OffsetCommit REBALANCE_IN_PROGRESS", "SyncGroup REBALANCE_IN_PROGRESS",
    }  # fmt: skip
    assert not [name for name in report.counts if name.startswith("fault")]


def test_parameters_are_set_by_name() -> None:
    options = Run(1, sets=(("members", "3"), ("fault.crash", "2.5"), ("assignor", "range"))).options()
    assert (options["members"], options.faults["crash"], options["assignor"]) == (3, 2.5, "range")
    with pytest.raises(ValueError, match=r"unknown simulator parameter fault\.crush; .* fault\.crash"):
        Run(1, sets=(("fault.crush", "1"),)).options()
    with pytest.raises(ValueError, match="members=many: not a number"):
        Run(1, sets=(("members", "many"),)).options()


REACHED = {
    "state CompletingRebalance", "state Empty", "state PreparingRebalance", "state Stable",
    "timer join", "timer retention", "timer session", "timer sync",
    "JoinGroup waits", "JoinGroup NONE", "JoinGroup MEMBER_ID_REQUIRED", "JoinGroup UNKNOWN_MEMBER_ID",
    "JoinGroup FENCED_INSTANCE_ID", "JoinGroup GROUP_MAX_SIZE_REACHED",
    "JoinGroup INCONSISTENT_GROUP_PROTOCOL", "JoinGroup INVALID_SESSION_TIMEOUT",
    "SyncGroup waits", "SyncGroup NONE", "SyncGroup ILLEGAL_GENERATION", "SyncGroup UNKNOWN_MEMBER_ID",
    "SyncGroup FENCED_INSTANCE_ID", "SyncGroup REBALANCE_IN_PROGRESS",
    "SyncGroup INCONSISTENT_GROUP_PROTOCOL",
    "Heartbeat NONE", "Heartbeat ILLEGAL_GENERATION", "Heartbeat REBALANCE_IN_PROGRESS",
    "Heartbeat UNKNOWN_MEMBER_ID", "Heartbeat FENCED_INSTANCE_ID",
    "OffsetCommit NONE", "OffsetCommit ILLEGAL_GENERATION", "OffsetCommit UNKNOWN_MEMBER_ID",
    "OffsetCommit FENCED_INSTANCE_ID", "OffsetCommit GROUP_ID_NOT_FOUND",
    "LeaveGroup NONE", "OffsetFetch NONE", "OffsetDelete NONE", "DeleteGroups NONE", "DeleteTopics NONE",
}  # fmt: skip


@pytest.mark.deep
def test_every_fault_state_and_error_is_reached() -> None:
    """L8: an invariant is checked only if some seed reaches its states."""
    drawn = [Options.drawn(Random(seed)) for seed in range(200)]
    for parameter in PARAMETERS:
        values = {str(options[parameter.name]) for options in drawn}
        assert len(values) > 1 or parameter.name == "members", parameter.name
    counts: dict[str, int] = {}
    for seed in range(1, 41):
        for name, count in simulate(Run(seed, BOTH, 3_000)).counts.items():
            counts[name] = counts.get(name, 0) + count
    assert {name for name in counts if name.startswith("fault ")} == {f"fault {f.name}" for f in FAULTS}
    assert {"append failed", "too large", "loaded"} <= counts.keys()
    assert set(counts) >= REACHED, sorted(REACHED - set(counts))


# --- a bug is found, reported and shrunk ---------------------------------------------------------------


def replace_member_without_its_waiters(group: ClassicGroup, old: Member, member_id: str) -> Member:
    """Replace a static member's id as the code did before the simulator found its bug."""
    was_leader = group.leader == old.member_id
    group.drop(old.member_id)
    new = join.replace(old, member_id=member_id, join_waiter=None, sync_waiter=None)
    group.put(new)
    if was_leader:
        group.leader = member_id
    return new


@pytest.fixture
def failing_run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a run that detects the planted bug."""
    monkeypatch.setattr(join, "_replace_member_id", replace_member_without_its_waiters)
    for seed in range(1, 60):
        report = simulate(Run(seed, ("static",)))
        if report.violation is not None:
            return report.run
    raise AssertionError("no seed detects the planted bug")


def test_violation_report_has_its_events_and_its_command(failing_run: Run) -> None:
    found = simulate(failing_run).violation
    assert found is not None
    assert found.invariant == "TimersMatchState"
    assert len(found.recent) == 30
    assert found.command == f"konvene sim run --seed {failing_run.seed} --steps 5000 --groups static"
    output = "\n".join(found.lines())
    assert f"at step {found.step}" in output
    assert found.recent[-1] in output
    assert simulate(failing_run).violation == found


def test_violation_shrinks_to_a_scenario(failing_run: Run) -> None:
    """The scenario has fewer than 20 commands, violates the same invariant, and can be played."""
    progress: list[str] = []
    shrunk = shrink(failing_run, progress.append)
    assert shrunk.invariant == "TimersMatchState"
    assert simulate(shrunk.run).violation is not None
    assert shrunk.run.steps < failing_run.steps
    assert shrunk.scenario is not None
    block = shrunk.scenario.partition("\n\n")[2]
    commands = block.split("\n----\n")[0].splitlines()
    assert len(commands) < 20
    assert block.rstrip().splitlines()[-1].startswith("broken TimersMatchState")
    assert progress, "shrinking reports no progress"
    replayed = Scenario()
    replayed.run([line for line in shrunk.scenario.splitlines() if line.startswith("config")] + commands)
    assert replayed.broken is not None


def test_liveness_violation_shrinks_to_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that never expire violate no invariant of an event: the group never becomes stable."""
    monkeypatch.setitem(TIMERS, "session", lambda shard, group_id, member_id, context: NOTHING)
    monkeypatch.setattr("konvene.sim.runs.run.invariants_of", lambda kinds: [])
    for seed in range(1, 60):
        run = Run(seed, ("static",), 1_000)
        report = simulate(run)
        if report.violation is not None:
            break
    assert report.violation is not None
    shrunk = shrink(run)
    assert shrunk.scenario is None
    assert "No conversation with the coordinator alone reproduces it." in shrunk.lines()


def test_run_without_a_violation_cannot_be_shrunk() -> None:
    with pytest.raises(NothingToShrink, match="violates no invariant"):
        shrink(Run(1, steps=200))


def test_unexpected_error_is_reported_as_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of the core is reported as the invariant NothingIsRaised."""

    def breaks(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setitem(TIMERS, "session", breaks)
    found = simulate(Run(3, BOTH)).violation
    assert found is not None
    assert found.invariant == "NothingIsRaised"
    assert found.why.startswith("ZeroDivisionError: by zero (test_run.py, line ")
