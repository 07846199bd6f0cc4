"""T8, T9: an application is given its next topology while it runs (KIP-1071), case by case, in mode `kip`.

A member brings it with the next topology epoch when it joins; the group's topology is that one from then on,
and who has the one before is behind. `test_stale` has what assignors say to that, and random lives.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.streams.members import Member, Play
from tests.groups.streams.topology.test_stale_members import NEW, OLD, again, play, runs, settle

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
"""What brings a group of the topology of epoch 3 into each state."""


def in_state(name: str) -> Play:
    """A group in this state, which has had topologies 0 to 3; ann and eve have the last one."""
    found = play()
    for epoch in range(3):
        found.say(f"streams-heartbeat zoe join member=new topology-epoch={epoch}")
        found.say("streams-heartbeat zoe leave")
    for line in STATES[name]:
        found.say(f"{line} topology-epoch=3" if line.endswith("join") else line)
    assert found.group is not None
    assert (found.group.state, found.group.topology_epoch) == (name, 3)
    return found


def joins(play: Play, who: str, topology: str, epoch: int, *more: str) -> tuple[Errors | None, str]:
    """Who joins with a topology is answered."""
    play.say(
        f"streams-heartbeat {who} join topology={topology} topology-epoch={epoch} process=x {' '.join(more)}"
    )
    return play.error(who), play.answer(who).error_message or ""


# --- which epoch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("topology", "epoch", "error", "words"),
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
def test_the_epoch_decides(state: str, topology: str, epoch: int, error: Errors, words: str) -> None:
    """Whatever state the group is in, the epoch that comes with a topology says what becomes of it. What is
    refused leaves no trace, and the words say what would be taken."""
    group = in_state(state)
    assert group.group is not None
    before, known = group.group.copy(), group.group.topology
    found, said = joins(group, "bob", topology, epoch)
    assert found == error
    assert words in said
    after = group.group
    if error:
        assert after == before
    else:
        assert after.epoch == before.epoch + 1
        assert after.topology_epoch == epoch
        assert (after.topology is known) == (epoch == 3)


def test_it_is_told_as_an_update_and_is_in_the_log() -> None:
    """Record 23 is written again, the cause names who brought it, and a coordinator that reads the log knows
    the next topology, and who is behind."""
    group = play()
    ann = Member("ann", "p", OLD)
    settle(group, ann)
    lines = group.say(f"streams-heartbeat bob join topology={NEW} topology-epoch=1")
    assert "record topology g epoch 1 of 0,1" in lines
    assert [line for line in lines if line.startswith("why")] == [
        "why epoch 3 Assigning: member-joined bob-1, "
        "topology-updated bob-1 (epoch 0 to 1: + subtopology 1), topology-ready"
    ]
    for how in ("restart", "compact", "compact tombstones=yes"):
        group.say(how)
        assert group.group is not None
        assert group.group.topology_epoch == 1
        assert set(group.group.topology.subtopologies if group.group.topology else ()) == {"0", "1"}
        assert {m.topology_epoch for m in group.group.members.values()} == {0, 1}
        assert not ann.beat(group)
        assert ann.status == (0,)


def test_an_equal_topology_at_the_next_epoch_is_an_update() -> None:
    """KIP-1071 compares topologies at the same epoch alone: others are behind, and keep what they have."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    had = runs(ann)
    again(group, bob, OLD)
    settle(group, ann, bob)
    assert (ann.status, bob.status) == ((0,), ())
    assert runs(ann) <= had
    again(group, ann, OLD)
    settle(group, ann, bob)
    assert (ann.status, bob.status) == ((), ())


def test_several_bring_it_at_once() -> None:
    """The first one replaces, the others have what is there by then; and whoever brings another one of the
    same epoch is refused."""
    group = play()
    members = [Member(name, name, OLD) for name in ("ann", "bob", "cid", "dan")]
    settle(group, *members)
    for member in members[1:]:
        member.leave(group)
    for member in members[1:3]:
        member.topology = f"{NEW} topology-epoch=1"
        assert not member.beat(group)
    error, words = joins(group, "dan", "0:orders|1:orders", 1, "member=new")
    assert error == Errors.STREAMS_INVALID_TOPOLOGY_EPOCH
    assert "with topology epoch 2" in words
    settle(group, *members[:3])
    assert group.group is not None and group.group.topology_epoch == 1
    assert [member.status for member in members[:3]] == [(0,), (), ()]


# --- members that were there already ---------------------------------------------------------------


@pytest.mark.parametrize("hurry", ["", "config group.streams.assignment.interval.ms=9000", "heavy 0"])
@pytest.mark.parametrize("instance", [None, "i"])
def test_who_comes_back_with_it_gets_nothing_of_the_last_one(instance: str | None, hurry: str) -> None:
    """Neither by its static place nor by its old member id, nor while a target is not due or is computed
    elsewhere: its subtopology 0 may be gone, and it would not know what to run."""
    group = play()
    ann, bob = Member("ann", "p", "0:orders"), Member("bob", "q", "0:orders", instance)
    settle(group, ann, bob)
    assert runs(bob)
    if hurry:
        group.say("advance 10000")
        assert not ann.beat(group)
        assert not bob.beat(group)
        group.say(hurry)
        assert (
            joins(group, "cid", "0:orders", 0)[0] is Errors.NONE
        )  # So that a target was asked for just now.
    kept = bob.member_id
    if instance is not None:
        bob.leave(group, "away")
    bob.forget(anew=instance is not None)
    bob.topology = "1:audit topology-epoch=1"
    assert not bob.beat(group)
    assert (bob.member_id == kept) == (instance is None)
    assert {name for _, name, _ in bob.told} <= {"1"}
    had = runs(ann)
    for _ in range(3):
        group.say("work")
        group.say("advance 10000")
        settle(group, ann, bob)
    assert runs(bob, "1") == {0}
    assert (runs(bob), runs(ann)) == (set(), set())
    assert had


def test_who_was_to_get_something_when_it_came_does_not() -> None:
    """A member that waits for a task of the last target, and is behind from now on, waits in vain."""
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


def test_who_was_there_first_and_has_nothing_yet_gets_nothing() -> None:
    """The next topology comes while members are waited for, before anybody has a task: who brought it has all
    of them."""
    group = play(group_streams_initial_rebalance_delay_ms="3000")
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", f"{NEW} topology-epoch=1")
    assert not ann.beat(group)
    assert not bob.beat(group)
    group.say("advance 3000")
    settle(group, ann, bob)
    assert (ann.owns, ann.status) == (set(), (0,))
    assert runs(bob) == set(range(9))
    assert runs(bob, "1") == {0}


# --- the one that brought it is gone ---------------------------------------------------------------


def test_who_brought_it_leaves_at_once() -> None:
    """The others go on with all that they have, though targets are computed for them alone: what one is to
    lose no other may take over."""
    group = play()
    ann, bob, cid = (Member(name, name, "0:orders|1:audit") for name in ("ann", "bob", "cid"))
    settle(group, ann, bob)
    held = {member.name: runs(member) for member in (ann, bob)}
    cid.topology = "0:orders topology-epoch=1"
    assert not cid.beat(group)
    cid.leave(group)
    group.say("topic orders partitions=10")
    settle(group, ann, bob)
    for member in (ann, bob):
        assert runs(member) == held[member.name]
        assert runs(member, "1") == set()
    assert len(runs(ann)) != len(runs(bob)) or held["ann"] | held["bob"] == set(range(9))


def test_uneven_members_that_are_behind_keep_what_they_have() -> None:
    """Nobody may take over what one has too much of, so it stays where it is."""
    group = play()
    group.say("topic audit partitions=6")
    ann, bob, cid = (Member(name, name, "0:orders|1:audit") for name in ("ann", "bob", "cid"))
    group.say("streams-targets ann=0:0-8 bob=1:0-5")
    group.say("config group.streams.initial.rebalance.delay.ms=1000")
    for member in (ann, bob):
        assert not member.beat(group)
    group.say("advance 1000")
    settle(group, ann, bob)
    assert (runs(ann), runs(bob, "1")) == (set(range(9)), set(range(6)))
    cid.topology = "0:orders topology-epoch=1"
    group.say("streams-targets ann=0:0-8")
    assert not cid.beat(group)
    group.say("streams-targets")
    cid.leave(group)
    settle(group, ann, bob)
    assert (runs(ann), bob.owns) == (set(range(9)), set())


# --- going back ------------------------------------------------------------------------------------


def test_going_back_is_going_on() -> None:
    """An earlier topology comes with the next epoch. With its own it is refused, also when nobody is left;
    only in a group that was deleted everything begins anew."""
    group = play()
    ann = Member("ann", "p", f"{NEW} topology-epoch=1")
    group.say(f"streams-heartbeat zoe join topology={OLD}")
    group.say("streams-heartbeat zoe leave")
    settle(group, ann)
    error, words = joins(group, "bob", OLD, 0)
    assert error is Errors.STREAMS_TOPOLOGY_FENCED
    assert words.endswith("To go back to an earlier topology, bring it with topology epoch 2.")
    ann.leave(group)
    assert joins(group, "bob", OLD, 0)[0] is Errors.STREAMS_TOPOLOGY_FENCED
    assert joins(group, "bob", OLD, 2)[0] is Errors.NONE
    group.say("streams-heartbeat bob leave")
    assert joins(group, "bob", NEW, 1, "member=new")[0] is Errors.STREAMS_TOPOLOGY_FENCED
    group.say("delete g")
    assert joins(group, "bob", NEW, 1, "member=new")[0] is Errors.NONE


# --- what the topologies have in common ------------------------------------------------------------


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
def test_the_same_name_may_stand_for_something_else(before: str, after: str) -> None:
    """A subtopology of the same id may have more tasks or fewer, other topics, state or none: who is behind
    keeps what there still is, in its role, and in the end all that there is runs once."""
    group = play()
    group.say("topic more partitions=12")
    for store in ("store", "other"):
        group.say(f"topic {store} partitions=9")
    group.say("config group.streams.num.standby.replicas=1")
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
    """All tasks of the group's topology, by its largest sources."""
    assert play.group is not None and play.group.topology is not None
    by_name = play.life.topics.by_name
    return [
        (name, partition)
        for name, each in play.group.topology.subtopologies.items()
        for partition in range(max(by_name[topic].partitions for topic in each.source_topics))
    ]


def test_who_is_behind_may_tell_of_all_that_it_had() -> None:
    """Its tasks and their offsets, of subtopologies that there are no more or that are smaller: they were
    right when it was given them. Of who is up to date the same is wrong."""
    group = play()
    ann, bob = Member("ann", "p", "0:orders!store|8:audit"), Member("bob", "q", OLD)
    group.say("topic store partitions=9")
    settle(group, ann)
    again(group, bob, OLD)
    for role in ("active=0:8,8:0", "standby=0:8", "warmup=8:0"):
        for more in ("", "offsets=0-8:5,8-0:7 ends=0-8:6,8-0:7"):
            lists = {"active": "-", "standby": "-", "warmup": "-"} | dict([role.split("=")])
            words = " ".join(f"{key}={value}" for key, value in lists.items())
            group.say(f"streams-heartbeat ann member={ann.member_id} epoch={ann.epoch} {words} {more}")
            assert group.error("ann") is Errors.NONE, words
            ann.epoch = group.answer("ann").member_epoch
            assert group.answer("ann").status[0].status_code == 0
    group.say(f"streams-heartbeat bob member={bob.member_id} epoch={bob.epoch} owns=8:0")
    assert group.error("bob") is Errors.INVALID_REQUEST


def test_every_heartbeat_of_who_is_behind_says_so() -> None:
    """Also the ones in which nothing is said and nothing has changed."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    again(group, bob, NEW)
    settle(group, ann, bob)
    for says in (False, True, False):
        assert not ann.beat(group, says=says)
        (status,) = group.answer("ann").status
        assert status.status_code == 0
        assert status.status_detail == (
            "The member's topology epoch 0 is behind the group's topology epoch 1."
        )


# --- its topics ------------------------------------------------------------------------------------

WORDS = "0:orders>words|1:<words!counts"
MORE_WORDS = "0:orders>words|1:<words!counts>pairs|2:<pairs/2!pair-counts"


@pytest.mark.parametrize("how", ["create", "create fails", "create denied"])
def test_who_is_behind_works_on_while_its_topics_are_made(how: str) -> None:
    """What the group asks for are the topics of the next topology that are missing, and no others; meanwhile
    the group is NotReady, who brought it waits, and the others keep what they have."""
    group = play()
    ann, bob = Member("ann", "p", WORDS), Member("bob", "q", WORDS)
    settle(group, ann)
    group.say("create")
    settle(group, ann, bob)
    bob.leave(group)
    settle(group, ann)
    held = set(ann.owns)
    assert {name for _, name, _ in held} == {"0", "1"}
    bob.topology = f"{MORE_WORDS} topology-epoch=1"
    lines = group.say(
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
    group.say(how)
    settle(group, ann, bob)
    if how != "create":
        assert (ann.owns, bob.owns) == (held, set())
        group.say("advance 10000")
        settle(group, ann, bob)
        group.say("create")
        settle(group, ann, bob)
    topics = {name: topic.partitions for name, topic in group.life.topics.by_name.items()}
    assert topics == before | {"pairs": 2, "pair-counts": 2}
    assert group.group.state == State.STABLE
    assert ann.owns < held
    assert runs(bob, "2") == {0, 1}
    assert runs(ann) | runs(bob) == runs(ann, "1") | runs(bob, "1") == set(range(9))


def test_a_topology_that_cannot_run_stops_nobody_who_is_behind() -> None:
    """Its source is not there, or its sources do not fit: an operator has time to put that right, or to go
    back with the next epoch."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    held = set(ann.owns)
    again(group, bob, "0:orders|1:nowhere")
    settle(group, ann, bob)
    assert group.group is not None and group.group.state == State.NOT_READY
    assert (ann.owns, bob.owns) == (held, set())
    bob.leave(group)
    bob.topology = f"{OLD} topology-epoch=2"
    settle(group, ann, bob)
    assert group.group.state == State.STABLE
    assert ann.owns <= held
    assert runs(ann) | runs(bob) == set(range(9))


def test_who_is_behind_works_on_until_expressions_are_resolved() -> None:
    """The next topology names its topics by an expression: until it is known what that matches there are no
    tasks for who brought it, and the others keep theirs. The same where the coordinator begins anew."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    held = set(ann.owns)
    again(group, bob, "0:~ord.*")
    settle(group, ann, bob)
    assert (ann.owns, bob.owns) == (held, set())
    group.say("work")
    settle(group, ann, bob)
    kept = set(ann.owns)
    assert kept <= held
    assert runs(ann) | runs(bob) == set(range(9))
    for how in ("restart", "compact"):
        group.say(how)
        settle(group, ann, bob)
        assert ann.status[0] == 0
        group.say("work")
        settle(group, ann, bob)
        assert ann.owns == kept
        assert runs(ann) | runs(bob) == set(range(9))


# --- fail-over -------------------------------------------------------------------------------------

PHASES = 12


@pytest.mark.parametrize("how", ["restart", "compact", "compact tombstones=yes", "fail"])
@pytest.mark.parametrize("phase", range(PHASES))
def test_a_coordinator_that_begins_anew_goes_on(how: str, phase: int) -> None:
    """After whichever message of a rolling bounce: what members have, and where it ends, is the same."""
    assert rolled(phase, how) == rolled(-1, "")


def rolled(phase: int, how: str) -> dict[str, Any]:
    """Two members are bounced one after the other; before one message the coordinator begins anew."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    held, nth = runs(ann), 0

    def beat(member: Member) -> None:
        nonlocal nth
        if nth == phase:
            group.say(how)
            if how == "fail":
                member.beat(group, lost=True, rack="r")
                group.say("durable")
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
