"""T8, T9: topology updates of a running application (KIP-1071), case by case, in mode `kip`.

A member brings the topology with the next topology epoch when it joins. It becomes the group's topology, and
members of the former one are stale. `test_stale_members` has the effect on targets, and random runs.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.streams.members import Member, Play
from tests.groups.streams.topology.test_stale_members import NEW, OLD, bounce, play, runs, settle

from konvene.errors import Errors
from konvene.groups.streams.group import State

STATES = {
    "Empty": ["streams-heartbeat ann join", "streams-heartbeat ann leave"],
    "NotReady": ["topic orders partitions=0", "streams-heartbeat ann join"],
    "Assigning": [
        "streams-heartbeat ann join",
        "config group.streams.assignment.interval.ms=9000",
        "streams-heartbeat eve join",
    ],
    "Reconciling": ["streams-heartbeat ann join", "streams-heartbeat eve join"],
    "Stable": ["streams-heartbeat ann join"],
}
"""Commands that bring a group with the topology of epoch 3 into each state."""


def in_state(name: str) -> Play:
    """Return a group in a state, after topologies 0 to 3; ann and eve have the last one."""
    found = play()
    for epoch in range(3):
        found.run(f"streams-heartbeat zoe join member=new topology-epoch={epoch}")
        found.run("streams-heartbeat zoe leave")
    for line in STATES[name]:
        found.run(f"{line} topology-epoch=3" if line.endswith("join") else line)
    assert found.group is not None
    assert (found.group.state, found.group.topology_epoch) == (name, 3)
    return found


def join_with(play: Play, name: str, topology: str, epoch: int, *more: str) -> tuple[Errors | None, str]:
    """Join with a topology; return the error and the error message."""
    play.run(
        f"streams-heartbeat {name} join topology={topology} topology-epoch={epoch} process=x {' '.join(more)}"
    )
    return play.error(name), play.answer(name).error_message or ""


# --- topology epochs -------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("topology", "epoch", "error", "message"),
    [
        (OLD, 3, Errors.NONE, ""),
        (
            NEW,
            3,
            Errors.STREAMS_INVALID_TOPOLOGY_EPOCH,
            "differs from the group's at the same topology epoch",
        ),
        (OLD, 2, Errors.STREAMS_TOPOLOGY_FENCED, "behind the group's topology epoch 3. To go back to an"),
        (NEW, 0, Errors.STREAMS_TOPOLOGY_FENCED, "bring it with topology epoch 4"),
        (NEW, 4, Errors.NONE, ""),
        (OLD, 4, Errors.NONE, ""),
        (NEW, 5, Errors.STREAMS_INVALID_TOPOLOGY_EPOCH, "too far ahead: the group's is 3"),
        (OLD, 9, Errors.STREAMS_INVALID_TOPOLOGY_EPOCH, "has to come with 4"),
    ],
)
def test_the_epoch_decides(state: str, topology: str, epoch: int, error: Errors, message: str) -> None:
    """In each state the topology epoch alone decides. A refusal changes nothing, and its message gives the
    epoch that would be accepted."""
    group = in_state(state)
    assert group.group is not None
    before, known = group.group.copy(), group.group.topology
    found, text = join_with(group, "bob", topology, epoch)
    assert found == error
    assert message in text
    after = group.group
    if error:
        assert after == before
    else:
        assert after.epoch == before.epoch + 1
        assert after.topology_epoch == epoch
        assert (after.topology is known) == (epoch == 3)


def test_an_update_is_reported_and_logged() -> None:
    """Record 23 is written, the cause names the member that brought it, and replay restores the topology and
    the stale members."""
    group = play()
    ann = Member("ann", "p", OLD)
    settle(group, ann)
    lines = group.run(f"streams-heartbeat bob join topology={NEW} topology-epoch=1")
    assert "record topology g epoch 1 of 0,1" in lines
    assert [line for line in lines if line.startswith("why")] == [
        "why epoch 3 Assigning: member-joined bob-1, "
        "topology-updated bob-1 (epoch 0 to 1: + subtopology 1), topology-ready"
    ]
    for how in ("restart", "compact", "compact tombstones=yes"):
        group.run(how)
        assert group.group is not None
        assert group.group.topology_epoch == 1
        assert set(group.group.topology.subtopologies if group.group.topology else ()) == {"0", "1"}
        assert {m.topology_epoch for m in group.group.members.values()} == {0, 1}
        assert not ann.beat(group)
        assert ann.status == (0,)


def test_an_equal_topology_at_the_next_epoch_is_an_update() -> None:
    """KIP-1071 compares topologies only at the same epoch: members of the former epoch are stale."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    before = runs(ann)
    bounce(group, bob, OLD)
    settle(group, ann, bob)
    assert (ann.status, bob.status) == ((0,), ())
    assert runs(ann) <= before
    bounce(group, ann, OLD)
    settle(group, ann, bob)
    assert (ann.status, bob.status) == ((), ())


def test_several_members_bring_the_same_update() -> None:
    """The first one updates the group, the others join with the same topology; another topology at the same
    epoch is refused."""
    group = play()
    members = [Member(name, name, OLD) for name in ("ann", "bob", "cid", "dan")]
    settle(group, *members)
    for member in members[1:]:
        member.leave(group)
    for member in members[1:3]:
        member.topology = f"{NEW} topology-epoch=1"
        assert not member.beat(group)
    error, words = join_with(group, "dan", "0:orders|1:orders", 1, "member=new")
    assert error == Errors.STREAMS_INVALID_TOPOLOGY_EPOCH
    assert "with topology epoch 2" in words
    settle(group, *members[:3])
    assert group.group is not None and group.group.topology_epoch == 1
    assert [member.status for member in members[:3]] == [(0,), (), ()]


# --- existing members ------------------------------------------------------------------------------


@pytest.mark.parametrize("hurry", ["", "config group.streams.assignment.interval.ms=9000", "heavy 0"])
@pytest.mark.parametrize("instance", [None, "i"])
def test_a_member_that_returns_with_the_update_gets_no_former_tasks(instance: str | None, hurry: str) -> None:
    """Neither by its instance id nor by its former member id, nor while a target is due or being computed:
    its subtopology 0 may not exist any more."""
    group = play()
    ann, bob = Member("ann", "p", "0:orders"), Member("bob", "q", "0:orders", instance)
    settle(group, ann, bob)
    assert runs(bob)
    if hurry:
        group.run("advance 10000")
        assert not ann.beat(group)
        assert not bob.beat(group)
        group.run(hurry)
        assert join_with(group, "cid", "0:orders", 0)[0] is Errors.NONE  # A target was requested just now.
    kept = bob.member_id
    if instance is not None:
        bob.leave(group, "away")
    bob.forget(anew=instance is not None)
    bob.topology = "1:audit topology-epoch=1"
    assert not bob.beat(group)
    assert (bob.member_id == kept) == (instance is None)
    assert {name for _, name, _ in bob.assigned} <= {"1"}
    before = runs(ann)
    for _ in range(3):
        group.run("work")
        group.run("advance 10000")
        settle(group, ann, bob)
    assert runs(bob, "1") == {0}
    assert (runs(bob), runs(ann)) == (set(), set())
    assert before


def test_a_stale_member_does_not_get_a_pending_task() -> None:
    """A member that waits for a task of the former target, and is stale from now on, does not get it."""
    group = play()
    ann, bob, cid = (Member(name, name, OLD) for name in ("ann", "bob", "cid"))
    settle(group, ann)
    assert not bob.beat(group)
    assert group.group is not None and group.group.target_of(bob.member_id).active
    assert not bob.owns
    cid.topology = f"{NEW} topology-epoch=1"
    assert not cid.beat(group)
    settle(group, ann, bob, cid)
    assert bob.owns == set()
    assert runs(ann) | runs(cid) == set(range(9))
    assert group.group.state == State.STABLE


def test_a_stale_member_without_tasks_gets_none() -> None:
    """The update comes during the initial delay: the member that brought it gets all tasks."""
    group = play(group_streams_initial_rebalance_delay_ms="3000")
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", f"{NEW} topology-epoch=1")
    assert not ann.beat(group)
    assert not bob.beat(group)
    group.run("advance 3000")
    settle(group, ann, bob)
    assert (ann.owns, ann.status) == (set(), (0,))
    assert runs(bob) == set(range(9))
    assert runs(bob, "1") == {0}


# --- departure of the member that brought it ------------------------------------------------------


def test_the_member_that_brought_the_update_leaves() -> None:
    """The others keep all of their tasks, although targets are computed for them alone: no stale member could
    take over what another one would lose."""
    group = play()
    ann, bob, cid = (Member(name, name, "0:orders|1:audit") for name in ("ann", "bob", "cid"))
    settle(group, ann, bob)
    held = {member.name: runs(member) for member in (ann, bob)}
    cid.topology = "0:orders topology-epoch=1"
    assert not cid.beat(group)
    cid.leave(group)
    group.run("topic orders partitions=10")
    settle(group, ann, bob)
    for member in (ann, bob):
        assert runs(member) == held[member.name]
        assert runs(member, "1") == set()
    assert len(runs(ann)) != len(runs(bob)) or held["ann"] | held["bob"] == set(range(9))


def test_stale_members_keep_an_uneven_assignment() -> None:
    """No stale member may take over another one's tasks, so they stay."""
    group = play()
    group.run("topic audit partitions=6")
    ann, bob, cid = (Member(name, name, "0:orders|1:audit") for name in ("ann", "bob", "cid"))
    group.run("streams-targets ann=0:0-8 bob=1:0-5")
    group.run("config group.streams.initial.rebalance.delay.ms=1000")
    for member in (ann, bob):
        assert not member.beat(group)
    group.run("advance 1000")
    settle(group, ann, bob)
    assert (runs(ann), runs(bob, "1")) == (set(range(9)), set(range(6)))
    cid.topology = "0:orders topology-epoch=1"
    group.run("streams-targets ann=0:0-8")
    assert not cid.beat(group)
    group.run("streams-targets")
    cid.leave(group)
    settle(group, ann, bob)
    assert (runs(ann), bob.owns) == (set(range(9)), set())


# --- going back to a former topology ---------------------------------------------------------------


def test_a_former_topology_needs_the_next_epoch() -> None:
    """A former topology has to come with the next epoch. With its own epoch it is refused, even by an empty
    group; only a deleted group starts from scratch."""
    group = play()
    ann = Member("ann", "p", f"{NEW} topology-epoch=1")
    group.run(f"streams-heartbeat zoe join topology={OLD}")
    group.run("streams-heartbeat zoe leave")
    settle(group, ann)
    error, words = join_with(group, "bob", OLD, 0)
    assert error is Errors.STREAMS_TOPOLOGY_FENCED
    assert words.endswith("To go back to an earlier topology, bring it with topology epoch 2.")
    ann.leave(group)
    assert join_with(group, "bob", OLD, 0)[0] is Errors.STREAMS_TOPOLOGY_FENCED
    assert join_with(group, "bob", OLD, 2)[0] is Errors.NONE
    group.run("streams-heartbeat bob leave")
    assert join_with(group, "bob", NEW, 1, "member=new")[0] is Errors.STREAMS_TOPOLOGY_FENCED
    group.run("delete g")
    assert join_with(group, "bob", NEW, 1, "member=new")[0] is Errors.NONE


# --- what two topologies have in common ------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("0:orders", "0:orders+more"),  # Fewer tasks before: its copartitioned source is larger.
        ("0:orders+more", "0:orders"),
        ("0:orders", "0:orders!store"),
        ("0:orders!store", "0:orders"),
        ("0:orders!store", "0:orders!other"),
        ("0:orders|1:audit", "1:orders|0:audit"),
        ("0:orders", "7:audit"),
    ],
)
def test_a_subtopology_changes_under_the_same_id(before: str, after: str) -> None:
    """A subtopology of the same id may have more or fewer tasks, other topics, state or none: a stale member
    keeps the tasks that still exist in their roles, and in the end every task runs once."""
    group = play()
    group.run("topic more partitions=12")
    for store in ("store", "other"):
        group.run(f"topic {store} partitions=9")
    group.run("config group.streams.num.standby.replicas=1")
    ann, bob, cid = (Member(name, name, before) for name in ("ann", "bob", "cid"))
    settle(group, ann, bob, cid)
    for member in (cid, bob, ann):
        behind = [other for other in (ann, bob, cid) if "epoch" not in other.topology and other is not member]
        member.leave(group)
        settle(group, *(other for other in (ann, bob, cid) if other is not member))
        held = {other.name: set(other.owns) for other in behind}
        member.topology = f"{after} topology-epoch=1"
        settle(group, member, *(other for other in (ann, bob, cid) if other is not member))
        for other in behind:
            assert other.owns <= held[other.name]
            assert other.status == (0,)
    active = [unit for member in (ann, bob, cid) for unit in member.owns if unit[0] == "active"]
    assert group.group is not None and group.group.state == State.STABLE
    assert sorted(unit[1:] for unit in active) == sorted(every_task(group))


def every_task(play: Play) -> list[tuple[str, int]]:
    """Return all tasks of the group's topology, by its largest sources."""
    assert play.group is not None and play.group.topology is not None
    by_name = play.life.topics.by_name
    return [
        (name, partition)
        for name, each in play.group.topology.subtopologies.items()
        for partition in range(max(by_name[topic].partitions for topic in each.source_topics))
    ]


def test_a_stale_member_may_report_all_of_its_former_tasks() -> None:
    """Tasks and offsets of removed or smaller subtopologies were valid when they were assigned. From an
    up-to-date member they are invalid."""
    group = play()
    ann, bob = Member("ann", "p", "0:orders!store|8:audit"), Member("bob", "q", OLD)
    group.run("topic store partitions=9")
    settle(group, ann)
    bounce(group, bob, OLD)
    for role in ("active=0:8,8:0", "standby=0:8", "warmup=8:0"):
        for more in ("", "offsets=0-8:5,8-0:7 ends=0-8:6,8-0:7"):
            lists = {"active": "-", "standby": "-", "warmup": "-"} | dict([role.split("=")])
            arguments = " ".join(f"{key}={value}" for key, value in lists.items())
            group.run(f"streams-heartbeat ann member={ann.member_id} epoch={ann.epoch} {arguments} {more}")
            assert group.error("ann") is Errors.NONE, arguments
            ann.epoch = group.answer("ann").member_epoch
            assert group.answer("ann").status[0].status_code == 0
    group.run(f"streams-heartbeat bob member={bob.member_id} epoch={bob.epoch} owns=8:0")
    assert group.error("bob") is Errors.INVALID_REQUEST


def test_every_response_to_a_stale_member_has_its_status() -> None:
    """Also those without any report or change."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    bounce(group, bob, NEW)
    settle(group, ann, bob)
    for reports_owned in (False, True, False):
        assert not ann.beat(group, reports_owned=reports_owned)
        (status,) = group.answer("ann").status
        assert status.status_code == 0
        assert status.status_detail == (
            "The member's topology epoch 0 is behind the group's topology epoch 1."
        )


# --- internal topics -------------------------------------------------------------------------------

WORDS = "0:orders>words|1:<words!counts"
MORE_WORDS = "0:orders>words|1:<words!counts>pairs|2:<pairs/2!pair-counts"


@pytest.mark.parametrize("how", ["create", "create fails", "create denied"])
def test_stale_members_keep_their_tasks_while_topics_are_created(how: str) -> None:
    """Only the missing topics of the new topology are requested; meanwhile the group is NotReady, the member
    that brought it waits, and stale members keep their tasks."""
    group = play()
    ann, bob = Member("ann", "p", WORDS), Member("bob", "q", WORDS)
    settle(group, ann)
    group.run("create")
    settle(group, ann, bob)
    bob.leave(group)
    settle(group, ann)
    held = set(ann.owns)
    assert {name for _, name, _ in held} == {"0", "1"}
    bob.topology = f"{MORE_WORDS} topology-epoch=1"
    lines = group.run(
        f"streams-heartbeat bob join member=bob-9 process=q topology={MORE_WORDS} topology-epoch=1"
    )
    bob.member_id, bob.epoch = "bob-9", group.answer("bob").member_epoch
    assert [line for line in lines if line.startswith("work")] == [
        "work create-internal-topics g pair-counts:2,pairs:2"
    ]
    before = {name: topic.partitions for name, topic in group.life.topics.by_name.items()}
    settle(group, ann, bob)
    assert group.group is not None and group.group.state == State.NOT_READY
    assert (ann.owns, bob.owns) == (held, set())
    assert (0 in ann.status, 3 in ann.status, bob.status) == (True, True, (3,))
    group.run(how)
    settle(group, ann, bob)
    if how != "create":
        assert (ann.owns, bob.owns) == (held, set())
        group.run("advance 10000")
        settle(group, ann, bob)
        group.run("create")
        settle(group, ann, bob)
    topics = {name: topic.partitions for name, topic in group.life.topics.by_name.items()}
    assert topics == before | {"pairs": 2, "pair-counts": 2}
    assert group.group.state == State.STABLE
    assert ann.owns < held
    assert runs(bob, "2") == {0, 1}
    assert runs(ann) | runs(bob) == runs(ann, "1") | runs(bob, "1") == set(range(9))


def test_a_topology_that_cannot_run_does_not_stop_stale_members() -> None:
    """A source is missing, or sources do not fit: an operator has time to repair that, or to go back with the
    next epoch."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    held = set(ann.owns)
    bounce(group, bob, "0:orders|1:nowhere")
    settle(group, ann, bob)
    assert group.group is not None and group.group.state == State.NOT_READY
    assert (ann.owns, bob.owns) == (held, set())
    bob.leave(group)
    bob.topology = f"{OLD} topology-epoch=2"
    settle(group, ann, bob)
    assert group.group.state == State.STABLE
    assert ann.owns <= held
    assert runs(ann) | runs(bob) == set(range(9))


def test_stale_members_keep_their_tasks_until_expressions_are_resolved() -> None:
    """The new topology has an expression: until it is resolved there are no tasks for the member that brought
    it, and the others keep theirs. The same after a coordinator restart."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    held = set(ann.owns)
    bounce(group, bob, "0:~ord.*")
    settle(group, ann, bob)
    assert (ann.owns, bob.owns) == (held, set())
    group.run("work")
    settle(group, ann, bob)
    kept = set(ann.owns)
    assert kept <= held
    assert runs(ann) | runs(bob) == set(range(9))
    for how in ("restart", "compact"):
        group.run(how)
        settle(group, ann, bob)
        assert ann.status[0] == 0
        group.run("work")
        settle(group, ann, bob)
        assert ann.owns == kept
        assert runs(ann) | runs(bob) == set(range(9))


# --- fail-over -------------------------------------------------------------------------------------

PHASES = 12


@pytest.mark.parametrize("how", ["restart", "compact", "compact tombstones=yes", "fail"])
@pytest.mark.parametrize("phase", range(PHASES))
def test_a_rolling_bounce_survives_coordinator_restarts(how: str, phase: int) -> None:
    """After whichever message of a rolling bounce: the members' tasks and the end state are the same."""
    assert rolled(phase, how) == rolled(-1, "")


def rolled(phase: int, how: str) -> dict[str, Any]:
    """Bounce two members one after the other, with a coordinator restart before one message."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    held, nth = runs(ann), 0

    def beat(member: Member) -> None:
        nonlocal nth
        if nth == phase:
            group.run(how)
            if how == "fail":
                member.beat(group, lost=True, rack="r")
                group.run("durable")
        nth += 1
        assert member.beat(group) is Errors.NONE

    for member in (bob, ann):
        other = ann if member is bob else bob
        member.leave(group)
        member.topology = f"{NEW} topology-epoch=1"
        for each in (member, other, other, member, member, other):
            beat(each)
        assert member is ann or runs(ann) <= held
    assert nth == PHASES
    assert group.group is not None
    assert runs(ann) | runs(bob) == set(range(9))
    return {"ann": ann.owns, "bob": bob.owns, "state": group.group.state}
