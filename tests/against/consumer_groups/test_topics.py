"""Topics change under members of the consumer protocol: they grow, are deleted and created again, or are
created after a pattern was subscribed to. Changes arrive with heartbeats from the coordinator.
"""

import time
from typing import Any

import pytest

from ..clients import Client, eventually
from ..stories import moves_within
from .group import CONFLUENT, JAVA, KAFKA_PYTHON, Group
from .test_members import EACH

NEVER_MS = 300_000
"""The age of a picture of the topics that no test lives to see: news must come from the coordinator."""


@pytest.mark.parametrize("library", EACH)
def test_partitions_are_added_while_records_flow(library: str, group: Group) -> None:
    """The new partitions are shared among the members and read from their beginning. No member loses a
    partition."""
    group.has(2)
    group.is_fed(metadata_max_age_ms=500)
    members = group.join_all((CONFLUENT, library), "member")
    group.share(*members)
    began_ns = max(member.events[-1]["at"] for member in members)
    group.admin.call("create_partitions", topic=group.topic, count=6)
    group.partitions |= {(group.topic, partition) for partition in range(6)}
    group.share(*members)
    moves = moves_within(members, began_ns, time.monotonic_ns())
    assert {event["event"] for event in moves} == {"assigned"}

    def each_is_read() -> bool:
        return {(r["topic"], r["partition"]) for m in members for r in m.records()} == group.partitions

    eventually("a record of each partition", each_is_read, 20, among=members)
    group.keeps()


@pytest.mark.parametrize("library", EACH)
def test_a_topic_is_deleted_and_comes_again(library: str, group: Group) -> None:
    """The members lose it while it is away. It comes again as another topic of that name: both have their
    share of it, and read it from offset 0, for what was committed was committed of the old one."""
    group.has(4)
    members = group.join_all((CONFLUENT, library), "member", metadata_max_age_ms=500)
    group.share(*members)
    writer = group.fleet.producer(KAFKA_PYTHON, f"{group.name}-old")
    writer.call("send", records=rows(group.topic, "old", 20))
    eventually("the old records", lambda: read(members, "old") == 20, 20, among=members)
    eventually("their commits", lambda: sum(group.committed().values()) == 20, 20, among=members)
    group.admin.call("delete_topics", topics=[group.topic])
    eventually("empty hands", lambda: not any(member.holds() for member in members), 30, among=members)
    eventually("empty offsets", lambda: group.committed() == {}, 20, among=members)
    group.admin.until("the free name", lambda: group.topic not in group.admin.call("list_topics"), 10)
    group.has(4)
    group.share(*members)
    writer = group.fleet.producer(KAFKA_PYTHON, f"{group.name}-new")
    writer.call("send", records=rows(group.topic, "new", 20))
    eventually("the new records", lambda: read(members, "new") == 20, 30, among=members)
    new = [r for m in members for r in m.records() if r["value"].startswith("new")]
    assert sorted((r["partition"], r["offset"]) for r in new) == [(p, o) for p in range(4) for o in range(5)]


def rows(topic: str, prefix: str, count: int) -> list[dict[str, Any]]:
    """So many records, spread over four partitions."""
    return [{"topic": topic, "partition": n % 4, "key": None, "value": f"{prefix}{n}"} for n in range(count)]


def read(members: list[Client], prefix: str) -> int:
    """How many different values of this prefix have been read."""
    return len({v for m in members for v in m.values() if v.startswith(prefix)})


@pytest.mark.parametrize(
    "libraries",
    [
        pytest.param((CONFLUENT, CONFLUENT), id="confluent"),
        pytest.param((JAVA, CONFLUENT), marks=pytest.mark.java, id="java-and-confluent"),
    ],
)
def test_a_pattern_finds_a_topic_that_comes_later(libraries: tuple[str, str], group: Group) -> None:
    """The pattern is the broker's to look at (SubscriptionPattern; in librdkafka a name that begins with ^):
    a topic that is made later is shared by its members, one that does not match is not, and one that is
    deleted is taken from them."""
    pattern = f"^{group.name}-[ab]"
    group.has(4, topic=f"{group.name}-a")
    group.admin.call("create_topics", topics=[{"name": f"{group.name}-c", "partitions": 2}])
    members = group.join_all(libraries, "member", pattern=pattern, metadata_max_age_ms=NEVER_MS)
    group.share(*members)
    group.has(4, topic=f"{group.name}-b")
    group.share(*members)
    writer = group.fleet.producer(KAFKA_PYTHON, f"{group.name}-writer")
    for topic in (f"{group.name}-a", f"{group.name}-b"):
        writer.call("send", records=rows(topic, topic[-1], 8))
    eventually("all records", lambda: (read(members, "a"), read(members, "b")) == (8, 8), 20, among=members)
    group.admin.call("delete_topics", topics=[f"{group.name}-a"])
    group.partitions = {(topic, p) for topic, p in group.partitions if topic.endswith("-b")}
    group.share(*members)


@pytest.mark.java
def test_a_pattern_beside_names(group: Group) -> None:
    """One member has names, the other a pattern: each topic is shared among those who want it only."""
    shared, named = f"{group.name}-shared", f"{group.name}.named"
    group.has(4, topic=shared)
    group.has(2, topic=named)
    by_name = group.join(CONFLUENT, "by-name", topics=[named, shared])
    by_pattern = group.join(JAVA, "by-pattern", pattern=f"{group.name}-.*")

    def shares() -> bool:
        wanted = {(named, 0), (named, 1)}
        return wanted <= by_name.holds() and by_name.holds() | by_pattern.holds() == group.partitions

    eventually("the share of each", shares, 30, among=(by_name, by_pattern))
    eventually(
        "three each", lambda: len(by_name.holds()) == len(by_pattern.holds()) == 3, 20, among=(by_name,)
    )
    by_name.close()
    wanted = {(shared, partition) for partition in range(4)}
    by_pattern.until("the shared topic", lambda: by_pattern.holds() == wanted)


@pytest.mark.java
def test_a_pattern_that_is_none_is_refused(group: Group) -> None:
    """INVALID_REGULAR_EXPRESSION (128), which is fatal for the member."""
    group.has(1)
    member = group.join(JAVA, "member", pattern="a(b")
    error = member.until("a refusal", lambda: member.of("error"))[0]["error"]
    assert error["code"] == 128, error
