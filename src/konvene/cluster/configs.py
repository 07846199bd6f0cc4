"""IncrementalAlterConfigs: each resource is decided by itself, all that pass become one batch.

A setting is kept as the text that was given. Where nothing changes no record is written, except that a
setting which is set again to its value is, as by Kafka, written again.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.cluster.state import CatalogueState, ResourceType
from konvene.codec.schema import Struct
from konvene.configs import BrokerConfig, ConfigError
from konvene.configs.alter import Alteration, altered, validate_broker, validate_group, validate_topic
from konvene.configs.broker import BROKER
from konvene.configs.group import GROUP
from konvene.configs.setting import Setting
from konvene.configs.topic import TOPIC
from konvene.errors import Errors
from konvene.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from konvene.records.metadata import ConfigRecord
from konvene.shard.contract import Context, Effect, Outcome, Reply
from konvene.shard.errors import ClusterError

CONFIGS_CHANGED = "configs-changed"
"""Effect: a resource has other settings now. Subject: its type and name."""

_TABLES: dict[int, Mapping[str, Setting]] = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.BROKER: BROKER,
    ResourceType.GROUP: GROUP,
}


def alter(state: CatalogueState, request: IncrementalAlterConfigsRequest, context: Context) -> Outcome:
    """Decide an IncrementalAlterConfigs."""
    answers, effects = [], []
    records: list[Struct] = []
    seen: set[tuple[int, str]] = set()
    for resource in request.resources:
        where = (resource.resource_type, resource.resource_name)
        try:
            if where in seen:
                raise ClusterError(Errors.INVALID_REQUEST, "Each resource must appear at most once.")
            seen.add(where)
            before = state.configs.get(where, {})
            after = _decide(state, resource, before, context.config)
        except ClusterError as refused:
            answers.append(_answer(resource, refused.error, refused.message))
            continue
        except ConfigError as error:
            answers.append(_answer(resource, Errors(error.code), str(error)))
            continue
        answers.append(_answer(resource, Errors.NONE, None))
        records += _records(resource, before, after)
        effects.append(Effect(CONFIGS_CHANGED, where))
    reply = Reply(context.waiter, IncrementalAlterConfigsResponse(responses=tuple(answers)))
    if request.validate_only:
        return Outcome((reply,))
    return Outcome((reply,), tuple(records), effects=tuple(effects))


def _decide(
    state: CatalogueState, resource: AlterConfigsResource, before: Mapping[str, str], config: BrokerConfig
) -> dict[str, str]:
    """What the resource will have set. Raises `ClusterError` or `ConfigError`."""
    name = resource.resource_name
    table = _TABLES.get(resource.resource_type)
    if table is None:
        raise ClusterError(
            Errors.INVALID_REQUEST,
            f"Settings of resource type {resource.resource_type} cannot be altered here.",
        )
    changes = [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]
    after = altered(table, before, changes)
    if resource.resource_type == ResourceType.TOPIC:
        if name not in state.topics:
            raise ClusterError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        validate_topic(config, after)
    elif resource.resource_type == ResourceType.GROUP:
        if not name:
            raise ClusterError(Errors.INVALID_REQUEST, "Default group resources are not allowed.")
        validate_group(config, after)
    else:
        if name not in ("", str(config["node.id"])):
            raise ClusterError(
                Errors.INVALID_REQUEST,
                f"Unexpected broker id, expected {config['node.id']}, but received {name}",
            )
        validate_broker(config, after, per_broker=bool(name))
    return after


def _records(
    resource: AlterConfigsResource, before: Mapping[str, str], after: Mapping[str, str]
) -> list[Struct]:
    touched = [c.name for c in resource.configs if c.name in before or c.name in after]
    return [
        ConfigRecord(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            name=name,
            value=after.get(name),
        )
        for name in touched
    ]


def _answer(
    resource: AlterConfigsResource, error: Errors, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
