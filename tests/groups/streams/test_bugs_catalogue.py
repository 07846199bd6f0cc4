"""What once went wrong with streams groups, in Kafka: 2, 23, 24, 33 and 89 to 96 of the catalogue.

Each test says what the bug was, and that it does not happen here; each is played as a scenario, so every
invariant is asked as well.
"""

from __future__ import annotations

import pytest
from tests.groups.streams.members import Play

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.streams.current_assignment import Role
from konvene.groups.streams.group import State, StreamsGroup
from konvene.messages.streams_group_heartbeat import Status

COUNTS = "topology=0:orders>words|1:<words!counts"
"""Six tasks without state, six with."""


def codes(play: Play, who: str) -> list[int]:
    """What somebody was told to be wrong."""
    status: tuple[Status, ...] = play.answer(who).status
    return [each.status_code for each in status]


def ready(**settings: str) -> Play:
    """ann counts words, on a process of her own."""
    play = Play(**settings)
    play.say(f"streams-heartbeat ann join {COUNTS} endpoint=ann:80")
    play.say("create")
    play.say("streams-heartbeat ann")
    assert play.group is not None
    assert play.group.state is State.STABLE
    return play


def rolls(play: Play, *who: str, rounds: int = 4) -> None:
    for _ in range(rounds):
        for name in who:
            play.say(f"streams-heartbeat {name} owns=told")


def states(play: Play) -> tuple[str, str]:
    """As ListGroups and StreamsGroupDescribe tell it."""
    play.say("list")
    listed = play.answer("admin").groups[0]
    play.say("streams-describe g")
    return listed.group_state, play.answer("admin").groups[0].group_state


def test_bug_2_what_a_group_was_is_not_in_the_way_of_what_it_is() -> None:
    """KAFKA-20254: an offset that was committed first made a classic group when the log was read, and the
    records of the streams group behind it were refused; also when its tombstones were gone."""
    play = Play()
    for line in (
        "commit tool orders-0:7 generation=-1 member=-",
        "join old reads=orders",
        "advance 10",
        "sync old gives=old:orders:0-5",
        "commit old orders-1:8",
        "leave old",
        "streams-heartbeat ann join",
        "commit ann orders-2:9",
    ):
        play.say(line)
    for how in ("restart", "compact", "compact tombstones=yes"):
        play.say(how)
        assert isinstance(play.group, StreamsGroup), how
        play.say("streams-heartbeat ann owns=told")
        play.say("fetch tool topics=orders-0,orders-1,orders-2")
        told = play.answer("tool").groups[0].topics
        assert [p.committed_offset for topic in told for p in topic.partitions] == [7, 8, 9], how


def test_bug_2_back_to_a_classic_group() -> None:
    """The same the other way round: nothing of the streams group is in the log, and offsets stay."""
    play = Play()
    play.say("streams-heartbeat ann join")
    play.say("commit ann orders-0:7")
    play.say("streams-heartbeat ann leave")
    play.say("join old reads=orders")
    play.say("join old reads=orders")
    for how in ("restart", "compact", "compact tombstones=yes"):
        play.say("join old reads=orders")
        play.say("advance 3000")
        play.say("sync old gives=old:orders:0-5")
        play.say(how)
        assert isinstance(play.life.shard.groups["g"], ClassicGroup), how
        play.say("fetch tool topics=orders-0")
        assert play.answer("tool").groups[0].topics[0].partitions[0].committed_offset == 7, how
    play.say("leave old")
    play.say("streams-heartbeat ann join")
    assert isinstance(play.group, StreamsGroup)
    play.say("compact")
    assert isinstance(play.group, StreamsGroup)


def test_bug_23_a_member_that_was_fenced_may_come_back() -> None:
    """KAFKA-19233: one that the group still knew could not join again with epoch 0."""
    play = ready()
    play.say("streams-heartbeat ann epoch=9")
    assert play.error("ann").name == "FENCED_MEMBER_EPOCH"
    play.say(f"streams-heartbeat ann join {COUNTS} endpoint=ann:80")
    assert play.error("ann").name == "NONE"
    assert spelled(play, "ann-1") == {("1", p) for p in range(6)} | {("0", p) for p in range(6)}


def spelled(play: Play, member_id: str, role: Role = Role.ACTIVE) -> set[tuple[str, int]]:
    """A member's tasks in a role."""
    assert play.group is not None
    units = play.group.members[member_id].current.assigned.units()
    return {unit[1:] for unit in units if unit[0] is role}


def test_bug_24_an_empty_group_waits_for_nothing() -> None:
    """KAFKA-20442: its epoch was ahead of its assignment's for ever."""
    play = ready()
    play.say("streams-heartbeat ann leave")
    assert play.group is not None
    assert play.group.epoch == play.group.assignment_epoch == 4


@pytest.mark.parametrize("mode", ["kafka", "kip"])
def test_bug_33_a_static_member_is_not_fenced_by_its_own_name(mode: str) -> None:
    """PR 23542: the answer to its join was lost. Kafka's way it waits until its session is over, and no
    longer; with the switch it is taken back at once."""
    play = Play(konvene_streams_mode=mode)
    play.say("streams-heartbeat ann join instance=i1")
    play.say("streams-heartbeat ann join instance=i1 member=ann-1")
    assert play.error("ann").name == ("NONE" if mode == "kip" else "UNRELEASED_INSTANCE_ID")
    play.say("advance 45000")
    play.say("streams-heartbeat ann join instance=i1 member=ann-1")
    assert play.error("ann").name == "NONE"
    assert len(spelled(play, "ann-1")) == 6


@pytest.mark.parametrize("how", ["restart", "compact"])
def test_bug_89_a_stable_group_is_not_listed_as_not_ready(how: str) -> None:
    """KAFKA-19661: what the state rests on was built by heartbeats, and not there after a fail-over."""
    play = ready()
    assert states(play) == ("Stable", "Stable")
    play.say(how)
    assert states(play) == ("Stable", "Stable")
    play.say("streams-heartbeat ann")
    assert play.group is not None
    assert play.group.epoch == 3, "the first heartbeat after a fail-over moved the epoch"


def test_bug_89_a_group_that_is_not_ready_stays_so() -> None:
    """And the other way round: one whose topics are missing is NotReady whoever asks, and when."""
    play = Play()
    play.say("streams-heartbeat ann join topology=0:nowhere")
    for how in ("show g", "restart", "compact"):
        play.say(how)
        assert states(play) == ("NotReady", "NotReady"), how


@pytest.mark.parametrize("standbys", [1, 2])
def test_bug_90_standbys_are_where_they_should_be(standbys: int) -> None:
    """KAFKA-20899: the sticky assignor gave some tasks too few standbys, or one to the process that runs it.
    Members come and go, and each target is whole (`TasksAreAssigned`)."""
    play = ready(group_streams_num_standby_replicas=str(standbys))
    there = ["ann"]
    for name, process in (("bob", "p2"), ("cid", "p2"), ("dan", "p3"), ("eve", "p4")):
        play.say(f"streams-heartbeat {name} join {COUNTS} process={process}")
        there.append(name)
        rolls(play, *there)
    for name in ("bob", "ann", "dan"):
        play.say(f"streams-heartbeat {name} leave")
        there.remove(name)
        rolls(play, *there)
    assert play.group is not None
    assert play.group.state is State.STABLE
    both = {who: spelled(play, who, Role.STANDBY) | spelled(play, who) for who in ("cid-1", "eve-1")}
    assert all(had >= {("1", p) for p in range(6)} for had in both.values()), both


def test_bug_91_no_task_is_told_twice() -> None:
    """PR 22991: an assignor's answer named a task twice, and clients crashed. What is told of each role is a
    set, and no task is told in two roles, whatever was moving at that time."""
    play = ready(group_streams_num_standby_replicas="1")
    names = ["ann"]
    for name in ("bob", "cid"):
        play.say(f"streams-heartbeat {name} join {COUNTS}")
        names.append(name)
        for _ in range(4):
            for who in names:
                play.say(f"streams-heartbeat {who} owns=told rebalance=30000")
                answer = play.answer(who)
                lists = (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)
                told = [(t.subtopology_id, p) for some in lists for t in some for p in t.partitions]
                assert len(told) == len(set(told)), f"{who} is told {told}"


def test_bug_92_who_asks_for_endpoints_is_told_all_of_them() -> None:
    """KAFKA-19256: the map was told when it changed and to nobody else: who came later, or lost an answer,
    asked the wrong instance for ever."""
    play = ready()
    play.say(f"streams-heartbeat bob join {COUNTS} endpoint=bob:80")
    rolls(play, "ann", "bob")
    play.say("streams-heartbeat bob endpoint-epoch=0")
    told = {e.user_endpoint.host: e for e in play.answer("bob").partitions_by_user_endpoint}
    assert sorted(told) == ["ann", "bob"]
    words = sorted(
        p for e in told.values() for t in e.active_partitions if t.topic == "words" for p in t.partitions
    )
    assert words == [0, 1, 2, 3, 4, 5]
    play.say("streams-heartbeat bob")
    assert play.answer("bob").partitions_by_user_endpoint is None, "what it knows is not told again"
    play.say("restart")
    play.say("streams-heartbeat ann")
    assert len(play.answer("ann").partitions_by_user_endpoint) == 2, "one that starts anew tells all"


def test_bug_93_a_static_member_that_is_back_moves_nothing() -> None:
    """PR 21565: all that was written of it was compared, and so its new client host moved the epoch."""
    play = Play()
    play.say("streams-heartbeat ann join instance=i1")
    play.say("streams-heartbeat bob join instance=i2")
    rolls(play, "ann", "bob")
    assert play.group is not None
    epoch, had = play.group.epoch, spelled(play, "bob-1")
    play.say("streams-heartbeat bob away")
    said = play.say("streams-heartbeat bob join instance=i2 member=new rebalance=60000 endpoint=b:1")
    assert play.group.epoch == epoch
    assert not [line for line in said if line.startswith("record streams")]
    assert spelled(play, "bob-2") == had, "it has what it had"
    play.say("streams-heartbeat bob away")
    play.say("streams-heartbeat bob join instance=i2 member=new rack=r9")
    assert play.group.epoch == epoch + 1, "targets rest on where it is"


def test_bug_94_heartbeats_of_a_stable_group_move_nothing() -> None:
    """KAFKA-20665: a target with an empty entry never equalled what members had, and each heartbeat moved the
    epoch. Members with nothing to do are as stable as others."""
    play = Play(group_streams_num_standby_replicas="1")
    play.say("topic orders partitions=0")
    play.say("topic orders partitions=1")
    for name in ("ann", "bob", "cid"):
        play.say(f"streams-heartbeat {name} join")
    rolls(play, "ann", "bob", "cid")
    assert play.group is not None
    assert play.group.state is State.STABLE
    for target in play.group.targets.values():
        assert all((*target.active.values(), *target.standby.values())), "an entry without tasks is kept"
    epoch, written = play.group.epoch, len(play.life.log.batches)
    rolls(play, "ann", "bob", "cid", rounds=3)
    assert (play.group.epoch, len(play.life.log.batches)) == (epoch, written)


def test_bug_95_all_missing_topics_are_asked_for_at_once() -> None:
    """KAFKA-21033: a client made its 168 internal topics one by one, with a pause behind each, and in a hot
    loop where that failed. Here one piece of work names all; a failure is told, and it is asked for again."""
    many = "|".join(f"{n}:orders!changelog-{n}" for n in range(40))
    play = Play()
    said = play.say(f"streams-heartbeat ann join topology={many}")
    work = [line for line in said if line.startswith("work create-internal-topics")]
    assert len(work) == 1
    assert work[0].count(":6") == 40
    play.say("create fails")
    said = play.say("streams-heartbeat ann")
    assert "Creation failed" in play.answer("ann").status[0].status_detail
    assert sum(line.startswith("work create-internal-topics") for line in said) == 1
    play.say("create")
    play.say("streams-heartbeat ann")
    assert codes(play, "ann") == []
    assert len(spelled(play, "ann-1")) == 240


def test_bug_96_a_source_that_is_deleted_is_told_of_with_the_next_heartbeat() -> None:
    """KAFKA-19521: the application neither failed nor left in time. Its members hear of it at once, have
    nothing to run from then on, and go on when the topic is back."""
    play = ready()
    play.say("topic orders partitions=0")
    play.say("streams-heartbeat ann")
    assert codes(play, "ann") == [1]
    assert states(play) == ("NotReady", "NotReady")
    play.say("streams-heartbeat ann owns=-")
    assert spelled(play, "ann-1") == set()
    play.say("topic orders partitions=6")
    rolls(play, "ann")
    assert codes(play, "ann") == []
    assert len(spelled(play, "ann-1")) == 12
