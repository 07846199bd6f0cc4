"""Model check of consumer groups: no violation, symmetry reduction, planted bugs."""

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


def search(members: int = 2, partitions: int = 2, faults: int = 0, *, static: int = 0) -> SearchReport:
    return ConsumerGroupModel(members, partitions, faults, static=static).search()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("members", "partitions", "faults", "static", "states"),
    [(2, 2, 0, 0, 5_682), (2, 1, 1, 0, 10_000), (2, 1, 0, 1, 5_000)],
)
def test_every_invariant_holds_and_every_member_settles(
    members: int, partitions: int, faults: int, static: int, states: int
) -> None:
    """Complete searches, with lost responses, expired sessions, restarts and a topic that grows."""
    report = search(members, partitions, faults, static=static)
    assert report.violated is None, (report.violated, report.path)
    assert not report.stuck, report.stuck
    assert not report.left
    assert report.states >= states


@pytest.mark.parametrize(("members", "partitions", "faults"), [(2, 1, 0), (1, 1, 1)])
def test_symmetry_reduction_divides_the_states_by_the_members(
    members: int, partitions: int, faults: int
) -> None:
    """With the symmetric assignor each state of two members exists twice, unless it is its own mirror image;
    the depth is the same."""
    plain, symmetric = (
        ConsumerGroupModel(members, partitions, faults, symmetric=symmetric) for symmetric in (False, True)
    )
    plain.assignors = symmetric.assignors
    full, reduced = plain.search(), symmetric.search()
    assert full.violation is None and reduced.violation is None
    assert (full.depth, full.left) == (reduced.depth, reduced.left) == (full.depth, 0)
    fewest = full.states // members
    assert fewest <= reduced.states <= fewest + fewest // 20 + 1


def test_three_members_to_depth_twelve() -> None:
    """The complete search, `konvene sim model-check --groups consumer --members 3 --partitions 1 --faults 0`,
    has 76,854 states."""
    report = ConsumerGroupModel(3, 1, 0).search(depth=12)
    assert report.violation is None
    assert (report.depth, report.left > 0) == (11, True)
    assert report.states > 1_000
    assert report.lines()[-1] == "all invariants held"


def test_impossible_bounds_are_rejected() -> None:
    for members, partitions, faults, static in (
        (0, 1, 0, 0),
        (9, 1, 0, 0),
        (2, 0, 0, 0),
        (2, 1, -1, 0),
        (1, 1, 0, 2),
    ):
        with pytest.raises(ValueError, match="no such model"):
            ConsumerGroupModel(members, partitions, faults, static=static)


# --- planted bugs ------------------------------------------------------------------------------------


def assigns_owned_partitions(m: Patch) -> None:
    m.setattr(ConsumerGroup, "owner_epoch", lambda group, topic, partition: NO_OWNER)


def treats_a_missing_report_as_revocation(m: Patch) -> None:
    sound: Any = current_assignment._holds_any
    m.setattr(current_assignment, "_holds_any", lambda owned, held: owned is not None and sound(owned, held))


def never_assigns_unreleased_partitions(m: Patch) -> None:
    sound: Any = current_assignment.next_assignment

    def advance(now: Any, target: Any, owned: Any, **more: Any) -> Any:
        waits = now.state is MemberState.UNRELEASED_PARTITIONS and now.epoch == target.epoch
        return now if waits else sound(now, target, owned, **more)

    m.setattr(targets, "next_assignment", advance)


def fences_a_rejoining_member(m: Patch) -> None:
    sound: Any = heartbeat._check_epoch
    m.setattr(heartbeat, "JOIN", 0)
    m.setattr(heartbeat, "_check_epoch", lambda member, epoch, owned: sound(member, epoch or 2**30, owned))


def leaves_an_emptied_group_unassigned(m: Patch) -> None:
    sound: Any = leave.fence

    def fence(step: Any, member: Any) -> Any:
        outcome = sound(step, member)
        kept = [r for r in outcome.records if "TargetAssignmentMetadata" not in type(r.key).__name__]
        return outcome._replace(records=tuple(kept))

    m.setattr(leave, "fence", fence)


def keeps_the_old_target(m: Patch) -> None:
    sound: Any = targets.Decision.record_target

    def write(step: Any, member_id: str, before: Any, given: Any) -> None:
        new = given.get(member_id, {})
        less = before is not None and sum(map(len, new.values())) < sum(map(len, before.values()))
        if not less:
            sound(step, member_id, before, given)

    m.setattr(targets.Decision, "record_target", write)


@pytest.mark.parametrize(
    ("plant", "faults", "invariant"),
    [
        (assigns_owned_partitions, 0, "PartitionsHaveOneOwner"),
        (treats_a_missing_report_as_revocation, 0, "RevocationsAreConfirmed"),
        (never_assigns_unreleased_partitions, 0, EVERYONE_SETTLES),
        (fences_a_rejoining_member, 1, "HeartbeatErrorsAreExpected"),
        (leaves_an_emptied_group_unassigned, 0, "EmptyGroupsHaveNoTargets"),
        (keeps_the_old_target, 0, "TargetsAreComplete"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_planted_bug_is_found_with_a_short_path(
    plant: Callable[[Patch], None], faults: int, invariant: str, monkeypatch: Patch
) -> None:
    """The search reports the violated invariant, or a state that never settles, with the path to it."""
    plant(monkeypatch)
    report = search(partitions=1 + (not faults), faults=faults)
    assert report.violation is not None
    assert report.violation.invariant == invariant, report
    assert report.as_dict()["violation"]["path"] == list(report.stuck or report.path)
    assert 0 < len(report.stuck or report.path) < 20


def test_search_is_deterministic() -> None:
    """Two searches with equal bounds have equal reports."""
    assert replace(search(partitions=1)) == search(partitions=1)
