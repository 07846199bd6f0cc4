"""A changed group config takes effect with the next request of the group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.cluster.state import ResourceType
from konvene.errors import Errors
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from konvene.messages.list_groups import ListGroupsRequest
from konvene.runtime.coordinator import RequestContext
from konvene.shard.contract import Context, Outcome

SESSION = "consumer.session.timeout.ms"
SET, DELETE = 0, 1


async def alter(
    broker: Broker,
    resource_type: ResourceType,
    name: str,
    setting: str,
    value: str | None,
    error: Errors = Errors.NONE,
) -> None:
    change = AlterableConfig(name=setting, config_operation=DELETE if value is None else SET, value=value)
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=(change,))
    answer = await broker.catalogue.coordinator.submit(
        IncrementalAlterConfigsRequest(resources=(resource,)), RequestContext()
    )
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert [r.error_code for r in answer.responses] == [error]


def configs_of(broker: Broker, group_id: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return the configs that a decision for a group receives."""
    coordinator = broker.groups.of(group_id)
    assert coordinator is not None
    contexts: list[Context] = []

    def handle(self: Any, request: Any, context: Context) -> Outcome:
        contexts.append(context)
        return Outcome()

    with monkeypatch.context() as patched:
        patched.setattr(type(coordinator.core), "handle", handle)
        coordinator.submit(ListGroupsRequest(), RequestContext())
    return contexts[0].group_configs.of(group_id)


def test_decisions_use_changed_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The group's config, the broker's default, and the broker's limit, also after a restart."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.groups.make_ready()
            await broker.groups.loaded()
            assert configs_of(broker, "g", monkeypatch)[SESSION] == 45_000
            assert configs_of(broker, "g", monkeypatch) is configs_of(broker, "h", monkeypatch)
            await alter(broker, ResourceType.GROUP, "g", SESSION, "50000")
            assert configs_of(broker, "g", monkeypatch)[SESSION] == 50_000
            assert configs_of(broker, "h", monkeypatch)[SESSION] == 45_000
            await alter(broker, ResourceType.BROKER, "", "group.consumer.assignment.interval.ms", "3000")
            assert configs_of(broker, "h", monkeypatch)["consumer.assignment.interval.ms"] == 3000
            assert configs_of(broker, "g", monkeypatch)[SESSION] == 50_000
            before = broker.settings.group_configs
            await alter(broker, ResourceType.TOPIC, "__consumer_offsets", "retention.ms", "7")
            assert broker.settings.group_configs is before
        assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
        limits = {"group.consumer.max.session.timeout.ms": "46000"}
        async with running(tmp_path, limits) as broker:
            await broker.groups.loaded()
            assert configs_of(broker, "g", monkeypatch)[SESSION] == 46_000
            configs_of(broker, "g", monkeypatch)
            warnings = [r.message for r in caplog.records if "beyond the broker's limit" in r.message]
            assert len(warnings) == 1
            await alter(broker, ResourceType.GROUP, "g", SESSION, None)
            assert configs_of(broker, "g", monkeypatch) is broker.settings.group_configs.defaults

    asyncio.run(main())


def test_config_names_of_kips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-932's names are always accepted, KIP-1071's in KIP mode; they are stored under Kafka's names."""
    share, streams = "group.share.session.timeout.ms", "group.streams.num.standby.replicas"

    async def main() -> None:
        async with running(tmp_path / "kafka") as broker:
            await alter(broker, ResourceType.GROUP, "g", share, "50000")
            await alter(broker, ResourceType.GROUP, "g", streams, "1", Errors.INVALID_CONFIG)
        async with running(tmp_path / "kip", {"konvene.streams.mode": "kip"}) as broker:
            await broker.groups.make_ready()
            await broker.groups.loaded()
            await alter(broker, ResourceType.GROUP, "g", streams, "1")
            assert configs_of(broker, "g", monkeypatch)["streams.num.standby.replicas"] == 1

    asyncio.run(main())
