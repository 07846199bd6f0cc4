"""Kafka Streams with exactly_once_v2 counts words while its instances and the broker are killed under load.

Each update of a count is a record, so the output shows more than the totals: every word's counts must run
from one to the last without gap or repetition. The application is that of test_streams.py in the parent
folder.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..brokers import Broker
from ..clients import Client, Fleet, eventually, meet_the_coordinator
from ..conftest import a_broker
from ..test_streams import WordCount
from .conftest import SETTINGS

pytestmark = pytest.mark.java

KILLS = {"konvene": ("broker", "instance", "broker", "instance"), "kafka": ("instance", "broker")}
TIMEOUT_MS = {"konvene": 4000, "kafka": 30_000}
"""What an instance that was killed had open is aborted when this is over; a broker that is killed is back by
then."""

LINES = 200
SEED = 129


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    settings = SETTINGS | {
        "group.streams.min.session.timeout.ms": "1000",
        "group.streams.session.timeout.ms": "3000",
        "group.streams.min.heartbeat.interval.ms": "100",
        "group.streams.heartbeat.interval.ms": "300",
        "group.streams.initial.rebalance.delay.ms": "0",
    }
    broker = a_broker(tmp_path / "broker", settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill9()


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_words_are_counted_exactly_once(
    protocol: str, own_broker: Broker, own_fleet: Fleet, record_property: Callable[[str, object], None]
) -> None:
    """Instances are killed and replaced, the broker is killed and comes back, lines are written all the time:
    for those who wait for commits each word has been counted one by one."""
    admin = own_fleet.admin("kafka-python", "admin")
    meet_the_coordinator(admin)
    app = WordCount("exact", own_fleet, admin, isolation_level="read_committed")
    settings: dict[str, Any] = {"guarantee": "exactly_once_v2", "protocol": protocol}
    settings |= {"session_timeout_ms": 3000, "transaction_timeout_ms": TIMEOUT_MS[own_broker.name]}
    instances = [app.start("one", **settings), app.start("two", **settings)]
    living = list(instances)
    app.write(LINES)
    eventually("first counts", app.counted, 40, among=instances)
    chance = random.Random(SEED)
    for number, victim in enumerate(KILLS[own_broker.name]):
        app.begin_to_write(LINES)
        time.sleep(chance.uniform(0, 1))
        if victim == "broker":
            own_broker.kill9()
            own_broker.start()
        else:
            living.pop(0).kill()
            living.append(app.start(f"another-{number}", **settings))
            instances.append(living[-1])
        app.end_to_write()
    app.write(LINES)
    wanted = Counter(word for line in app.lines for word in line.split())
    counts = eventually("exact counts", lambda: exact_counts(app, wanted), 120, among=[*living, app.reader])
    assert counts == {word: list(range(1, 1 + count)) for word, count in wanted.items()}
    assert app.reader.of("error") == []
    record_property("words counted", sum(wanted.values()))
    record_property("kills", ", ".join(KILLS[own_broker.name]))
    close(living)


def exact_counts(app: WordCount, wanted: Counter[str]) -> dict[str, list[int]] | None:
    """Return every count of each word in log order, or None until the latest counts are right."""
    if app.counted() != dict(wanted):
        return None
    counts: dict[str, list[int]] = {}
    for record in app.reader.records():
        counts.setdefault(record["key"], []).append(int(record["value"]))
    return counts


def close(instances: list[Client]) -> None:
    for instance in instances:
        instance.close()
