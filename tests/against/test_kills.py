"""The broker is killed many times, at seeded random moments, while producers write and a group commits:
nothing acknowledged is lost.

Each idempotent producer's values must be in the log once and in order, whatever was in flight when the broker
died; and after every restart the group's committed offsets are at least the last acknowledged ones.
"""

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import depth

from .brokers import HOST, Broker, chosen
from .clients import LIBRARIES, Client, Fleet, Partition, eventually, meet_the_coordinator
from .conftest import a_running_broker, java_is_missing
from .stories import OUTLIVES_ITS_BROKER, commits, gaps, moves_within, steps_back

KILLS = {"konvene": depth.times(20, soaked=50), "kafka": 3}
"""Apache Kafka needs eight seconds to come back."""

SEED = 20
PARTITIONS = 8
RATE_PER_S = 80
GROUP = TOPIC = "mortal"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that acknowledges nothing before it is on disk, so that many kills come in between."""
    settings = {"konvene.log.fsync.topics": "true"} if chosen().name == "konvene" else None
    with a_running_broker(tmp_path / "broker", settings, kill=True) as broker:
        yield broker


def test_kills_take_nothing_back(
    own_broker: Broker, own_fleet: Fleet, record_property: Callable[[str, object], None]
) -> None:
    """Nothing acknowledged is lost, nothing is written twice or out of order, no commit goes back, and the
    group never rebalances."""
    libraries = [name for name in LIBRARIES if name != "java" or not java_is_missing()]
    admin = own_fleet.admin("kafka-python", "admin")
    admin.call("create_topics", topics=[{"name": TOPIC, "partitions": PARTITIONS}])
    meet_the_coordinator(admin)
    producers = [own_fleet.producer(name, f"producer-{name}", idempotence=True) for name in libraries]
    settings: dict[str, Any] = {"group": GROUP, "topics": [TOPIC], "commit": "sync", **OUTLIVES_ITS_BROKER}
    members = [
        own_fleet.consumer(name, f"member-{name}", session_timeout_ms=25_000, **settings)
        for name in libraries
    ]
    share = PARTITIONS // len(members)
    eventually("even shares", lambda: min(len(m.holds()) for m in members) == share, 20, among=members)
    for producer in producers:
        producer.call(
            "stream", topic=TOPIC, prefix=f"{producer.library} ", count=10**6, rate_per_s=RATE_PER_S
        )
    stable_ns = time.monotonic_ns()

    moments = random.Random(SEED)
    kills = KILLS[own_broker.name]
    lost_commits = []
    for kill in range(kills):
        time.sleep(moments.uniform(0, 1))
        acknowledged = last_commits(members)
        own_broker.kill9()
        own_broker.start()
        kept = committed(own_broker, GROUP)
        lost_commits += [
            f"kill {kill}: {partition} was {offset}, is {kept.get(partition)}"
            for partition, offset in acknowledged.items()
            if kept.get(partition, -1) < offset
        ]

    totals = [producer.call("settle", within_s=60) for producer in producers]
    acked = {value for producer in producers for value in producer.acked()}
    delivered = eventually(
        "every acknowledged value",
        lambda: acked <= (read := {value for member in members for value in member.values()}) and read,
        30,
        among=[*members, *producers],
    )
    record_property("records acknowledged", len(acked))
    record_property("kills and restarts", kills)
    record_property("commits confirmed", sum(len(member.of("committed")) for member in members))
    record_property("producers", ", ".join(libraries))

    assert [total for total in totals if total["failed"] or total["acked"] != total["sent"]] == []
    assert delivered == acked
    assert written_wrongly(own_fleet, acked) == []
    assert lost_commits == []
    assert steps_back(members) == []
    assert gaps(members) == []
    assert moves_within(members, stable_ns, time.monotonic_ns()) == []


def last_commits(members: list[Client]) -> dict[Partition, int]:
    """Return the highest acknowledged commit of each partition."""
    return {partition: max(row[1] for row in rows) for partition, rows in commits(members).items()}


def written_wrongly(fleet: Fleet, acked: set[str]) -> list[str]:
    """Of the log itself, as a new reader finds it: values that are missing, doubled, or behind a later one of
    their producer."""
    reader = fleet.consumer("confluent-kafka", "reader", assign=[[TOPIC, p] for p in range(PARTITIONS)])
    reader.until("the whole log", lambda: acked <= set(reader.values()), 30)
    times = Counter(reader.values())
    wrong = [f"{value} is there {count} times" for value, count in times.items() if count != 1]
    latest: dict[tuple[str, int], int] = {}
    for record in reader.records():
        library, number = record["value"].split()
        place = (library, record["partition"])
        if int(number) <= latest.get(place, -1):
            wrong.append(f"{record['value']} stands behind {latest[place]} in {place}")
        latest[place] = int(number)
    return wrong


def committed(broker: Broker, group: str) -> dict[Partition, int]:
    """Return a group's committed offsets as soon as the broker has loaded them. OffsetFetch 5 is sent by
    hand, since a client would need longer than the broker lives."""
    name = group.encode()
    request = struct.pack(f">hhih h{len(name)}s i", 9, 5, 1, -1, len(name), name, -1)
    while True:
        with socket.create_connection((HOST, broker.port), timeout=20) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            stream = connection.makefile("rb")
            size: int = struct.unpack(">i", stream.read(4))[0]
            offsets, error = offset_fetch_response(stream.read(size))
        if error == 0:
            return offsets
        assert error in (14, 15, 16), f"OffsetFetch after a restart: error {error}"
        time.sleep(0.02)


def offset_fetch_response(data: bytes) -> tuple[dict[Partition, int], int]:
    at = 8  # the correlation id, the throttle time

    def take(what: str) -> Any:
        nonlocal at
        at += struct.calcsize(">" + what)
        return struct.unpack_from(">" + what, data, at - struct.calcsize(">" + what))[0]

    offsets: dict[Partition, int] = {}
    for _ in range(take("i")):
        topic = take(f"{take('h')}s").decode()
        for _ in range(take("i")):
            partition, offset, _epoch, metadata = take("i"), take("q"), take("i"), take("h")
            at += max(metadata, 0)
            assert take("h") == 0, f"{topic}-{partition}"
            offsets[topic, partition] = offset
    return offsets, take("h")
