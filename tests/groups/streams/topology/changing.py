"""Groups of Kafka Streams threads that change their protocol, and helpers to inspect them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from tests.groups.migration.migrating import record
from tests.groups.migration.migrating import thread as member_metadata
from tests.groups.streams.classic.test_older_clients import assignment_of_all_tasks
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
"""Types of the records of streams groups."""


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
    """Return a stable classic group with these threads and their assignments."""
    rows = []
    for thread, active in threads:
        instance_id = thread.instance if isinstance(thread, Named) else None
        rows.append(member_metadata(thread.name, active).replace(group_instance_id=instance_id))
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


def sole_leader(story: Story, name: str) -> Thread:
    """Return a classic thread that is alone in its group, after the first rebalance."""
    thread = Thread(name)
    while (answer := story.life.ask(name, thread.join_request(), 9)) is not None and thread.joined(answer):
        pass
    story.run("advance 10")
    thread.joined(story.answer(name))
    given = thread.sync_request().replace(assignments=(assignment_of_all_tasks(thread),))
    assert thread.synced(story.life.ask(name, given, 5)) is Errors.NONE
    assert thread.active == tasks(*range(6))
    return thread


def settle(story: Story, streams: list[Restorer], classic: list[Thread]) -> None:
    """Let all members heartbeat until none has to rejoin."""
    for _ in range(8):
        rounds(story, streams)
        moved = [thread.settle(story) for thread in classic]
        if not any(moved):
            rounds(story, streams)
            return
    raise AssertionError("it does not end")


def upgraded(count: int = 2, **settings: str) -> tuple[Story, Restorer, list[Thread]]:
    """Return a settled group of one streams member and `count` classic members."""
    story = started(**settings)
    threads = [sole_leader(story, "bob0")]
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


# --- requests and state ----------------------------------------------------------------------------


def error_of(play: Play, who: str, request: Any, version: int) -> Errors | None:
    """Send a request and return the error of its response; None while it waits."""
    answer = play.life.ask(who, request, version)
    return answer if answer is None or isinstance(answer, Errors) else Errors(answer.error_code)


def tasks(*partitions: int) -> list[Task]:
    return [("0", partition) for partition in partitions]


def process(name: str) -> str:
    """Return the process id of a thread, in either protocol."""
    return str(uuid5(NAMESPACE_DNS, name))


def record_types(batches: Iterable[Batch]) -> set[int]:
    """Return the types of the records that remain after full compaction of a log."""
    latest = {key: value for batch in batches for key, value in batch.pairs}
    return {int.from_bytes(key[:2], "big") for key, value in latest.items() if value is not None}


def timers_of(play: Play, member_id: str) -> set[str]:
    """Return the kinds of a member's armed timers."""
    return {key[0] for key in play.life.runtime.timers if key[-1] == member_id}
