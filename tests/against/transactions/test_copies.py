"""Consume, transform, produce: copiers read a topic, write the records to another topic and commit both in
one transaction, while copiers and the broker are killed at seeded random moments.

In the end every value is in the output once, in order, and the group has committed everything. Some copiers
restart as the same static member, the others as new members. Their transactional ids stay the same, so that
transactions left open are aborted at restart, or at the latest by their timeout.
"""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests import depth

from ..brokers import Broker
from ..clients import OLDER_JAVA, Client, Fleet, eventually, group_offsets, meet_the_coordinator
from ..conftest import a_broker, java_is_missing
from .conftest import SETTINGS

PARTITIONS = 4
RATE_PER_S = 150
SEED = 890
FROM, TO, GROUP = "originals", "copies", "copiers"


class Kind(NamedTuple):
    """A copier: its library, and how it is a member of the group."""

    library: str
    settings: dict[str, Any]


STATIC = {"instance_id": "desk"}
CLASSIC = [
    Kind("confluent-kafka", STATIC | {"session_timeout_ms": 20_000}),
    Kind("confluent-kafka", {"session_timeout_ms": 2000}),
    Kind("java", STATIC | {"session_timeout_ms": 20_000}),
    Kind(OLDER_JAVA, {"session_timeout_ms": 2000}),
]
CONSUMER = [
    Kind("java", {"protocol": "consumer"}),
    Kind("confluent-kafka", {"protocol": "consumer"}),
    Kind("confluent-kafka", STATIC | {"protocol": "consumer"}),
]

KILLS = {
    "konvene": {"classic": depth.times((10, 10), soaked=(25, 25)), "consumer": (5, 5)},
    "kafka": {"classic": (2, 4), "consumer": (1, 2)},
}
"""How often the broker is killed, and how often a copier. Apache Kafka needs eight seconds to come back."""

OUTLIVES_MS = {"konvene": 15_000, "kafka": 60_000}
"""Transactions' time-out: longer than the broker is away."""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    settings = SETTINGS | {
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }
    broker = a_broker(tmp_path / "broker", settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill9()


class Copiers:
    """Those who copy; each can be killed and comes back."""

    def __init__(self, fleet: Fleet, kinds: list[Kind], timeout_ms: int) -> None:
        self.fleet = fleet
        self.timeout_ms = timeout_ms
        self.kinds = [kind for kind in kinds if "java" not in kind.library or not java_is_missing()]
        self.living = [self._start(number) for number in range(len(self.kinds))]
        self.all = list(self.living)

    def _start(self, number: int) -> Client:
        kind = self.kinds[number]
        settings = dict(kind.settings)
        if "instance_id" in settings:
            settings["instance_id"] += f"-{number}"
        name = f"copier-{number}-{time.monotonic_ns()}"
        times = {"transaction_timeout_ms": self.timeout_ms}
        names = {"from": FROM, "to": TO, "group": GROUP, "transactional_id": f"copier-{number}"}
        return self.fleet.copier(kind.library, name, **names, **times, **settings)

    def supervise(self) -> None:
        """Replace copiers whose process has exited on its own (see confluent_copier.py)."""
        for number, copier in enumerate(self.living):
            if copier.process.poll() is not None:
                self.replace(number)

    def replace(self, number: int) -> None:
        self.living[number].kill()
        self.living[number] = self._start(number)
        self.all.append(self.living[number])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kills_lose_nothing_and_double_nothing(
    protocol: str, own_broker: Broker, own_fleet: Fleet, record_property: Callable[[str, object], None]
) -> None:
    """A read_committed reader of every library reads each value once and in order; the group has committed
    the end offsets; and no transaction is left open."""
    admin = own_fleet.admin("kafka-python", "admin")
    admin.call("create_topics", topics=[{"name": name, "partitions": PARTITIONS} for name in (FROM, TO)])
    meet_the_coordinator(admin)
    source = own_fleet.producer("confluent-kafka", "source", idempotence=True)
    copiers = Copiers(own_fleet, CLASSIC if protocol == "classic" else CONSUMER, OUTLIVES_MS[own_broker.name])
    source.call("stream", topic=FROM, prefix="", count=10**6, rate_per_s=RATE_PER_S)
    eventually("copies by all", lambda: all(c.of("copied") for c in copiers.living), 40, among=copiers.living)

    chance = random.Random(SEED)
    of_broker, of_copiers = KILLS[own_broker.name][protocol]
    kills = ["broker"] * of_broker + ["copier"] * of_copiers
    chance.shuffle(kills)
    for kill in kills:
        time.sleep(chance.uniform(0.2, 1))
        copiers.supervise()
        if kill == "broker":
            own_broker.kill9()
            own_broker.start()
        else:
            copiers.replace(chance.randrange(len(copiers.living)))

    totals = source.call("settle", within_s=60)
    assert totals["failed"] == 0
    written = read(own_fleet, "kafka-python", FROM, totals["acked"])
    for library in ("confluent-kafka", "kafka-python", "aiokafka"):
        copies = read(own_fleet, library, TO, totals["acked"], copiers)
        assert (library, copies) == (library, written)
    ends = [[FROM, partition, len(values), ""] for partition, values in sorted(written.items())]
    meet_the_coordinator(admin)
    eventually("commits of everything", lambda: group_offsets(admin, GROUP) == ends, 10)
    assert stable_ends(own_fleet, "read_committed") == stable_ends(own_fleet, "read_uncommitted")
    hasty = own_fleet.consumer("confluent-kafka", assign=[[TO, p] for p in range(PARTITIONS)])
    everything = {value for values in written.values() for value in values}
    hasty.until("every copy", lambda: everything <= set(hasty.values()))
    record_property("values copied", totals["acked"])
    record_property("copies that were aborted", len(hasty.records()) - totals["acked"])
    record_property("kills of the broker", of_broker)
    record_property("kills of copiers", of_copiers)
    record_property("transactions", sum(len(c.of("copied")) for c in copiers.all))
    record_property("transactions that failed", sum(len(c.of("failed")) for c in copiers.all))


def read(
    fleet: Fleet, library: str, topic: str, wanted: int, copiers: Copiers | None = None
) -> dict[int, list[str]]:
    """What a new reader who waits for commits finds, by partition, in its order."""
    assigned = [[topic, partition] for partition in range(PARTITIONS)]
    reader = fleet.consumer(library, assign=assigned, isolation_level="read_committed")

    def done() -> bool:
        if copiers:
            copiers.supervise()
        return len(reader.records()) >= wanted

    eventually(f"{wanted} values", done, 60, among=[reader, *(copiers.living if copiers else ())])
    found: dict[int, list[str]] = {}
    for record in reader.records():
        found.setdefault(record["partition"], []).append(record["value"])
    reader.close()
    return found


def stable_ends(fleet: Fleet, isolation_level: str) -> list[list[int]]:
    """Where the copies end, for those who wait for commits or for those who do not."""
    assigned = [[TO, partition] for partition in range(PARTITIONS)]
    reader = fleet.consumer("confluent-kafka", assign=assigned, isolation_level=isolation_level)
    watermarks: list[list[int]] = reader.call("watermarks", partitions=assigned)
    reader.close()
    return watermarks
