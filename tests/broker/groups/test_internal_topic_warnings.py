"""Differences between existing internal topics and a streams group's topology are logged once."""

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


def heartbeat(
    *wanted: tuple[str, str], member: str = "m", group: str = "g", replicas: int = 0
) -> StreamsGroupHeartbeatRequest:
    """Return the first heartbeat of a member reading `orders`; `wanted`: configs of its changelog topic."""
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


async def create_topics(client: BrokerClient, **configs: str) -> None:
    """Create the coordinators, the source topic, and the changelog topic with these configs."""
    await client.broker.groups.make_ready()
    await client.broker.groups.loaded()
    await client.topic("orders", 2)
    topic_configs = tuple(CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items())
    changelog = CreatableTopic(name=CHANGELOG, num_partitions=2, replication_factor=1, configs=topic_configs)
    answer = await client.send(CreateTopicsRequest(topics=(changelog,)))
    assert answer.topics[0].error_code == Errors.NONE


async def alter(client: BrokerClient, name: str, value: str | None, operation: int = SET) -> None:
    setting = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=CHANGELOG, configs=(setting,))
    answer = await client.send(IncrementalAlterConfigsRequest(resources=(resource,)))
    assert answer.responses[0].error_code == Errors.NONE


async def join(client: BrokerClient, request: StreamsGroupHeartbeatRequest) -> None:
    assert (await client.send(request, 1)).error_code == Errors.NONE


def take_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings logged since the last call."""
    found = [r.getMessage() for r in caplog.records if "the topology requires" in r.getMessage()]
    caplog.clear()
    return found


def test_a_difference_is_logged_once_per_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Members that join later do not repeat it; another group has its own warning."""

    async def scenario(client: BrokerClient) -> None:
        await create_topics(client, cleanup_policy="delete")
        wanted = (("cleanup.policy", "compact"), ("retention.ms", "5"))
        await join(client, heartbeat(*wanted, replicas=3))
        assert take_warnings(caplog) == [
            f"group g: Topic {CHANGELOG} has replication factor 1; the topology requires 3",
            f"group g: Topic {CHANGELOG} has cleanup.policy=delete; the topology requires compact",
            f"group g: Topic {CHANGELOG} has retention.ms=604800000; the topology requires 5",
        ]
        await join(client, heartbeat(*wanted, member="n", replicas=3))
        await client.topic("others")
        await join(client, heartbeat(*wanted, member="o", replicas=3))
        assert take_warnings(caplog) == []
        await join(client, heartbeat(("cleanup.policy", "compact"), group="h"))
        assert take_warnings(caplog) == [
            f"group h: Topic {CHANGELOG} has cleanup.policy=delete; the topology requires compact"
        ]

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_a_matching_topic_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also if the value is the default, or is spelled differently in the topology."""

    async def scenario(client: BrokerClient) -> None:
        await create_topics(client, cleanup_policy="compact,delete")
        await join(
            client,
            heartbeat(
                ("cleanup.policy", "compact, delete"), ("message.timestamp.type", "CreateTime"), replicas=1
            ),
        )
        assert take_warnings(caplog) == []

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_an_altered_config_is_logged_at_the_alteration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A difference that was resolved and appears again is logged again; other configs are not logged."""

    async def scenario(client: BrokerClient) -> None:
        await create_topics(client, cleanup_policy="compact")
        await join(client, heartbeat(("cleanup.policy", "compact")))
        assert take_warnings(caplog) == []
        for _ in range(2):
            await alter(client, "cleanup.policy", "delete")
            assert take_warnings(caplog) == [
                f"group g: Topic {CHANGELOG} has cleanup.policy=delete; the topology requires compact"
            ]
            await alter(client, "retention.ms", "7")
            assert take_warnings(caplog) == []
            await alter(client, "cleanup.policy", "compact")
            assert take_warnings(caplog) == []

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_the_number_of_remembered_groups_is_limited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings of the oldest groups are forgotten and may be repeated, so memory is bounded."""
    monkeypatch.setattr(internal_topic_warnings, "MAX_GROUPS", 1)

    async def scenario(client: BrokerClient) -> None:
        await create_topics(client, cleanup_policy="delete")
        for group in ("g", "h"):
            await join(client, heartbeat(("cleanup.policy", "compact"), group=group))
        assert len(take_warnings(caplog)) == 2
        assert repr(client.broker.groups.internal_topic_warnings) == "<internal topic warnings of 1 groups>"

    run_with_broker(tmp_path, scenario, AT_ONCE)
