"""The tables say what Apache Kafka 4.4.0 says: names, types, defaults, bounds, importance, dynamics."""

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
# From Kafka's own tables: those the coordinators and the log read, and the rest of the broker's.
FACTS: dict[str, dict[str, Any]] = {
    name: row
    for file in ("configs.json", "configs_broker_rest.json")
    for name, row in json.loads((VECTORS / file).read_text("utf-8")).items()
}
TABLES = {"broker": BROKER, "topic": TOPIC, "group": GROUP}

# Names outside Kafka's own tables that Kafka reads all the same, and our own.
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
    "konvene.session.disconnect.grace.ms",
    "konvene.streams.migration.policy",
    "konvene.streams.mode",
    "konvene.streams.topology.description.enable",
    "leader.replication.throttled.rate",
    "metrics.jmx.exclude",
    "metrics.jmx.include",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "super.users",
}


def _row(key: str) -> Setting:
    level, _, name = key.partition(":")
    return TABLES[level][name]


def test_there_are_as_many_facts_as_kafka_has_settings() -> None:
    """The copy of Kafka's tables is whole: 379 broker, 38 topic and 27 group settings."""
    levels = [key.partition(":")[0] for key in FACTS]
    assert {level: levels.count(level) for level in TABLES} == {"broker": 379, "topic": 38, "group": 27}


def test_every_setting_of_kafka_is_known_and_no_other() -> None:
    """The tables hold Kafka's names, those that Kafka keeps elsewhere, and ours; no name twice."""
    known = {f"{level}:{name}" for level, table in TABLES.items() for name in table}
    assert known - {f"broker:{name}" for name in BEYOND_FACTS} == set(FACTS)
    assert sum(map(len, BROKER_TABLES.values())) == len(BROKER)
    assert not REMOVED & BROKER.keys()


@pytest.mark.parametrize("key", FACTS)
def test_a_row_says_what_kafka_says(key: str) -> None:
    """Type, default, importance, visibility and dynamics are Kafka's."""
    row, fact = _row(key), FACTS[key]
    default = row.default if row.kafka_default is None else row.kafka_default
    said = {
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
        del said["default"], expected["default"]
    assert said == expected


@pytest.mark.parametrize("key", FACTS)
def test_a_row_is_bounded_as_in_kafka(key: str) -> None:
    """Ranges and choices are Kafka's; the validators that are code are rules by name."""
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
def test_a_row_falls_back_to_the_same_broker_settings(key: str) -> None:
    """Synonyms are Kafka's, in Kafka's order, and exist."""
    fact = FACTS[key]
    one = fact.get("brokerSynonym")
    assert list(_row(key).synonyms) == (fact.get("brokerSynonyms") or ([one] if one else []))
    assert set(_row(key).synonyms) <= BROKER.keys()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_default_is_a_value_of_its_row(table: dict[str, Setting]) -> None:
    """A default reads back as itself; only the -1 of broker.id lies out of reach."""
    for row in table.values():
        text = row.render(row.default)
        if text is not None and not (row.kind is LIST and not row.may_be_empty and not text):
            assert row.parse(text) == row.default, row.name


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_row_has_one_clear_sentence(table: dict[str, Setting]) -> None:
    """A sentence starts with a capital, ends with a full stop, holds no other, and is short."""
    for row in table.values():
        assert row.sentence[0].isupper() and row.sentence.endswith("."), row.name
        assert ". " not in row.sentence and len(row.sentence) <= 110, row.name


def test_only_numbers_of_copies_differ_from_kafka() -> None:
    """Ours differ where one node keeps one copy, and nowhere else."""
    differing = {row.name for row in BROKER.values() if row.kafka_default is not None}
    assert differing < set(SINGLE_COPY)
    assert all(BROKER[name].default == 1 for name in SINGLE_COPY)


def test_tables_of_names_name_known_settings() -> None:
    """Limits, orders and clamps speak of settings that exist."""
    assert LIMITS.keys() <= GROUP.keys()
    assert {name for pair in LIMITS.values() for name in pair if name} <= BROKER.keys()
    assert {name for order in ORDERS for name in order[:2]} <= BROKER.keys()
    assert set(CLAMPED) <= {name for name, row in BROKER.items() if row.dynamic == "cluster-wide"}


def test_the_defaults_do_not_conflict() -> None:
    """A broker starts without being told anything."""
    assert list(conflicts({name: row.default for name, row in BROKER.items()})) == []


def test_classes_are_names() -> None:
    """No row holds anything but data."""
    for table in TABLES.values():
        for row in table.values():
            if row.kind is CLASS:
                assert row.default is None or isinstance(row.default, str)
