"""`konvene configs`, `topics alter` and `groups delete`: against a broker, and their requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.broker.running import running
from tests.cli.commands import CommandResult, call
from tests.client.scripted import ScriptedBroker

from konvene.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from konvene.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from konvene.messages.list_config_resources import ConfigResource, ListConfigResourcesResponse
from konvene.messages.list_groups import ListedGroup, ListGroupsResponse


class Address(NamedTuple):
    address: str


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker in a thread of this process, shared by the tests of this file."""
    loop = asyncio.new_event_loop()
    ready: list[int] = []
    started, stopping = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with running(tmp_path_factory.mktemp("data")) as running_:
            ready.append(running_.catalogue.advertised[1])
            started.set()
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(20)
    yield Address(f"127.0.0.1:{ready[0]}")
    loop.call_soon_threadsafe(stopping.set)
    thread.join(20)
    loop.close()


def konvene(broker: Any, *args: str) -> CommandResult:
    result = call(broker, *args)
    assert result.code == 0, result
    return result


def topic_args(name: str) -> tuple[str, ...]:
    return ("--entity-type", "topics", "--entity-name", name)


# against a broker ---------------------------------------------------------------------------------


def test_settings_of_a_topic_are_set_shown_and_unset(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "orders")
    assert konvene(broker, "configs", "describe", *topic_args("orders")).out == (
        "Dynamic configs for topic orders are:\n"
    )
    altered = konvene(
        broker,
        "configs",
        "alter",
        *topic_args("orders"),
        "--add-config",
        "retention.ms=1000,cleanup.policy=[delete,compact]",
    )
    assert altered.out == "Completed updating config for topic orders.\n"
    lines = konvene(broker, "configs", "describe", *topic_args("orders")).out.splitlines()
    assert [line.split(" ")[2] for line in lines[1:]] == [
        "cleanup.policy=delete,compact",
        "retention.ms=1000",
    ]
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in lines[2]
    konvene(
        broker,
        "configs",
        "alter",
        *topic_args("orders"),
        "--delete-config",
        "cleanup.policy",
        "--add-config",
        "retention.ms=2000",
    )
    (describe_response,) = konvene(broker, "configs", "describe", *topic_args("orders"), "--json").json
    assert [(c["name"], c["value"], c["source"]) for c in describe_response["configs"]] == [
        ("retention.ms", "2000", "DYNAMIC_TOPIC_CONFIG")
    ]
    everything = konvene(broker, "configs", "describe", *topic_args("orders"), "--all")
    assert everything.out.startswith("All configs for topic orders are:\n")
    assert "  segment.bytes=1073741824 sensitive=false synonyms={" in everything.out


def test_settings_of_a_group_and_of_brokers(broker: Any) -> None:
    group = ("--entity-type", "groups", "--entity-name", "billing")
    konvene(broker, "configs", "alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "  consumer.session.timeout.ms=50000 " in konvene(broker, "configs", "describe", *group).out
    cluster_default = ("--entity-type", "brokers", "--entity-default")
    altered = konvene(broker, "configs", "alter", *cluster_default, "--add-config", "log.retention.ms=5000")
    assert altered.out == "Completed updating default config for brokers in the cluster.\n"
    assert (
        konvene(broker, "configs", "describe", *cluster_default)
        .out.splitlines()[1]
        .startswith("  log.retention.ms=5000 ")
    )
    both = konvene(broker, "configs", "describe", "--entity-type", "brokers").out
    assert "configs for broker 1 are:\n" in both
    assert "Default configs for brokers in the cluster are:\n  log.retention.ms=5000" in both
    konvene(broker, "configs", "alter", *cluster_default, "--delete-config", "log.retention.ms")


def test_settings_from_a_file(broker: Any, tmp_path: Path) -> None:
    konvene(broker, "topics", "create", "--topic", "filed")
    file = tmp_path / "settings.properties"
    file.write_text("# kept short\nretention.ms = 7\nsegment.ms=9000\n")
    konvene(
        broker,
        "configs",
        "alter",
        *topic_args("filed"),
        "--add-config-file",
        str(file),
        "--add-config",
        "retention.ms=8",
    )
    (describe_response,) = konvene(broker, "configs", "describe", *topic_args("filed"), "--json").json
    assert {c["name"]: c["value"] for c in describe_response["configs"]} == {
        "retention.ms": "8",
        "segment.ms": "9000",
    }


def test_rejected_changes_are_reported(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "strict")
    for args, message in (
        (("--add-config", "retention.ms=soon"), "INVALID_CONFIG"),
        (("--delete-config", "retention.ms,segment.ms"), "retention.ms, segment.ms: not set on topic strict"),
    ):
        result = call(broker, "configs", "alter", *topic_args("strict"), *args)
        assert result.code == 1
        assert message in result.err
    assert "UNKNOWN_TOPIC_OR_PARTITION" in call(broker, "configs", "describe", *topic_args("nope")).err
    result = call(broker, "configs", "describe", "--entity-type", "brokers", "--entity-name", "77")
    assert result.err == "konvene: there is no broker 77 in the cluster\n  Brokers: 1.\n"


def test_alter_adds_partitions(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "growing", "--partitions", "2")
    alter = ("topics", "alter", "--topic", "growing", "--partitions")
    assert konvene(broker, *alter, "3").out == "Topic growing has 3 partitions now.\n"
    assert (
        len(konvene(broker, "topics", "describe", "--topic", "growing", "--json").json[0]["partitions"]) == 3
    )
    assert "INVALID_PARTITIONS" in call(broker, *alter, "2").err
    assert call(broker, "topics", "alter", "--topic", "nope", "--partitions", "2").code == 1
    assert konvene(broker, *alter[:3], "nope", "--partitions", "2", "--if-exists", "--json").json == {
        "altered": [],
        "partition_count": 2,
    }


def test_delete_reports_each_failed_group(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "read", "--partitions", "1")
    result = call(broker, "produce", "--topic", "read", stdin="one\n")
    assert result.code == 0
    konvene(
        broker, "consume", "--topic", "read", "--group", "done", "--from-beginning", "--max-messages", "1"
    )
    result = call(broker, "groups", "delete", "--group", "done", "--group", "nobody")
    assert (result.code, result.out) == (1, "Deleted group done.\n")
    assert "group nobody: GROUP_ID_NOT_FOUND" in result.err
    assert call(broker, "groups", "describe", "--group", "done").code == 1
    document = call(broker, "groups", "delete", "--group", "nobody", "--json").json
    assert document["deleted"] == [] and list(document["failed"]) == ["nobody"]


# requests -----------------------------------------------------------------------------------------


def describe_response(name: str, source: int) -> DescribeConfigsResponse:
    config = DescribeConfigsResourceResult(name=name, value="1", config_source=source)
    return DescribeConfigsResponse(results=(DescribeConfigsResult(configs=(config,)),))


ALTERED = IncrementalAlterConfigsResponse(responses=(AlterConfigsResourceResponse(),))


def test_alter_sends_only_the_given_settings() -> None:
    with ScriptedBroker(DescribeConfigs=describe_response("b", 1), IncrementalAlterConfigs=ALTERED) as broker:
        result = call(
            broker,
            "configs",
            "alter",
            *topic_args("t"),
            "--add-config",
            "a=x=y, c = [1, 2]",
            "--delete-config",
            "b",
        )
        request = broker.requests[-1]
    assert result.code == 0
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name) == (2, "t")
    assert [(c.name, c.config_operation, c.value) for c in resource.configs] == [
        ("a", 0, "x=y"), ("c", 0, "1, 2"), ("b", 1, None),
    ]  # fmt: skip


def test_deleted_groups_with_settings_are_described() -> None:
    listed = ListGroupsResponse(groups=(ListedGroup(group_id="here"),))
    resources = ListConfigResourcesResponse(
        config_resources=(ConfigResource(resource_name="gone", resource_type=32),)
    )
    responses = {
        "ListGroups": listed,
        "ListConfigResources": resources,
        "DescribeConfigs": describe_response("x", 8),
    }
    with ScriptedBroker(**responses) as broker:
        shown = call(broker, "configs", "describe", "--entity-type", "groups", "--json").json
    assert [entity["entity_name"] for entity in shown] == ["gone", "here"]


@pytest.mark.parametrize(
    "args",
    [
        ("describe",),
        ("describe", "--entity-type", "client-metrics"),
        ("describe", "--entity-type", "users", "--entity-type", "ips"),
        ("describe", "--user", "a", "--entity-type", "users"),
        ("describe", "--user", "a", "--user-defaults"),
        ("alter", "--user", "a", "--add-config", "retention.ms=1"),
        ("alter", "--user", "a", "--add-config", "SCRAM-SHA-256=x"),
        ("alter", "--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=1,password=x]"),
        ("alter", "--user", "a", "--add-config", "SCRAM-SHA-256=[password=x],request_percentage=1"),
        ("alter", "--user-defaults", "--add-config", "SCRAM-SHA-256=[password=x]"),
        ("alter", "--client", "a", "--add-config", "SCRAM-SHA-256=[password=x]"),
        ("alter", "--ip", "127.0.0.1", "--add-config", "request_percentage=1"),
        ("alter", "--ip-defaults", "--add-config", "connection_creation_rate=many"),
        (
            "alter",
            "--entity-type",
            "users",
            "--entity-type",
            "clients",
            "--entity-name",
            "a",
            "--add-config",
            "request_percentage=1",
        ),
        ("describe", "--entity-type", "brokers", "--entity-name", "one"),
        ("describe", "--entity-type", "topics", "--entity-default"),
        ("describe", "--entity-type", "brokers", "--entity-name", "1", "--entity-default"),
        ("alter", "--entity-type", "topics", "--add-config", "a=b"),
        ("alter", *topic_args("t")),
        ("alter", *topic_args(""), "--add-config", "a=b"),
        ("alter", *topic_args("t"), "--add-config", "a"),
        ("alter", *topic_args("t"), "--add-config", "a=b", "--delete-config", "a"),
    ],
)
def test_invalid_options_are_usage_errors(args: tuple[str, ...]) -> None:
    assert call(None, "configs", *args).code == 2
