"""Who speaks the classic protocol tells offsets alone: ends are looked up, and warm-ups catch up by them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.restorers import END, Restorer, Story, rounds

from konvene.errors import Errors
from konvene.groups.streams.classic import changelog_ends
from konvene.groups.streams.classic.changelog_ends import (
    LOOK_UP_ENDS,
    EndsFound,
    EndsToLookUp,
    estimated_ends,
    look_up_ends,
)
from konvene.groups.streams.current_assignment import Held
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Reported

KIP = {"konvene_streams_mode": "kip"}
ALL = ",".join(f"counts-{partition}:{END}" for partition in range(6))
"""Where all changelogs end."""


def asked(story: Story) -> list[EndsToLookUp]:
    """What is to be looked up, and has not been."""
    return [effect.subject for effect in story.life.effects if effect.verb == LOOK_UP_ENDS]


def tasks(wanted: EndsToLookUp) -> list[int]:
    return [partition for (_, partition), _ in wanted.tasks]


def known(story: Story, member_id: str) -> dict[int, int]:
    """What is known of where the tasks end that a member has."""
    assert story.group is not None
    return dict(story.group.reported_by(member_id).end_offsets.get("0", {}))


def scaled_out(topology: str = "0:orders!counts", **settings: str) -> tuple[Story, Restorer, Thread]:
    """ann, of the streams protocol, runs all six tasks and says nothing of them; bob, of the classic one, has
    come to warm two up."""
    story = Story(**(KIP | settings))
    ann, bob = Restorer("ann", "ann", topology, reports=False), Thread("bob")
    rounds(story, [ann], 2)
    bob.join(story)
    assert bob.sync(story) is Errors.NONE
    return story, ann, bob


def wait(story: Story, ann: Restorer, bob: Thread) -> None:
    """Until it is time to hear how far bob is. Whoever is in the group stays in it."""
    for _ in range(2):
        assert bob.beat(story) is Errors.NONE
        story.say("advance 30000")
        rounds(story, [ann])


def test_a_warm_up_catches_up_by_ends_that_were_looked_up() -> None:
    """The whole way: bob copies, joins when it is time, tells how far it is, and runs what it has copied."""
    story, ann, bob = scaled_out()
    assert (len(ann.active), bob.active, bob.standby) == (6, [], [("0", 0), ("0", 1)])
    assert asked(story) == []
    wait(story, ann, bob)
    bob.disk = {("0", 0): END - 10_000, ("0", 1): END - 10_001}
    assert bob.settle(story)
    assert [tasks(wanted) for wanted in asked(story)] == [[0, 1]]
    epoch = story.group.epoch
    lines = story.say(f"ends {ALL}")
    assert [line for line in lines if line.startswith("why")] == [
        f"why epoch {epoch + 1} Assigning: warmup-caught-up {bob.member_id} (0_0)"
    ]
    assert known(story, bob.member_id) == {0: END, 1: END}
    rounds(story, [ann], 2)
    assert bob.settle(story)
    assert (bob.active, bob.standby) == ([("0", 0)], [("0", 1), ("0", 2)])


def test_what_is_far_behind_goes_on_warming_up() -> None:
    story, ann, bob = scaled_out()
    wait(story, ann, bob)
    bob.disk = {("0", 0): 5, ("0", 1): END - 10_001}
    assert bob.settle(story)
    epoch = story.group.epoch
    story.say(f"ends {ALL}")
    assert (story.group.epoch, known(story, bob.member_id)) == (epoch, {0: END, 1: END})


def test_a_task_is_as_long_as_its_changelogs_together() -> None:
    """And of none of them may the end be unknown."""
    story = Story(**KIP)
    story.say("topic sums partitions=6")
    ann, bob = Restorer("ann", "ann", "0:orders!counts!sums"), Thread("bob", disk={("0", 0): 7, ("0", 1): 7})
    rounds(story, [ann], 2)
    bob.join(story)
    [wanted] = asked(story)
    assert wanted.tasks == tuple(
        ((("0", partition)), (("counts", partition), ("sums", partition))) for partition in (0, 1)
    )
    story.say("ends counts-0:30,sums-0:12,counts-1:30")
    assert known(story, bob.member_id) == {0: 42}


@pytest.mark.parametrize(("commits", "end"), [("", 0), ("orders-0:40", 40), ("orders-0:900", 100)])
def test_a_source_that_is_a_changelog_as_well_ends_where_it_is_committed(commits: str, end: int) -> None:
    """What was not processed yet is in no state. In mode `kip` no such topology is taken, but one that was
    stays."""
    story = Story()
    ann, bob = Restorer("ann", "ann", "0:orders!orders"), Thread("bob", disk={("0", 0): 1})
    rounds(story, [ann], 2)
    story.say("config konvene.streams.mode=kip")
    if commits:
        story.say(f"commit ann {commits} member={ann.member_id} generation={ann.epoch}")
    bob.join(story)
    story.say("ends orders-0:100")
    assert known(story, bob.member_id) == {0: end}


# --- what is asked for -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "topology", "disk", "expected"),
    [
        ({}, "0:orders!counts", {("0", 5): 1, ("0", 3): 0}, [[3, 5]]),
        ({}, "0:orders!counts", {}, []),
        ({}, "0:orders", {("0", 3): 1}, []),
        ({}, "0:orders!counts", {("0", 6): 1, ("1", 0): 1}, []),
        ({"group_streams_num_warmup_replicas": "0"}, "0:orders!counts", {("0", 3): 1}, []),
        ({"group_streams_assignors": "sticky"}, "0:orders!counts", {("0", 3): 1}, []),
    ],
)
def test_ends_are_looked_up_where_they_may_be_of_use(
    settings: dict[str, str], topology: str, disk: dict[Any, int], expected: list[list[int]]
) -> None:
    """Of tasks with state that there are, where an assignor looks at that."""
    story = Story(**(KIP | settings))
    ann, bob = Restorer("ann", "ann", topology, reports="!" in topology), Thread("bob", disk=disk)
    rounds(story, [ann], 2)
    bob.join(story)
    assert [tasks(wanted) for wanted in asked(story)] == expected


def test_versions_that_tell_no_offsets_are_not_asked_about() -> None:
    story = Story(**KIP)
    ann, bob = Restorer("ann", "ann", "0:orders!counts"), Thread("bob", version=6, disk={("0", 0): 7})
    rounds(story, [ann], 2)
    bob.join(story)
    assert asked(story) == []


def test_no_more_than_so_many_ends_are_looked_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of tasks that are waited for first."""
    monkeypatch.setattr(changelog_ends, "MAX_PARTITIONS", 3)
    story, _, bob = scaled_out()
    group = story.group
    assert group is not None and group.soft.configured is not None
    step = Decision(group.copy(), story.life.runtime.coordinator._internal_context())
    step.group.warmup = {"0": {4: {bob.member_id}, 5: {bob.member_id}}}
    step.report(bob.member_id, Reported({"0": dict.fromkeys(range(6), 5)}, reports=True))
    look_up_ends(step, bob.member_id, group.soft.configured)
    assert [tasks(effect.subject) for effect in step.effects] == [[4, 5, 0]]


# --- until the answer is there ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"0": {0: 70}}, {"0": {0: 100}}),
        ({"0": {0: 95}}, {"0": {0: 125}}),
        ({"0": {0: 69}}, {}),
        ({}, {}),
        ({"0": {1: 500, 3: 500}}, {"0": {1: 500}}),
        ({"1": {0: 500}}, {}),
    ],
)
def test_until_then_a_copy_is_as_far_behind_as_it_was(now: Any, expected: Any) -> None:
    """Of the copies that the member has; one that has lost something is another copy."""
    before = Reported({"0": {0: 70, 1: 90, 3: 70}}, {"0": {0: 100, 1: 80, 3: 100}}, reports=True)
    has = Held(standby={"0": (0,), "1": (0,)}, warmup={"0": (1, 2)})
    assert estimated_ends(now, before, has) == expected
    assert estimated_ends(now, None, has) == {}


def test_a_target_that_is_computed_before_the_answer_keeps_what_has_caught_up() -> None:
    """Alone in their group, members of the classic protocol have a target computed as they join: the epoch
    that moved since the warm-up has caught up is answered by the very member whose warm-up it is."""
    story, ann, bob = scaled_out(konvene_streams_migration_policy="upgrade")
    old = Thread("cid")
    old.join(story)
    old.sync(story)
    bob.disk = {("0", 0): END, ("0", 1): END}
    ann.leave(story)
    for _ in range(8):
        for each in (bob, old):
            each.settle(story)
            story.say(f"ends {ALL}")
    assert sorted([*bob.active, *old.active]) == [("0", partition) for partition in range(6)]
    assert bob.active and old.active


# --- answers ---------------------------------------------------------------------------------------


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    """The coordinator was loaded anew, and nobody is harmed."""
    story, _, bob = scaled_out()
    bob.disk = {("0", 0): END}
    story.say("restart")
    assert bob.settle(story)
    assert [tasks(wanted) for wanted in asked(story)] == [[0]]
    story.say("restart")
    assert asked(story) == []
    assert bob.settle(story)
    assert [tasks(wanted) for wanted in asked(story)] == [[0]]


def test_an_answer_about_somebody_else_changes_nothing() -> None:
    """About who is gone, or is of the streams protocol now, and about a group that is not there."""
    story, ann, bob = scaled_out()
    ann.beat(story, offsets="0-0:5")
    before = story.group.copy() if story.group is not None else None
    for group_id, member_id in (("g", "gone"), ("g", ann.member_id), ("h", bob.member_id)):
        wanted = EndsToLookUp(group_id, member_id, ((("0", 0), (("counts", 0),)),))
        story.life.inform(EndsFound(wanted, {("counts", 0): 7}))
    assert story.group == before


def test_an_answer_about_what_is_not_on_the_disk_any_more_is_left_out() -> None:
    story, _, bob = scaled_out()
    wanted = EndsToLookUp("g", bob.member_id, ((("0", 0), (("counts", 0),)),))
    story.life.inform(EndsFound(wanted, {("counts", 0): 7}))
    assert known(story, bob.member_id) == {}


def test_what_is_not_found_any_more_is_forgotten() -> None:
    """A changelog that was deleted has no end, whatever it was."""
    story, _, bob = scaled_out()
    bob.disk = {("0", 0): 5, ("0", 1): 5}
    bob.join(story)
    story.say(f"ends {ALL}")
    assert known(story, bob.member_id) == {0: END, 1: END}
    bob.join(story)
    assert known(story, bob.member_id) == {0: END, 1: END}
    story.say(f"ends counts-1:{END}")
    assert known(story, bob.member_id) == {1: END}
    bob.join(story)
    story.say("ends -")
    assert known(story, bob.member_id) == {}
