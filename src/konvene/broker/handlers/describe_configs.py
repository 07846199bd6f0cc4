"""DescribeConfigs: settings with their sources and synonyms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.cluster.names import invalid_name_message
from konvene.cluster.state import ResourceType
from konvene.configs.describe import (
    Described,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)
from konvene.errors import Errors
from konvene.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from konvene.shard.errors import ClusterError

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


def handle(broker: Broker, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        error, why = Errors.NONE, None
        entries: tuple[Described, ...] = ()
        try:
            entries = _entries(broker, resource)
        except ClusterError as refused:
            error, why = refused.error, refused.message
        results.append(
            DescribeConfigsResult(
                error_code=error,
                error_message=why,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(_told(e, request) for e in entries),
            )
        )
    return DescribeConfigsResponse(results=tuple(results))


def _entries(broker: Broker, resource: DescribeConfigsResource) -> tuple[Described, ...]:
    describe = _DESCRIBE.get(resource.resource_type)
    if describe is None:
        raise ClusterError(Errors.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    # An empty list of keys asks for all of them, as none at all does.
    return describe(broker, resource.resource_name, resource.configuration_keys or None)


def _topic(broker: Broker, name: str, keys: tuple[str, ...] | None) -> tuple[Described, ...]:
    if invalid_name_message(name) is not None:
        raise ClusterError(Errors.INVALID_TOPIC_EXCEPTION, invalid_name_message(name))
    if name not in broker.topics.by_name:
        raise ClusterError(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    return describe_topic(broker.config, broker.settings_of(ResourceType.TOPIC, name), keys)


def _group(broker: Broker, name: str, keys: tuple[str, ...] | None) -> tuple[Described, ...]:
    if not name:
        raise ClusterError(Errors.INVALID_REQUEST, "Group name must not be empty")
    return describe_group(broker.config, broker.settings_of(ResourceType.GROUP, name), keys)


def _broker(broker: Broker, name: str, keys: tuple[str, ...] | None) -> tuple[Described, ...]:
    if not name:
        return describe_cluster(broker.config, keys)
    if name != str(broker.node_id):
        raise ClusterError(
            Errors.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
        )
    return describe_broker(broker.config, keys)


_DESCRIBE: dict[int, Callable[[Broker, str, tuple[str, ...] | None], tuple[Described, ...]]] = {
    ResourceType.TOPIC: _topic,
    ResourceType.BROKER: _broker,
    ResourceType.GROUP: _group,
}


def _told(entry: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=tuple(DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms),
        config_type=entry.kind,
        documentation=entry.documentation if request.include_documentation else None,
    )
