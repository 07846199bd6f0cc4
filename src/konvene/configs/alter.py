"""Apply the changes of AlterConfigs and IncrementalAlterConfigs requests, and validate the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from konvene.configs.broker.table import BROKER, CLUSTER_WIDE_OF_LISTENER, PLUGIN_PREFIXES, REMOVED
from konvene.configs.checks import conflicts, wrong_cleaners
from konvene.configs.config import CLAMPED, BrokerConfig, base_name, nearest_names
from konvene.configs.effective import limits, task_assignors_on_offer, topic_values
from konvene.configs.errors import (
    BadRequest,
    ConfigError,
    ConflictingConfigs,
    RefusedForBroker,
    UnknownConfig,
)
from konvene.configs.group import GROUP, HEARTBEATING
from konvene.configs.setting import LIST, Setting, Value
from konvene.configs.topic import TOPIC

__all__ = [
    "Alteration",
    "Operation",
    "altered",
    "validate_broker",
    "validate_group",
    "validate_group_config",
    "validate_topic",
    "validate_topic_config",
]

MAX_TEXT: Final = 32_767


class Operation(IntEnum):
    """An operation of IncrementalAlterConfigs on the value of one setting, by its number in the request."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One change of an IncrementalAlterConfigs request; `operation` may be no valid `Operation`."""

    name: str
    operation: int
    value: str | None


def altered(
    table: Mapping[str, Setting], current: Mapping[str, str], changes: Iterable[Alteration]
) -> dict[str, str]:
    """Apply `changes` to the `current` values; return the resulting values, as text by name.

    Raises `BadRequest` for a setting that is named twice, a missing value or an unknown operation, and
    `ConfigError` for a list operation on a setting that is no list, and for a text that is too long. The
    resulting values are not validated; the `validate_` functions do that.
    """
    texts = dict(current)
    seen: set[str] = set()
    for name, operation, value in changes:
        if name in seen:
            raise BadRequest(f"Key {name} is altered twice in one request")
        seen.add(name)
        if operation == Operation.DELETE:
            texts.pop(name, None)
            continue
        if value is None:
            raise BadRequest(f"Null value not supported for: {name}")
        texts[name] = _combined(table, name, operation, texts.get(name), value)
        if len(texts[name]) > MAX_TEXT:
            raise ConfigError(f"The value of {name} is longer than {MAX_TEXT} characters")
    return texts


def _combined(
    table: Mapping[str, Setting], name: str, operation: int, current: str | None, value: str
) -> str:
    if operation == Operation.SET:
        return value
    if operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise BadRequest(f"Unknown operation {operation} for {name}")
    row = table.get(base_name(name) or name)
    if row is None or row.kind is not LIST:
        raise ConfigError(f"Cannot {Operation(operation).name} to key {name} because its type is not LIST")
    # A list that is not set is altered from its default.
    before = row.render(row.default) if current is None else current
    parts = [part for part in (before or "").split(",") if part]
    for part in value.split(","):
        if operation == Operation.APPEND and part not in parts:
            parts.append(part)
        elif operation == Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


# Topics


def validate_topic_config(name: str, text: str | None) -> Value:
    """Validate and return the typed value of one topic setting; `text` None is invalid.

    Raises UnknownConfig, InvalidValue or ConfigError.
    """
    return _row(TOPIC, "topic", name).parse(_not_null(name, text, "topic"))


def validate_topic(broker: BrokerConfig, texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Validate all overrides of a topic; return its effective values. Raises `ConfigError`."""
    for name, text in texts.items():
        validate_topic_config(name, text)
    values = topic_values(broker, {name: text for name, text in texts.items() if text is not None})
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        raise ConflictingConfigs(f"min.compaction.lag.ms ({low}) is above max.compaction.lag.ms ({high})")
    if values["remote.storage.enable"]:
        raise ConfigError("remote.storage.enable cannot be true: this broker has no tiered storage")
    return values


# Groups


def validate_group_config(name: str, text: str | None) -> Value:
    """Validate and return the typed value of one group setting; `text` None is invalid.

    Raises UnknownConfig, InvalidValue or ConfigError.
    """
    return _row(GROUP, "group", name).parse(_not_null(name, text, "group"))


def validate_group(broker: BrokerConfig, texts: Mapping[str, str | None]) -> dict[str, Value]:
    """Validate all overrides of a group, also against the broker's limits; return their typed values.

    Raises `ConfigError`.
    """
    values = {name: validate_group_config(name, text) for name, text in texts.items()}
    for name, value in values.items():
        _within_limits(broker, name, value)
    assignor = values.get("streams.assignor.name")
    if assignor is not None and assignor not in task_assignors_on_offer(broker):
        offered = broker.words("group.streams.assignors")  # Kafka's sentence, although konvene offers more.
        raise ConfigError(
            f"streams.assignor.name '{assignor}' is not a registered task assignor. "
            f"Registered assignors are: [{', '.join(offered)}]."
        )
    for kind in HEARTBEATING:
        _check_session_outlasts_heartbeat(broker, values, kind)
    if str(values.get("errors.deadletterqueue.topic.name", "")).startswith("__"):
        raise ConfigError("errors.deadletterqueue.topic.name must not start with '__'")
    return values


def _within_limits(broker: BrokerConfig, name: str, value: Value) -> None:
    low, high = limits(broker, name)
    if not isinstance(value, int) or ((low is None or value >= low) and (high is None or value <= high)):
        return
    if low is None:
        raise ConfigError(f"{name} must be less than or equal to {high}")
    if high is None:
        raise ConfigError(f"{name} must be greater than or equal to {low}")
    raise ConfigError(f"{name} must be in the range {low} to {high} inclusive.")


def _check_session_outlasts_heartbeat(broker: BrokerConfig, values: Mapping[str, Any], kind: str) -> None:
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    if session not in values and heartbeat not in values:
        return
    session_ms = values.get(session, broker[f"group.{session}"])
    heartbeat_ms = values.get(heartbeat, broker[f"group.{heartbeat}"])
    if session_ms <= heartbeat_ms:
        raise ConflictingConfigs(
            f"{session} ({session_ms}) must be greater than {heartbeat} ({heartbeat_ms})"
        )


# Brokers


def validate_broker(
    broker: BrokerConfig, texts: Mapping[str, str | None], *, per_broker: bool
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Validate the dynamic settings after a change; return the new configuration, and warnings.

    `texts`: all dynamic settings of this broker if `per_broker`, otherwise all of the cluster (the BROKER
    resource without a name). Raises `RefusedForBroker`, with the first violation that Kafka would report.
    """
    try:
        values = {name: _broker_value(name, text, per_broker) for name, text in texts.items()}
    except ConfigError as error:
        raise RefusedForBroker(str(error)) from error
    altered_texts = {name: text for name, text in texts.items() if text is not None}
    layers = (broker.cluster, altered_texts) if per_broker else (altered_texts, broker.broker)
    changed, warnings = broker.with_dynamic(*layers)
    # New values must be within their bounds, though stored ones are held to them.
    judged = {**changed.values, **{name: values[name] for name in CLAMPED if name in values}}
    for words in conflicts(judged):
        raise RefusedForBroker(words)
    refusal = wrong_cleaners(broker.values, changed.values)
    if refusal is not None:
        raise RefusedForBroker(refusal)
    return changed, warnings


def _broker_value(name: str, text: str | None, per_broker: bool) -> Value:
    given = _not_null(name, text, "broker")
    if name.startswith(PLUGIN_PREFIXES) or name in REMOVED:
        return given
    base = base_name(name)
    if base is not None:
        return _value_of_listener(name, base, given, per_broker)
    row = _row(BROKER, "broker", name)
    if row.dynamic == "no":
        raise ConfigError(f"Cannot update these configs dynamically: [{name}]")
    if name.startswith(PER_LISTENER):
        raise ConfigError(
            "These security configs can be dynamically updated only per-listener using the listener prefix:"
            f" [{name}]"
        )
    if row.dynamic == "per-broker" and not per_broker:
        raise _only_per_broker(name)
    return row.parse(given)


def _value_of_listener(name: str, base: str, text: str, per_broker: bool) -> Value:
    """Return the typed value of a setting `listener.name.…`; as in Kafka, names below the prefix are free."""
    if not per_broker and base not in CLUSTER_WIDE_OF_LISTENER:
        raise _only_per_broker(name)
    return BROKER[base].parse(text) if base in BROKER else text


def _only_per_broker(name: str) -> ConfigError:
    return ConfigError(
        f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
    )


# Key and trust stores belong to one listener.
PER_LISTENER: Final = ("ssl.key.", "ssl.keystore.", "ssl.truststore.")


def _row(table: Mapping[str, Setting], level: str, name: str) -> Setting:
    if name not in table:
        raise UnknownConfig(name, level, nearest_names(name, table))
    return table[name]


def _not_null(name: str, text: str | None, level: str) -> str:
    if text is None:
        raise ConfigError(f"Null value not supported for {level} configs: {name}")
    return text
