"""Model check of streams groups with two processes: no violation, planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from konvene.groups.streams import current_assignment, heartbeat, leave, targets
from konvene.groups.streams.current_assignment import MemberState
from konvene.groups.streams.group import StreamsGroup
from konvene.sim.model_check.report import EVERYONE_SETTLES, SearchReport
from konvene.sim.model_check.streams_groups import StreamsGroupModel

Patch = pytest.MonkeyPatch


def search(members: int = 2, faults: int = 0, *, static: int = 0, limit: int | None = None) -> SearchReport:
    return StreamsGroupModel(members, 1, faults, static=static).search(limit)


@pytest.mark.parametrize(
    ("members", "faults", "static", "states"), [(2, 0, 0, 3_139), (1, 1, 0, 300), (1, 1, 1, 300)]
)
def test_every_invariant_holds_and_every_member_settles(
    members: int, faults: int, static: int, states: int
) -> None:
    """Complete searches: two processes with a standby and a changelog topic; one member with a fault, dynamic
    and static."""
    report = search(members, faults, static=static)
    assert report.violated is None, (report.violated, report.path)
    assert not report.stuck, report.stuck
    assert not report.left
    assert report.states >= states


@pytest.mark.parametrize(("members", "faults", "static"), [(2, 1, 0), (3, 0, 0), (2, 1, 1)])
def test_states_near_the_start_violate_no_invariant(members: int, faults: int, static: int) -> None:
    """The complete search takes minutes: `konvene sim model-check --groups streams --partitions 1`."""
    report = search(members, faults, static=static, limit=1_500)
    assert report.violation is None, (report.violation, report.path)
    assert report.left


def test_impossible_bounds_are_rejected() -> None:
    for members, partitions, faults, static in ((0, 1, 0, 0), (9, 1, 0, 0), (2, 0, 0, 0), (1, 1, 0, 2)):
        with pytest.raises(ValueError, match="no such model"):
            StreamsGroupModel(members, partitions, faults, static=static)


# --- planted bugs ------------------------------------------------------------------------------------


def assigns_running_tasks(m: Patch) -> None:
    m.setattr(StreamsGroup, "processes", lambda group, role, subtopology, partition: frozenset())


def treats_a_missing_report_as_revocation(m: Patch) -> None:
    sound: Any = current_assignment._owns_any
    m.setattr(current_assignment, "_owns_any", lambda owned, held: owned is not None and sound(owned, held))


def never_assigns_unreleased_tasks(m: Patch) -> None:
    sound: Any = current_assignment.next_assignment

    def advance(now: Any, target: Any, owned: Any) -> Any:
        waits = now.state is MemberState.UNRELEASED_TASKS and now.epoch == target.epoch
        return now if waits else sound(now, target, owned)

    m.setattr(targets, "next_assignment", advance)


def never_repeats_a_lost_response(m: Patch) -> None:
    m.setattr(heartbeat, "_may_have_missed_tasks", lambda request, owned, old: False)


def leaves_an_emptied_group_unassigned(m: Patch) -> None:
    sound: Any = leave.fence

    def fence(step: Any, member: Any) -> Any:
        outcome = sound(step, member)
        kept = [r for r in outcome.records if "TargetAssignmentMetadata" not in type(r.key).__name__]
        return outcome._replace(records=tuple(kept))

    m.setattr(leave, "fence", fence)


@pytest.mark.parametrize(
    ("plant", "members", "faults", "invariant"),
    [
        (assigns_running_tasks, 2, 0, "ActiveTasksHaveOneOwner"),
        (treats_a_missing_report_as_revocation, 2, 0, "TaskRevocationsAreConfirmed"),
        (never_assigns_unreleased_tasks, 2, 0, EVERYONE_SETTLES),
        (never_repeats_a_lost_response, 1, 1, "HeartbeatResponsesListTasks"),
        (leaves_an_emptied_group_unassigned, 2, 0, "EmptyStreamsGroupsHaveNoTargets"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_planted_bug_is_found_with_a_short_path(
    plant: Callable[[Patch], None], members: int, faults: int, invariant: str, monkeypatch: Patch
) -> None:
    """The search reports the violated invariant, or a state that never settles, with the path to it."""
    plant(monkeypatch)
    report = search(members, faults)
    assert report.violation is not None
    assert report.violation.invariant == invariant, report
    assert 0 < len(report.stuck or report.path) < 20


def test_unrepeated_tasks_after_a_lost_response_never_settle(monkeypatch: Patch) -> None:
    """Kafka sends a member its tasks only when they change. If that response is lost the tasks never run; the
    search finds this also without the invariant about responses."""
    never_repeats_a_lost_response(monkeypatch)
    model = StreamsGroupModel(1, 1, 1)
    monkeypatch.setattr(model, "check_event", lambda event: None)
    report = model.search()
    assert report.violation is not None and report.violation.invariant == EVERYONE_SETTLES
    assert any("loses a response" in step for step in report.stuck), report.stuck
