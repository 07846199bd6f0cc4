"""`konvene topics`: list, describe, create and delete, with Kafka's output and errors."""

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


def create_response(code: int, message: str | None = None) -> CreateTopicsResponse:
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
        result = call(broker, "topics", "describe", "--topic", "orders")
        document = call(broker, "topics", "describe", "--topic", "orders", "--json").json
    assert result.out.splitlines() == [
        f"Topic: orders\tTopicId: {topic_id}\tPartitionCount: 2\tReplicationFactor: 1\t"
        "Configs: retention.ms=1000",
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1",
        "\tTopic: orders\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1",
    ]
    assert document[0]["configs"] == {"retention.ms": "1000"}
    assert document[0]["partitions"][1] == {
        "partition": 1, "leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1], "offline": [],
    }  # fmt: skip


def test_create_sends_given_options_and_leaves_defaults_to_the_broker() -> None:
    with cluster(CreateTopics=create_response(0)) as broker:
        result = call(
            broker, "topics", "create", "--topic", "new", "--partitions", "3", "--config", "a.b=c=d"
        )
        (configured,) = [broker.requests[-1].topics[0]]
        call(broker, "topics", "create", "--topic", "new")
        default = broker.requests[-1].topics[0]
    assert result.out == "Created topic new.\n"
    assert (configured.num_partitions, configured.replication_factor) == (3, -1)
    assert [(c.name, c.value) for c in configured.configs] == [("a.b", "c=d")]
    assert (default.num_partitions, default.replication_factor, default.configs) == (-1, -1, ())


def test_creating_an_existing_topic_fails_without_if_not_exists() -> None:
    with cluster(CreateTopics=create_response(36, "Topic 'orders' already exists.")) as broker:
        result = call(broker, "topics", "create", "--topic", "orders")
        ignored = call(broker, "topics", "create", "--topic", "orders", "--if-not-exists", "--json")
    assert result == (
        1,
        "",
        "konvene: topic orders: TOPIC_ALREADY_EXISTS: Topic 'orders' already exists.\n"
        "  Use --if-not-exists to ignore existing topics.\n",
    )
    assert ignored.json == {"topic": "orders", "created": False}


def test_topics_are_deleted_by_pattern_in_every_request_version() -> None:
    deleted = DeleteTopicsResponse(responses=(DeletableTopicResult(name="orders"),))
    for versions in ((1, 6), (1, 5)):
        broker = cluster(DeleteTopics=deleted)
        broker.versions["DeleteTopics"] = versions
        with broker:
            assert call(broker, "topics", "delete", "--topic", "ord.*").out == "Deleted topic orders.\n"
            request = broker.requests[-1]
        assert tuple(t.name for t in request.topics) + request.topic_names == ("orders",)


def test_no_matching_topic_is_an_error_without_if_exists() -> None:
    with cluster() as broker:
        for command in ("describe", "delete"):
            result = call(broker, "topics", command, "--topic", "nope")
            assert (result.code, result.err.splitlines()[0]) == (1, "konvene: no topic matches nope")
            assert call(broker, "topics", command, "--topic", "nope", "--if-exists").code == 0


def test_arguments_are_whole_names() -> None:
    """An argument is no pattern: `order.` does not delete `orders`, and a missing topic is an error."""
    response = DeleteTopicsResponse(responses=(DeletableTopicResult(name="orders"),))
    with cluster(DeleteTopics=response, CreateTopics=create_response(0)) as broker:
        described = call(broker, "topics", "describe", "payments", "orders", "--json").json
        missing = call(broker, "topics", "delete", "order.")
        ignored = call(broker, "topics", "delete", "order.", "--if-exists")
        assert "DeleteTopics" not in broker.apis
        deleted = call(broker, "topics", "delete", "orders")
        created = call(broker, "topics", "create", "new")
    assert [topic["topic"] for topic in described] == ["orders", "payments"]
    assert (missing.code, missing.err.splitlines()[0]) == (1, "konvene: there is no topic order.")
    assert (ignored.code, ignored.out) == (0, "")
    assert deleted.out == "Deleted topic orders.\n" and created.out == "Created topic new.\n"
