"""`konvene topics`: Kafka's lines, documents, and refusals."""

from __future__ import annotations

from typing import Any

from tests.cli.commands import call
from tests.client.scripted import ScriptedBroker

from konvene.codec.uuid import Uuid
from konvene.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from konvene.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from konvene.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

CONFIGS = DescribeConfigsResponse(
    results=(
        DescribeConfigsResult(
            configs=(
                DescribeConfigsResourceResult(name="retention.ms", value="1000", config_source=1),
                DescribeConfigsResourceResult(name="cleanup.policy", value="delete", config_source=5),
            )
        ),
    )
)


def created(code: int, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=(CreatableTopicResult(error_code=code, error_message=message),))


def cluster(**answers: Any) -> ScriptedBroker:
    broker = ScriptedBroker(DescribeConfigs=CONFIGS, **answers)
    broker.answers["Metadata"] = [broker.metadata(orders=2, payments=1, __consumer_offsets=1)]
    return broker


def test_topics_are_listed_by_name_and_by_pattern() -> None:
    with cluster() as broker:
        assert call(broker, "topics", "list").lines == [["__consumer_offsets"], ["orders"], ["payments"]]
        assert call(broker, "topics", "list", "--exclude-internal").lines == [["orders"], ["payments"]]
        assert call(broker, "topics", "list", "--topic", "ord.*,nope").lines == [["orders"]]
        assert call(broker, "topics", "list", "--topic", "order").out == ""
        assert [t["topic"] for t in call(broker, "topics", "list", "--json").json][1:] == [
            "orders",
            "payments",
        ]
        assert call(broker, "topics", "list", "--topic", "(").code == 2


def test_a_topic_is_described_as_kafkas_tool_does() -> None:
    topic_id = Uuid(b"orders----------")
    with cluster() as broker:
        said = call(broker, "topics", "describe", "--topic", "orders")
        document = call(broker, "topics", "describe", "--topic", "orders", "--json").json
    assert said.out.splitlines() == [
        f"Topic: orders\tTopicId: {topic_id}\tPartitionCount: 2\tReplicationFactor: 1\t"
        "Configs: retention.ms=1000",
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1",
        "\tTopic: orders\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1",
    ]
    assert document[0]["configs"] == {"retention.ms": "1000"}
    assert document[0]["partitions"][1] == {
        "partition": 1, "leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1], "offline": [],
    }  # fmt: skip


def test_a_topic_is_created_with_what_was_said_and_else_with_the_brokers_defaults() -> None:
    with cluster(CreateTopics=created(0)) as broker:
        said = call(broker, "topics", "create", "--topic", "new", "--partitions", "3", "--config", "a.b=c=d")
        (plain,) = [broker.requests[-1].topics[0]]
        call(broker, "topics", "create", "--topic", "new")
        default = broker.requests[-1].topics[0]
    assert said.out == "Created topic new.\n"
    assert (plain.num_partitions, plain.replication_factor) == (3, -1)
    assert [(c.name, c.value) for c in plain.configs] == [("a.b", "c=d")]
    assert (default.num_partitions, default.replication_factor, default.configs) == (-1, -1, ())


def test_a_topic_that_exists_is_an_error_unless_that_was_expected() -> None:
    with cluster(CreateTopics=created(36, "Topic 'orders' already exists.")) as broker:
        said = call(broker, "topics", "create", "--topic", "orders")
        expected = call(broker, "topics", "create", "--topic", "orders", "--if-not-exists", "--json")
    assert said == (
        1,
        "",
        "konvene: topic orders: TOPIC_ALREADY_EXISTS: Topic 'orders' already exists.\n"
        "  Use --if-not-exists to ignore existing topics.\n",
    )
    assert expected.json == {"topic": "orders", "created": False}


def test_topics_are_deleted_by_pattern_and_by_old_brokers_too() -> None:
    gone = DeleteTopicsResponse(responses=(DeletableTopicResult(name="orders"),))
    for versions in ((1, 6), (1, 5)):
        broker = cluster(DeleteTopics=gone)
        broker.versions["DeleteTopics"] = versions
        with broker:
            assert call(broker, "topics", "delete", "--topic", "ord.*").out == "Deleted topic orders.\n"
            request = broker.requests[-1]
        assert tuple(t.name for t in request.topics) + request.topic_names == ("orders",)


def test_no_topic_that_matches_is_an_error_unless_that_was_expected() -> None:
    with cluster() as broker:
        for command in ("describe", "delete"):
            said = call(broker, "topics", command, "--topic", "nope")
            assert (said.code, said.err.splitlines()[0]) == (1, "konvene: no topic matches nope")
            assert call(broker, "topics", command, "--topic", "nope", "--if-exists").code == 0
