"""When faults stop, everybody is stable within few heartbeats: L1, L2, L5 for streams groups.

A random life as in `test_promises_core`, made of scenario commands by a seed; then topics are as they should
be, everybody heartbeats in turn, and work is done. After so many rounds the group is stable, each task runs
on one member that knows it, and rounds more change nothing.

In every other life no topic changes, nobody dies, and joins are heard: nothing has to be healed in the end,
and so nothing tells members anew what they may have missed. These are in mode `kip`: in mode `kafka` a static
member that is fenced waits for the end of its own session before it may come back.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.groups.streams.members import Member, Play

from konvene.errors import Errors
from konvene.groups.streams.group import State
from konvene.sim.invariants.streams.targets import tasks_of

ENOUGH = 8
"""Rounds: one to see the topics and one to make them, one to hear of a target, one to give up, one to hear of
that, one to take; and one each for who was fenced, and for who waits for a name."""

TOPOLOGIES = (
    "0:orders",
    "0:orders!c0",
    "0:orders>rep|1:<rep!counts",
    "0:orders>rep!c0|1:<rep!counts|2:audit",
)
MILD = ("beat",) * 12 + ("leave", "create", "work", "restart", "time")
WILD = (*MILD, "away", "dies", "topic")


def a_life(random: Random, wild: bool) -> tuple[Play, list[Member]]:
    """Thirty things that happen to a group."""
    play = Play(
        konvene_streams_mode="kafka" if wild else "kip",
        group_streams_num_standby_replicas=str(random.choice((0, 1, 1, 2))),
        group_streams_assignment_interval_ms=random.choice(("0", "0", "1000")),
    )
    if random.random() < 0.3:
        play.say("heavy 0")
    if random.random() < 0.5:
        for name in ("c0", "rep", "counts"):
            play.say(f"topic {name} partitions=6")
    topology = random.choice(TOPOLOGIES)
    members = [
        Member("ann", "p", topology, endpoint="ann:80"),
        Member("bob", "q", topology, "i2"),
        Member("cid", random.choice("pqr"), topology),
        Member("dan", random.choice("pqr"), topology, "i4"),
    ]
    for _ in range(30):
        _happens(play, members, random, wild)
    return play, members


def _happens(play: Play, members: list[Member], random: Random, wild: bool) -> None:
    member, what = random.choice(members), random.choice(WILD if wild else MILD)
    match what:
        case "beat":
            lost = random.random() < 0.3 and (wild or member.epoch > 0)
            member.beat(play, lost=lost, slow=random.random() < 0.3, says=random.random() < 0.6)
        case "leave":
            member.leave(play)
        case "away" if member.instance is not None:
            member.leave(play, "away")
        case "dies":
            member.forget(anew=True)
        case "topic":
            play.say(f"topic {random.choice(('orders', 'audit'))} partitions={random.choice((0, 2, 4, 6))}")
        case "create":
            play.say(random.choice(("create", "create fails")))
        case "work":
            play.say(random.choice(("work", "work fails")))
        case "restart":
            play.say(random.choice(("restart", "compact")))
        case "time":
            play.say(f"advance {random.choice((1_000, 20_000, 46_000) if wild else (100, 1_000))}")


def heals(play: Play, members: list[Member]) -> None:
    """Sources are there, and what internal topics there are is thrown away: they may be of other sizes."""
    play.say("topic orders partitions=6")
    play.say("topic audit partitions=2")
    for name in ("rep", "counts", "c0"):
        play.say(f"topic {name} partitions=0")
    for member in members:
        member.give_up()
    play.say("advance 46000")  # Who died is out, and who is away as well.


def rounds(play: Play, members: list[Member], count: int) -> None:
    for _ in range(count):
        for member in members:
            member.beat(play)
            member.give_up()
        play.say("work")
        play.say("create")
        play.say("advance 1000")


@pytest.mark.parametrize("seed", range(40))
def test_everybody_becomes_stable(seed: int) -> None:
    """L1: and what members run is what they are meant to run, all of it (T1, T6)."""
    wild = bool(seed % 2)
    play, members = a_life(Random(seed), wild)
    if wild:
        heals(play, members)
    rounds(play, members, ENOUGH)
    group = play.group
    assert group is not None
    assert group.state is State.STABLE, "\n".join([*play.said, repr(group)])
    assert group.topology is not None
    runs = sorted(unit[1:] for member in members for unit in member.owns if unit[0] == "active")
    assert runs == sorted(tasks_of(group.topology, play.life.topics)), "\n".join(play.said)
    for member in members:
        known = group.members[member.member_id]
        owned = {(unit[0].name.lower(), *unit[1:]) for unit in known.current.assigned.units()}
        assert member.owns == owned, f"{member.name} runs {member.owns}, it has {owned}"
        assert member.epoch == group.epoch
        assert play.error(member.name) is Errors.NONE
    epoch = group.epoch
    rounds(play, members, 2)
    assert play.group is not None
    assert (play.group.epoch, play.group.state) == (epoch, State.STABLE), "L5: it goes on, and nothing is new"
    writes = len(play.life.log.batches)
    rounds(play, members, 2)
    assert len(play.life.log.batches) == writes, "L5: heartbeats of a stable group write something"
