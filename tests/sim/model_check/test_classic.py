"""The exhaustive search: it ends, it finds what it always finds, and it finds bugs by a short way.

The numbers of states are pinned. A change of the core or of the model that changes them is to be looked at:
more states mean that something new can happen. Put the new number here when it is understood.
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
from konvene.sim.model_check.core import Steps
from konvene.sim.model_check.model import Model, check, is_stable
from konvene.sim.model_check.scenario import scenario
from konvene.sim.model_check.states import small_group
from konvene.sim.model_check.symmetry import Names
from konvene.sim.model_check.values import Seat
from konvene.sim.transcript.scenario import Scenario

Patch = pytest.MonkeyPatch


# --- a core without bugs ---------------------------------------------------------------------------


def test_nothing_is_wrong_with_two_members_two_partitions_and_a_fault() -> None:
    """The default model is looked at to its end and is clean; the numbers are the known ones."""
    report = check_model()
    assert report.violation is None, "\n".join(report.lines())
    assert report.complete
    found = (report.states, report.transitions, report.depth, report.stable)
    assert found == (27_459, 77_179, 44, 60)


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
def test_smaller_models_are_clean_as_well(bounds: dict[str, int], states: int) -> None:
    report = check_model(**{"faults": 0, **bounds})  # type: ignore[arg-type]
    assert report.complete, "\n".join(report.lines())
    assert report.states == states


def test_a_limit_leaves_states_and_says_so() -> None:
    report = check_model(limit=100)
    assert not report.complete
    assert report.violation is None
    assert report.left == report.states - 100
    assert f"not complete: {report.left} states were found and not looked at" in report.lines()


def test_progress_is_told() -> None:
    told: list[tuple[int, int, int]] = []
    report = check_model(records=0, limit=5_000, progress=lambda *seen: told.append(seen))
    assert [seen[0] for seen in told] == [5_000]
    assert told[0][1] == report.states


@pytest.mark.parametrize("bounds", [{"members": 0}, {"static": 3}, {"partitions": 9}, {"faults": -1}])
def test_bounds_that_make_no_model_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no such model"):
        check_model(**bounds)  # type: ignore[arg-type]


def test_hash_order_changes_nothing(tmp_path: Path) -> None:
    """Whatever PYTHONHASHSEED says, states and transitions are the same to the byte."""
    code = (
        "import sys; from konvene.sim.model_check import check_model\n"
        "report = check_model(records=0, limit=1500); print(report.export(sys.argv[1]))"
    )
    written = []
    for seed in ("1", "2"):
        path = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment, timeout=120)
        written.append(path.read_bytes())
    assert written[0] == written[1]
    assert len(written[0]) > 100_000


# --- what is written down --------------------------------------------------------------------------


def test_what_is_exported_is_the_graph(tmp_path: Path) -> None:
    """Every state once and in order, every transition between two of them, and the bounds in front."""
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


def test_a_tiny_model_can_be_drawn() -> None:
    report = check_model(members=1, faults=0, records=0)
    dot = report.dot().splitlines()
    assert dot[0] == "digraph model_check {"
    assert len(dot) == report.transitions + 2


def test_the_report_is_json_with_everything_that_is_told() -> None:
    report = check_model(members=1, faults=0)
    told = json.loads(json.dumps(report.as_dict()))
    assert told["bounds"] == {
        "members": 1, "partitions": 2, "faults": 0, "static": 0, "starts": 1, "records": 1,
    }  # fmt: skip
    assert told["complete"] is True
    assert told["violation"] is None
    remembers = {"OffsetsAreTheLastCommitted", "AssignmentsComeFromTheLeader", "EveryGenerationHasATrace"}
    assert {"ReplayEqualsLive", "InstanceIdsAreUnique", "TimersMatchState", *remembers} <= set(
        told["invariants"]
    )
    assert "SilentMembersExpire" in told["left_out"]
    assert report.lines()[-1] == "all invariants held"


# --- names -----------------------------------------------------------------------------------------


def test_states_that_differ_by_names_are_one() -> None:
    """Whoever starts first, and whichever numbers are handed out: it is the same state."""
    model = Model(2, 2, 0, 0, 1, 1, Steps(2))
    names = Names(0)

    def after(*wanted: tuple[str, int]) -> Any:
        state = model.first()
        for what, who in wanted:
            state = next(m.state for m in model.moves(state) if (m.what, m.who) == (what, who))
        return state

    one = after(("starts", 1), ("is heard", 1), ("hears", 1), ("starts", 2))
    other = after(("starts", 1), ("starts", 2), ("is heard", 2), ("hears", 2))
    assert one != other
    assert names.canonical(one) == names.canonical(other)
    assert names.canonical(names.canonical(one)) == names.canonical(one)


@pytest.mark.parametrize(
    ("members", "faults", "static"), [(2, 0, 0), (2, 0, 2), (1, 1, 0), (1, 1, 1), (2, 0, 1)]
)
def test_a_search_under_all_names_finds_the_same_states(members: int, faults: int, static: int) -> None:
    """Names are left out and nothing else: who keeps them all comes to the same states, by more ways."""
    model = Model(members, 2, faults, static, 1, 0, Steps(2))
    names = Names(static)
    todo = [model.first()]
    named = set(todo)
    while todo:
        for move in model.moves(todo.pop()):
            if move.state not in named:
                named.add(move.state)
                todo.append(move.state)
    report = check_model(members, 2, faults, static, records=0)
    assert len({names.canonical(state) for state in named}) == report.states
    assert len(named) > report.states


# --- the same on a whole coordinator ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_a_way_through_the_model_ends_in_the_same_group_on_a_whole_coordinator(seed: int) -> None:
    """What the model says of the coordinator is what one with a log has, that is told the same."""
    random = Random(seed)
    model = Model(3, 2, 3, seed % 3, 2, 2, Steps(2))
    state, way = model.first(), []
    for _ in range(60):
        move = random.choice(list(model.moves(state)))
        way.append((state, move, move.what))
        state = move.state
    text = scenario(model, way, state, None)
    played = Scenario()
    played.run(text.splitlines())
    assert played.broken is None, text
    runtime = played.life.runtime
    live = small_group(runtime.core.groups["g"])
    group = state.coordinator.group
    assert group
    assert (live.state, live.generation) == (group.state, group.generation), text
    assert [_seen(seat) for seat in live.seats] == [_seen(seat) for seat in group.seats], text
    assert len(live.handed_out) == len(group.handed_out), text
    assert len(live.to_sync) == len(group.to_sync), text
    armed = sorted(key[0] for key in runtime.timers if key[0] != "retention")
    coordinator = state.coordinator
    assert armed.count("session") == len(coordinator.sessions), text
    assert armed.count("join") == coordinator.join_timer, text
    assert armed.count("sync") == coordinator.sync_timer, text
    held = {p: told.offset for p, told in runtime.core.offsets.get("g", {}).get("t", {}).items()}
    assert [held.get(p, -1) for p in range(2)] == list(coordinator.offsets), text


def _seen(seat: Seat) -> tuple[int, ...]:
    """A seat without its names: who waits has another number there."""
    return seat.instance, seat.given, int(seat.joins >= 0), int(seat.syncs >= 0), seat.is_new


# --- what the protocol does not prevent ------------------------------------------------------------


def test_a_generation_that_was_not_stored_is_made_again_and_its_old_leader_is_believed() -> None:
    """Two faults, and members of a stable group without partitions: so it is in Kafka, and here.

    Generation 2 is told and not yet stored when the coordinator dies. The next coordinator has generation 1,
    and makes another generation 2. A leader that hears of the first one only now, while a second copy of its
    JoinGroup is in the other, assigns partitions to members that are no more. `check_model(faults=2)` finds
    it.
    """
    model = Model(2, 2, 2, 0, 1, 0, Steps(2))
    state = model.first()
    for what, who in (
        ("starts", 1), ("starts", 2), ("is heard", 1), ("is heard", 2), ("hears", 1), ("is heard", 1),
        ("hears", 2), ("join timer rings", 0), ("hears", 1), ("is heard", 1), ("is heard", 2), ("hears", 1),
        ("sends", 1), ("hears", 1), ("is heard, and again later", 1), ("hears", 2), ("coordinator dies", 0),
        ("is heard", 2), ("hears", 2), ("is heard", 2), ("hears", 2), ("is heard", 2), ("heard late", 0),
        ("hears", 1), ("is heard", 1), ("hears", 2), ("is heard", 2), ("hears", 1), ("hears", 2),
    ):  # fmt: skip
        state = next(m.state for m in model.moves(state) if (m.what, m.who) == (what, who))
        check(state)
    assert [(client.phase, client.owned) for client in state.clients] == [("in", 1), ("in", 0)]
    assert [move.what for move in model.moves(state) if move.spontaneous] == []
    assert not is_stable(state, 2)


# --- a core with a bug -----------------------------------------------------------------------------


def _accepts_another_generation(patch: Patch) -> None:
    """A commit of the generation before is taken."""
    real = HANDLERS[OffsetCommitRequest]

    def taken(shard: Any, request: Any, context: Any) -> Any:
        group = shard.groups.get(request.group_id)
        if group is not None and request.generation_id_or_member_epoch == group.generation - 1:
            request = request.replace(generation_id_or_member_epoch=group.generation)
        return real(shard, request, context)

    patch.setitem(HANDLERS, OffsetCommitRequest, taken)


def _forgets_the_session_timer(patch: Patch) -> None:
    """Whoever is handed a member id may keep it for ever."""
    real = step.Decision.arm

    def forgets(self: Any, key: Any, after_ms: int) -> None:
        if key[0] != "session" or self.group.state is not State.EMPTY:
            real(self, key, after_ms)

    patch.setattr(step.Decision, "arm", forgets)


def _keeps_a_fenced_member(patch: Patch) -> None:
    """A static member that came back is there twice."""
    real = join._replace_member_id

    def both(group: ClassicGroup, old: Any, member_id: str) -> Any:
        new = real(group, old, member_id)
        group.put(old)
        group.put(new)
        return new

    patch.setattr(join, "_replace_member_id", both)


def _forgets_the_record_of_a_replacement(patch: Patch) -> None:
    """The new id of a static member is not written down."""
    real = join._keep_generation

    def unwritten(step: Any, member: Any, old_member_id: str) -> None:
        real(step, member, old_member_id)
        step.records.clear()

    patch.setattr(join, "_keep_generation", unwritten)


def _gives_the_leaders_part_to_all(patch: Patch) -> None:
    """Every member is given what the first of the assignment is."""
    real = step.Decision.propagate_assignment

    def same(self: Any, assignments: dict[str, bytes]) -> None:
        first = next(iter(assignments.values()), b"")
        real(self, dict.fromkeys(assignments, first))

    patch.setattr(step.Decision, "propagate_assignment", same)


def _leaves_the_older_question_open(patch: Patch) -> None:
    """Who asks to join a second time is answered once."""
    real = join._update

    def silent(step: Any, request: Any, member: Any) -> None:
        real(step, request, replace(member, join_waiter=None))

    patch.setattr(join, "_update", silent)


def _raises_the_generation_twice(patch: Patch) -> None:
    """A rebalance that completes raises the generation once more, behind its members' backs."""
    real = step.Decision.complete_join

    def twice(self: Any) -> None:
        before = self.group.generation
        real(self)
        self.group.generation += self.group.generation - before

    patch.setattr(step.Decision, "complete_join", twice)


def _tells_every_leader_to_skip(patch: Patch) -> None:
    """No leader is asked for an assignment, so nobody has anything to do."""
    real = step.Decision.joined_response

    def skip(self: Any, member: Any, *, skip_assignment: bool = False) -> Any:
        return real(self, member, skip_assignment=True)

    patch.setattr(step.Decision, "joined_response", skip)


def _heartbeats_do_not_tell_of_a_rebalance(patch: Patch) -> None:
    """A member is not told that it has to join again."""
    patch.setattr(heartbeat, "_REJOIN", heartbeat._ALIVE)


def _writes_no_members(patch: Patch) -> None:
    """A stable group is written down without its members."""
    real = log.to_record

    def empty(group: ClassicGroup) -> Any:
        record = real(group)
        return record._replace(value=record.value.replace(members=()))  # type: ignore[union-attr]

    patch.setattr(log, "to_record", empty)


def _forgets_who_waits_for_the_leader(patch: Patch) -> None:
    """A rebalance that starts leaves those open who wait for their assignment."""

    def forgets(self: Any) -> None:
        for member in list(self.group.members.values()):
            self.group.put(replace(member, assignment=b"", sync_waiter=None))

    patch.setattr(step.Decision, "_reset_assignments", forgets)


def _syncs_of_strangers(patch: Patch) -> None:
    """A SyncGroup of another generation is answered."""
    real = HANDLERS[SyncGroupRequest]

    def taken(shard: Any, request: Any, context: Any) -> Any:
        group = shard.groups.get(request.group_id)
        return real(shard, request.replace(generation_id=group.generation) if group else request, context)

    patch.setitem(HANDLERS, SyncGroupRequest, taken)


BUGS: list[tuple[Callable[[Patch], None], dict[str, int], str, int]] = [
    (_accepts_another_generation, {}, "OtherGenerationsAreFenced", 10),
    (_forgets_the_session_timer, {"faults": 0}, "TimersMatchState", 2),
    (_keeps_a_fenced_member, {"faults": 0, "static": 1}, "SettledGroupsAreStored", 9),
    (_forgets_the_record_of_a_replacement, {"faults": 0, "static": 1}, "SettledGroupsAreStored", 9),
    (_gives_the_leaders_part_to_all, {"faults": 0}, "AssignmentsComeFromTheLeader", 12),
    (_leaves_the_older_question_open, {"records": 0}, "PendingRequestsAreTracked", 5),
    (_raises_the_generation_twice, {"faults": 0}, "GenerationsIncrease", 5),
    (_tells_every_leader_to_skip, {"faults": 0}, "EveryoneSettles", 8),
    (_heartbeats_do_not_tell_of_a_rebalance, {"faults": 0}, "HeartbeatsChangeNothing", 13),
    (_writes_no_members, {"faults": 0}, "SettledGroupsAreStored", 7),
    (_forgets_who_waits_for_the_leader, {"records": 0}, "PendingRequestsAreTracked", 13),
    (_syncs_of_strangers, {}, "OtherGenerationsAreFenced", 12),
]


@pytest.mark.parametrize(
    ("plant", "bounds", "invariant", "steps"), BUGS, ids=[bug[0].__name__[1:] for bug in BUGS]
)
def test_a_planted_bug_is_found_by_a_short_way(
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
        _gives_the_leaders_part_to_all, _leaves_the_older_question_open, _raises_the_generation_twice,
        _heartbeats_do_not_tell_of_a_rebalance, _writes_no_members, _forgets_who_waits_for_the_leader,
        _syncs_of_strangers, _accepts_another_generation,
    ],
)  # fmt: skip
def test_a_violation_is_a_scenario_that_violates_the_same_invariant(
    monkeypatch: Patch, plant: Callable[[Patch], None]
) -> None:
    """The way there is played on a whole coordinator, which violates the invariant at the last command."""
    bounds, invariant = next((bug[1], bug[2]) for bug in BUGS if bug[0] is plant)
    plant(monkeypatch)
    violation = check_model(**bounds).violation  # type: ignore[arg-type]
    assert violation is not None
    *before, last = violation.scenario.splitlines()
    played = Scenario()
    played.run(before)
    assert played.broken is None, violation.scenario
    assert played.run([last])[-1].startswith(f"broken {invariant}:"), violation.scenario
