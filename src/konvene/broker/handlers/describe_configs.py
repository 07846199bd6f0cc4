"""DescribeConfigs: describe the settings of resources with their sources and synonyms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.net.authorizer import config_resource
from konvene.cluster.names import invalid_name_message
from konvene.cluster.state import ResourceType
from konvene.configs.describe import (
    Described,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)
from konvene.errors import MESSAGES, Errors
from konvene.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from konvene.security.resources import Operation
from konvene.shard.errors import ClusterError

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResponse:
    results: list[DescribeConfigsResult] = []
    denied: list[DescribeConfigsResult] = []
    for resource in request.resources:
        needed = config_resource(resource.resource_type, resource.resource_name)
        is_known = resource.resource_type in set(ResourceType)
        if is_known and not authorization.permits(context, Operation.DESCRIBE_CONFIGS, needed):
            error = needed.authorization_failed
            denied.append(
                DescribeConfigsResult(
                    error_code=error,
                    error_message=MESSAGES[error],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
            continue
        error, message = Errors.NONE, None
        entries: tuple[Described, ...] = ()
        try:
            entries = _entries(settings, catalogue, resource)
        except ClusterError as rejected:
            error, message = rejected.error, rejected.message
        results.append(
            DescribeConfigsResult(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(_config(entry, request) for entry in entries),
            )
        )
    return DescribeConfigsResponse(results=(*results, *denied))


def _entries(
    settings: BrokerSettings, catalogue: ClusterCatalogue, resource: DescribeConfigsResource
) -> tuple[Described, ...]:
    # An empty list of keys selects all keys, like null.
    name, keys = resource.resource_name, resource.configuration_keys or None
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic(settings, catalogue, name, keys)
        case ResourceType.BROKER:
            return _broker(settings, catalogue, name, keys)
        case ResourceType.GROUP:
            return _group(settings, catalogue, name, keys)
    raise ClusterError(Errors.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _topic(
    settings: BrokerSettings, catalogue: ClusterCatalogue, name: str, keys: tuple[str, ...] | None
) -> tuple[Described, ...]:
    if invalid_name_message(name) is not None:
        raise ClusterError(Errors.INVALID_TOPIC_EXCEPTION, invalid_name_message(name))
    if name not in catalogue.topics.by_name:
        raise ClusterError(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    return describe_topic(settings.config, catalogue.settings_of(ResourceType.TOPIC, name), keys)


def _group(
    settings: BrokerSettings, catalogue: ClusterCatalogue, name: str, keys: tuple[str, ...] | None
) -> tuple[Described, ...]:
    if not name:
        raise ClusterError(Errors.INVALID_REQUEST, "Group name must not be empty")
    return describe_group(settings.config, catalogue.settings_of(ResourceType.GROUP, name), keys)


def _broker(
    settings: BrokerSettings, catalogue: ClusterCatalogue, name: str, keys: tuple[str, ...] | None
) -> tuple[Described, ...]:
    if not name:
        return describe_cluster(settings.config, keys)
    if name != str(catalogue.node_id):
        raise ClusterError(
            Errors.INVALID_REQUEST,
            f"Unexpected broker id, expected {catalogue.node_id} or empty string, but received {name}",
        )
    return describe_broker(settings.config, keys)


def _config(entry: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
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
