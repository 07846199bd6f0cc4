"""The example of KIP-1071, section "Online Migration from a Classic Consumer Group to a Streams Group".

A and B are of the classic protocol, C of the streams protocol; the targets are those of the document, and so
are the resulting messages. Where the document leaves the order open, A and B join before they sync, and a
sync returns the tasks that are free by then. In the first step members revoke all tasks before they join
(eager); in the second step they keep them (cooperative), and so A stays at 24.

One value differs: in the document C drops its warm-up 0_2 before it may run 0_2. Here, as in Apache Kafka
4.4, the copy is kept until it becomes the active task.
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
    """A runs the even tasks with standbys of the odd ones, B the other way round."""
    even, odd = tasks(0, 2, 4), tasks(1, 3, 5)
    group_record = record(thread("A", even, odd), thread("B", odd, even), protocol="stream", generation=23)
    log = Log()
    log.batches.append(batch_of([encode_group_record(group_record)]))
    log.durable = 1
    play = Play(konvene_streams_mode="kip", group_streams_num_standby_replicas="1")
    play.scenario.life = Sandbox(play.life.settings, log=log)
    # Our assignor reports which owner a warm-up is for; the document's targets do not.
    invariants = [
        each for each in invariants_of(("streams",)) if type(each).__name__ != "WarmupsAreJustified"
    ]
    play.life._check = observer(invariants)
    play.run("topic counts partitions=6")
    a, b = (Thread(name, member_id=name, generation=23) for name in "AB")
    for each, active, standby in ((a, even, odd), (b, odd, even)):
        each.disk = dict.fromkeys(active, LATEST_OFFSET) | dict.fromkeys(standby, FAR)
        play.scenario.client(each.name).member_id = each.member_id
        assert each.beat(play) is Errors.NONE
    return play, a, b


def c_heartbeats(
    play: Play, action: str = "stay", offsets_read: dict[int, int] | None = None, **more: str
) -> None:
    fields = {f"{role}": "told" for role in ("active", "standby", "warmup")} if action == "stay" else {}
    if action == "join":
        fields |= {"topology": TOPOLOGY}
    if offsets_read:
        fields["offsets"] = ",".join(f"0-{p}:{at}" for p, at in offsets_read.items())
        fields["ends"] = ",".join(f"0-{p}:{FAR}" for p in offsets_read)
    arguments = " ".join(f"{key}={value}" for key, value in (fields | more).items())
    play.run(f"streams-heartbeat C {action} {arguments}")
    assert play.error("C") is Errors.NONE


def state_of_c(play: Play) -> tuple[int, list[int], list[int], list[int]]:
    """Return C's epoch and its tasks by role."""
    client = play.scenario.client("C")
    tasks_by_role = [
        sorted(client.tasks.get(role, {}).get("0", ())) for role in ("active", "standby", "warmup")
    ]
    return client.generation, tasks_by_role[0], tasks_by_role[1], tasks_by_role[2]


def join(play: Play, thread: Thread) -> int:
    """Rejoin after a heartbeat that requests it; return the generation."""
    assert thread.beat(play) is Errors.REBALANCE_IN_PROGRESS
    thread.join(play)
    response = play.answer(thread.name)
    assert (response.protocol_type, response.protocol_name) == ("consumer", "stream")
    assert (response.leader, response.members) == ("", ())
    return thread.generation


def sync(play: Play, thread: Thread) -> tuple[list[Task], list[Task]]:
    assert thread.sync(play) is Errors.NONE
    thread.disk = dict.fromkeys(thread.standby, FAR)
    return thread.active, thread.standby


def first_step() -> tuple[Play, Thread, Thread]:
    play, a, b = classic_at_23()
    play.run(AT_24)
    c_heartbeats(play, "join")
    assert play.group is not None
    assert (play.group.epoch, play.group.classic_members, len(play.group.members)) == (24, 2, 3)
    assert [join(play, a), join(play, b)] == [24, 24]
    return play, a, b


def test_c_joins() -> None:
    """The generation becomes the epoch, which is bumped once; A and B get the document's tasks."""
    play, a, b = first_step()
    assert sync(play, a) == (tasks(0, 2, 3), tasks(1, 5))
    assert sync(play, b) == (tasks(1, 4, 5), tasks(2, 3))
    c_heartbeats(play, offsets_read=BEHIND)
    assert state_of_c(play) == (24, [], [0, 4], [2, 5])
    assert [a.beat(play), b.beat(play)] == [Errors.NONE, Errors.NONE]


def second_step() -> tuple[Play, Thread, Thread]:
    play, a, b = first_step()
    sync(play, a)
    sync(play, b)
    c_heartbeats(play, offsets_read=BEHIND)
    c_heartbeats(play, offsets_read=BEHIND)
    play.run(AT_25)
    c_heartbeats(play, offsets_read=CAUGHT_UP)
    assert play.group is not None
    assert play.group.epoch == 25
    return play, a, b


def test_c_has_caught_up_and_waits_for_the_revocation() -> None:
    """A has to revoke 0_2 first, and stays at 24. C keeps its copy meanwhile, unlike in the document."""
    play, a, b = second_step()
    assert [join(play, a), join(play, b)] == [24, 25]
    assert sync(play, a) == (tasks(0, 3), tasks(1, 5))
    assert sync(play, b) == (tasks(1, 4, 5), tasks(2, 3))
    c_heartbeats(play, offsets_read=CAUGHT_UP)
    assert state_of_c(play) == (25, [], [0, 4], [2, 5])


def third_step() -> tuple[Play, Thread, Thread]:
    play, a, b = second_step()
    join(play, a), join(play, b)
    sync(play, a), sync(play, b)
    c_heartbeats(play, offsets_read=CAUGHT_UP)
    assert join(play, a) == 25
    return play, a, b


@pytest.mark.parametrize("restarts", [False, True])
def test_a_reports_the_revocation_and_c_runs_the_task(*, restarts: bool) -> None:
    """B's assignment is unchanged: unlike in the document it does not have to rejoin, and stays at 25."""
    play, a, b = third_step()
    if restarts:
        play.life.restart()
        assert a.sync(play) is Errors.REBALANCE_IN_PROGRESS
        a.join(play)
        assert a.generation == 25
    assert sync(play, a) == (tasks(0, 3), tasks(1, 5))
    c_heartbeats(play, offsets_read=CAUGHT_UP)
    assert state_of_c(play) == (25, [2], [0, 4], [5])
    assert (b.generation, b.active, b.standby) == (25, tasks(1, 4, 5), tasks(2, 3))


def test_c_leaves() -> None:
    """The group is a classic one again: only its record (2) and offsets (1) are left in the log."""
    play, a, b = third_step()
    sync(play, a)
    c_heartbeats(play, offsets_read=CAUGHT_UP)
    play.run("commit A orders-0:6 generation=22")
    assert play.answer("A") is Errors.ILLEGAL_GENERATION
    play.run("commit A orders-0:7 generation=25")
    assert play.answer("A").topics[0].partitions[0].error_code == Errors.NONE
    c_heartbeats(play, "leave")
    group = play.life.group("g")
    assert isinstance(group, ClassicGroup)
    assert (group.state, set(group.members)) == (State.PREPARING_REBALANCE, {"A", "B"})
    assert group.generation >= 25
    assert [a.beat(play), b.beat(play)] == [Errors.REBALANCE_IN_PROGRESS] * 2
    latest = {key: value for batch in play.life.log.batches for key, value in batch.pairs}
    kinds = {int.from_bytes(key[:2], "big") for key, value in latest.items() if value is not None}
    assert kinds == {1, 2}


def test_one_of_the_warming_classic_members_rejoins_periodically() -> None:
    """The coordinator chooses one of the classic members; the others get no time to rejoin."""
    play, a, b = classic_at_23()
    play.run("streams-targets A=0:0,0:2,0:4/-/0:1 B=0:1,0:3,0:5/-/0:0 C=-/0:0-5")
    c_heartbeats(play, "join")
    assert [join(play, a), join(play, b)] == [24, 24]
    assert sync(play, a) == (tasks(0, 2, 4), tasks(1))
    assert sync(play, b) == (tasks(1, 3, 5), tasks(0))
    assert a.has is not None
    assert b.has is not None
    assert (a.has.next_rebalance_ms, b.has.next_rebalance_ms) == (play.life.now_ms + 60_000, NO_REBALANCE_MS)
