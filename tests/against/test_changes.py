"""Topics change under clients that are at work: they grow, they are deleted and come again with a new id."""

from typing import Any

import pytest

from .clients import Client, Fleet, Refused
from .conftest import Admins
from .stories import read_again
from .test_data import EACH

QUICK = {"metadata_max_age_ms": 500}
"""How old a client lets its picture of the topics become."""


@pytest.mark.parametrize("library", EACH)
def test_partitions_are_added_while_records_flow(library: str, fleet: Fleet, admins: Admins) -> None:
    """A producer soon writes to the new partitions, and a member of a group is given them and reads all."""
    topic = f"growing-{library}"
    admin = admins["kafka-python"]
    admin.call("create_topics", topics=[{"name": topic, "partitions": 2}])
    member = fleet.consumer(library, group=topic, topics=[topic], commit="sync", **QUICK)
    member.until("two partitions", lambda: len(member.holds()) == 2)
    producer = fleet.producer(library, idempotence=True, **QUICK)
    producer.call("stream", topic=topic, prefix="v", count=10**6, rate_per_s=100)
    member.until("records", lambda: len(member.records()) > 20)
    admin.call("create_partitions", topic=topic, count=4)
    member.until("four partitions", lambda: len(member.holds()) == 4, 20)
    member.until("a record of each", lambda: {r["partition"] for r in member.records()} == {0, 1, 2, 3}, 20)
    totals = producer.call("settle")
    wanted = producer.acked()
    member.until("every acknowledged value", lambda: set(wanted) <= set(member.values()))
    assert totals["failed"] == 0
    assert set(member.values()) == set(wanted)
    assert read_again([member]) == []


@pytest.mark.parametrize("library", EACH)
def test_a_topic_is_deleted_and_comes_again(library: str, fleet: Fleet, admins: Admins) -> None:
    """A producer and a consumer that have worked with the old topic go on with the new one of its name: what
    is written to it is written from offset 0, and is read."""
    topic = f"reborn-{library}"
    admin = admins["kafka-python"]
    admin.call("create_topics", topics=[{"name": topic, "partitions": 1}])
    producer = fleet.producer(library, idempotence=True, **QUICK)
    consumer = fleet.consumer(library, assign=[[topic, 0]], **QUICK)
    producer.call("send", records=rows(topic, "old", 5))
    consumer.until("the old records", lambda: len(consumer.records()) == 5)
    admin.call("delete_topics", topics=[topic])
    admin.until("its absence", lambda: topic not in admin.call("list_topics"), 10)
    create_again(admin, topic)
    written = producer.call("send", records=rows(topic, "new", 2))
    assert [[topic, 0, 0], [topic, 0, 1]] == [row[:3] for row in written]
    if library == "kafka-python":  # whose consumer does not find the new log, be it Apache Kafka's
        consumer = fleet.consumer(library, assign=[[topic, 0]])
    consumer.until("the new records", lambda: {"new0", "new1"} <= set(consumer.values()), 30)
    new = [record for record in consumer.records() if record["value"].startswith("new")]
    assert [(record["offset"], record["value"]) for record in new] == [(0, "new0"), (1, "new1")]


def rows(topic: str, prefix: str, count: int) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": 0, "key": "k", "value": f"{prefix}{n}"} for n in range(count)]


def create_again(admin: Client, topic: str) -> None:
    """Apache Kafka may need a moment until the name is free."""

    def created() -> bool:
        try:
            admin.call("create_topics", topics=[{"name": topic, "partitions": 1}])
        except Refused as refused:
            assert refused.code == 36, refused
            return False
        return True

    admin.until("its return", created, 10)
