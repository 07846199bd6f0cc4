"""Model check of classic groups: it completes, its numbers of states are known, and it finds planted bugs.

The numbers of states are pinned. Review a change of the core or of the model that changes them: more states
mean new behaviour. Update the numbers once the change is understood.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from konvene.groups.classic import decision as step
from konvene.groups.classic import heartbeat, join, log
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.shard import HANDLERS
from konvene.messages.offset_commit import OffsetCommitRequest
from konvene.messages.sync_group import SyncGroupRequest
from konvene.sim.model_check import check_model
from konvene.sim.model_check.core import StepCache
from konvene.sim.model_check.model import (
    ARRIVES,
    ARRIVES_LATE,
    ARRIVES_TWICE,
    COORDINATOR_CRASHES,
    RECEIVES,
    SENDS,
    STARTS,
    Model,
    check,
    is_stable,
)
from konvene.sim.model_check.scenario import scenario
from konvene.sim.model_check.states import compact_group
from konvene.sim.model_check.symmetry import Canonicalizer
from konvene.sim.model_check.values import Member
from konvene.sim.transcript.scenario import Scenario

Patch = pytest.MonkeyPatch


# --- a core without bugs ---------------------------------------------------------------------------


@pytest.mark.deep
def test_default_bounds_have_no_violation() -> None:
    """Two members, two partitions, one fault: the search is complete, with the pinned numbers."""
    report = check_model()
    assert report.violation is None, "\n".join(report.lines())
    assert report.complete
    counts = (report.states, report.transitions, report.depth, report.stable)
    assert counts == (27_459, 77_179, 44, 60)


@pytest.mark.parametrize(
    ("bounds", "states"),
    [
        ({"members": 1}, 28),
        ({"members": 2}, 502),
        ({"members": 2, "partitions": 3}, 1_013),
        ({"members": 2, "static": 1}, 2_989),
        ({"members": 2, "static": 2, "records": 0}, 1_165),
        ({"members": 1, "static": 1, "faults": 1, "records": 0}, 250),
        ({"members": 3, "records": 0}, 1_975),
    ],
)
def test_smaller_bounds_have_no_violation(bounds: dict[str, int], states: int) -> None:
    report = check_model(**{"faults": 0, **bounds})  # type: ignore[arg-type]
    assert report.complete, "\n".join(report.lines())
    assert report.states == states


def test_limit_leaves_states_and_reports_them() -> None:
    report = check_model(limit=100)
    assert not report.complete
    assert report.violation is None
    assert report.left == report.states - 100
    assert f"not complete: {report.left} states were found and not expanded" in report.lines()


def test_progress_is_reported() -> None:
    calls: list[tuple[int, int, int]] = []
    report = check_model(records=0, limit=5_000, progress=lambda *counts: calls.append(counts))
    assert [expanded for expanded, _, _ in calls] == [5_000]
    assert calls[0][1] == report.states


@pytest.mark.parametrize("bounds", [{"members": 0}, {"static": 3}, {"partitions": 9}, {"faults": -1}])
def test_impossible_bounds_are_rejected(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no such model"):
        check_model(**bounds)  # type: ignore[arg-type]


def test_export_does_not_depend_on_hash_order(tmp_path: Path) -> None:
    """The exported states and transitions are equal bytes under every PYTHONHASHSEED."""
    code = (
        "import sys; from konvene.sim.model_check import check_model\n"
        "report = check_model(records=0, limit=1500); print(report.export(sys.argv[1]))"
    )
    exports = []
    for seed in ("1", "2"):
        path = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment, timeout=120)
        exports.append(path.read_bytes())
    assert exports[0] == exports[1]
    assert len(exports[0]) > 100_000


# --- reports and exports ---------------------------------------------------------------------------


def test_export_has_every_state_and_transition(tmp_path: Path) -> None:
    """The bounds come first, then every state once and in order, and every transition between two of them."""
    report = check_model(faults=0)
    path = tmp_path / "states.jsonl"
    count = report.export(path)
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert head == {"model": report.bounds, "states": report.states}
    assert count == len(lines) + 1 == 1 + report.states + report.transitions
    states = [line for line in lines if "state" in line]
    moves = [line for line in lines if "from" in line]
    assert [line["state"] for line in states] == list(range(report.states))
    assert sum(line["stable"] for line in states) == report.stable
    assert max(line["depth"] for line in states) == report.depth
    assert {line["to"] for line in moves} == set(range(1, report.states))
    assert {line["from"] for line in moves} <= set(range(report.states))
    assert {
        line["coordinator"]["group"]["generation"] for line in states if line["coordinator"]["group"]
    } == {10}


def test_dot_has_a_line_per_transition() -> None:
    report = check_model(members=1, faults=0, records=0)
    dot = report.dot().splitlines()
    assert dot[0] == "digraph model_check {"
    assert len(dot) == report.transitions + 2


def test_report_as_json() -> None:
    report = check_model(members=1, faults=0)
    document = json.loads(json.dumps(report.as_dict()))
    assert document["bounds"] == {
        "members": 1, "partitions": 2, "faults": 0, "static": 0, "starts": 1, "records": 1,
    }  # fmt: skip
    assert document["complete"] is True
    assert document["violation"] is None
    with_history = {"OffsetsAreTheLastCommitted", "AssignmentsComeFromTheLeader", "EveryGenerationHasATrace"}
    assert {"ReplayEqualsLive", "InstanceIdsAreUnique", "TimersMatchState", *with_history} <= set(
        document["invariants"]
    )
    assert "SilentMembersExpire" in document["left_out"]
    assert report.lines()[-1] == "all invariants held"


# --- names -----------------------------------------------------------------------------------------


def test_states_that_differ_in_names_have_one_canonical_state() -> None:
    """The order of starts and the numbers of member ids do not matter."""
    model = Model(2, 2, 0, 0, 1, 1, StepCache(2))
    canonicalizer = Canonicalizer(0)

    def after(*moves: tuple[str, int]) -> Any:
        state = model.first()
        for label, number in moves:
            state = next(m.state for m in model.moves(state) if (m.label, m.number) == (label, number))
        return state

    one = after((STARTS, 1), (ARRIVES, 1), (RECEIVES, 1), (STARTS, 2))
    other = after((STARTS, 1), (STARTS, 2), (ARRIVES, 2), (RECEIVES, 2))
    assert one != other
    assert canonicalizer.canonical(one) == canonicalizer.canonical(other)
    assert canonicalizer.canonical(canonicalizer.canonical(one)) == canonicalizer.canonical(one)


@pytest.mark.parametrize(
    ("members", "faults", "static"), [(2, 0, 0), (2, 0, 2), (1, 1, 0), (1, 1, 1), (2, 0, 1)]
)
def test_search_without_symmetry_reduction_finds_the_same_states(
    members: int, faults: int, static: int
) -> None:
    """A search that distinguishes names finds more states, with the same set of canonical states."""
    model = Model(members, 2, faults, static, 1, 0, StepCache(2))
    canonicalizer = Canonicalizer(static)
    queue = [model.first()]
    visited = set(queue)
    while queue:
        for move in model.moves(queue.pop()):
            if move.state not in visited:
                visited.add(move.state)
                queue.append(move.state)
    report = check_model(members, 2, faults, static, records=0)
    assert len({canonicalizer.canonical(state) for state in visited}) == report.states
    assert len(visited) > report.states


# --- the same path on a complete coordinator --------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_path_as_a_scenario_reaches_the_same_group(seed: int) -> None:
    """A coordinator with a log has the group, timers and offsets of the model after the same requests."""
    random = Random(seed)
    model = Model(3, 2, 3, seed % 3, 2, 2, StepCache(2))
    state, path = model.first(), []
    for _ in range(60):
        move = random.choice(list(model.moves(state)))
        path.append((state, move, move.label))
        state = move.state
    text = scenario(model, path, state, None)
    replay = Scenario()
    replay.run(text.splitlines())
    assert replay.broken is None, text
    runtime = replay.life.runtime
    live = compact_group(runtime.core.groups["g"])
    group = state.coordinator.group
    assert group
    assert (live.state, live.generation) == (group.state, group.generation), text
    assert [_without_names(member) for member in live.members] == [
        _without_names(member) for member in group.members
    ], text
    assert len(live.pending_joins) == len(group.pending_joins), text
    assert len(live.pending_syncs) == len(group.pending_syncs), text
    armed = sorted(key[0] for key in runtime.timers if key[0] != "retention")
    coordinator = state.coordinator
    assert armed.count("session") == len(coordinator.sessions), text
    assert armed.count("join") == coordinator.join_timer, text
    assert armed.count("sync") == coordinator.sync_timer, text
    offsets = {p: committed.offset for p, committed in runtime.core.offsets.get("g", {}).get("t", {}).items()}
    assert [offsets.get(p, -1) for p in range(2)] == list(coordinator.offsets), text


def _without_names(member: Member) -> tuple[int, ...]:
    """Return a member without its id and without the numbers of its waiters, which differ in a scenario."""
    return (
        member.instance,
        member.assignment,
        int(member.join_waiter >= 0),
        int(member.sync_waiter >= 0),
        member.is_new,
    )


# --- a violation that the protocol permits ---------------------------------------------------------


def test_late_assignment_of_an_unstored_generation_is_accepted_for_its_successor() -> None:
    """With two faults a member of a stable group can have no partitions, in Kafka as here.

    Generation 2 is sent to the members, but not stored when the coordinator crashes. The next coordinator has
    generation 1, and creates another generation 2. The leader receives the first one only now, while a
    duplicate of its JoinGroup is in the second one, and assigns partitions to members that left.
    `check_model(faults=2)` finds this.
    """
    model = Model(2, 2, 2, 0, 1, 0, StepCache(2))
    state = model.first()
    for label, number in (
        (STARTS, 1), (STARTS, 2), (ARRIVES, 1), (ARRIVES, 2), (RECEIVES, 1), (ARRIVES, 1),
        (RECEIVES, 2), ("join timer expires", 0), (RECEIVES, 1), (ARRIVES, 1), (ARRIVES, 2), (RECEIVES, 1),
        (SENDS, 1), (RECEIVES, 1), (ARRIVES_TWICE, 1), (RECEIVES, 2), (COORDINATOR_CRASHES, 0),
        (ARRIVES, 2), (RECEIVES, 2), (ARRIVES, 2), (RECEIVES, 2), (ARRIVES, 2), (ARRIVES_LATE, 0),
        (RECEIVES, 1), (ARRIVES, 1), (RECEIVES, 2), (ARRIVES, 2), (RECEIVES, 1), (RECEIVES, 2),
    ):  # fmt: skip
        state = next(m.state for m in model.moves(state) if (m.label, m.number) == (label, number))
        check(state)
    assert [(client.phase, client.owned) for client in state.clients] == [("active", 1), ("active", 0)]
    assert [move.label for move in model.moves(state) if move.spontaneous] == []
    assert not is_stable(state, 2)


# --- a core with a bug -----------------------------------------------------------------------------


def _accepts_another_generation(patch: Patch) -> None:
    """Accept a commit of the previous generation."""
    real = HANDLERS[OffsetCommitRequest]

    def accept(shard: Any, request: Any, context: Any) -> Any:
        group = shard.groups.get(request.group_id)
        if group is not None and request.generation_id_or_member_epoch == group.generation - 1:
            request = request.replace(generation_id_or_member_epoch=group.generation)
        return real(shard, request, context)

    patch.setitem(HANDLERS, OffsetCommitRequest, accept)


def _forgets_the_session_timer(patch: Patch) -> None:
    """Arm no session timer for a member id that was assigned in an empty group."""
    real = step.Decision.arm

    def arm_or_skip(self: Any, key: Any, after_ms: int) -> None:
        if key[0] != "session" or self.group.state is not State.EMPTY:
            real(self, key, after_ms)

    patch.setattr(step.Decision, "arm", arm_or_skip)


def _keeps_a_fenced_member(patch: Patch) -> None:
    """Keep the old member when a static member returns under a new id."""
    real = join._replace_member_id

    def keep_both(group: ClassicGroup, old: Any, member_id: str) -> Any:
        new = real(group, old, member_id)
        group.put(old)
        group.put(new)
        return new

    patch.setattr(join, "_replace_member_id", keep_both)


def _forgets_the_record_of_a_replacement(patch: Patch) -> None:
    """Write no record of the new id of a static member."""
    real = join._keep_generation

    def discard_records(step: Any, member: Any, old_member_id: str) -> None:
        real(step, member, old_member_id)
        step.records.clear()

    patch.setattr(join, "_keep_generation", discard_records)


def _assigns_the_first_members_partitions_to_all(patch: Patch) -> None:
    """Give every member the first member's assignment."""
    real = step.Decision.propagate_assignment

    def assign_first(self: Any, assignments: dict[str, bytes]) -> None:
        first = next(iter(assignments.values()), b"")
        real(self, dict.fromkeys(assignments, first))

    patch.setattr(step.Decision, "propagate_assignment", assign_first)


def _leaves_the_older_join_unanswered(patch: Patch) -> None:
    """Do not answer the older one of two JoinGroup requests of a member."""
    real = join._update

    def drop_waiter(step: Any, request: Any, member: Any) -> None:
        real(step, request, replace(member, join_waiter=None))

    patch.setattr(join, "_update", drop_waiter)


def _raises_the_generation_twice(patch: Patch) -> None:
    """Increase the generation by two when a rebalance completes."""
    real = step.Decision.complete_join

    def twice(self: Any) -> None:
        before = self.group.generation
        real(self)
        self.group.generation += self.group.generation - before

    patch.setattr(step.Decision, "complete_join", twice)


def _lets_every_leader_skip(patch: Patch) -> None:
    """Let every leader skip the assignment."""
    real = step.Decision.joined_response

    def skip(self: Any, member: Any, *, skip_assignment: bool = False) -> Any:
        return real(self, member, skip_assignment=True)

    patch.setattr(step.Decision, "joined_response", skip)


def _heartbeats_do_not_announce_rebalances(patch: Patch) -> None:
    """Never answer a heartbeat with REBALANCE_IN_PROGRESS."""
    patch.setattr(heartbeat, "_REJOIN", heartbeat._ALIVE)


def _writes_no_members(patch: Patch) -> None:
    """Write the record of a stable group without members."""
    real = log.to_record

    def empty(group: ClassicGroup) -> Any:
        record = real(group)
        return record._replace(value=record.value.replace(members=()))  # type: ignore[union-attr]

    patch.setattr(log, "to_record", empty)


def _drops_pending_syncs(patch: Patch) -> None:
    """Drop pending SyncGroup requests without a response when a rebalance starts."""

    def arm_or_skip(self: Any) -> None:
        for member in list(self.group.members.values()):
            self.group.put(replace(member, assignment=b"", sync_waiter=None))

    patch.setattr(step.Decision, "_reset_assignments", arm_or_skip)


def _accepts_syncs_of_another_generation(patch: Patch) -> None:
    """Accept a SyncGroup of another generation."""
    real = HANDLERS[SyncGroupRequest]

    def accept(shard: Any, request: Any, context: Any) -> Any:
        group = shard.groups.get(request.group_id)
        return real(shard, request.replace(generation_id=group.generation) if group else request, context)

    patch.setitem(HANDLERS, SyncGroupRequest, accept)


BUGS: list[tuple[Callable[[Patch], None], dict[str, int], str, int]] = [
    (_accepts_another_generation, {}, "OtherGenerationsAreFenced", 10),
    (_forgets_the_session_timer, {"faults": 0}, "TimersMatchState", 2),
    (_keeps_a_fenced_member, {"faults": 0, "static": 1}, "SettledGroupsAreStored", 9),
    (_forgets_the_record_of_a_replacement, {"faults": 0, "static": 1}, "SettledGroupsAreStored", 9),
    (_assigns_the_first_members_partitions_to_all, {"faults": 0}, "AssignmentsComeFromTheLeader", 12),
    (_leaves_the_older_join_unanswered, {"records": 0}, "PendingRequestsAreTracked", 5),
    (_raises_the_generation_twice, {"faults": 0}, "GenerationsIncrease", 5),
    (_lets_every_leader_skip, {"faults": 0}, "EveryoneSettles", 8),
    (_heartbeats_do_not_announce_rebalances, {"faults": 0}, "HeartbeatsChangeNothing", 13),
    (_writes_no_members, {"faults": 0}, "SettledGroupsAreStored", 7),
    (_drops_pending_syncs, {"records": 0}, "PendingRequestsAreTracked", 13),
    (_accepts_syncs_of_another_generation, {}, "OtherGenerationsAreFenced", 12),
]


@pytest.mark.parametrize(
    ("plant", "bounds", "invariant", "steps"), BUGS, ids=[bug[0].__name__[1:] for bug in BUGS]
)
def test_planted_bug_is_found_with_a_shortest_path(
    monkeypatch: Patch, plant: Callable[[Patch], None], bounds: dict[str, int], invariant: str, steps: int
) -> None:
    plant(monkeypatch)
    violation = check_model(**bounds).violation  # type: ignore[arg-type]
    assert violation is not None
    assert (violation.invariant, len(violation.path)) == (invariant, steps), "\n".join(violation.lines())


@pytest.mark.parametrize(
    "plant",
    [
        _forgets_the_session_timer, _keeps_a_fenced_member, _forgets_the_record_of_a_replacement,
        _assigns_the_first_members_partitions_to_all, _leaves_the_older_join_unanswered,
        _raises_the_generation_twice,
        _heartbeats_do_not_announce_rebalances, _writes_no_members, _drops_pending_syncs,
        _accepts_syncs_of_another_generation, _accepts_another_generation,
    ],
)  # fmt: skip
def test_scenario_of_a_violation_violates_the_same_invariant(
    monkeypatch: Patch, plant: Callable[[Patch], None]
) -> None:
    """Replayed on a complete coordinator, the scenario violates the invariant at its last command."""
    bounds, invariant = next((bug[1], bug[2]) for bug in BUGS if bug[0] is plant)
    plant(monkeypatch)
    violation = check_model(**bounds).violation  # type: ignore[arg-type]
    assert violation is not None
    *before, last = violation.scenario.splitlines()
    replay = Scenario()
    replay.run(before)
    assert replay.broken is None, violation.scenario
    assert replay.run([last])[-1].startswith(f"broken {invariant}:"), violation.scenario
