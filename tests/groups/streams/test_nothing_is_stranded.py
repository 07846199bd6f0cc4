"""When faults stop, every member is stable within few heartbeats: L1, L2, L5 for streams groups.

A random run as in `test_invariants`, made of scenario commands by a seed; then the topics are repaired, all
members heartbeat in turn, and pending work is done. After a fixed number of rounds the group is stable, each
task runs on one member that knows it, and further rounds change nothing.

In every other run no topic changes, no process dies, and no response to a join is lost: nothing has to be
repaired in the end, and so no full heartbeat makes up for lost responses. These runs are in mode `kip`: in
mode `kafka` a fenced static member has to wait for the end of its own session before it can rejoin.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.groups.streams.members import Member, Play

from konvene.errors import Errors
from konvene.groups.streams.group import State
from konvene.sim.invariants.streams.targets import tasks_of

ENOUGH = 8
"""Rounds: one to notice the topics and one to create them, one to receive a target, one to revoke, one to
receive the released tasks, one to take them over; and one each for fenced members and for a member that waits
for its instance id."""

TOPOLOGIES = (
    "0:orders",
    "0:orders!c0",
    "0:orders>rep|1:<rep!counts",
    "0:orders>rep!c0|1:<rep!counts|2:audit",
)
MILD = ("beat",) * 12 + ("leave", "create", "work", "restart", "time")
WILD = (*MILD, "away", "dies", "topic")


def random_run(random: Random, wild: bool) -> tuple[Play, list[Member]]:
    """Run thirty random events in a group."""
    play = Play(
        konvene_streams_mode="kafka" if wild else "kip",
        group_streams_num_standby_replicas=str(random.choice((0, 1, 1, 2))),
        group_streams_assignment_interval_ms=random.choice(("0", "0", "1000")),
    )
    if random.random() < 0.3:
        play.run("heavy 0")
    if random.random() < 0.5:
        for name in ("c0", "rep", "counts"):
            play.run(f"topic {name} partitions=6")
    topology = random.choice(TOPOLOGIES)
    members = [
        Member("ann", "p", topology, endpoint="ann:80"),
        Member("bob", "q", topology, "i2"),
        Member("cid", random.choice("pqr"), topology),
        Member("dan", random.choice("pqr"), topology, "i4"),
    ]
    for _ in range(30):
        _random_event(play, members, random, wild)
    return play, members


def _random_event(play: Play, members: list[Member], random: Random, wild: bool) -> None:
    member, event = random.choice(members), random.choice(WILD if wild else MILD)
    match event:
        case "beat":
            lost = random.random() < 0.3 and (wild or member.epoch > 0)
            member.beat(play, lost=lost, slow=random.random() < 0.3, reports_owned=random.random() < 0.6)
        case "leave":
            member.leave(play)
        case "away" if member.instance is not None:
            member.leave(play, "away")
        case "dies":
            member.forget(anew=True)
        case "topic":
            play.run(f"topic {random.choice(('orders', 'audit'))} partitions={random.choice((0, 2, 4, 6))}")
        case "create":
            play.run(random.choice(("create", "create fails")))
        case "work":
            play.run(random.choice(("work", "work fails")))
        case "restart":
            play.run(random.choice(("restart", "compact")))
        case "time":
            play.run(f"advance {random.choice((1_000, 20_000, 46_000) if wild else (100, 1_000))}")


def repair(play: Play, members: list[Member]) -> None:
    """Restore the source topics, and delete the internal topics, whose partition counts may be wrong."""
    play.run("topic orders partitions=6")
    play.run("topic audit partitions=2")
    for name in ("rep", "counts", "c0"):
        play.run(f"topic {name} partitions=0")
    for member in members:
        member.apply_assignment()
    play.run("advance 46000")  # Dead and temporarily left members expire.


def rounds(play: Play, members: list[Member], count: int) -> None:
    for _ in range(count):
        for member in members:
            member.beat(play)
            member.apply_assignment()
        play.run("work")
        play.run("create")
        play.run("advance 1000")


@pytest.mark.parametrize("seed", range(40))
def test_every_member_becomes_stable(seed: int) -> None:
    """L1: and the members run exactly the tasks of the topology (T1, T6)."""
    wild = bool(seed % 2)
    play, members = random_run(Random(seed), wild)
    if wild:
        repair(play, members)
    rounds(play, members, ENOUGH)
    group = play.group
    assert group is not None
    assert group.state is State.STABLE, "\n".join([*play.commands, repr(group)])
    assert group.topology is not None
    runs = sorted(unit[1:] for member in members for unit in member.owns if unit[0] == "active")
    assert runs == sorted(tasks_of(group.topology, play.life.topics)), "\n".join(play.commands)
    for member in members:
        known = group.members[member.member_id]
        owned = {(unit[0].name.lower(), *unit[1:]) for unit in known.current.assigned.units()}
        assert member.owns == owned, f"{member.name} runs {member.owns}, it has {owned}"
        assert member.epoch == group.epoch
        assert play.error(member.name) is Errors.NONE
    epoch = group.epoch
    rounds(play, members, 2)
    assert play.group is not None
    assert (play.group.epoch, play.group.state) == (epoch, State.STABLE), (
        "L5: the epoch goes on without a change"
    )
    writes = len(play.life.log.batches)
    rounds(play, members, 2)
    assert len(play.life.log.batches) == writes, "L5: heartbeats of a stable group write something"
