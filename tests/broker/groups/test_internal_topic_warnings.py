"""What differs between internal topics that exist and a streams group's topology is said once in the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.broker.groups import internal_topic_warnings
from konvene.errors import Errors
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)

AT_ONCE = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
CHANGELOG = "g-store-changelog"
TOPIC, SET, DELETE = 2, 0, 1


def joins(
    *wanted: tuple[str, str], member: str = "m", group: str = "g", replicas: int = 0
) -> StreamsGroupHeartbeatRequest:
    """A member of a group that reads `orders`, and wants its changelog so."""
    changelog = TopicInfo(
        name=CHANGELOG,
        replication_factor=replicas,
        topic_configs=tuple(KeyValue(key=key, value=value) for key, value in wanted),
    )
    each = Subtopology(subtopology_id="0", source_topics=("orders",), state_changelog_topics=(changelog,))
    return StreamsGroupHeartbeatRequest(
        group_id=group, member_id=member, rebalance_timeout_ms=60_000, process_id=member,
        topology=Topology(epoch=0, subtopologies=(each,)),
        active_tasks=(), standby_tasks=(), warmup_tasks=(),
    )  # fmt: skip


async def there_is(client: BrokerClient, **configs: str) -> None:
    """Coordinators, a topic to read, and a changelog with these settings."""
    await client.broker.groups.make_ready()
    await client.broker.groups.loaded()
    await client.topic("orders", 2)
    told = tuple(CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items())
    made = CreatableTopic(name=CHANGELOG, num_partitions=2, replication_factor=1, configs=told)
    answer = await client.send(CreateTopicsRequest(topics=(made,)))
    assert answer.topics[0].error_code == Errors.NONE


async def alter(client: BrokerClient, name: str, value: str | None, operation: int = SET) -> None:
    setting = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=CHANGELOG, configs=(setting,))
    answer = await client.send(IncrementalAlterConfigsRequest(resources=(resource,)))
    assert answer.responses[0].error_code == Errors.NONE


async def join(client: BrokerClient, request: StreamsGroupHeartbeatRequest) -> None:
    assert (await client.send(request, 1)).error_code == Errors.NONE


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said since it was asked last."""
    found = [r.getMessage() for r in caplog.records if "the topology requires" in r.getMessage()]
    caplog.clear()
    return found


def test_what_differs_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However many join; and for each group that wants it otherwise."""

    async def scenario(client: BrokerClient) -> None:
        await there_is(client, cleanup_policy="delete")
        wanted = (("cleanup.policy", "compact"), ("retention.ms", "5"))
        await join(client, joins(*wanted, replicas=3))
        assert said(caplog) == [
            f"group g: Topic {CHANGELOG} has replication factor 1; the topology requires 3",
            f"group g: Topic {CHANGELOG} has cleanup.policy=delete; the topology requires compact",
            f"group g: Topic {CHANGELOG} has retention.ms=604800000; the topology requires 5",
        ]
        await join(client, joins(*wanted, member="n", replicas=3))
        await client.topic("others")
        await join(client, joins(*wanted, member="o", replicas=3))
        assert said(caplog) == []
        await join(client, joins(("cleanup.policy", "compact"), group="h"))
        assert said(caplog) == [
            f"group h: Topic {CHANGELOG} has cleanup.policy=delete; the topology requires compact"
        ]

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_a_topic_as_it_is_wanted_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also where a default says so, or the topology says it in other words."""

    async def scenario(client: BrokerClient) -> None:
        await there_is(client, cleanup_policy="compact,delete")
        await join(
            client,
            joins(
                ("cleanup.policy", "compact, delete"), ("message.timestamp.type", "CreateTime"), replicas=1
            ),
        )
        assert said(caplog) == []

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_what_is_altered_is_said_when_it_is_altered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was mended and is altered again is said again; what concerns no group is not."""

    async def scenario(client: BrokerClient) -> None:
        await there_is(client, cleanup_policy="compact")
        await join(client, joins(("cleanup.policy", "compact")))
        assert said(caplog) == []
        for _ in range(2):
            await alter(client, "cleanup.policy", "delete")
            assert said(caplog) == [
                f"group g: Topic {CHANGELOG} has cleanup.policy=delete; the topology requires compact"
            ]
            await alter(client, "retention.ms", "7")
            assert said(caplog) == []
            await alter(client, "cleanup.policy", "compact")
            assert said(caplog) == []

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_what_was_said_of_very_many_groups_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And may be said again, rather than be kept for ever."""
    monkeypatch.setattr(internal_topic_warnings, "MAX_GROUPS", 1)

    async def scenario(client: BrokerClient) -> None:
        await there_is(client, cleanup_policy="delete")
        for group in ("g", "h"):
            await join(client, joins(("cleanup.policy", "compact"), group=group))
        assert len(said(caplog)) == 2
        assert repr(client.broker.groups.internal_topic_warnings) == "<internal topic warnings of 1 groups>"

    run_with_broker(tmp_path, scenario, AT_ONCE)
