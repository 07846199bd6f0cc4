"""Kafka's newest client is given warm-up tasks: a task is restored on its next owner first, while the present
owner goes on.

No released Kafka Streams has a client that reports task offsets, so the tasks are simulated
(TaskMembers.java); the client that talks to the broker is Kafka's.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..brokers import Broker
from ..clients import NEWEST_JAVA, Fleet, eventually, fleet_of, meet_the_coordinator
from ..conftest import a_broker
from ..tries import own_name
from .conftest import SETTINGS

pytestmark = pytest.mark.java

PARTITIONS, END, ACCEPTABLE = 6, 100_000, 10_000
"""Tasks, the records that each has to restore, and how many of these may be left (Kafka's default)."""
WARMUPS = 2
"""At a time, by default."""
AT_ONCE, STOPPED = 10**9, 0
"""Records a second."""


class Threads:
    """Members in one JVM, whose copies are restored at one rate."""

    def __init__(self, fleet: Fleet, group: str, name: str) -> None:
        self.client = fleet.launch(NEWEST_JAVA, f"{group}-{name}")
        fleet.give(
            self.client, "task_members", group=group, topic=f"{group}-lines",
            changelog=f"{group}-counts-changelog", end=END,
        )  # fmt: skip

    def join(self, *members: str, process: str) -> None:
        for member in members:
            self.client.call("join", member=member, process=process)

    def restores(self, rate: int) -> None:
        self.client.call("restore", rate=rate)

    def tasks(self, member: str) -> dict[str, Any]:
        assigned: dict[str, Any] = self.client.call("tasks", member=member)
        return assigned

    def active(self, member: str) -> set[str]:
        return set(self.tasks(member)["active"])

    def cold(self) -> list[dict[str, int]]:
        """Return active tasks that were assigned with more to restore than is acceptable."""
        behind = [event["behind"] for event in self.client.of("assigned")]
        return [each for each in behind if any(lag > ACCEPTABLE for lag in each.values())]


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return own_name(request, 30)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    broker = a_broker(tmp_path / "broker", SETTINGS)
    if not broker.explains:
        pytest.skip("Apache Kafka 4.4 has no warm-ups")
    broker.start()
    try:
        yield broker
    finally:
        broker.kill9()


@pytest.fixture
def fleet(own_broker: Broker, tmp_path: Path, group: str) -> Iterator[Fleet]:
    with fleet_of(own_broker.bootstrap, tmp_path / "clients") as fleet:
        admin = fleet.admin("kafka-python", "admin")
        admin.call("create_topics", topics=[{"name": f"{group}-lines", "partitions": PARTITIONS}])
        meet_the_coordinator(admin)
        yield fleet


@pytest.fixture
def old(fleet: Fleet, group: str) -> Threads:
    """One process that runs all tasks, with all of their state."""
    old = Threads(fleet, group, "old")
    old.restores(AT_ONCE)
    old.join("old", process="p")
    eventually("all tasks of one", lambda: len(old.active("old")) == PARTITIONS, 30, among=[old.client])
    eventually("all state", lambda: not any(old.tasks("old")["behind"].values()), 20, among=[old.client])
    return old


def warms_up(new: Threads, member: str) -> None:
    eventually("warm-ups", lambda: len(new.tasks(member)["warmup"]) == WARMUPS, 30, among=[new.client])


def shared(old: Threads, new: Threads, *members: str) -> bool:
    """Whether half of the tasks are the new ones', and the others still the old one's."""
    theirs = [task for member in members for task in new.active(member)]
    return len(theirs) == len(set(theirs)) == PARTITIONS // 2 == len(old.active("old"))


def test_a_newcomer_catches_up_before_it_takes_over(fleet: Fleet, group: str, old: Threads) -> None:
    """While its copies stand still it is given no task; as soon as they come near, tasks move, and others
    begin to warm up, as many at a time as are allowed, until both have as many."""
    new = Threads(fleet, group, "new")
    new.restores(STOPPED)
    new.join("new", process="q")
    warms_up(new, "new")
    assigned = new.tasks("new")
    assert (assigned["active"], assigned["standby"]) == ([], [])
    assert assigned["acceptable_recovery_lag"] == ACCEPTABLE
    assert len(old.active("old")) == PARTITIONS
    new.restores(AT_ONCE)
    eventually("half of the tasks", lambda: shared(old, new, "new"), 40, among=[old.client, new.client])
    eventually("an end of warm-ups", lambda: not new.tasks("new")["warmup"], 20, among=[new.client])
    assert new.cold() == []
    warming = [event["warming"].values() for event in new.client.of("assigned")]
    assert max(sum(lag > ACCEPTABLE for lag in lags) for lags in warming) == WARMUPS


def test_threads_of_one_process_share_its_copies(fleet: Fleet, group: str, old: Threads) -> None:
    """Two members of one process never have one task in two roles, and what one of them has warmed up the
    other may run at once."""
    new = Threads(fleet, group, "new")
    new.restores(AT_ONCE)
    old.join("old-too", process="p")
    new.join("new-1", "new-2", process="q")
    everything = [("old", old), ("old-too", old), ("new-1", new), ("new-2", new)]

    def even() -> bool:
        """Return True if each task has one owner. Members are queried one by one, so tasks may move
        meanwhile."""
        had = [threads.active(member) for member, threads in everything]
        tasks = sorted(task for each in had for task in each)
        whole = tasks == [f"0_{partition}" for partition in range(PARTITIONS)]
        return whole and sorted(map(len, had)) == [1, 1, 2, 2]

    eventually("even shares", even, 40, among=[old.client, new.client])
    assert new.cold() == []


def test_the_broker_is_killed_while_copies_catch_up(
    own_broker: Broker, fleet: Fleet, group: str, old: Threads
) -> None:
    """The broker loses reported task offsets and keeps its decisions: no task is assigned cold, and once
    members have reported again warm-ups go on."""
    new = Threads(fleet, group, "new")
    new.restores(STOPPED)
    new.join("new", process="q")
    warms_up(new, "new")
    own_broker.kill9()
    own_broker.start()
    time.sleep(3)  # Ten heartbeats of each.
    assert len(old.active("old")) == PARTITIONS
    new.restores(AT_ONCE)
    eventually("half of the tasks", lambda: shared(old, new, "new"), 40, among=[old.client, new.client])
    assert new.cold() == []
