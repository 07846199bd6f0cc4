"""All that can happen to a consumer group of two, and that planted bugs are found by a short way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from konvene.groups.consumer import current_assignment, heartbeat, leave, targets
from konvene.groups.consumer.current_assignment import NO_OWNER, MemberState
from konvene.groups.consumer.group import ConsumerGroup
from konvene.sim.model_check.consumer_groups import ConsumerGroupModel
from konvene.sim.model_check.report import EVERYONE_SETTLES, SearchReport

Patch = pytest.MonkeyPatch


def searched(members: int = 2, partitions: int = 2, faults: int = 0, *, static: int = 0) -> SearchReport:
    return ConsumerGroupModel(members, partitions, faults, static=static).search()


@pytest.mark.parametrize(
    ("members", "partitions", "faults", "static", "states"),
    [(2, 2, 0, 0, 5_682), (2, 1, 1, 0, 10_000), (2, 1, 0, 1, 5_000)],
)
def test_every_invariant_holds_and_every_member_settles(
    members: int, partitions: int, faults: int, static: int, states: int
) -> None:
    """Two members, answers that are lost, sessions that end, restarts, a topic that grows: all of it."""
    found = searched(members, partitions, faults, static=static)
    assert found.violated is None, (found.violated, found.path)
    assert not found.stuck, found.stuck
    assert not found.left
    assert found.states >= states


@pytest.mark.parametrize(("members", "partitions", "faults"), [(2, 1, 0), (1, 1, 1)])
def test_members_who_stand_for_one_another_are_as_many_states_fewer(
    members: int, partitions: int, faults: int
) -> None:
    """With the assignor that knows no names each state of two members was there twice, but for those that
    look the same from both; as deep as before, and all else is as it was."""
    apart, alike = (ConsumerGroupModel(members, partitions, faults, alike=alike) for alike in (False, True))
    apart.assignors = alike.assignors
    every, one = apart.search(), alike.search()
    assert every.violation is None and one.violation is None
    assert (every.depth, every.left) == (one.depth, one.left) == (every.depth, 0)
    fewest = every.states // members
    assert fewest <= one.states <= fewest + fewest // 20 + 1


def test_three_members_as_far_as_twelve_steps() -> None:
    """The whole of it is 76,854 states: `konvene sim model-check --groups consumer --members 3 --partitions 1
    --faults 0`."""
    found = ConsumerGroupModel(3, 1, 0).search(depth=12)
    assert found.violation is None
    assert (found.depth, found.left > 0) == (11, True)
    assert found.states > 1_000
    assert found.lines()[-1] == "all invariants held"


def test_a_world_that_cannot_be_is_told() -> None:
    for members, partitions, faults, static in (
        (0, 1, 0, 0),
        (9, 1, 0, 0),
        (2, 0, 0, 0),
        (2, 1, -1, 0),
        (1, 1, 0, 2),
    ):
        with pytest.raises(ValueError, match="no such model"):
            ConsumerGroupModel(members, partitions, faults, static=static)


# --- what it finds -----------------------------------------------------------------------------------


def grants_what_others_have(m: Patch) -> None:
    m.setattr(ConsumerGroup, "owner_epoch", lambda group, topic, partition: NO_OWNER)


def takes_silence_for_a_word(m: Patch) -> None:
    sound: Any = current_assignment._holds_any
    m.setattr(current_assignment, "_holds_any", lambda owned, held: owned is not None and sound(owned, held))


def never_gives_what_waits(m: Patch) -> None:
    sound: Any = current_assignment.next_assignment

    def advance(now: Any, target: Any, owned: Any, **more: Any) -> Any:
        waits = now.state is MemberState.UNRELEASED_PARTITIONS and now.epoch == target.epoch
        return now if waits else sound(now, target, owned, **more)

    m.setattr(targets, "next_assignment", advance)


def fences_who_comes_back(m: Patch) -> None:
    sound: Any = heartbeat._check_epoch
    m.setattr(heartbeat, "JOIN", 0)
    m.setattr(heartbeat, "_check_epoch", lambda member, epoch, owned: sound(member, epoch or 2**30, owned))


def leaves_an_emptied_group_behind(m: Patch) -> None:
    sound: Any = leave.fence

    def fence(step: Any, gone: Any) -> Any:
        outcome = sound(step, gone)
        kept = [r for r in outcome.records if "TargetAssignmentMetadata" not in type(r.key).__name__]
        return outcome._replace(records=tuple(kept))

    m.setattr(leave, "fence", fence)


def keeps_the_old_target(m: Patch) -> None:
    sound: Any = targets._write

    def write(step: Any, member_id: str, before: Any, given: Any) -> None:
        mine = given.get(member_id, {})
        less = before is not None and sum(map(len, mine.values())) < sum(map(len, before.values()))
        if not less:
            sound(step, member_id, before, given)

    m.setattr(targets, "_write", write)


@pytest.mark.parametrize(
    ("wrong", "faults", "invariant"),
    [
        (grants_what_others_have, 0, "PartitionsHaveOneOwner"),
        (takes_silence_for_a_word, 0, "RevocationsAreConfirmed"),
        (never_gives_what_waits, 0, EVERYONE_SETTLES),
        (fences_who_comes_back, 1, "HeartbeatErrorsAreExpected"),
        (leaves_an_emptied_group_behind, 0, "EmptyGroupsHaveNoTargets"),
        (keeps_the_old_target, 0, "TargetsAreComplete"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_planted_bug_is_found_by_a_short_way(
    wrong: Callable[[Patch], None], faults: int, invariant: str, monkeypatch: Patch
) -> None:
    """The invariant that it breaks, or that somebody is stuck; the way is told step by step."""
    wrong(monkeypatch)
    found = searched(partitions=1 + (not faults), faults=faults)
    assert found.violation is not None
    assert found.violation.invariant == invariant, found
    assert found.as_dict()["violation"]["path"] == list(found.stuck or found.path)
    assert 0 < len(found.stuck or found.path) < 20


def test_the_same_search_finds_the_same() -> None:
    """Two searches are the same, number by number."""
    assert replace(searched(partitions=1)) == searched(partitions=1)
