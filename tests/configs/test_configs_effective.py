"""Effective configs of topics and groups: their own values, else the broker's, converted and clamped."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.configs import BrokerConfig, ConfigError
from konvene.configs.effective import group_defaults, group_values, topic_defaults, topic_values
from konvene.configs.group import GROUP
from konvene.configs.topic import TOPIC


def _broker(**sets: Any) -> BrokerConfig:
    return BrokerConfig.load(None, [(name.replace("_", "."), str(value)) for name, value in sets.items()])[0]


def test_a_default_broker_gives_every_default() -> None:
    """The defaults of broker configs agree with those of topic and group configs."""
    assert topic_defaults(_broker()) == {name: row.default for name, row in TOPIC.items()}
    expected = {name: row.default for name, row in GROUP.items()}
    assert group_defaults(_broker()) == expected


def test_a_groups_task_assignor_is_the_first_that_the_broker_lists() -> None:
    """Also if the list equals the default; a broker that does not set the list prescribes no assignor."""
    defaults = group_defaults(_broker(group_streams_assignors="highly_available,sticky"))
    assert defaults["streams.assignor.name"] == "highly_available"
    assert group_defaults(_broker(group_streams_assignors="sticky"))["streams.assignor.name"] == "sticky"
    assert group_defaults(_broker())["streams.assignor.name"] is None


@pytest.mark.parametrize(
    ("sets", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1", "log.retention.ms": "1"}, 1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_takes_precedence(sets: dict[str, str], retention_ms: int) -> None:
    """Milliseconds before minutes before hours; -1 is unlimited in any unit."""
    broker, _ = BrokerConfig.load(None, sets.items())
    assert topic_defaults(broker)["retention.ms"] == retention_ms


@pytest.mark.parametrize(
    ("sets", "name", "value"),
    [
        ({"log.roll.hours": "2"}, "segment.ms", 7_200_000),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, "segment.ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush.ms", 9),
        ({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}, "flush.ms", 8),
        ({"message.max.bytes": "10"}, "max.message.bytes", 10),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup.policy", ("compact", "delete")),
    ],
)
def test_a_topic_inherits_the_brokers_value(sets: dict[str, str], name: str, value: Any) -> None:
    """The value of the first synonym that is set, converted to the topic's unit."""
    broker, _ = BrokerConfig.load(None, sets.items())
    assert topic_defaults(broker)[name] == value


def test_a_topics_own_value_takes_precedence() -> None:
    """Over dynamic broker and cluster configs and over the file."""
    broker, _ = _broker(log_retention_ms=1).with_dynamic({"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    assert topic_values(broker, {"retention.ms": "4", "unknown": "x"})["retention.ms"] == 4
    assert topic_values(broker, {})["retention.ms"] == 3
    with pytest.raises(ConfigError):
        topic_values(broker, {"retention.ms": "x"})


def test_a_group_inherits_the_brokers_value() -> None:
    """A group without a value of its own has the broker's."""
    broker = _broker(group_consumer_session_timeout_ms=50_000, group_streams_assignors="other,sticky")
    values = group_defaults(broker)
    assert values["consumer.session.timeout.ms"] == 50_000
    assert values["streams.assignor.name"] == "other"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("consumer.session.timeout.ms", "50000", 50_000),
        ("consumer.session.timeout.ms", "1", 45_000),
        ("consumer.session.timeout.ms", "99999", 60_000),
        ("streams.num.standby.replicas", "9", 2),
        ("streams.num.warmup.replicas", "99", 20),
        ("streams.task.offset.interval.ms", "1", 15_000),
        ("share.record.lock.duration.ms", "1000", 15_000),
    ],
)
def test_a_groups_own_value_is_clamped_to_the_brokers_limits(name: str, text: str, value: int) -> None:
    """A value accepted under other limits is clamped, with a warning that names the group."""
    values, warnings = group_values(_broker(), {name: text}, "g")
    assert values[name] == value
    warning = f"group 'g': {name} is {text}, beyond the broker's limit of {value}; {value} is used"
    assert warnings == (() if str(value) == text else (warning,))


def test_a_session_timeout_not_above_the_heartbeat_interval_gives_a_warning() -> None:
    """Clamping can violate the order of the two if their limits overlap."""
    broker = _broker(
        group_share_min_session_timeout_ms=100,
        group_share_session_timeout_ms=45_000,
        group_share_max_heartbeat_interval_ms=20_000,
    )
    _, warnings = group_values(broker, {"share.session.timeout.ms": "4000"}, "g")
    assert warnings == (
        "group 'g': share.session.timeout.ms (4000) is not above share.heartbeat.interval.ms (5000); "
        "see whether the broker's limits of the two overlap",
    )
