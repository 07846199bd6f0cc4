"""Topics, configs, groups and offsets, read and changed through every library's admin client."""

from collections.abc import Iterator
from typing import Any

import pytest

from .clients import LIBRARIES, Client, Fleet, Refused, group_offsets
from .conftest import Admins
from .test_data import AN_HOUR_AGO_MS, EACH


@pytest.fixture
def admin(library: str, admins: Admins) -> Client:
    return admins[library]


@pytest.fixture
def records(topic: str, fleet: Fleet) -> str:
    """The test's topic, with ten records a second apart in partition 0; the fourth has the latest time."""
    times = [0, 1, 2, 99, 4, 5, 6, 7, 8, 9]
    fleet.producer("kafka-python").call(
        "send",
        records=[
            {"topic": topic, "partition": 0, "key": "k", "value": "v", "timestamp": AN_HOUR_AGO_MS + 1000 * n}
            for n in times
        ],
    )
    return topic


@pytest.fixture
def member(topic: str, fleet: Fleet) -> Client:
    """A living group of one, of the same name as the topic."""
    client = fleet.consumer("confluent-kafka", "lone-member", group=topic, topics=[topic])
    client.until("its four partitions", lambda: len(client.holds()) == 4)
    return client


def call_or_skip(client: Client, verb: str, **fields: Any) -> Any:
    """Return the result of an admin command; skip the test where the library does not support it."""
    try:
        return client.call(verb, **fields)
    except Refused as refused:
        if refused.unsupported:
            pytest.skip(f"{client.library}'s admin client has no {verb}")
        raise


def refusal(client: Client, verb: str, **fields: Any) -> int | None:
    with pytest.raises(Refused) as refused:
        call_or_skip(client, verb, **fields)
    return refused.value.code


@pytest.mark.parametrize("library", EACH)
def test_a_topics_life(library: str, admin: Client) -> None:
    """Created, listed, described, grown and deleted; a second creation and a second deletion are refused.

    Apache Kafka may answer a little late what its controller has decided, hence the waiting.
    """
    name = f"life-{library}"

    def described(partitions: int) -> bool:
        return bool(admin.call("describe_topics", topics=[name]) == {name: {"partitions": partitions}})

    admin.call("create_topics", topics=[{"name": name, "partitions": 3}])
    admin.until("its name", lambda: name in admin.call("list_topics"), 10)
    assert described(3)
    assert refusal(admin, "create_topics", topics=[{"name": name, "partitions": 3}]) == 36
    admin.call("create_partitions", topic=name, count=5)
    admin.until("its growth", lambda: described(5), 10)
    assert refusal(admin, "create_partitions", topic=name, count=4) == 37
    admin.call("delete_topics", topics=[name])
    admin.until("its absence", lambda: name not in admin.call("list_topics"), 10)
    assert refusal(admin, "delete_topics", topics=[name]) == 3
    assert refusal(admin, "describe_topics", topics=[name]) == 3


@pytest.mark.parametrize("library", EACH)
@pytest.mark.parametrize(
    ("name", "partitions", "configs", "code"),
    [
        ("a bad name", 1, {}, 17),
        ("no-partitions", 0, {}, 37),
        ("bad-config", 1, {"retention.ms": "soon"}, 40),
        ("unknown-config", 1, {"no.such.config": "1"}, 40),
    ],
)
def test_a_wrong_topic_is_refused(
    library: str, admin: Client, name: str, partitions: int, configs: dict[str, str], code: int
) -> None:
    """Each wrong wish has its own code, and no topic comes of it."""
    wish = {"name": name, "partitions": partitions, "configs": configs}
    assert refusal(admin, "create_topics", topics=[wish]) == code
    assert name not in admin.call("list_topics")


@pytest.mark.parametrize("library", EACH)
def test_a_topics_configs(library: str, admin: Client) -> None:
    """Configs set at creation and later changes are described, beside the defaults."""
    name = f"configs-{library}"
    configs = {"cleanup.policy": "compact", "retention.ms": "123456789"}
    admin.call("create_topics", topics=[{"name": name, "partitions": 1, "configs": configs}])
    topic_configs = admin.call("describe_configs", topic=name)
    assert topic_configs.items() >= configs.items()
    assert topic_configs["max.message.bytes"] == "1048588"
    assert topic_configs["message.timestamp.type"] == "CreateTime"
    # aiokafka only has the old AlterConfigs, which replaces all: keep what is to be kept.
    admin.call("alter_configs", topic=name, configs={**configs, "retention.ms": "60000"})

    def changed() -> bool:
        return (
            admin.call("describe_configs", topic=name).items() >= {**configs, "retention.ms": "60000"}.items()
        )

    admin.until("the change", changed, 10)
    assert refusal(admin, "alter_configs", topic=name, configs={"retention.ms": "soon"}) == 40


@pytest.mark.parametrize("library", EACH)
def test_the_cluster_is_one_broker(library: str, admin: Client, fleet: Fleet) -> None:
    """One broker, at the address that clients were given."""
    host, port = fleet.bootstrap.split(":")
    cluster = admin.call("describe_cluster")
    assert [[host, int(port)]] == [broker[1:] for broker in cluster["brokers"]]
    assert cluster["cluster_id"] or library == "aiokafka", (
        "aiokafka sends Metadata v1, which has no cluster id"
    )


@pytest.mark.parametrize("library", EACH)
def test_a_living_group_is_listed_and_described(
    library: str, admin: Client, topic: str, member: Client
) -> None:
    """Stable, with its assignor and its one member: client id, host and partitions."""
    listed = [group for group in admin.call("list_groups") if group["group"] == topic]
    assert len(listed) == 1
    assert listed[0]["state"] in ("Stable", None)
    assert listed[0]["type"] in ("Classic", "classic", None)
    assert listed[0]["protocol_type"] in ("consumer", None)
    group = admin.call("describe_groups", groups=[topic])[topic]
    assert (group["state"], group["assignor"]) == ("Stable", "range")
    [described] = group["members"]
    assert described["member_id"] == member.call("member")["member_id"]
    assert described["member_id"].startswith("lone-member-")
    assert (described["client_id"], described["instance_id"]) == ("lone-member", None)
    assert described["host"] == "/127.0.0.1"
    assert sorted(described["partitions"]) == [[topic, partition] for partition in range(4)]


@pytest.mark.parametrize("library", EACH)
def test_a_group_outlives_its_members_while_it_has_offsets(
    library: str, admin: Client, topic: str, member: Client
) -> None:
    """A group without members is Empty; once deleted it does not exist: GROUP_ID_NOT_FOUND (69)."""
    member.call("commit", offsets=[[topic, 0, 0, "kept"]])
    member.close()
    assert admin.call("describe_groups", groups=[topic])[topic]["state"] == "Empty"
    assert group_offsets(admin, topic) == [[topic, 0, 0, "kept"]]
    call_or_skip(admin, "delete_groups", groups=[topic])
    assert topic not in [group["group"] for group in admin.call("list_groups")]
    assert group_offsets(admin, topic) == []
    assert refusal(admin, "delete_groups", groups=[topic]) == 69


@pytest.mark.parametrize("library", EACH)
def test_a_living_group_is_not_deleted(library: str, admin: Client, topic: str, member: Client) -> None:
    """NON_EMPTY_GROUP (68), and the member lives on."""
    assert refusal(admin, "delete_groups", groups=[topic]) == 68
    assert admin.call("describe_groups", groups=[topic])[topic]["state"] == "Stable"


@pytest.mark.parametrize("library", EACH)
def test_an_unknown_group(library: str, admin: Client) -> None:
    """An unknown group is Dead, or GROUP_ID_NOT_FOUND (69) in later request versions."""
    try:
        group = admin.call("describe_groups", groups=["never-was"])["never-was"]
    except Refused as refused:
        assert refused.code == 69
    else:
        assert (group["state"], group["members"]) == ("Dead", [])
    assert group_offsets(admin, "never-was") == []


@pytest.mark.parametrize("library", EACH)
def test_offsets_are_moved_and_deleted_by_admin(
    library: str, admin: Client, topic: str, fleet: Fleet
) -> None:
    """An empty group's offsets may be set and removed from outside; the next member begins there."""
    call_or_skip(
        admin, "alter_group_offsets", group=topic, offsets=[[topic, 0, 2, "moved"], [topic, 1, 5, ""]]
    )
    assert group_offsets(admin, topic) == [[topic, 0, 2, "moved"], [topic, 1, 5, ""]]
    call_or_skip(admin, "delete_group_offsets", group=topic, partitions=[[topic, 1]])
    assert group_offsets(admin, topic) == [[topic, 0, 2, "moved"]]


@pytest.mark.parametrize("library", EACH)
def test_offsets_of_a_living_group_are_not_moved(
    library: str, admin: Client, topic: str, member: Client
) -> None:
    """UNKNOWN_MEMBER_ID (25): only members commit while there are members."""
    assert refusal(admin, "alter_group_offsets", group=topic, offsets=[[topic, 0, 2, "moved"]]) == 25


@pytest.mark.parametrize("library", EACH)
def test_a_static_member_is_removed_by_its_instance_id(
    library: str, admin: Client, topic: str, fleet: Fleet
) -> None:
    """Removed from outside, it is described no more, and the group is Empty."""
    static = fleet.consumer(
        "kafka-python", "static", group=topic, topics=[topic], instance_id="desk-1", session_timeout_ms=30_000
    )
    static.until("its four partitions", lambda: len(static.holds()) == 4)
    described = admins_view(admin, topic)
    assert described["members"][0]["instance_id"] in ("desk-1", None), (
        "aiokafka's DescribeGroups version has no instance ids"
    )
    static.kill()
    assert admins_view(admin, topic)["state"] == "Stable", "a static member's death is not noticed at once"
    call_or_skip(admin, "remove_members", group=topic, instance_ids=["desk-1"])
    after = admins_view(admin, topic)
    assert (after["state"], after["members"]) == ("Empty", [])


def admins_view(admin: Client, group: str) -> dict[str, Any]:
    return dict(admin.call("describe_groups", groups=[group])[group])


@pytest.mark.parametrize("library", EACH)
def test_list_offsets(library: str, admin: Client, records: str) -> None:
    """Earliest, latest, the record with the latest time, and the first at a time."""
    here = [[records, 0]]
    assert call_or_skip(admin, "list_offsets", partitions=here, at="earliest")[0][2] == 0
    assert call_or_skip(admin, "list_offsets", partitions=here, at="latest")[0][2] == 10
    assert call_or_skip(admin, "list_offsets", partitions=here, at="max_timestamp")[0][2:] == [
        3,
        AN_HOUR_AGO_MS + 99_000,
    ]
    assert call_or_skip(admin, "list_offsets", partitions=here, at=AN_HOUR_AGO_MS + 1500)[0][2:] == [
        2,
        AN_HOUR_AGO_MS + 2000,
    ]
    assert call_or_skip(admin, "list_offsets", partitions=here, at=AN_HOUR_AGO_MS + 100_000)[0][2:] == [
        -1,
        -1,
    ]


@pytest.mark.parametrize("library", EACH)
def test_delete_records(library: str, admin: Client, records: str, fleet: Fleet) -> None:
    """The log begins at the requested offset; an offset beyond its end is OFFSET_OUT_OF_RANGE (1)."""
    assert call_or_skip(admin, "delete_records", offsets=[[records, 0, 6]]) == [[records, 0, 6]]
    consumer = fleet.consumer("confluent-kafka", assign=[[records, 0]])
    consumer.until("four records", lambda: len(consumer.records()) == 4)
    assert [r["offset"] for r in consumer.records()] == [6, 7, 8, 9]
    assert refusal(admin, "delete_records", offsets=[[records, 0, 11]]) == 1


@pytest.fixture(scope="module", autouse=True)
def _every_library_is_tried() -> Iterator[None]:
    assert len(EACH) == len(LIBRARIES)
    yield
