"""Compute the effective settings of a topic or a group from its overrides and the broker's settings.

A topic's value is its override, else the first of its broker synonyms that is set, else the default; a
synonym in hours or minutes is converted to milliseconds. A group's value is its override, else its broker
synonym's value; a value beyond the broker's current limits is clamped, with a warning, because it was within
them when it was accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from konvene.configs.broker.table import BROKER
from konvene.configs.config import BrokerConfig, Source
from konvene.configs.group import GROUP, HEARTBEATING, LIMITS, TASK_ASSIGNORS
from konvene.configs.setting import Setting, Settings, Value
from konvene.configs.topic import TOPIC

__all__ = [
    "group_defaults",
    "group_values",
    "has_task_assignors",
    "task_assignors_on_offer",
    "topic_defaults",
    "topic_values",
]

# Milliseconds of a unit, by the last part of a configuration's name.
MS: Final = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}


def topic_values(broker: Settings, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return all settings of a topic, typed. Raises ConfigError for an invalid override."""
    values = topic_defaults(broker)
    for name, text in overrides.items():
        if name in TOPIC:
            values[name] = TOPIC[name].parse(text)
    return values


def topic_defaults(broker: Settings) -> dict[str, Any]:
    """Return all settings of a topic without overrides."""
    return {name: _topic_default(row, broker) for name, row in TOPIC.items()}


def _topic_default(row: Setting, broker: Settings) -> Value:
    for synonym in row.synonyms:
        value = broker[synonym]
        if value is not None:
            factor = MS.get(synonym.rpartition(".")[2], 1)
            if factor != 1 and row.name.endswith(".ms"):
                value *= factor
            is_unlimited = row.name == "retention.ms" and value < 0
            return -1 if is_unlimited else value
    return row.default


def group_values(
    broker: Settings, overrides: Mapping[str, str], group_id: str = ""
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return all settings of a group, typed and clamped to the broker's limits, and warnings about clamping.

    `group_id` is for the warnings. Raises ConfigError for an invalid override.
    """
    values = group_defaults(broker)
    warnings: list[str] = []
    for name, text in overrides.items():
        if name in GROUP:
            values[name] = _clamped(name, GROUP[name].parse(text), broker, group_id, warnings)
    for kind in HEARTBEATING:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in overrides or heartbeat in overrides) and values[session] <= values[heartbeat]:
            warnings.append(
                f"group {group_id!r}: {session} ({values[session]}) is not above {heartbeat} "
                f"({values[heartbeat]}); see whether the broker's limits of the two overlap"
            )
    return values, tuple(warnings)


def group_defaults(broker: Settings) -> dict[str, Any]:
    """Return all settings of a group without overrides.

    `streams.assignor.name` is None unless the broker lists task assignors.
    """
    return {name: _group_default(row, broker) for name, row in GROUP.items()}


def _group_default(row: Setting, broker: Settings) -> Value:
    if not row.synonyms:
        return row.default
    if row.name == "streams.assignor.name":
        # A group names one assignor; the broker lists the available ones, if it is configured.
        return broker[row.synonyms[0]][0] if has_task_assignors(broker) else None
    value: Value = broker[row.synonyms[0]]
    return value


def has_task_assignors(broker: Settings) -> bool:
    """Return True if the broker lists task assignors: `group.streams.assignors` is set.

    If `broker` is a plain mapping of values, the setting counts as set if it differs from its default.
    """
    name = "group.streams.assignors"
    if isinstance(broker, BrokerConfig):
        return broker.origin(name).source is not Source.DEFAULT
    return bool(broker[name] != BROKER[name].default)


def task_assignors_on_offer(broker: BrokerConfig) -> tuple[str, ...]:
    """Return the task assignors that a group may name: those that the broker lists, else all built-in."""
    return broker.words("group.streams.assignors") if has_task_assignors(broker) else TASK_ASSIGNORS


def _clamped(name: str, value: Value, broker: Settings, group_id: str, warnings: list[str]) -> Value:
    if not isinstance(value, int):
        return value  # Only integers have limits.
    low, high = limits(broker, name)
    held = value
    if low is not None and value < low:
        held = low
    elif high is not None and value > high:
        held = high
    if held != value:
        warnings.append(
            f"group {group_id!r}: {name} is {value}, beyond the broker's limit of {held}; {held} is used"
        )
    return held


def limits(broker: Settings, name: str) -> tuple[int | None, int | None]:
    """Return the lowest and highest value of a group setting that the broker allows; None for no limit."""
    low, high = LIMITS.get(name, (None, None))
    return (broker[low] if low else None), (broker[high] if high else None)
