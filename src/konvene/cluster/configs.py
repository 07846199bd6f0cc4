"""AlterConfigs and IncrementalAlterConfigs: resources are validated one by one and written as one batch.

A setting is stored as the text of the request. One that is set again to the same value is written again, as
in Kafka; resetting one that is not set writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from konvene.cluster.names import invalid_name_message
from konvene.cluster.state import CatalogueState, ResourceType
from konvene.codec.schema import Struct
from konvene.configs import BrokerConfig, ConfigError
from konvene.configs.alter import (
    Alteration,
    Operation,
    altered,
    validate_broker,
    validate_group,
    validate_topic,
)
from konvene.configs.broker.table import BROKER
from konvene.configs.group import GROUP
from konvene.configs.setting import Setting
from konvene.configs.topic import TOPIC
from konvene.errors import Errors
from konvene.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from konvene.messages.alter_configs import AlterConfigsResourceResponse as WholeResourceResponse
from konvene.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from konvene.records.metadata import ConfigRecord
from konvene.shard.contract import Context, Effect, Outcome, Reply
from konvene.shard.errors import ClusterError

CONFIGS_CHANGED = "configs-changed"
"""Effect: the settings of a resource changed. Subject: its type and name."""

_TABLES: dict[int, Mapping[str, Setting]] = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.BROKER: BROKER,
    ResourceType.GROUP: GROUP,
}


class _Change(NamedTuple):
    """A requested change of one resource's settings, from AlterConfigs or IncrementalAlterConfigs."""

    resource: tuple[int, str]
    """Type and name."""
    changes: tuple[Alteration, ...]
    whole: bool
    """True if settings that the request does not name are reset (AlterConfigs)."""


def alter_incrementally(
    state: CatalogueState, request: IncrementalAlterConfigsRequest, context: Context
) -> Outcome:
    """Apply the operations of an IncrementalAlterConfigs request to the settings of each valid resource."""
    changes = [
        _Change(
            (r.resource_type, r.resource_name),
            tuple(
                Alteration(_stored_name(r.resource_type, c.name, context.config), c.config_operation, c.value)
                for c in r.configs
            ),
            whole=False,
        )
        for r in request.resources
    ]
    answers, records, effects = _alter(state, changes, context)
    response = IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=error, error_message=message, resource_type=kind, resource_name=name
            )
            for (kind, name), error, message in answers
        )
    )
    reply = Reply(context.waiter, response)
    return Outcome((reply,)) if request.validate_only else Outcome((reply,), records, effects=effects)


def alter(state: CatalogueState, request: AlterConfigsRequest, context: Context) -> Outcome:
    """Replace all settings of each valid resource of an AlterConfigs request by those of the request."""
    changes = [
        _Change(
            (r.resource_type, r.resource_name),
            tuple(
                Alteration(_stored_name(r.resource_type, c.name, context.config), Operation.SET, c.value)
                for c in r.configs
            ),
            whole=True,
        )
        for r in request.resources
    ]
    answers, records, effects = _alter(state, changes, context)
    response = AlterConfigsResponse(
        responses=tuple(
            WholeResourceResponse(
                error_code=error, error_message=message, resource_type=kind, resource_name=name
            )
            for (kind, name), error, message in answers
        )
    )
    reply = Reply(context.waiter, response)
    return Outcome((reply,)) if request.validate_only else Outcome((reply,), records, effects=effects)


def _stored_name(kind: int, name: str, config: BrokerConfig) -> str:
    """Return the name under which a setting is stored.

    It lacks the prefix `group.`, which KIP-932 has for group settings of share groups and KIP-1071 for those
    of streams groups. Kafka rejects the prefix for streams groups, so it is removed in mode `kip` only.
    """
    short = name.removeprefix("group.")
    if kind != ResourceType.GROUP or short == name or short not in GROUP:
        return name
    is_kip = config["konvene.streams.mode"] == "kip"
    return short if short.startswith("share.") or (is_kip and short.startswith("streams.")) else name


_Answers = list[tuple[tuple[int, str], Errors, str | None]]


def _alter(
    state: CatalogueState, changes: list[_Change], context: Context
) -> tuple[_Answers, tuple[Struct, ...], tuple[Effect, ...]]:
    """Return the error code and message of each resource, and the records and effects of valid changes."""
    answers: _Answers = []
    records: list[Struct] = []
    effects: list[Effect] = []
    named = Counter(change.resource for change in changes)
    for change in changes:
        try:
            if named[change.resource] > 1:
                raise ClusterError(Errors.INVALID_REQUEST, "Each resource must appear at most once.")
            before = state.configs.get(change.resource, {})
            after = _decide(state, change, before, context.config)
        except ClusterError as refusal:
            answers.append((change.resource, refusal.error, refusal.message))
            continue
        except ConfigError as error:
            answers.append((change.resource, Errors(error.code), str(error)))
            continue
        answers.append((change.resource, Errors.NONE, None))
        touched = {a.name for a in change.changes} | (before.keys() - after.keys())
        records += [
            ConfigRecord(
                resource_type=change.resource[0],
                resource_name=change.resource[1],
                name=name,
                value=after.get(name),
            )
            for name in sorted(touched)
            if name in before or name in after
        ]
        effects.append(Effect(CONFIGS_CHANGED, change.resource))
    return answers, tuple(records), tuple(effects)


def _decide(
    state: CatalogueState, change: _Change, before: Mapping[str, str], config: BrokerConfig
) -> dict[str, str]:
    """Return the resource's settings after the change. Raises `ClusterError` or `ConfigError`."""
    kind, name = change.resource
    table = _TABLES.get(kind)
    if table is None:
        raise ClusterError(
            Errors.INVALID_REQUEST, f"Settings of resource type {kind} cannot be altered here."
        )
    after = altered(table, {} if change.whole else before, change.changes)
    if kind == ResourceType.TOPIC:
        if not name:
            raise ClusterError(Errors.INVALID_REQUEST, "Default topic resources are not allowed.")
        message = invalid_name_message(name)
        if message is not None:
            raise ClusterError(Errors.INVALID_TOPIC_EXCEPTION, message)
        if name not in state.topics:
            raise ClusterError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        validate_topic(config, after)
    elif kind == ResourceType.GROUP:
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
