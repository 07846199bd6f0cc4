"""Model check of share groups and the state of their share partitions: no violation, planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from konvene.groups.share import heartbeat, initialize, leave, offsets
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.state_topics import StateTopics
from konvene.share_state import shard, transitions
from konvene.share_state.requests import Answer, Initialize
from konvene.sim.model_check import share_states
from konvene.sim.model_check.report import EVERYONE_SETTLES, SearchReport
from konvene.sim.model_check.share_groups import ShareGroupModel

Patch = pytest.MonkeyPatch


def search(
    members: int = 1, faults: int = 0, admin: int = 1, *, joins: int = 1, limit: int | None = None
) -> SearchReport:
    return ShareGroupModel(members, 1, faults, joins=joins, admin=admin).search(limit)


@pytest.mark.parametrize(
    ("members", "faults", "admin", "joins", "states"),
    [(1, 0, 1, 1, 900), (1, 1, 0, 1, 3_000)],
)
def test_every_invariant_holds_and_every_member_settles(
    members: int, faults: int, admin: int, joins: int, states: int
) -> None:
    """Complete searches: an administrator alters or deletes offsets, or deletes the group; a single fault."""
    report = search(members, faults, admin, joins=joins)
    assert report.violated is None, (report.violated, report.path)
    assert not report.stuck, report.stuck
    assert not report.left
    assert report.states >= states


@pytest.mark.parametrize(("members", "faults", "admin"), [(2, 0, 1), (2, 1, 1), (1, 2, 2)])
def test_states_near_the_start_violate_no_invariant(members: int, faults: int, admin: int) -> None:
    """The complete search takes minutes: `konvene sim model-check --groups share --partitions 1`."""
    report = search(members, faults, admin, limit=1_500)
    assert report.violation is None, (report.violation, report.path)
    assert report.left


def test_impossible_bounds_are_rejected() -> None:
    for members, static, admin in ((0, 0, 1), (2, 1, 1), (1, 0, -1)):
        with pytest.raises(ValueError, match="no such model"):
            ShareGroupModel(members, 1, 1, static=static, admin=admin)


# --- planted bugs ------------------------------------------------------------------------------------


def starts_added_partitions_by_the_reset_policy(m: Patch) -> None:
    m.setattr(initialize, "_start_offset", lambda step, topic, partition: initialize.RESET)


def forgets_pending_initializations(m: Patch) -> None:
    m.setattr(initialize, "_is_pending", lambda step, topic: False)
    sound = initialize._start_offset
    m.setattr(
        initialize,
        "_start_offset",
        lambda step, topic, p: 0 if topic in step.state_topics.initializing else sound(step, topic, p),
    )


def initializes_during_deletion(m: Patch) -> None:
    """Accept a response that arrives after the deletion began."""
    m.setattr(
        StateTopics,
        "with_deleting",
        lambda state, topics: StateTopics(
            state.initializing, state.initialized, {**state.deleting, **topics}
        ),
    )


def accepts_an_overtaken_response(m: Patch) -> None:
    sound: Any = share_states.initialization_result
    m.setattr(share_states, "initialization_result", lambda group, answers, overtaken: sound(group, answers))


def deletes_a_group_with_pending_initializations(m: Patch) -> None:
    m.setattr(ShareGroup, "may_delete", property(lambda group: group.is_empty))


def alters_offsets_of_a_group_with_members(m: Patch) -> None:
    m.setattr(offsets, "_to_alter", lambda groups, name: groups.get(name) or ShareGroup(name))


def ignores_altered_offsets(m: Patch) -> None:
    """Keep the old start offset when a share partition is initialized again."""
    sound: Any = transitions.initialize

    def initialized(core: Any, request: Any, context: Any) -> Any:
        known = core.states.get(request.key)
        unaltered = request if known is None else request._replace(start_offset=known.start_offset)
        return sound(core, unaltered, context)

    m.setitem(shard.HANDLERS, Initialize, initialized)


def answers_without_a_record(m: Patch) -> None:
    sound = transitions._answered
    m.setattr(
        transitions,
        "_answered",
        lambda context, answer, *records: sound(context, answer if records or answer.error else Answer()),
    )


def never_sends_initialized_partitions(m: Patch) -> None:
    m.setattr(heartbeat, "target_lacks_initialized", lambda group, topics: False)


def bumps_the_epoch_without_a_record(m: Patch) -> None:
    """Bump the group epoch without a record."""
    m.setattr(leave.Decision, "bump", lambda step, report: setattr(step, "epoch", step.epoch + 1))


@pytest.mark.parametrize(
    ("plant", "joins", "invariant"),
    [
        (starts_added_partitions_by_the_reset_policy, 1, "NewPartitionsAreInitialized"),
        (forgets_pending_initializations, 1, "StartOffsetsAreCorrect"),
        (initializes_during_deletion, 1, "OnlyInitializedPartitionsAreAssigned"),
        (accepts_an_overtaken_response, 2, "InitializedPartitionsHaveState"),
        (deletes_a_group_with_pending_initializations, 2, EVERYONE_SETTLES),
        (alters_offsets_of_a_group_with_members, 1, "OnlyEmptyGroupsAreAltered"),
        (ignores_altered_offsets, 1, "ShareStateBegins"),
        (answers_without_a_record, 1, "ShareStateBegins"),
        (never_sends_initialized_partitions, 1, EVERYONE_SETTLES),
        (bumps_the_epoch_without_a_record, 1, "ShareEpochsAreInOrder"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_planted_bug_is_found_with_a_short_path(
    plant: Callable[[Patch], None], joins: int, invariant: str, monkeypatch: Patch
) -> None:
    """The search reports the violated invariant, or a state that never settles, with the path to it."""
    plant(monkeypatch)
    report = search(joins=joins)
    assert report.violation is not None
    assert report.violation.invariant == invariant, (report.violation, report.path)
    assert 0 < len(report.stuck or report.path) < 20
