"""Classic members report offsets only: changelog ends are looked up, and warm-ups catch up by them."""

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
from konvene.groups.streams.current_assignment import OwnedTasks
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Reported

KIP = {"konvene_streams_mode": "kip"}
ALL = ",".join(f"counts-{partition}:{END}" for partition in range(6))
"""End offsets of all changelogs."""


def pending_lookups(story: Story) -> list[EndsToLookUp]:
    """Return the pending look-ups."""
    return [effect.subject for effect in story.life.effects if effect.verb == LOOK_UP_ENDS]


def tasks(lookup: EndsToLookUp) -> list[int]:
    return [partition for (_, partition), _ in lookup.tasks]


def known_ends(story: Story, member_id: str) -> dict[int, int]:
    """Return the known end offsets of a member's tasks."""
    assert story.group is not None
    return dict(story.group.reported_by(member_id).end_offsets.get("0", {}))


def scaled_out(topology: str = "0:orders!counts", **settings: str) -> tuple[Story, Restorer, Thread]:
    """Return a group in which ann, a streams member, runs all six tasks without reports, and bob, a classic
    member, warms up two of them."""
    story = Story(**(KIP | settings))
    ann, bob = Restorer("ann", "ann", topology, reports=False), Thread("bob")
    rounds(story, [ann], 2)
    bob.join(story)
    assert bob.sync(story) is Errors.NONE
    return story, ann, bob


def wait(story: Story, ann: Restorer, bob: Thread) -> None:
    """Advance the clock to bob's next report; no session expires meanwhile."""
    for _ in range(2):
        assert bob.beat(story) is Errors.NONE
        story.run("advance 30000")
        rounds(story, [ann])


def test_a_warm_up_catches_up_by_the_ends_that_were_looked_up() -> None:
    """End to end: bob copies, rejoins when it is due, reports its offsets, and runs the task that
    caught up."""
    story, ann, bob = scaled_out()
    assert (len(ann.active), bob.active, bob.standby) == (6, [], [("0", 0), ("0", 1)])
    assert pending_lookups(story) == []
    wait(story, ann, bob)
    bob.disk = {("0", 0): END - 10_000, ("0", 1): END - 10_001}
    assert bob.settle(story)
    assert [tasks(lookup) for lookup in pending_lookups(story)] == [[0, 1]]
    epoch = story.group.epoch
    lines = story.run(f"ends {ALL}")
    assert [line for line in lines if line.startswith("why")] == [
        f"why epoch {epoch + 1} Assigning: warmup-caught-up {bob.member_id} (0_0)"
    ]
    assert known_ends(story, bob.member_id) == {0: END, 1: END}
    rounds(story, [ann], 2)
    assert bob.settle(story)
    assert (bob.active, bob.standby) == ([("0", 0)], [("0", 1), ("0", 2)])


def test_a_copy_far_behind_continues_to_warm_up() -> None:
    story, ann, bob = scaled_out()
    wait(story, ann, bob)
    bob.disk = {("0", 0): 5, ("0", 1): END - 10_001}
    assert bob.settle(story)
    epoch = story.group.epoch
    story.run(f"ends {ALL}")
    assert (story.group.epoch, known_ends(story, bob.member_id)) == (epoch, {0: END, 1: END})


def test_the_end_of_a_task_is_the_sum_of_its_changelogs() -> None:
    """If all of their ends are known."""
    story = Story(**KIP)
    story.run("topic sums partitions=6")
    ann, bob = Restorer("ann", "ann", "0:orders!counts!sums"), Thread("bob", disk={("0", 0): 7, ("0", 1): 7})
    rounds(story, [ann], 2)
    bob.join(story)
    [lookup] = pending_lookups(story)
    assert lookup.tasks == tuple(
        ((("0", partition)), (("counts", partition), ("sums", partition))) for partition in (0, 1)
    )
    story.run("ends counts-0:30,sums-0:12,counts-1:30")
    assert known_ends(story, bob.member_id) == {0: 42}


@pytest.mark.parametrize(("commits", "end"), [("", 0), ("orders-0:40", 40), ("orders-0:900", 100)])
def test_a_source_used_as_changelog_ends_at_the_committed_offset(commits: str, end: int) -> None:
    """Unprocessed input is in no state. In mode `kip` no such topology is accepted, but an existing one
    stays."""
    story = Story()
    ann, bob = Restorer("ann", "ann", "0:orders!orders"), Thread("bob", disk={("0", 0): 1})
    rounds(story, [ann], 2)
    story.run("config konvene.streams.mode=kip")
    if commits:
        story.run(f"commit ann {commits} member={ann.member_id} generation={ann.epoch}")
    bob.join(story)
    story.run("ends orders-0:100")
    assert known_ends(story, bob.member_id) == {0: end}


# --- what is looked up ----------------------------------------------------------------------------


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
def test_ends_are_looked_up_only_if_needed(
    settings: dict[str, str], topology: str, disk: dict[Any, int], expected: list[list[int]]
) -> None:
    """For existing stateful tasks, and if the assignor uses the ends."""
    story = Story(**(KIP | settings))
    ann, bob = Restorer("ann", "ann", topology, reports="!" in topology), Thread("bob", disk=disk)
    rounds(story, [ann], 2)
    bob.join(story)
    assert [tasks(lookup) for lookup in pending_lookups(story)] == expected


def test_no_ends_are_looked_up_for_versions_without_offsets() -> None:
    story = Story(**KIP)
    ann, bob = Restorer("ann", "ann", "0:orders!counts"), Thread("bob", version=6, disk={("0", 0): 7})
    rounds(story, [ann], 2)
    bob.join(story)
    assert pending_lookups(story) == []


def test_the_number_of_looked_up_ends_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of tasks that are warming up first."""
    monkeypatch.setattr(changelog_ends, "MAX_PARTITIONS", 3)
    story, _, bob = scaled_out()
    group = story.group
    assert group is not None and group.soft.configured is not None
    decision = Decision(group.copy(), story.life.runtime.coordinator._internal_context())
    decision.group.warmup = {"0": {4: {bob.member_id}, 5: {bob.member_id}}}
    decision.report(bob.member_id, Reported({"0": dict.fromkeys(range(6), 5)}, reports=True))
    look_up_ends(decision, bob.member_id, group.soft.configured)
    assert [tasks(effect.subject) for effect in decision.effects] == [[4, 5, 0]]


# --- until the result ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"0": {0: 70}}, {"0": {0: 100}}),
        ({"0": {0: 95}}, {"0": {0: 125}}),
        ({"0": {0: 69}}, {}),
        ({}, {}),
        ({"0": {1: 500, 3: 500}}, {"0": {1: 500}}),
        ({"1": {0: 500}}, {}),
    ],
)
def test_until_the_result_the_lag_of_a_copy_is_unchanged(reported: Any, expected: Any) -> None:
    """For the copies that the member has; a copy that lost data counts as a new one."""
    before = Reported({"0": {0: 70, 1: 90, 3: 70}}, {"0": {0: 100, 1: 80, 3: 100}}, reports=True)
    held = OwnedTasks(standby={"0": (0,), "1": (0,)}, warmup={"0": (1, 2)})
    assert estimated_ends(reported, before, held) == expected
    assert estimated_ends(reported, None, held) == {}


def test_a_target_computed_before_the_result_keeps_caught_up_copies() -> None:
    """If all members are classic, a target is computed as they join: the member whose warm-up caught up is
    the one whose join computes it."""
    story, ann, bob = scaled_out(konvene_streams_migration_policy="upgrade")
    cid = Thread("cid")
    cid.join(story)
    cid.sync(story)
    bob.disk = {("0", 0): END, ("0", 1): END}
    ann.leave(story)
    for _ in range(8):
        for each in (bob, cid):
            each.settle(story)
            story.run(f"ends {ALL}")
    assert sorted([*bob.active, *cid.active]) == [("0", partition) for partition in range(6)]
    assert bob.active and cid.active


# --- results ---------------------------------------------------------------------------------------


def test_a_lost_look_up_is_repeated() -> None:
    """The coordinator was reloaded, and no member is affected."""
    story, _, bob = scaled_out()
    bob.disk = {("0", 0): END}
    story.run("restart")
    assert bob.settle(story)
    assert [tasks(lookup) for lookup in pending_lookups(story)] == [[0]]
    story.run("restart")
    assert pending_lookups(story) == []
    assert bob.settle(story)
    assert [tasks(lookup) for lookup in pending_lookups(story)] == [[0]]


def test_a_result_for_another_member_changes_nothing() -> None:
    """A result for a departed member, for a streams member, or for a missing group."""
    story, ann, bob = scaled_out()
    ann.beat(story, offsets="0-0:5")
    before = story.group.copy() if story.group is not None else None
    for group_id, member_id in (("g", "unknown"), ("g", ann.member_id), ("h", bob.member_id)):
        lookup = EndsToLookUp(group_id, member_id, ((("0", 0), (("counts", 0),)),))
        story.life.inform(EndsFound(lookup, {("counts", 0): 7}))
    assert story.group == before


def test_a_result_for_a_task_that_is_not_on_the_disk_is_ignored() -> None:
    story, _, bob = scaled_out()
    lookup = EndsToLookUp("g", bob.member_id, ((("0", 0), (("counts", 0),)),))
    story.life.inform(EndsFound(lookup, {("counts", 0): 7}))
    assert known_ends(story, bob.member_id) == {}


def test_ends_of_deleted_changelogs_are_removed() -> None:
    """A deleted changelog has no end, whatever it was before."""
    story, _, bob = scaled_out()
    bob.disk = {("0", 0): 5, ("0", 1): 5}
    bob.join(story)
    story.run(f"ends {ALL}")
    assert known_ends(story, bob.member_id) == {0: END, 1: END}
    bob.join(story)
    assert known_ends(story, bob.member_id) == {0: END, 1: END}
    story.run(f"ends counts-1:{END}")
    assert known_ends(story, bob.member_id) == {1: END}
    bob.join(story)
    story.run("ends -")
    assert known_ends(story, bob.member_id) == {}
