"""Groups of Kafka Streams' threads that change their protocol, and what is to be seen of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from tests.groups.migration.migrating import record
from tests.groups.migration.migrating import thread as as_kept
from tests.groups.streams.classic.test_older_clients import gives_itself_all
from tests.groups.streams.classic.threads import Task, Thread
from tests.groups.streams.members import Play
from tests.groups.streams.restorers import Restorer, Story, rounds

from konvene.errors import Errors
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.sync_group import SyncGroupRequest
from konvene.records.commits import encode_group_record
from konvene.sim.invariants import invariants_of, observer
from konvene.sim.journal import Batch, Log, batch_of
from konvene.sim.transcript.sandbox import Sandbox

STATELESS = "0:orders"
STREAMS_RECORDS = set(range(17, 24))
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


# --- groups ----------------------------------------------------------------------------------------


def classic_at(generation: int, *threads: tuple[Thread, list[Task]], **settings: str) -> Play:
    """A classic group that is stable, with these threads and what each was given."""
    rows = []
    for thread, active in threads:
        instance_id = thread.instance if isinstance(thread, Named) else None
        rows.append(as_kept(thread.name, active).replace(group_instance_id=instance_id))
    log = Log()
    log.batches.append(
        batch_of([encode_group_record(record(*rows, protocol="stream", generation=generation))])
    )
    log.durable = 1
    play = Play(konvene_streams_mode="kip", **settings)
    play.scenario.life = Sandbox(play.life.settings, log=log)
    play.life._check = observer(invariants_of(("streams",)))
    for thread, _ in threads:
        thread.member_id, thread.generation = thread.name, generation
        play.scenario.client(thread.name).member_id = thread.member_id
        assert thread.beat(play) is Errors.NONE
    return play


def started(**settings: str) -> Story:
    return Story(konvene_streams_mode="kip", **settings)


def leads(story: Story, name: str) -> Thread:
    """A classic thread that is alone in its group, which has come through its first rebalance."""
    thread = Thread(name)
    while (answer := story.life.ask(name, thread.join_request(), 9)) is not None and thread.joined(answer):
        pass
    story.say("advance 10")
    thread.joined(story.answer(name))
    given = thread.sync_request().replace(assignments=(gives_itself_all(thread),))
    assert thread.synced(story.life.ask(name, given, 5)) is Errors.NONE
    assert thread.active == tasks(*range(6))
    return thread


def settle(story: Story, streams: list[Restorer], classic: list[Thread]) -> None:
    """All of them speak until nobody has anything to learn."""
    for _ in range(8):
        rounds(story, streams)
        moved = [thread.settle(story) for thread in classic]
        if not any(moved):
            rounds(story, streams)
            return
    raise AssertionError("it does not end")


def upgraded(count: int = 2, **settings: str) -> tuple[Story, Restorer, list[Thread]]:
    """One member of the streams protocol, and so many of the classic one; each has its share."""
    story = started(**settings)
    threads = [leads(story, "bob0")]
    ann = Restorer("ann", "ann", STATELESS, reports=False)
    assert ann.beat(story) is Errors.NONE
    for number in range(1, count):
        threads.append(Thread(f"bob{number}"))
        threads[-1].join(story)
        threads[-1].sync(story)
    settle(story, [ann], threads)
    shares = [ann.active, *(thread.active for thread in threads)]
    assert sorted(task for share in shares for task in share) == tasks(*range(6))
    return story, ann, threads


# --- what is asked, and seen -----------------------------------------------------------------------


def asked(play: Play, who: str, request: Any, version: int) -> Errors | None:
    """With which error a request is answered; None while it is not."""
    answer = play.life.ask(who, request, version)
    return answer if answer is None or isinstance(answer, Errors) else Errors(answer.error_code)


def tasks(*partitions: int) -> list[Task]:
    return [("0", partition) for partition in partitions]


def process(name: str) -> str:
    """The process of a thread, in either protocol."""
    return str(uuid5(NAMESPACE_DNS, name))


def kinds(batches: Iterable[Batch]) -> set[int]:
    """The types of the records that are left of a log when all that was overwritten is gone."""
    latest = {key: value for batch in batches for key, value in batch.pairs}
    return {int.from_bytes(key[:2], "big") for key, value in latest.items() if value is not None}


def timers_of(play: Play, member_id: str) -> set[str]:
    """What the coordinator waits for of a member."""
    return {key[0] for key in play.life.runtime.timers if key[-1] == member_id}
