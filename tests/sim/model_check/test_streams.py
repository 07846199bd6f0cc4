"""All that can happen to a streams group of two processes, and that planted bugs are found by a short way."""

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


def searched(members: int = 2, faults: int = 0, *, static: int = 0, limit: int | None = None) -> SearchReport:
    return StreamsGroupModel(members, 1, faults, static=static).search(limit)


@pytest.mark.parametrize(
    ("members", "faults", "static", "states"), [(2, 0, 0, 3_139), (1, 1, 0, 300), (1, 1, 1, 300)]
)
def test_every_invariant_holds_and_every_member_settles(
    members: int, faults: int, static: int, states: int
) -> None:
    """Members of two processes, a standby, a changelog that is made; one of them with a fault, whatever it
    is, and with an instance id."""
    found = searched(members, faults, static=static)
    assert found.violated is None, (found.violated, found.path)
    assert not found.stuck, found.stuck
    assert not found.left
    assert found.states >= states


@pytest.mark.parametrize(("members", "faults", "static"), [(2, 1, 0), (3, 0, 0), (2, 1, 1)])
def test_states_near_the_start_violate_no_invariant(members: int, faults: int, static: int) -> None:
    """The whole of it takes minutes: `konvene sim check_model --groups streams --partitions 1`."""
    found = searched(members, faults, static=static, limit=1_500)
    assert found.violation is None, (found.violation, found.path)
    assert found.left


def test_a_world_that_cannot_be_is_told() -> None:
    for members, partitions, faults, static in ((0, 1, 0, 0), (9, 1, 0, 0), (2, 0, 0, 0), (1, 1, 0, 2)):
        with pytest.raises(ValueError, match="no such model"):
            StreamsGroupModel(members, partitions, faults, static=static)


# --- what it finds -----------------------------------------------------------------------------------


def grants_what_others_run(m: Patch) -> None:
    m.setattr(StreamsGroup, "processes", lambda group, role, subtopology, partition: frozenset())


def takes_silence_for_a_word(m: Patch) -> None:
    sound: Any = current_assignment._still_has
    m.setattr(current_assignment, "_still_has", lambda owned, held: owned is not None and sound(owned, held))


def never_gives_what_waits(m: Patch) -> None:
    sound: Any = current_assignment.next_assignment

    def advance(now: Any, target: Any, owned: Any) -> Any:
        waits = now.state is MemberState.UNRELEASED_TASKS and now.epoch == target.epoch
        return now if waits else sound(now, target, owned)

    m.setattr(targets, "next_assignment", advance)


def never_tells_who_lost_an_answer(m: Patch) -> None:
    m.setattr(heartbeat, "_lost_an_answer", lambda request, owned, old: False)


def leaves_an_emptied_group_behind(m: Patch) -> None:
    sound: Any = leave.fence

    def fence(step: Any, gone: Any) -> Any:
        outcome = sound(step, gone)
        kept = [r for r in outcome.records if "TargetAssignmentMetadata" not in type(r.key).__name__]
        return outcome._replace(records=tuple(kept))

    m.setattr(leave, "fence", fence)


@pytest.mark.parametrize(
    ("wrong", "members", "faults", "invariant"),
    [
        (grants_what_others_run, 2, 0, "ActiveTasksHaveOneOwner"),
        (takes_silence_for_a_word, 2, 0, "TaskRevocationsAreConfirmed"),
        (never_gives_what_waits, 2, 0, EVERYONE_SETTLES),
        (never_tells_who_lost_an_answer, 1, 1, "HeartbeatResponsesListTasks"),
        (leaves_an_emptied_group_behind, 2, 0, "EmptyStreamsGroupsHaveNoTargets"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_planted_bug_is_found_by_a_short_way(
    wrong: Callable[[Patch], None], members: int, faults: int, invariant: str, monkeypatch: Patch
) -> None:
    """The invariant that it breaks, or that somebody is stuck; the way is told step by step."""
    wrong(monkeypatch)
    found = searched(members, faults)
    assert found.violation is not None
    assert found.violation.invariant == invariant, found
    assert 0 < len(found.stuck or found.path) < 20


def test_an_answer_that_is_lost_leaves_nobody_behind(monkeypatch: Patch) -> None:
    """Kafka tells a member its tasks when they change, and if that answer is lost never again: without the
    invariant that tells at once, the search finds that nobody runs them."""
    never_tells_who_lost_an_answer(monkeypatch)
    world = StreamsGroupModel(1, 1, 1)
    monkeypatch.setattr(world, "check_event", lambda event: None)
    found = world.search()
    assert found.violation is not None and found.violation.invariant == EVERYONE_SETTLES
    assert any("loses a response" in step for step in found.stuck), found.stuck
