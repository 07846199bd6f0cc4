"""The broker is killed under load and started again on the same port and data: clients see no more than a
pause.

Sessions are longer here than in the other files, since Apache Kafka needs eight seconds to come back.
"""

import time
from typing import Any

import pytest

from .brokers import Broker
from .clients import LIBRARIES, Client, Fleet, eventually, group_offsets, meet_the_coordinator
from .stories import OUTLIVES_ITS_BROKER, commits, gaps, moves_within, read_again, steps_back

PARTITIONS = 6
SESSION_MS = 25_000


def make_topic(fleet: Fleet, name: str, partitions: int = PARTITIONS) -> Client:
    admin = fleet.admin("kafka-python", f"admin-of-{name}")
    admin.call("create_topics", topics=[{"name": name, "partitions": partitions}])
    meet_the_coordinator(admin)
    return admin


def generations(members: list[Client]) -> list[Any]:
    """(member id, generation) of each member; librdkafka exposes no generation."""
    return [tuple(member.call("member").values()) for member in members]


@pytest.mark.parametrize(
    ("libraries", "producing"),
    [
        pytest.param(("confluent-kafka", "kafka-python", "aiokafka"), "confluent-kafka", id="python"),
        pytest.param(("java", "confluent-kafka", "aiokafka"), "java", id="java", marks=pytest.mark.java),
    ],
)
def test_a_stable_group_outlives_its_broker_twice(
    libraries: tuple[str, ...], producing: str, own_broker: Broker, own_fleet: Fleet
) -> None:
    """With an idempotent producer and three members at work, two kills lose nothing that was acknowledged, no
    commit goes back, no record is delivered twice, and the group keeps its generation without a revocation.
    """
    group = topic = "survivors"
    admin = make_topic(own_fleet, topic)
    settings: dict[str, Any] = {"group": group, "topics": [topic], "commit": "sync", **OUTLIVES_ITS_BROKER}
    members = [
        own_fleet.consumer(library, f"member-{library}", session_timeout_ms=SESSION_MS, **settings)
        for library in libraries
    ]
    eventually("two partitions each", lambda: all(len(m.holds()) == 2 for m in members), 20, among=members)
    before = generations(members)
    stable_ns = time.monotonic_ns()
    # Not before: a rebalance between a record and its commit is a reason to read it again.
    producer = own_fleet.producer(producing, "producer", idempotence=True)
    producer.call("stream", topic=topic, prefix="v", count=1_000_000, rate_per_s=150)

    for _ in range(2):
        time.sleep(1.5)
        own_broker.kill9()
        read = [len(member.records()) for member in members]
        own_broker.start()
        eventually(
            "records for every member after the restart",
            lambda read=read: all(len(m.records()) > n + 50 for m, n in zip(members, read, strict=True)),
            25,
            among=[*members, producer],
        )

    totals = producer.call("settle", within_s=40)
    wanted = set(producer.acked())
    eventually(
        "every acknowledged value",
        lambda: wanted <= {value for member in members for value in member.values()},
        20,
        among=[*members, producer],
    )
    assert (totals["failed"], totals["acked"]) == (0, totals["sent"])
    assert generations(members) == before
    assert moves_within(members, stable_ns, time.monotonic_ns()) == []
    assert gaps(members) == []
    read_once = [(r["partition"], r["offset"]) for member in members for r in member.records()]
    assert len(read_once) == len(set(read_once))
    values = [value for member in members for value in member.values()]
    assert len(values) == len(set(values)), "an idempotent producer's retries wrote a value twice"
    assert steps_back(members) == []
    last = {partition: max(row[1] for row in rows) for partition, rows in commits(members).items()}
    kept = {(t, p): offset for t, p, offset, _ in group_offsets(admin_again(own_fleet, admin), group)}
    assert {
        partition: kept.get(partition, -1) >= offset for partition, offset in last.items()
    } == dict.fromkeys(last, True)


def admin_again(fleet: Fleet, admin: Client) -> Client:
    """An admin client that has met no dead broker."""
    again = fleet.admin(admin.library)
    meet_the_coordinator(again)
    return again


def test_a_rebalance_outlives_its_broker(own_broker: Broker, own_fleet: Fleet) -> None:
    """Killed while a member is joining, the broker comes back to a group that soon is whole: all of it is
    read, and nothing that was committed is read again."""
    group = topic = "half-joined"
    make_topic(own_fleet, topic)
    producer = own_fleet.producer("confluent-kafka", "producer", idempotence=True)
    producer.call("stream", topic=topic, prefix="v", count=1_000_000, rate_per_s=100)
    settings: dict[str, Any] = {
        "group": group,
        "topics": [topic],
        "commit": "sync",
        "session_timeout_ms": SESSION_MS,
    }
    members = [own_fleet.consumer(library, **settings) for library in ("kafka-python", "confluent-kafka")]
    eventually("three partitions each", lambda: all(len(m.holds()) == 3 for m in members), 20, among=members)
    awake, asleep = members
    asleep.sleep()  # and so the rebalance stays open until it wakes
    moves = len(awake.of("revoked"))
    late = own_fleet.launch("aiokafka", "late")
    joining = late.submit(
        "start", role="consumer", bootstrap=own_fleet.bootstrap, client_id="late", **settings
    )
    awake.until("revocation", lambda: len(awake.of("revoked")) > moves, 20)
    own_broker.kill9()
    own_broker.start()
    asleep.wake()
    late.answer(joining, 40)
    members.append(late)
    eventually("two partitions each", lambda: all(len(m.holds()) == 2 for m in members), 40, among=members)
    producer.call("settle", within_s=40)
    wanted = set(producer.acked())
    eventually(
        "every acknowledged value",
        lambda: wanted <= {value for member in members for value in member.values()},
        20,
        among=[*members, producer],
    )
    assert read_again(members) == []


def test_acknowledged_changes_survive_a_kill(own_broker: Broker, own_fleet: Fleet) -> None:
    """Topics, configs, records, offsets with their metadata, and the deletion of each, survive a kill."""
    admin = make_topic(own_fleet, "kept", 2)
    admin.call("create_topics", topics=[{"name": "gone", "partitions": 1}])
    admin.call("alter_configs", topic="kept", configs={"retention.ms": "123456789"})
    admin.call("create_partitions", topic="kept", count=3)
    admin.call("delete_topics", topics=["gone"])
    admin.call(
        "alter_group_offsets", group="kept-group", offsets=[["kept", 0, 3, "three"], ["kept", 1, 4, ""]]
    )
    admin.call("alter_group_offsets", group="gone-group", offsets=[["kept", 0, 1, ""]])
    admin.call("delete_group_offsets", group="kept-group", partitions=[["kept", 1]])
    admin.call("delete_groups", groups=["gone-group"])
    producer = own_fleet.producer("kafka-python", idempotence=True)
    producer.call(
        "send", records=[{"topic": "kept", "partition": 2, "key": "k", "value": f"v{n}"} for n in range(5)]
    )
    cluster = admin.call("describe_cluster")
    own_broker.kill9()
    own_broker.start()
    after = admin_again(own_fleet, admin)
    assert after.call("describe_cluster") == cluster
    assert [name for name in sorted(after.call("list_topics")) if not name.startswith("__")] == ["kept"]
    assert after.call("describe_topics", topics=["kept"]) == {"kept": {"partitions": 3}}
    assert after.call("describe_configs", topic="kept")["retention.ms"] == "123456789"
    assert group_offsets(after, "kept-group") == [["kept", 0, 3, "three"]]
    assert [group["group"] for group in after.call("list_groups")] == ["kept-group"]
    reader = own_fleet.consumer("aiokafka", assign=[["kept", 2]])
    reader.until("five records", lambda: len(reader.records()) >= 5)
    assert reader.values() == [f"v{n}" for n in range(5)]


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "java"])
def test_a_polite_stop_is_like_a_kill(library: str, own_broker: Broker, own_fleet: Fleet) -> None:
    """A broker that is sent SIGTERM ends by itself; its clients go on when it is back."""
    group = topic = "stopped"
    make_topic(own_fleet, topic)
    member = own_fleet.consumer(
        library, group=group, topics=[topic], commit="sync", session_timeout_ms=SESSION_MS
    )
    member.until("all partitions", lambda: len(member.holds()) == PARTITIONS)
    producer = own_fleet.producer("confluent-kafka", idempotence=True)
    producer.call("send", records=[{"topic": topic, "key": f"{n}", "value": f"a{n}"} for n in range(20)])
    member.until("twenty records", lambda: len(member.records()) == 20)
    own_broker.stop()
    own_broker.start()
    producer.call("send", records=[{"topic": topic, "key": f"{n}", "value": f"b{n}"} for n in range(20)])
    member.until("twenty more", lambda: len(member.records()) == 40)
    assert len(member.of("assigned")) == 1
