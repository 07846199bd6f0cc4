"""All that can happen to a share group and to the state of its share partitions, and that planted bugs are
found by a short way."""

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


def searched(
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
    """With an administrator who alters offsets, deletes them or the group; with a fault, whatever it is."""
    found = searched(members, faults, admin, joins=joins)
    assert found.violated is None, (found.violated, found.path)
    assert not found.stuck, found.stuck
    assert not found.left
    assert found.states >= states


@pytest.mark.parametrize(("members", "faults", "admin"), [(2, 0, 1), (2, 1, 1), (1, 2, 2)])
def test_states_near_the_start_violate_no_invariant(members: int, faults: int, admin: int) -> None:
    """The whole of it takes minutes: `konvene sim check_model --groups share --partitions 1`."""
    found = searched(members, faults, admin, limit=1_500)
    assert found.violation is None, (found.violation, found.path)
    assert found.left


def test_a_world_that_cannot_be_is_told() -> None:
    for members, static, admin in ((0, 0, 1), (2, 1, 1), (1, 0, -1)):
        with pytest.raises(ValueError, match="no such model"):
            ShareGroupModel(members, 1, 1, static=static, admin=admin)


# --- what it finds -----------------------------------------------------------------------------------


def has_added_ones_begin_by_the_reset(m: Patch) -> None:
    m.setattr(initialize, "_start_offset", lambda step, topic, partition: initialize.RESET)


def forgets_that_it_asked(m: Patch) -> None:
    m.setattr(initialize, "_is_pending", lambda step, topic: False)
    sound = initialize._start_offset
    m.setattr(
        initialize,
        "_start_offset",
        lambda step, topic, p: 0 if topic in step.state_topics.initializing else sound(step, topic, p),
    )


def begins_while_it_is_deleted(m: Patch) -> None:
    """A late answer counts."""
    m.setattr(
        StateTopics,
        "ending",
        lambda state, topics: StateTopics(
            state.initializing, state.initialized, {**state.deleting, **topics}
        ),
    )


def takes_an_answer_that_was_overtaken(m: Patch) -> None:
    sound: Any = share_states.initialized
    m.setattr(share_states, "initialized", lambda group, answers, overtaken: sound(group, answers))


def deletes_a_group_that_began_again(m: Patch) -> None:
    m.setattr(ShareGroup, "may_delete", property(lambda group: group.is_empty))


def alters_what_is_read(m: Patch) -> None:
    m.setattr(offsets, "_to_alter", lambda groups, name: groups.get(name) or ShareGroup(name))


def does_not_alter(m: Patch) -> None:
    """What is known already begins where it began."""
    sound: Any = transitions.initialize

    def initialized(core: Any, request: Any, context: Any) -> Any:
        known = core.states.get(request.key)
        at = request if known is None else request._replace(start_offset=known.start_offset)
        return sound(core, at, context)

    m.setitem(shard.HANDLERS, Initialize, initialized)


def answers_and_does_not_write(m: Patch) -> None:
    sound = transitions._answered
    m.setattr(
        transitions,
        "_answered",
        lambda context, answer, *records: sound(context, answer if records or answer.error else Answer()),
    )


def never_tells_of_what_has_begun(m: Patch) -> None:
    m.setattr(heartbeat, "assignment_lacks_some", lambda group, topics: False)


def leaves_the_epoch_behind(m: Patch) -> None:
    """The log is not told of it."""
    m.setattr(leave.Decision, "bump", lambda step, found: setattr(step, "epoch", step.epoch + 1))


@pytest.mark.parametrize(
    ("wrong", "joins", "invariant"),
    [
        (has_added_ones_begin_by_the_reset, 1, "NewPartitionsAreInitialized"),
        (forgets_that_it_asked, 1, "PartitionsBeginWhereTheyShould"),
        (begins_while_it_is_deleted, 1, "OnlyInitializedPartitionsAreAssigned"),
        (takes_an_answer_that_was_overtaken, 2, "WhatHasBegunIsKnown"),
        (deletes_a_group_that_began_again, 2, EVERYONE_SETTLES),
        (alters_what_is_read, 1, "OnlyEmptyGroupsAreAltered"),
        (does_not_alter, 1, "ShareStateBegins"),
        (answers_and_does_not_write, 1, "ShareStateBegins"),
        (never_tells_of_what_has_begun, 1, EVERYONE_SETTLES),
        (leaves_the_epoch_behind, 1, "ShareEpochsAreInOrder"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_planted_bug_is_found_by_a_short_way(
    wrong: Callable[[Patch], None], joins: int, invariant: str, monkeypatch: Patch
) -> None:
    """The invariant that it breaks, or that somebody is stuck; the way is told step by step."""
    wrong(monkeypatch)
    found = searched(joins=joins)
    assert found.violation is not None
    assert found.violation.invariant == invariant, (found.violation, found.path)
    assert 0 < len(found.stuck or found.path) < 20
