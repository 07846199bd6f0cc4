"""What a topic or a group is run with: its own words, else the broker's, converted and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.configs import BrokerConfig, ConfigError
from konvene.configs.effective import group_defaults, group_values, topic_defaults, topic_values
from konvene.configs.group import GROUP
from konvene.configs.topic import TOPIC


def _broker(**sets: Any) -> BrokerConfig:
    return BrokerConfig.load(None, [(name.replace("_", "."), str(value)) for name, value in sets.items()])[0]


def test_a_broker_that_says_nothing_gives_every_default() -> None:
    """The defaults of the broker's settings and of the topic's and group's agree."""
    assert topic_defaults(_broker()) == {name: row.default for name, row in TOPIC.items()}
    expected = {name: row.default for name, row in GROUP.items()}
    assert group_defaults(_broker()) == expected


def test_a_groups_task_assignor_is_the_first_on_offer_if_somebody_said_which() -> None:
    """Also if it is the one that the setting has by itself: then the broker chooses none."""
    said = group_defaults(_broker(group_streams_assignors="highly_available,sticky"))
    assert said["streams.assignor.name"] == "highly_available"
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
def test_the_finest_unit_of_retention_counts(sets: dict[str, str], retention_ms: int) -> None:
    """ms before minutes before hours, and for ever is -1 in any unit."""
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
def test_a_topic_follows_the_broker(sets: dict[str, str], name: str, value: Any) -> None:
    """The first synonym that is set, in the topic's unit."""
    broker, _ = BrokerConfig.load(None, sets.items())
    assert topic_defaults(broker)[name] == value


def test_a_topics_own_word_is_the_strongest() -> None:
    """Over what was altered on the broker, over what was altered for the cluster, over the file."""
    broker, _ = _broker(log_retention_ms=1).with_dynamic({"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    assert topic_values(broker, {"retention.ms": "4", "gone": "x"})["retention.ms"] == 4
    assert topic_values(broker, {})["retention.ms"] == 3
    with pytest.raises(ConfigError):
        topic_values(broker, {"retention.ms": "x"})


def test_a_group_follows_the_broker() -> None:
    """A group that says nothing has the broker's value."""
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
def test_a_groups_own_word_is_held_to_the_brokers_limits(name: str, text: str, value: int) -> None:
    """What was accepted under other limits is held to these, with a warning that names the group."""
    values, warnings = group_values(_broker(), {name: text}, "g")
    assert values[name] == value
    held = f"group 'g': {name} is {text}, beyond the broker's limit of {value}; {value} is used"
    assert warnings == (() if str(value) == text else (held,))


def test_a_session_that_does_not_outlast_a_heartbeat_is_warned_of() -> None:
    """Limits that overlap can hold the two to one value."""
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
