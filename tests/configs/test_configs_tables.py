"""The config tables equal Apache Kafka 4.4.0's: names, types, defaults, bounds, importance, update modes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from konvene.configs.broker.table import BROKER, BROKER_TABLES, REMOVED, SINGLE_COPY
from konvene.configs.checks import ORDERS, conflicts
from konvene.configs.config import CLAMPED
from konvene.configs.group import GROUP, LIMITS
from konvene.configs.setting import CLASS, LIST, Setting
from konvene.configs.topic import TOPIC

VECTORS = Path(__file__).parents[1] / "vectors"
# Extracted from Kafka: configs of the coordinators and the log, and the remaining broker configs.
FACTS: dict[str, dict[str, Any]] = {
    name: row
    for file in ("configs.json", "configs_broker_rest.json")
    for name, row in json.loads((VECTORS / file).read_text("utf-8")).items()
}
TABLES = {"broker": BROKER, "topic": TOPIC, "group": GROUP}

# Configs that Kafka reads but does not list in its tables, and konvene's own.
BEYOND_FACTS = {
    "allow.everyone.if.no.acl.found",
    "follower.replication.throttled.rate",
    "group.share.max.groups",
    "konvene.audit.enable",
    "konvene.audit.retention.ms",
    "konvene.heartbeat.budget.per.second",
    "konvene.heartbeat.hold.classic.clients",
    "konvene.heartbeat.hold.clients",
    "konvene.heartbeat.hold.enable",
    "konvene.heartbeat.interval.ms",
    "konvene.heartbeat.policy",
    "konvene.heartbeat.waiting.interval.ms",
    "konvene.log.archive.dir",
    "konvene.log.archive.topics",
    "konvene.log.cleaner.process.min.bytes",
    "konvene.log.fsync.internal",
    "konvene.log.fsync.topics",
    "konvene.metrics.groups",
    "konvene.metrics.host",
    "konvene.metrics.port",
    "konvene.metrics.topics",
    "konvene.session.disconnect.grace.ms",
    "konvene.streams.migration.policy",
    "konvene.streams.mode",
    "konvene.streams.topology.description.enable",
    "org.apache.kafka.sasl.oauthbearer.allowed.urls",
    "leader.replication.throttled.rate",
    "metrics.jmx.exclude",
    "metrics.jmx.include",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "super.users",
}


def _row(key: str) -> Setting:
    level, _, name = key.partition(":")
    return TABLES[level][name]


def test_the_extract_of_kafkas_tables_is_complete() -> None:
    """It has 379 broker, 38 topic and 27 group configs."""
    levels = [key.partition(":")[0] for key in FACTS]
    assert {level: levels.count(level) for level in TABLES} == {"broker": 379, "topic": 38, "group": 27}


def test_the_tables_have_exactly_kafkas_configs_and_our_own() -> None:
    """No config is missing, unexpected or listed twice."""
    known = {f"{level}:{name}" for level, table in TABLES.items() for name in table}
    assert known - {f"broker:{name}" for name in BEYOND_FACTS} == set(FACTS)
    assert sum(map(len, BROKER_TABLES.values())) == len(BROKER)
    assert not REMOVED & BROKER.keys()


@pytest.mark.parametrize("key", FACTS)
def test_a_row_equals_kafkas(key: str) -> None:
    """Type, default, importance, visibility and update mode are Kafka's."""
    row, fact = _row(key), FACTS[key]
    default = row.default if row.kafka_default is None else row.kafka_default
    actual = {
        "type": row.kind.name,
        "default": row.render(default),
        "importance": row.importance,
        "dynamic": row.dynamic,
        "internal": row.internal,
    }
    expected = {
        "type": fact["type"],
        "default": fact["default"],
        "importance": fact["importance"],
        "dynamic": fact["dynamic"] if key.startswith("broker") else f"{key.partition(':')[0]} resource",
        "internal": fact.get("internal", False),
    }
    if fact.get("required"):
        del actual["default"], expected["default"]
    assert actual == expected


@pytest.mark.parametrize("key", FACTS)
def test_a_row_has_kafkas_bounds(key: str) -> None:
    """Ranges and choices are Kafka's; validators implemented in code correspond to named rules."""
    row, bound = _row(key), FACTS[key].get("validator") or {"kind": "None"}
    kind = bound["kind"]
    assert (row.at_least, row.at_most) == (bound.get("min"), bound.get("max"))
    choices = bound.get("validStrings") or bound.get("validString", {}).get("validStrings") or []
    assert sorted(row.one_of) == sorted(choices)
    assert row.any_case == (kind == "CaseInsensitiveValidString")
    assert row.may_be_empty == bound.get("isEmptyAllowed", True)
    rules = {
        "LambdaValidator": "gzip level",
        "NonEmptyString": "not empty",
        "ThrottledReplicaListValidator": "throttled replicas",
        "ControllerQuorumVotersValidator": "voters",
        "ControllerQuorumBootstrapServersValidator": "endpoints",
        "Validator": "offset reset",
    }
    tags = "no duplicates" if key.endswith("rack.aware.assignment.tags") else None
    assert row.rule == rules.get(kind, tags)


@pytest.mark.parametrize("key", [key for key in FACTS if not key.startswith("broker")])
def test_a_row_has_kafkas_broker_synonyms(key: str) -> None:
    """Synonyms are Kafka's, in Kafka's order, and all of them exist."""
    fact = FACTS[key]
    one = fact.get("brokerSynonym")
    assert list(_row(key).synonyms) == (fact.get("brokerSynonyms") or ([one] if one else []))
    assert set(_row(key).synonyms) <= BROKER.keys()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_default_is_valid_for_its_row(table: dict[str, Setting]) -> None:
    """A rendered default parses to itself."""
    for row in table.values():
        text = row.render(row.default)
        if text is not None and not (row.kind is LIST and not row.may_be_empty and not text):
            assert row.parse(text) == row.default, row.name


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_row_has_one_short_sentence(table: dict[str, Setting]) -> None:
    """It starts with a capital, ends with its only full stop, and has at most 110 characters."""
    for row in table.values():
        assert row.sentence[0].isupper() and row.sentence.endswith("."), row.name
        assert ". " not in row.sentence and len(row.sentence) <= 110, row.name


def test_only_replication_factors_have_other_defaults_than_kafka() -> None:
    """A single node keeps one replica, so these default to 1."""
    overridden = {row.name for row in BROKER.values() if row.kafka_default is not None}
    assert overridden < set(SINGLE_COPY)
    assert all(BROKER[name].default == 1 for name in SINGLE_COPY)


def test_limits_orders_and_clamps_name_known_configs() -> None:
    """Each name in LIMITS, ORDERS and CLAMPED is in its table."""
    assert LIMITS.keys() <= GROUP.keys()
    assert {name for pair in LIMITS.values() for name in pair if name} <= BROKER.keys()
    assert {name for order in ORDERS for name in order[:2]} <= BROKER.keys()
    assert set(CLAMPED) <= {name for name, row in BROKER.items() if row.dynamic == "cluster-wide"}


def test_the_defaults_do_not_conflict() -> None:
    """A broker starts without any configuration."""
    assert list(conflicts({name: row.default for name, row in BROKER.items()})) == []


def test_class_defaults_are_names() -> None:
    """The default of a config of kind CLASS is a name or None."""
    for table in TABLES.values():
        for row in table.values():
            if row.kind is CLASS:
                assert row.default is None or isinstance(row.default, str)
