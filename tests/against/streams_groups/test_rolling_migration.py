"""An application is rolled from the classic to the streams protocol and back, instance by instance, under
load; where that is not allowed, the newcomer is rejected and the others go on.

These are Kafka Streams' own clients, each instance in a process of its own. Kafka migrates empty groups only,
so with it only the refusals apply, which `test_migration.py` has.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from tests import depth

from ..brokers import Unavailable
from ..clients import OLDER_STREAMS, Refused, eventually, fleet_of, older_streams_classpath
from ..conftest import a_broker
from ..history import history
from ..tries import own_name
from .app import Application, Stage, instance_of, names
from .conftest import SETTINGS
from .rolling import CLASSIC, PARTITIONS, TASKS, Roll, Traffic
from .test_queries import KEYS, agree, at, owners

pytestmark = pytest.mark.java

KIP = SETTINGS | {
    "konvene.streams.mode": "kip",
    "group.min.session.timeout.ms": "1000",
    "group.streams.min.task.offset.interval.ms": "1000",
    "group.streams.task.offset.interval.ms": "3000",
}
LONG = pytest.mark.skipif(not depth.soak, reason="long: --soak runs it")
ONCE = {"processing.guarantee": "exactly_once_v2", "producer.transaction.timeout.ms": 4000}
STANDBYS = {"num.standby.replicas": 1}
OLDER = {
    "group.protocol": "classic",
    "main.consumer.session.timeout.ms": 3000,
    "main.consumer.heartbeat.interval.ms": 300,
    "cache.max.bytes.buffering": 0,
}
"""Of releases that know one protocol, and do not leave when they are closed."""


def a_stage(directory: Path, **settings: str) -> Iterator[Stage]:
    broker = a_broker(directory / "broker", KIP | settings)
    if not broker.explains:
        pytest.skip("Apache Kafka 4.4 changes the protocol of empty groups alone")
    broker.start()
    try:
        with fleet_of(broker.bootstrap, directory / "clients") as fleet:
            yield Stage(broker, fleet, directory)
    finally:
        broker.kill9()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from a_stage(tmp_path_factory.mktemp("rolling"))


@pytest.fixture(scope="module")
def closed_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker whose policy forbids a protocol change while a group has members."""
    policy = {"konvene.streams.migration.policy": "disabled"}
    yield from a_stage(tmp_path_factory.mktemp("disabled"), **policy)


@pytest.fixture
def roll(app: Application, request: pytest.FixtureRequest) -> Roll:
    """Words that are counted; the settings of all instances are the test's parameter."""
    app.does("words", lines=PARTITIONS, counts=1)
    return Roll(app, **getattr(request, "param", {}))


def kind(app: Application) -> str:
    rows = {row["group"]: row["type"] for row in app.apps.call("list_groups")}
    return str(rows[app.name])


def turns(app: Application) -> list[str]:
    """Return the recorded protocol changes in order. A new epoch and the following assignment record the same
    one."""
    past = history(app.stage.broker, app.name)
    kinds = [cause.kind for each in past for cause in each.causes]
    return [kind for kind, _ in groupby(kind for kind in kinds if kind in ("upgraded", "downgraded"))]


@pytest.fixture
def library(request: pytest.FixtureRequest) -> str:
    """An older release of Kafka Streams, if it can be had."""
    try:
        older_streams_classpath(OLDER_STREAMS[request.param])
    except Unavailable as missing:
        pytest.skip(f"{request.param} is missing: {missing}")
    return str(request.param)


def begins(roll: Roll, *names: str, library: str = "java", **settings: object) -> None:
    for name in names:
        roll.start(name, library=library, **settings)
    roll.is_whole()
    assert kind(roll.app) == "Classic"


@pytest.mark.parametrize(
    "roll", [{}, pytest.param(STANDBYS, marks=LONG)], indirect=True, ids=["bare", "standbys"]
)
def test_there_and_back(roll: Roll, request: pytest.FixtureRequest) -> None:
    """Three instances change, one after the other, to the streams protocol and back again."""
    app = roll.app
    if roll.settings:
        app.is_set(num_standby_replicas=1)
    begins(roll, "one", "two", "three", **CLASSIC)
    for name in ("one", "two", "three"):
        roll.replace(name)
        assert kind(app) == "Streams"
    roll.goes_on()
    assert not any(member["classic"] for member in app.describe()["members"])
    committed = app.committed()
    for name in ("three", "one", "two"):
        roll.replace(name, **CLASSIC)
    eventually("a classic group", lambda: kind(app) == "Classic", 20)
    roll.goes_on()
    assert all(app.committed()[at] >= offset for at, offset in committed.items())
    counted = roll.ends()
    assert turns(app) == ["upgraded", "downgraded"]
    assert frozenset({"classic", "streams"}) in roll.watch.protocols
    request.node.user_properties += [("words", counted), ("seconds of each", roll.took)]


@pytest.mark.parametrize("roll", [ONCE], indirect=True, ids=["exactly-once"])
def test_kills_in_the_middle(roll: Roll, stage: Stage, request: pytest.FixtureRequest) -> None:
    """With transactions the counts are right also where instances of both protocols are killed in the mixed
    group, and the broker itself."""
    app = roll.app
    app.is_set(session_timeout_ms=3000)
    begins(roll, "one", "two", "three", **CLASSIC)
    roll.replace("one")
    roll.replace("two", kill=True, **CLASSIC)
    assert kind(app) == "Streams"
    stage.broker.kill9()
    stage.broker.start()
    roll.goes_on()
    roll.is_whole()
    roll.replace("one", kill=True)
    roll.replace("two")
    roll.replace("three", kill=True)
    roll.goes_on()
    counted = roll.ends()
    assert kind(app) == "Streams"
    request.node.user_properties += [("words", counted), ("seconds of each", roll.took)]


@pytest.mark.parametrize(
    "library",
    [pytest.param(each, marks=[LONG] if each != "streams-3.9.1" else []) for each in OLDER_STREAMS],
    indirect=True,
)
def test_from_an_older_release(library: str, roll: Roll, request: pytest.FixtureRequest) -> None:
    """Its instances are replaced by such as speak the streams protocol, and then come back. They stay members
    until their sessions end, for that is how they close."""
    app = roll.app
    older = {"library": library} | OLDER
    for name in ("one", "two"):
        roll.start(name, **older)
    roll.goes_on()
    assert kind(app) == "Classic"
    roll.replace_blindly("one", among=TASKS)
    assert kind(app) == "Streams"
    roll.goes_on()
    roll.replace("two")
    roll.goes_on()
    roll.replace_blindly("one", among=TASKS, **older)
    roll.goes_on()
    roll.replace_blindly("two", among=TASKS, **older)
    roll.goes_on()
    eventually("a classic group", lambda: kind(app) == "Classic", 20)
    counted = roll.ends()
    assert turns(app) == ["upgraded", "downgraded"]
    request.node.user_properties += [("words", counted), ("seconds of each", roll.took)]


def test_each_instance_knows_where_keys_are(app: Application) -> None:
    """In a group of both protocols every instance names the same place for each key, and the right count is
    there."""
    app.does("keys", lines=PARTITIONS, counts=1)
    app.write("lines", [(None, key, "x") for key in KEYS * 3])
    classic = app.start("classic", **CLASSIC, **at(7001))
    eventually("all tasks of one", lambda: classic.tasks() == names(0, PARTITIONS), 30)
    streams = app.start("streams", **at(7002))
    app.is_shared_by(classic, streams, tasks=names(0, PARTITIONS), within_s=60)
    late = app.start("late", **CLASSIC, **at(7003))
    app.is_shared_by(classic, streams, late, tasks=names(0, PARTITIONS), within_s=60)
    app.has_counted(Counter(KEYS * 3))
    agree(classic, streams, late)
    endpoints = {member["endpoint"]: member["classic"] for member in app.describe()["members"]}
    assert endpoints == {"localhost:7001": True, "localhost:7002": False, "localhost:7003": True}
    instances = {"localhost:7001": classic, "localhost:7002": streams, "localhost:7003": late}

    def endpoints_are_right() -> bool:
        """Once nothing moves: while a thread takes on a copy, it answers nothing."""
        agree(*instances.values())
        try:
            found = {server: each.ask("counts") for server, each in instances.items()}
        except Refused:
            return False
        whose = owners(*instances.values())
        everywhere = sorted(key for each in found.values() for key in each)
        return everywhere == sorted(KEYS) and all(found[whose[key][0]].get(key) == 3 for key in KEYS)

    eventually("the right place of every key", endpoints_are_right, 30, among=[app.apps])


def test_a_classic_instance_warms_up(app: Application) -> None:
    """A classic instance that joins without state is given warm-ups first, which it treats as standbys. It
    rejoins by itself to report their offsets, and is then given tasks."""
    app.does("keys", lines=PARTITIONS, counts=1)
    app.write("lines", [(None, f"k{n}", "x") for n in range(4000)])
    streams = app.start("streams")
    app.has_counted(Counter(f"k{n}" for n in range(4000)), 60)
    app.is_shared_by(streams, tasks=names(0, PARTITIONS))
    app.is_set(acceptable_recovery_lag=0)
    classic = app.start("classic", **CLASSIC)

    def warms_up() -> bool:
        roles = {instance_of(member): member["assignment"] for member in app.describe()["members"]}
        mine = roles.get(classic.name)
        if mine is None or not mine["warmup"]:
            return False
        assert not mine["active"]
        return classic.standbys() == set(mine["warmup"])

    eventually("warm-ups", warms_up, 30)
    assert streams.tasks() == names(0, PARTITIONS)
    app.is_shared_by(streams, classic, tasks=names(0, PARTITIONS), within_s=60)
    app.is_explained(("member-joined", classic), ("warmup-caught-up", classic))


def test_refused_by_policy(closed_stage: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A streams instance ends with a clear word in a classic group, a classic one in a streams group, and
    those who were there count on."""
    for first, second, why in (
        (CLASSIC, {}, "GroupIdNotFoundException"),
        ({}, CLASSIC, "InconsistentGroupProtocolException"),
    ):
        app = Application(f"{own_name(request)}-{why.lower()}", closed_stage, tmp_path)
        app.does("words", lines=PARTITIONS, counts=1)
        traffic = Traffic(app)
        try:
            there = app.start("there", **first)
            eventually("all tasks", lambda at=there: at.tasks() == TASKS, 30)
            before = kind(app)
            assert why in app.start("other", **second).fails()
            there.runs()
            assert there.tasks() == TASKS
            app.has_counted(traffic.stop())
            assert kind(app) == before
        finally:
            app.end()
