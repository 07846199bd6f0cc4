"""Members of different libraries in one group: they found it, join it, leave it, die and sleep in it."""

from typing import Any

import pytest

from .clients import LIBRARIES, Fleet, Refused, eventually, group_offsets
from .conftest import Admins
from .stories import PARTITIONS, SESSION_MS, steps_back


def test_members_that_sleep_through_their_session_come_back(fleet: Fleet, topic: str, admins: Admins) -> None:
    """One of each Python library is stopped for longer than its session: the group goes on without them,
    and when they wake they are members again, their old commits changed nothing, and no value was lost."""
    group = topic
    settings: dict[str, Any] = {
        "group": group, "topics": [topic], "commit": "sync", "session_timeout_ms": SESSION_MS
    }  # fmt: skip
    producer = fleet.producer("confluent-kafka", idempotence=True)
    producer.call("stream", topic=topic, prefix="v", count=1_000_000, rate_per_s=100)
    awake = fleet.consumer("confluent-kafka", "awake", **settings)
    sleepers = [
        fleet.consumer(library, f"sleeper-{library}", **settings)
        for library in LIBRARIES
        if library != "java"
    ]
    everyone = [awake, *sleepers]
    eventually("group of four", lambda: all(len(m.holds()) == 1 for m in everyone), 20, among=everyone)
    for sleeper in sleepers:
        sleeper.sleep()
    awake.until("all four partitions", lambda: len(awake.holds()) == 4, SESSION_MS / 1000 + 10)
    for sleeper in sleepers:
        sleeper.wake()
    eventually("group of four again", lambda: all(len(m.holds()) == 1 for m in everyone), 30, among=everyone)
    producer.call("settle")
    wanted = set(producer.acked())
    eventually("all values", lambda: wanted <= {v for m in everyone for v in m.values()}, 20, among=everyone)

    def ends() -> bool:
        rows = admins["kafka-python"].call(
            "list_offsets", partitions=[[topic, p] for p in range(4)], at="latest"
        )
        committed = group_offsets(admins["kafka-python"], group)
        return [row[:3] for row in committed] == [row[:3] for row in rows]

    eventually("commits of everything", ends, 10, among=everyone)
    assert steps_back([awake]) == []


@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=pytest.mark.java) if name == "java" else name for name in LIBRARIES]
)
def test_a_static_member_that_returns_moves_nothing(library: str, fleet: Fleet, topic: str) -> None:
    """Killed and started again within its session, under the same instance id, it gets its partitions back,
    and the other member is not disturbed (KIP-345)."""
    settings: dict[str, Any] = {
        "group": topic,
        "topics": [topic],
        "commit": "sync",
        "session_timeout_ms": 15_000,
    }
    other = fleet.consumer("kafka-python", "other", instance_id="desk-0", **settings)
    first = fleet.consumer(library, "first", instance_id="desk-1", **settings)
    eventually("two and two", lambda: len(first.holds()) == len(other.holds()) == 2, 20, among=[first, other])
    held, moves = first.holds(), len(other.of("assigned"))
    first.kill()
    again = fleet.consumer(library, "again", instance_id="desk-1", **settings)
    again.until("the partitions it had", lambda: again.holds() == held, 12)
    with pytest.raises(TimeoutError):
        other.until("disturbance", lambda: len(other.of("assigned")) > moves, 1.5)


@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=pytest.mark.java) if name == "java" else name for name in LIBRARIES]
)
def test_more_members_than_partitions(library: str, fleet: Fleet, admins: Admins) -> None:
    """The one too many is a member with nothing, and takes over when the other leaves."""
    name = f"single-{library}"
    admins["confluent-kafka"].call("create_topics", topics=[{"name": name, "partitions": 1}])
    settings: dict[str, Any] = {"group": name, "topics": [name], "session_timeout_ms": SESSION_MS}
    one = fleet.consumer(library, "one", **settings)
    one.until("the partition", lambda: len(one.holds()) == 1)
    two = fleet.consumer("kafka-python", "two", **settings)
    two.until("an assignment", lambda: two.of("assigned"))
    pair = [one, two]
    eventually("one holder", lambda: sum(len(m.holds()) for m in pair) == 1, among=pair)
    holder = next(m for m in pair if m.holds())
    rest = next(m for m in pair if m is not holder)
    holder.close()
    rest.until("the partition", lambda: len(rest.holds()) == 1, 15)


@pytest.mark.parametrize("library", ["kafka-python", "aiokafka", "confluent-kafka"])
def test_a_member_with_no_common_assignor_is_refused(library: str, fleet: Fleet, topic: str) -> None:
    """INCONSISTENT_GROUP_PROTOCOL (23) for the stranger, and the group is not disturbed."""
    member = fleet.consumer("kafka-python", "member", group=topic, topics=[topic], assignor="range")
    member.until("all partitions", lambda: len(member.holds()) == 4)
    moves = len(member.of("assigned"))
    try:
        stranger = fleet.consumer(library, "stranger", group=topic, topics=[topic], assignor="roundrobin")
    except Refused as refused:
        assert refused.code == 23  # aiokafka joins as it starts
    else:
        stranger.until("refusal", lambda: [e for e in stranger.of("error") if e["error"]["code"] == 23], 10)
    assert len(member.of("assigned")) == moves
    assert PARTITIONS > len(member.holds()) == 4
