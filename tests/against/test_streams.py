"""A Kafka Streams application that counts words, as a classic group: its topics, its tasks, its counts.

The application is java/.../StreamsRole.java: one subtopology reads the lines of four partitions, a second one
counts the words. Between the two lies a repartition topic, behind the counts a changelog; both are made by
the application itself. All instances here are closed properly, so that even at_least_once counts nothing
twice; exactly_once_v2 is in transactions/test_streams.py.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from .brokers import Broker
from .clients import Client, Fleet, Partition, eventually, fleet_of, group_offsets, meet_the_coordinator
from .conftest import Admins
from .history import history
from .tries import own_name

pytestmark = pytest.mark.java

PARTITIONS = 4
TASKS = {f"{subtopology}_{partition}" for subtopology in range(2) for partition in range(PARTITIONS)}
WORDS = ("revoked", "assigned", "joined", "left", "fenced", "stable", "empty", "dead")


class WordCount:
    """The application, what it was given, and what it has made of that."""

    def __init__(self, name: str, fleet: Fleet, admin: Client, **reading: Any) -> None:
        self.name = name
        self.fleet = fleet
        self.admin = admin
        self.lines: list[str] = []
        self.writing = 0
        topics = [{"name": self.input, "partitions": PARTITIONS}, {"name": self.output, "partitions": 1}]
        self.admin.call("create_topics", topics=topics)
        self.writer = fleet.producer("confluent-kafka", f"{name}-writer", idempotence=True)
        where = [[self.output, 0]]
        self.reader = fleet.consumer("confluent-kafka", f"{name}-reader", assign=where, **reading)

    @property
    def input(self) -> str:
        return f"{self.name}-lines"

    @property
    def output(self) -> str:
        return f"{self.name}-counts"

    def start(self, name: str, **settings: Any) -> Client:
        return self.fleet.streams(
            f"{self.name}-{name}", group=self.name, input=self.input, output=self.output, **settings
        )

    def write(self, lines: int) -> None:
        """More lines, for every partition, that are like none before."""
        self.begin_to_write(lines)
        self.end_to_write()

    def begin_to_write(self, lines: int) -> None:
        begin = len(self.lines)
        more = [" ".join(WORDS[: 1 + n % len(WORDS)]) for n in range(begin, begin + lines)]
        records = [
            {"topic": self.input, "partition": n % PARTITIONS, "key": None, "value": line}
            for n, line in enumerate(more)
        ]
        self.writing = self.writer.submit("send", records=records)
        self.lines += more

    def end_to_write(self) -> None:
        self.writer.answer(self.writing, 60)

    def counted(self) -> dict[str, int]:
        """Return the latest count of each word."""
        return {record["key"]: int(record["value"]) for record in self.reader.records()}

    def is_right(self, *instances: Client) -> None:
        wanted = dict(Counter(word for line in self.lines for word in line.split()))
        everyone = [*instances, self.reader]
        eventually(f"counts {wanted}", lambda: self.counted() == wanted, 30, among=everyone)

    def is_shared_by(self, *instances: Client, within_s: float = 40) -> dict[str, set[str]]:
        """Wait until every task has one owner and all instances own as many; return the tasks by instance."""

        def shared() -> dict[str, set[str]] | None:
            held_by_instance = {instance.name: tasks(instance) for instance in instances}
            even = all(len(held) == len(TASKS) // len(instances) for held in held_by_instance.values())
            return held_by_instance if even and set().union(*held_by_instance.values()) == TASKS else None

        return eventually(f"sharing of all tasks by {len(instances)}", shared, within_s, among=instances)

    @property
    def repartition(self) -> str:
        return f"{self.name}-words-repartition"

    def all_is_committed(self) -> bool:
        """Whether all lines and all words are, as far as they are written."""
        rows = group_offsets(self.admin, self.name)
        committed = {(topic, partition): offset for topic, partition, offset, _ in rows}
        return committed == ends(self, self.input) | ends(self, self.repartition)

    def described(self) -> tuple[str, str, list[str | None]]:
        """Return the group's description: state, protocol, and the instance ids of its members."""
        description = self.admin.call("describe_groups", groups=[self.name])[self.name]
        ids = sorted((member["instance_id"] for member in description["members"]), key=str)
        return description["state"], description["assignor"], ids


def tasks(instance: Client) -> set[str]:
    return set(instance.call("tasks")["active"])


def states(instances: Iterable[Client]) -> list[str]:
    return [event["state"] for instance in instances for event in instance.of("state")]


@pytest.fixture
def app(request: pytest.FixtureRequest, fleet: Fleet, admins: Admins) -> WordCount:
    return WordCount(own_name(request), fleet, admins["kafka-python"])


def test_words_are_counted_while_instances_come_and_go(app: WordCount, admins: Admins) -> None:
    """Alone, an instance has all eight tasks; a second one takes half of them with their counts; when the
    first is closed the second goes on with all. The counts are right each time, and what was read is
    committed."""
    app.write(40)
    one = app.start("one")
    app.is_shared_by(one)
    app.is_right(one)
    two = app.start("two")
    app.is_shared_by(one, two)
    app.write(50)
    app.is_right(one, two)
    assert app.described() == ("Stable", "stream", [None, None])
    one.close()
    app.is_shared_by(two)
    app.write(60)
    app.is_right(two)
    two.close()
    assert app.described() == ("Empty", "", [])
    assert "ERROR" not in states([one, two])
    assert app.all_is_committed()
    assert sum(ends(app, app.input).values()) == 150


def test_the_internal_topics_are_as_the_application_wants_them(app: WordCount, admins: Admins) -> None:
    """A repartition topic of four partitions that keeps everything until the application itself deletes what
    it has read, and a changelog that is to be compacted, with one record for each word and count."""
    app.write(40)
    one = app.start("one")
    app.is_right(one)
    repartition, changelog = app.repartition, f"{app.name}-counts-changelog"
    described = app.admin.call("describe_topics", topics=[repartition, changelog])
    assert described == {repartition: {"partitions": PARTITIONS}, changelog: {"partitions": PARTITIONS}}
    configs = app.admin.call("describe_configs", topic=repartition)
    assert (configs["cleanup.policy"], configs["retention.ms"]) == ("delete", "-1")
    assert app.admin.call("describe_configs", topic=changelog)["cleanup.policy"] == "compact"
    words = sum(len(line.split()) for line in app.lines)
    assert sum(ends(app, changelog).values()) == words
    assert sum(ends(app, repartition).values()) == words

    def purged() -> bool:
        return ends(app, repartition, "earliest") == ends(app, repartition)

    eventually("deletion of what was read", purged, 20, among=[one])
    one.close()


def ends(app: WordCount, topic: str, at: str = "latest") -> dict[Partition, int]:
    everything = [[topic, partition] for partition in range(PARTITIONS)]
    rows = app.admin.call("list_offsets", partitions=everything, at=at)
    return {(topic, partition): offset for topic, partition, offset, *_ in rows}


def test_a_static_instance_that_is_bounced_moves_no_task(app: WordCount, broker: Broker) -> None:
    """With group.instance.id an instance that goes without leaving and comes back within its session has the
    same tasks again, and the other one does not even rebalance (KIP-345). The counts are right."""
    times = {"session_timeout_ms": 30_000}
    app.write(40)
    one = app.start("one", instance_id="desk-1", remain=True, **times)
    two = app.start("two", instance_id="desk-2", remain=True, **times)
    before = app.is_shared_by(one, two)
    app.is_right(one, two)
    rebalances = history(broker, app.name) if broker.explains else []
    steady = len(two.of("state"))
    two.until("quiet", lambda: two.call("state") == "RUNNING")
    one.close()
    app.write(50)
    again = app.start("again", instance_id="desk-1", remain=True, **times)
    app.is_right(again, two)
    assert tasks(again) == before[one.name]
    assert tasks(two) == before[two.name]
    assert two.of("state")[steady:] == []
    assert app.described() == ("Stable", "stream", ["desk-1-1", "desk-2-1"])
    if broker.explains:
        assert history(broker, app.name) == rebalances


def test_counts_outlive_an_instance_that_is_killed(app: WordCount) -> None:
    """After an instance is killed and its session has expired, the other one takes over its tasks, restores
    their counts from the changelog and counts on."""
    app.write(40)
    one, two = app.start("one"), app.start("two")
    app.is_shared_by(one, two)
    app.is_right(one, two)
    eventually("commits of everything", app.all_is_committed, 20, among=[one, two])
    one.kill()
    app.is_shared_by(two, within_s=60)
    app.write(50)
    app.is_right(two)


def test_counts_outlive_the_broker(own_broker: Broker, tmp_path: Path) -> None:
    """The broker is killed while lines are written, read and counted, and comes back within the session: each
    word is counted once, and no task has moved."""
    with fleet_of(own_broker.bootstrap, tmp_path / "clients") as fleet:
        admin = fleet.admin("kafka-python", "admin")
        meet_the_coordinator(admin)
        app = WordCount("survivor", fleet, admin)
        one = app.start("one", session_timeout_ms=30_000)
        two = app.start("two", session_timeout_ms=30_000)
        before = app.is_shared_by(one, two)
        app.write(40)
        app.is_right(one, two)
        for _ in range(2):
            app.begin_to_write(400)
            own_broker.kill9()
            own_broker.start()
            app.end_to_write()
            app.is_right(one, two)
        assert {instance.name: tasks(instance) for instance in (one, two)} == before
        assert "ERROR" not in states([one, two])
