"""The example of KIP-1071, section "Online Migration from a Classic Consumer Group to a Streams Group".

A and B are of the classic protocol, C of the streams protocol; the document's targets are given, and its
messages are what follows. Where it leaves open who speaks first, A and B join before they sync, and sync
gives what is free by then. In its first step members give up all before they join (eager); in its second they
own what they run (cooperative), and so A stays at 24.

One value is another one: the document has C drop its warm-up 0_2 before it may run 0_2. Here, as with Apache
Kafka 4.4, the copy is kept until it becomes the active task.
"""

from __future__ import annotations

import pytest
from tests.groups.migration.migrating import record, thread
from tests.groups.streams.classic.threads import Task, Thread
from tests.groups.streams.members import Play

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.streams.classic.user_data import LATEST_OFFSET, NO_REBALANCE_MS
from konvene.records.commits import encode_group_record
from konvene.sim.invariants import invariants_of, observer
from konvene.sim.journal import Log, batch_of
from konvene.sim.transcript.sandbox import Sandbox

TOPOLOGY = "0:orders!counts"

AT_24 = "streams-targets A=0:0,0:2-3/0:1,0:5 B=0:1,0:4-5/0:2-3 C=-/0:0,0:4/0:2,0:5"
AT_25 = "streams-targets A=0:0,0:3/0:1,0:5 B=0:1,0:4-5/0:2-3 C=0:2/0:0,0:4/0:5"

FAR = 90_000
BEHIND = {0: 9, 2: 9, 4: 9, 5: 9}
CAUGHT_UP = BEHIND | {2: FAR}


def tasks(*partitions: int) -> list[Task]:
    return [("0", partition) for partition in partitions]


def classic_at_23() -> tuple[Play, Thread, Thread]:
    """A runs the even tasks and stands by for the odd ones, B the other way round."""
    even, odd = tasks(0, 2, 4), tasks(1, 3, 5)
    said = record(thread("A", even, odd), thread("B", odd, even), protocol="stream", generation=23)
    log = Log()
    log.batches.append(batch_of([encode_group_record(said)]))
    log.durable = 1
    play = Play(konvene_streams_mode="kip", group_streams_num_standby_replicas="1")
    play.scenario.life = Sandbox(play.life.settings, log=log)
    # Our assignor says for whom a warm-up is; the document's targets are of none that says so.
    held = [each for each in invariants_of(("streams",)) if type(each).__name__ != "WarmupsAreJustified"]
    play.life._check = observer(held)
    play.say("topic counts partitions=6")
    a, b = (Thread(name, member_id=name, generation=23) for name in "AB")
    for each, active, standby in ((a, even, odd), (b, odd, even)):
        each.disk = dict.fromkeys(active, LATEST_OFFSET) | dict.fromkeys(standby, FAR)
        play.scenario.client(each.name).member_id = each.member_id
        assert each.beat(play) is Errors.NONE
    return play, a, b


def c_says(play: Play, does: str = "stay", reads: dict[int, int] | None = None, **more: str) -> None:
    told = {f"{role}": "told" for role in ("active", "standby", "warmup")} if does == "stay" else {}
    if does == "join":
        told |= {"topology": TOPOLOGY}
    if reads:
        told["offsets"] = ",".join(f"0-{p}:{at}" for p, at in reads.items())
        told["ends"] = ",".join(f"0-{p}:{FAR}" for p in reads)
    words = " ".join(f"{key}={value}" for key, value in (told | more).items())
    play.say(f"streams-heartbeat C {does} {words}")
    assert play.error("C") is Errors.NONE


def c_is_told(play: Play) -> tuple[int, list[int], list[int], list[int]]:
    """Its epoch, and what it has by roles."""
    client = play.scenario.client("C")
    has = [sorted(client.tasks.get(role, {}).get("0", ())) for role in ("active", "standby", "warmup")]
    return client.generation, has[0], has[1], has[2]


def join(play: Play, thread: Thread) -> int:
    """Asked by its heartbeat, it joins; the generation that it is told."""
    assert thread.beat(play) is Errors.REBALANCE_IN_PROGRESS
    thread.join(play)
    answer = play.answer(thread.name)
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "stream")
    assert (answer.leader, answer.members) == ("", ())
    return thread.generation


def sync(play: Play, thread: Thread) -> tuple[list[Task], list[Task]]:
    assert thread.sync(play) is Errors.NONE
    thread.disk = dict.fromkeys(thread.standby, FAR)
    return thread.active, thread.standby


def first_step() -> tuple[Play, Thread, Thread]:
    play, a, b = classic_at_23()
    play.say(AT_24)
    c_says(play, "join")
    assert play.group is not None
    assert (play.group.epoch, play.group.classic_members, len(play.group.members)) == (24, 2, 3)
    assert [join(play, a), join(play, b)] == [24, 24]
    return play, a, b


def test_c_joins() -> None:
    """The generation becomes the epoch, which moves once; A and B are told the document's tasks."""
    play, a, b = first_step()
    assert sync(play, a) == (tasks(0, 2, 3), tasks(1, 5))
    assert sync(play, b) == (tasks(1, 4, 5), tasks(2, 3))
    c_says(play, reads=BEHIND)
    assert c_is_told(play) == (24, [], [0, 4], [2, 5])
    assert [a.beat(play), b.beat(play)] == [Errors.NONE, Errors.NONE]


def second_step() -> tuple[Play, Thread, Thread]:
    play, a, b = first_step()
    sync(play, a)
    sync(play, b)
    c_says(play, reads=BEHIND)
    c_says(play, reads=BEHIND)
    play.say(AT_25)
    c_says(play, reads=CAUGHT_UP)
    assert play.group is not None
    assert play.group.epoch == 25
    return play, a, b


def test_c_has_caught_up_and_waits_for_who_runs_the_task() -> None:
    """A has to revoke 0_2 first, and stays at 24. C keeps its copy meanwhile, which is not the document's."""
    play, a, b = second_step()
    assert [join(play, a), join(play, b)] == [24, 25]
    assert sync(play, a) == (tasks(0, 3), tasks(1, 5))
    assert sync(play, b) == (tasks(1, 4, 5), tasks(2, 3))
    c_says(play, reads=CAUGHT_UP)
    assert c_is_told(play) == (25, [], [0, 4], [2, 5])


def third_step() -> tuple[Play, Thread, Thread]:
    play, a, b = second_step()
    join(play, a), join(play, b)
    sync(play, a), sync(play, b)
    c_says(play, reads=CAUGHT_UP)
    assert join(play, a) == 25
    return play, a, b


@pytest.mark.parametrize("restarts", [False, True])
def test_a_tells_that_it_has_revoked_and_c_runs_the_task(*, restarts: bool) -> None:
    """B has nothing to learn, and is not asked to join again as in the document: it is at 25 and stays."""
    play, a, b = third_step()
    if restarts:
        play.life.restart()
        assert a.sync(play) is Errors.REBALANCE_IN_PROGRESS
        a.join(play)
        assert a.generation == 25
    assert sync(play, a) == (tasks(0, 3), tasks(1, 5))
    c_says(play, reads=CAUGHT_UP)
    assert c_is_told(play) == (25, [2], [0, 4], [5])
    assert (b.generation, b.active, b.standby) == (25, tasks(1, 4, 5), tasks(2, 3))


def test_c_leaves() -> None:
    """The group is a classic one again: its record (2) and offsets (1) are all that is left in the log."""
    play, a, b = third_step()
    sync(play, a)
    c_says(play, reads=CAUGHT_UP)
    play.say("commit A orders-0:6 generation=22")
    assert play.answer("A") is Errors.ILLEGAL_GENERATION
    play.say("commit A orders-0:7 generation=25")
    assert play.answer("A").topics[0].partitions[0].error_code == Errors.NONE
    c_says(play, "leave")
    group = play.life.group("g")
    assert isinstance(group, ClassicGroup)
    assert (group.state, set(group.members)) == (State.PREPARING_REBALANCE, {"A", "B"})
    assert group.generation >= 25
    assert [a.beat(play), b.beat(play)] == [Errors.REBALANCE_IN_PROGRESS] * 2
    latest = {key: value for batch in play.life.log.batches for key, value in batch.pairs}
    kinds = {int.from_bytes(key[:2], "big") for key, value in latest.items() if value is not None}
    assert kinds == {1, 2}


def test_one_of_those_that_warm_up_joins_of_its_own_accord() -> None:
    """The coordinator chooses one of the classic members; no other is told when to join."""
    play, a, b = classic_at_23()
    play.say("streams-targets A=0:0,0:2,0:4/-/0:1 B=0:1,0:3,0:5/-/0:0 C=-/0:0-5")
    c_says(play, "join")
    assert [join(play, a), join(play, b)] == [24, 24]
    assert sync(play, a) == (tasks(0, 2, 4), tasks(1))
    assert sync(play, b) == (tasks(1, 3, 5), tasks(0))
    assert a.has is not None
    assert b.has is not None
    assert (a.has.next_rebalance_ms, b.has.next_rebalance_ms) == (play.life.now_ms + 60_000, NO_REBALANCE_MS)
