"""Past bugs of streams groups in Kafka: 2, 23, 24, 33 and 89 to 96 of the catalogue.

Each docstring names the bug; the test shows that it does not happen here. Each is played as a scenario, so
every invariant is checked as well.
"""

from __future__ import annotations

import pytest
from tests.groups.streams.members import Play

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.streams.current_assignment import Role
from konvene.groups.streams.group import State, StreamsGroup
from konvene.messages.streams_group_heartbeat import Status

COUNTS = "topology=0:orders>words|1:<words!counts"
"""Six stateless tasks, six stateful ones."""


def codes(play: Play, who: str) -> list[int]:
    """Return the status codes of a client's last response."""
    status: tuple[Status, ...] = play.answer(who).status
    return [each.status_code for each in status]


def ready(**settings: str) -> Play:
    """Return a stable group of ann, who runs the topology on a process of its own."""
    play = Play(**settings)
    play.run(f"streams-heartbeat ann join {COUNTS} endpoint=ann:80")
    play.run("create")
    play.run("streams-heartbeat ann")
    assert play.group is not None
    assert play.group.state is State.STABLE
    return play


def heartbeat_rounds(play: Play, *who: str, rounds: int = 4) -> None:
    for _ in range(rounds):
        for name in who:
            play.run(f"streams-heartbeat {name} owns=told")


def states(play: Play) -> tuple[str, str]:
    """Return the group's state in ListGroups and in StreamsGroupDescribe."""
    play.run("list")
    listed = play.answer("admin").groups[0]
    play.run("streams-describe g")
    return listed.group_state, play.answer("admin").groups[0].group_state


def test_bug_2_records_of_a_former_classic_group_do_not_block_replay() -> None:
    """KAFKA-20254: an offset committed before the streams group existed created a classic group on replay,
    and the streams group's later records were refused; also without the classic group's tombstones."""
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
        play.run(line)
    for fail_over in ("restart", "compact", "compact tombstones=yes"):
        play.run(fail_over)
        assert isinstance(play.group, StreamsGroup), fail_over
        play.run("streams-heartbeat ann owns=told")
        play.run("fetch tool topics=orders-0,orders-1,orders-2")
        topics = play.answer("tool").groups[0].topics
        assert [p.committed_offset for topic in topics for p in topic.partitions] == [7, 8, 9], fail_over


def test_bug_2_replay_after_a_return_to_a_classic_group() -> None:
    """The same in the other direction: no record of the streams group is left in the log, and offsets
    stay."""
    play = Play()
    play.run("streams-heartbeat ann join")
    play.run("commit ann orders-0:7")
    play.run("streams-heartbeat ann leave")
    play.run("join old reads=orders")
    play.run("join old reads=orders")
    for fail_over in ("restart", "compact", "compact tombstones=yes"):
        play.run("join old reads=orders")
        play.run("advance 3000")
        play.run("sync old gives=old:orders:0-5")
        play.run(fail_over)
        assert isinstance(play.life.shard.groups["g"], ClassicGroup), fail_over
        play.run("fetch tool topics=orders-0")
        assert play.answer("tool").groups[0].topics[0].partitions[0].committed_offset == 7, fail_over
    play.run("leave old")
    play.run("streams-heartbeat ann join")
    assert isinstance(play.group, StreamsGroup)
    play.run("compact")
    assert isinstance(play.group, StreamsGroup)


def test_bug_23_a_fenced_member_can_rejoin() -> None:
    """KAFKA-19233: a member that the group still had could not rejoin with epoch 0."""
    play = ready()
    play.run("streams-heartbeat ann epoch=9")
    assert play.error("ann").name == "FENCED_MEMBER_EPOCH"
    play.run(f"streams-heartbeat ann join {COUNTS} endpoint=ann:80")
    assert play.error("ann").name == "NONE"
    assert tasks_of(play, "ann-1") == {("1", p) for p in range(6)} | {("0", p) for p in range(6)}


def tasks_of(play: Play, member_id: str, role: Role = Role.ACTIVE) -> set[tuple[str, int]]:
    """Return a member's tasks in a role."""
    assert play.group is not None
    units = play.group.members[member_id].current.assigned.units()
    return {unit[1:] for unit in units if unit[0] is role}


def test_bug_24_an_empty_group_waits_for_no_assignment() -> None:
    """KAFKA-20442: the group epoch stayed ahead of the assignment epoch for ever."""
    play = ready()
    play.run("streams-heartbeat ann leave")
    assert play.group is not None
    assert play.group.epoch == play.group.assignment_epoch == 4


@pytest.mark.parametrize("mode", ["kafka", "kip"])
def test_bug_33_a_static_member_is_not_fenced_by_its_own_instance_id(mode: str) -> None:
    """PR 23542: the response to its join was lost. In mode kafka it waits until its session expires, and no
    longer; in mode kip it is readmitted at once."""
    play = Play(konvene_streams_mode=mode)
    play.run("streams-heartbeat ann join instance=i1")
    play.run("streams-heartbeat ann join instance=i1 member=ann-1")
    assert play.error("ann").name == ("NONE" if mode == "kip" else "UNRELEASED_INSTANCE_ID")
    play.run("advance 45000")
    play.run("streams-heartbeat ann join instance=i1 member=ann-1")
    assert play.error("ann").name == "NONE"
    assert len(tasks_of(play, "ann-1")) == 6


@pytest.mark.parametrize("how", ["restart", "compact"])
def test_bug_89_a_stable_group_is_not_listed_as_not_ready(how: str) -> None:
    """KAFKA-19661: the data behind the state was built by heartbeats and missing after a fail-over."""
    play = ready()
    assert states(play) == ("Stable", "Stable")
    play.run(how)
    assert states(play) == ("Stable", "Stable")
    play.run("streams-heartbeat ann")
    assert play.group is not None
    assert play.group.epoch == 3, "the first heartbeat after a fail-over bumped the epoch"


def test_bug_89_a_group_that_is_not_ready_stays_so() -> None:
    """In the other direction: a group without its topics is NotReady in every API, also after a fail-over."""
    play = Play()
    play.run("streams-heartbeat ann join topology=0:nowhere")
    for how in ("show g", "restart", "compact"):
        play.run(how)
        assert states(play) == ("NotReady", "NotReady"), how


@pytest.mark.parametrize("standbys", [1, 2])
def test_bug_90_every_task_has_its_standbys(standbys: int) -> None:
    """KAFKA-20899: the sticky assignor gave some tasks too few standbys, or one to the process that runs the
    task. Members join and leave here, and each target is complete (`TasksAreGiven`)."""
    play = ready(group_streams_num_standby_replicas=str(standbys))
    alive = ["ann"]
    for name, process in (("bob", "p2"), ("cid", "p2"), ("dan", "p3"), ("eve", "p4")):
        play.run(f"streams-heartbeat {name} join {COUNTS} process={process}")
        alive.append(name)
        heartbeat_rounds(play, *alive)
    for name in ("bob", "ann", "dan"):
        play.run(f"streams-heartbeat {name} leave")
        alive.remove(name)
        heartbeat_rounds(play, *alive)
    assert play.group is not None
    assert play.group.state is State.STABLE
    both = {who: tasks_of(play, who, Role.STANDBY) | tasks_of(play, who) for who in ("cid-1", "eve-1")}
    assert all(had >= {("1", p) for p in range(6)} for had in both.values()), both


def test_bug_91_no_task_is_sent_twice() -> None:
    """PR 22991: an assignor's result had a task twice, and clients crashed. Here no task is sent twice, in
    one role or in two, whatever is being reassigned."""
    play = ready(group_streams_num_standby_replicas="1")
    names = ["ann"]
    for name in ("bob", "cid"):
        play.run(f"streams-heartbeat {name} join {COUNTS}")
        names.append(name)
        for _ in range(4):
            for who in names:
                play.run(f"streams-heartbeat {who} owns=told rebalance=30000")
                answer = play.answer(who)
                lists = (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)
                tasks = [(t.subtopology_id, p) for some in lists for t in some for p in t.partitions]
                assert len(tasks) == len(set(tasks)), f"{who} received {tasks}"


def test_bug_92_a_request_for_endpoints_returns_all_of_them() -> None:
    """KAFKA-19256: the endpoints were sent only when they changed. A member that joined later, or lost a
    response, queried the wrong instance for ever."""
    play = ready()
    play.run(f"streams-heartbeat bob join {COUNTS} endpoint=bob:80")
    heartbeat_rounds(play, "ann", "bob")
    play.run("streams-heartbeat bob endpoint-epoch=0")
    by_host = {e.user_endpoint.host: e for e in play.answer("bob").partitions_by_user_endpoint}
    assert sorted(by_host) == ["ann", "bob"]
    partitions = sorted(
        p for e in by_host.values() for t in e.active_partitions if t.topic == "words" for p in t.partitions
    )
    assert partitions == [0, 1, 2, 3, 4, 5]
    play.run("streams-heartbeat bob")
    assert play.answer("bob").partitions_by_user_endpoint is None, "known endpoints are sent again"
    play.run("restart")
    play.run("streams-heartbeat ann")
    assert len(play.answer("ann").partitions_by_user_endpoint) == 2, "not all endpoints after a restart"


def test_bug_93_a_returning_static_member_does_not_bump_the_epoch() -> None:
    """PR 21565: all member metadata was compared, so a new client host bumped the epoch."""
    play = Play()
    play.run("streams-heartbeat ann join instance=i1")
    play.run("streams-heartbeat bob join instance=i2")
    heartbeat_rounds(play, "ann", "bob")
    assert play.group is not None
    epoch, had = play.group.epoch, tasks_of(play, "bob-1")
    play.run("streams-heartbeat bob away")
    lines = play.run("streams-heartbeat bob join instance=i2 member=new rebalance=60000 endpoint=b:1")
    assert play.group.epoch == epoch
    assert not [line for line in lines if line.startswith("record streams")]
    assert tasks_of(play, "bob-2") == had, "the assignment changed"
    play.run("streams-heartbeat bob away")
    play.run("streams-heartbeat bob join instance=i2 member=new rack=r9")
    assert play.group.epoch == epoch + 1, "the rack did not change the target"


def test_bug_94_heartbeats_of_a_stable_group_do_not_bump_the_epoch() -> None:
    """KAFKA-20665: a target with an empty entry never equalled the members' assignments, and each heartbeat
    bumped the epoch. Members without tasks are as stable as others."""
    play = Play(group_streams_num_standby_replicas="1")
    play.run("topic orders partitions=0")
    play.run("topic orders partitions=1")
    for name in ("ann", "bob", "cid"):
        play.run(f"streams-heartbeat {name} join")
    heartbeat_rounds(play, "ann", "bob", "cid")
    assert play.group is not None
    assert play.group.state is State.STABLE
    for target in play.group.targets.values():
        assert all((*target.active.values(), *target.standby.values())), "an entry without tasks is kept"
    epoch, written = play.group.epoch, len(play.life.log.batches)
    heartbeat_rounds(play, "ann", "bob", "cid", rounds=3)
    assert (play.group.epoch, len(play.life.log.batches)) == (epoch, written)


def test_bug_95_all_missing_topics_are_requested_at_once() -> None:
    """KAFKA-21033: a client created its 168 internal topics one by one, with a pause after each, and in a
    busy loop if that failed. Here one request lists all of them; a failure is reported, and the request
    repeated."""
    many = "|".join(f"{n}:orders!changelog-{n}" for n in range(40))
    play = Play()
    lines = play.run(f"streams-heartbeat ann join topology={many}")
    work = [line for line in lines if line.startswith("work create-internal-topics")]
    assert len(work) == 1
    assert work[0].count(":6") == 40
    play.run("create fails")
    lines = play.run("streams-heartbeat ann")
    assert "Creation failed" in play.answer("ann").status[0].status_detail
    assert sum(line.startswith("work create-internal-topics") for line in lines) == 1
    play.run("create")
    play.run("streams-heartbeat ann")
    assert codes(play, "ann") == []
    assert len(tasks_of(play, "ann-1")) == 240


def test_bug_96_a_deleted_source_is_reported_with_the_next_heartbeat() -> None:
    """KAFKA-19521: the application neither failed nor left in time. Its members are notified at once, run no
    task from then on, and continue when the topic exists again."""
    play = ready()
    play.run("topic orders partitions=0")
    play.run("streams-heartbeat ann")
    assert codes(play, "ann") == [1]
    assert states(play) == ("NotReady", "NotReady")
    play.run("streams-heartbeat ann owns=-")
    assert tasks_of(play, "ann-1") == set()
    play.run("topic orders partitions=6")
    heartbeat_rounds(play, "ann")
    assert codes(play, "ann") == []
    assert len(tasks_of(play, "ann-1")) == 12
