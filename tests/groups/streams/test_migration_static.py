"""Static members whose protocol changes: who comes back under a name is the same member, whatever it speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from tests.groups.migrating import record
from tests.groups.migrating import thread as as_kept
from tests.groups.streams.members import Member, Play
from tests.groups.streams.restorers import Restorer, Story, rounds
from tests.groups.streams.threads import Task, Thread

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.sync_group import SyncGroupRequest
from konvene.records.commits import encode_group_record
from konvene.sim.life import Life
from konvene.sim.promises import observer, promises_of
from konvene.sim.shell import Log, batch_of

STATELESS = "0:orders"
STREAMS_RECORDS = range(17, 24)
"""Types of the records that keep a streams group."""


@dataclass
class Named(Thread):
    """A static thread of the classic protocol."""

    instance: str = ""

    def join_request(self) -> JoinGroupRequest:
        return super().join_request().replace(group_instance_id=self.instance)

    def sync_request(self) -> SyncGroupRequest:
        return super().sync_request().replace(group_instance_id=self.instance)

    def beat_request(self) -> HeartbeatRequest:
        return super().beat_request().replace(group_instance_id=self.instance)


def process(name: str) -> str:
    """The process of a thread, in either protocol."""
    return str(uuid5(NAMESPACE_DNS, name))


def tasks(*partitions: int) -> list[Task]:
    return [("0", partition) for partition in partitions]


def classic_at(generation: int, *threads: tuple[Thread, list[Task]], **settings: str) -> Play:
    """A classic group that is stable, with these threads and what each was given."""
    rows = []
    for thread, active in threads:
        instance_id = thread.instance if isinstance(thread, Named) else None
        rows.append(as_kept(thread.name, active).replace(group_instance_id=instance_id))
    log = Log()
    log.batches.append(batch_of([encode_group_record(record(*rows, protocol="stream", generation=generation))]))
    log.durable = 1
    play = Play(konvene_streams_mode="kip", **settings)
    play.scenario.life = Life(play.life.settings, log=log)
    play.life._check = observer(promises_of(("streams",)))
    for thread, _ in threads:
        thread.member_id, thread.generation = thread.name, generation
        play.scenario.client(thread.name).member_id = thread.member_id
        assert thread.beat(play) is Errors.NONE
    return play


def runs(member: Member) -> list[Task]:
    """What a member of the streams protocol runs."""
    return sorted((name, partition) for role, name, partition in member.told if role == "active")


def kinds(play: Play) -> set[int]:
    """The types of the records that are left in the log when all that was overwritten is gone."""
    latest = {key: value for batch in play.life.log.batches for key, value in batch.pairs}
    return {int.from_bytes(key[:2], "big") for key, value in latest.items() if value is not None}


def timers_of(play: Play, member_id: str) -> set[str]:
    """What the coordinator waits for of a member."""
    return {key[0] for key in play.life.shell.timers if key[-1] == member_id}


# --- classic to streams ----------------------------------------------------------------------------


def half_and_half(**settings: str) -> tuple[Play, Named, Named]:
    """A runs the even tasks, B the odd ones; both have names."""
    a, b = Named("A", instance="i-A"), Named("B", instance="i-B")
    return classic_at(7, (a, tasks(0, 2, 4)), (b, tasks(1, 3, 5)), **settings), a, b


def test_bug_32_a_classic_thread_is_back_with_the_streams_protocol_and_has_its_tasks() -> None:
    """It replaces itself: nobody else has to give up anything, or to wait."""
    play, _, b = half_and_half()
    again = Member("A2", process("A"), STATELESS, instance="i-A")
    assert again.beat(play) is Errors.NONE
    assert runs(again) == tasks(0, 2, 4)
    group = play.group
    assert group is not None
    assert set(group.members) == {again.member_id, "B"}
    assert group.instances == {"i-A": again.member_id, "i-B": "B"}
    assert (group.classic_members, again.epoch) == (1, group.epoch)
    assert group.members["B"].current.assigned.tasks.active == {"0": (1, 3, 5)}
    assert not group.members["B"].current.pending_revocation.active
    assert timers_of(play, "A") == set()
    b.settle(play)
    assert b.active == tasks(1, 3, 5)
    assert runs(again) == tasks(0, 2, 4)
    assert not b.settle(play)


def test_who_was_replaced_is_fenced_in_all_that_it_asks() -> None:
    """The old client may still be there: it has to stop, and may not commit."""
    play, a, _ = half_and_half()
    again = Member("A2", process("A"), STATELESS, instance="i-A")
    again.beat(play)
    assert a.beat(play) is Errors.FENCED_INSTANCE_ID
    assert a.sync(play) is Errors.FENCED_INSTANCE_ID
    a.joined(play.life.ask("A", a.join_request(), 9))
    assert play.error("A") is Errors.FENCED_INSTANCE_ID
    plain = Thread("A", member_id="A", generation=7)
    assert plain.beat(play) is Errors.UNKNOWN_MEMBER_ID
    play.say("commit A orders-0:6 generation=7")
    answer = play.answer("A")
    assert answer is Errors.UNKNOWN_MEMBER_ID
    assert again.beat(play) is Errors.NONE


@pytest.mark.parametrize("waits", ["join", "sync"])
def test_who_is_replaced_in_the_middle_of_a_rebalance_is_answered(waits: str) -> None:
    """The old client waits in the classic group's rebalance; its place is taken, and it is not left waiting."""
    play, a, _ = half_and_half()
    new = Thread("N")
    new.join(play)
    assert a.beat(play) is Errors.REBALANCE_IN_PROGRESS
    assert play.life.ask("A", a.join_request(), 9) is None
    if waits == "sync":
        b = Named("B", member_id="B", generation=7, instance="i-B")
        play.life.ask("B", b.join_request(), 9)
        a.joined(play.answer("A"))
        b.joined(play.answer("B"))
        leads = play.answer("A").leader == a.member_id
        waiting = b if leads else a
        assert play.life.ask(waiting.name, waiting.sync_request(), 5) is None
    else:
        waiting = a
    again = Member("again", process(waiting.name), STATELESS, instance=waiting.instance)
    again.beat(play)
    answer: Any = play.answer(waiting.name)
    assert answer is not None
    assert answer.error_code
    assert again.epoch > 0
    assert waiting.beat(play) is Errors.FENCED_INSTANCE_ID
