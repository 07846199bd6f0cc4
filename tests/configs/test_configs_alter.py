"""Altering configs: IncrementalAlterConfigs operations, and Kafka's validation of their results."""

from __future__ import annotations

import pytest

from konvene.configs import BrokerConfig, ConfigError
from konvene.configs.alter import (
    Alteration,
    Operation,
    altered,
    validate_broker,
    validate_group,
    validate_group_config,
    validate_topic,
    validate_topic_config,
)
from konvene.configs.errors import BadRequest, RefusedForBroker, UnknownConfig
from konvene.configs.topic import TOPIC

SET, DELETE, APPEND, SUBTRACT = Operation
BROKER_CONFIG, _ = BrokerConfig.load()


@pytest.mark.parametrize(
    ("current", "operation", "value", "after"),
    [
        ({}, SET, "compact", {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact"}, DELETE, None, {}),
        ({}, DELETE, None, {}),
        ({}, APPEND, "compact", {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "compact"}, APPEND, "compact,delete", {"cleanup.policy": "compact,delete"}),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "compact", {"cleanup.policy": "delete"}),
        ({}, SUBTRACT, "delete", {"cleanup.policy": ""}),
        ({"cleanup.policy": ""}, APPEND, "delete", {"cleanup.policy": "delete"}),
    ],
)
def test_incremental_operations(
    current: dict[str, str], operation: int, value: str | None, after: dict[str, str]
) -> None:
    """APPEND and SUBTRACT start from the default of an unset list; APPEND adds no duplicates."""
    before = dict(current)
    assert altered(TOPIC, current, [Alteration("cleanup.policy", operation, value)]) == after
    assert current == before


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("flush.ms", APPEND, "1"), ConfigError, "Cannot APPEND to key flush.ms because"),
        (("x", SUBTRACT, "1"), ConfigError, "Cannot SUBTRACT to key x because"),
        (("retention.ms", SET, None), BadRequest, "Null value not supported for: retention.ms"),
        (("retention.ms", 4, "1"), BadRequest, "Unknown operation 4 for retention.ms"),
        (("flush.ms", SET, "1" * 32768), ConfigError, "The value of flush.ms is longer than 32767"),
    ],
)
def test_invalid_operations_are_rejected(
    change: tuple[str, int, str | None], error: type[ConfigError], message: str
) -> None:
    """A malformed operation is INVALID_REQUEST; one that the config does not support is INVALID_CONFIG."""
    with pytest.raises(error) as raised:
        altered(TOPIC, {}, [Alteration(*change)])
    assert str(raised.value).startswith(message)
    assert raised.value.code == (42 if error is BadRequest else 40)


def test_a_key_may_be_altered_only_once_per_request() -> None:
    """The order of two changes to one key would be undefined."""
    with pytest.raises(BadRequest, match="altered twice"):
        altered(TOPIC, {}, [Alteration("retention.ms", SET, "1"), Alteration("retention.ms", DELETE, None)])


def test_each_topic_config_is_validated() -> None:
    """Unknown, out-of-range and null values are rejected."""
    assert validate_topic_config("retention.ms", "1") == 1
    with pytest.raises(UnknownConfig, match=r"^Unknown topic config name: retention\.m \(did you mean"):
        validate_topic_config("retention.m", "1")
    with pytest.raises(ConfigError, match="Value must be at least -1"):
        validate_topic_config("retention.ms", "-2")
    with pytest.raises(ConfigError, match=r"Null value not supported for topic configs: retention\.ms"):
        validate_topic_config("retention.ms", None)


def test_topic_configs_are_validated_together() -> None:
    """They must agree with each other and with the broker's configs; tiered storage is not supported."""
    assert validate_topic(BROKER_CONFIG, {"retention.ms": "5"})["retention.ms"] == 5
    broker, _ = BrokerConfig.load("log.cleaner.max.compaction.lag.ms=5")
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(6\) is above"):
        validate_topic(broker, {"min.compaction.lag.ms": "6"})
    with pytest.raises(ConfigError, match="no tiered storage"):
        validate_topic(BROKER_CONFIG, {"remote.storage.enable": "true"})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"banana": "1"}, "Unknown group config name: banana"),
        (
            {"consumer.session.timeout.ms": "1"},
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            {"streams.task.offset.interval.ms": "1"},
            "streams.task.offset.interval.ms must be greater than or equal to 15000",
        ),
        (
            {"streams.num.warmup.replicas": "21"},
            "streams.num.warmup.replicas must be less than or equal to 20",
        ),
        (
            {"streams.num.warmup.replicas": "-1"},
            "Invalid value -1 for configuration streams.num.warmup.replicas: Value must be at least 0",
        ),
        (
            {"streams.acceptable.recovery.lag": "-1"},
            "Invalid value -1 for configuration streams.acceptable.recovery.lag: Value must be at least 0",
        ),
        (
            {"streams.assignor.name": "uniform"},
            "streams.assignor.name 'uniform' is not a registered task assignor. "
            "Registered assignors are: [sticky].",
        ),
        (
            {"errors.deadletterqueue.topic.name": "__x"},
            "errors.deadletterqueue.topic.name must not start with '__'",
        ),
    ],
)
def test_group_configs_are_validated_against_the_brokers_limits(texts: dict[str, str], message: str) -> None:
    """A new value beyond a limit is rejected, not clamped."""
    with pytest.raises(ConfigError) as raised:
        validate_group(BROKER_CONFIG, dict(texts))
    assert str(raised.value) == message
    assert raised.value.code == 40


def test_a_group_may_choose_any_built_in_task_assignor_unless_the_broker_lists_some() -> None:
    name = {"streams.assignor.name": "highly_available"}
    assert validate_group(BROKER_CONFIG, dict(name)) == name
    restricted, _ = BrokerConfig.load(None, [("group.streams.assignors", "sticky")])
    with pytest.raises(ConfigError, match="not a registered task assignor"):
        validate_group(restricted, dict(name))


def test_a_groups_session_timeout_must_exceed_its_heartbeat_interval() -> None:
    """A config that the group does not set has the broker's value."""
    broker, _ = BrokerConfig.load("group.consumer.min.session.timeout.ms=4000")
    session = "consumer.session.timeout.ms"
    with pytest.raises(ConfigError) as raised:
        validate_group(broker, {session: "5000"})
    message = f"{session} (5000) must be greater than consumer.heartbeat.interval.ms (5000)"
    assert str(raised.value) == message
    assert validate_group(broker, {session: "5001"}) == {session: 5001}
    assert validate_group_config("share.auto.offset.reset", "earliest") == "earliest"


@pytest.mark.parametrize(
    ("texts", "per_broker", "message"),
    [
        ({"node.id": "2"}, True, "Cannot update these configs dynamically: [node.id]"),
        ({"message.max.bytes": "x"}, True, "Invalid value x for configuration message.max.bytes: "),
        ({"banana": "1"}, True, "Unknown broker config name: banana"),
        (
            {"listeners": "PLAINTEXT://:1"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        (
            {"ssl.keystore.location": "/k"},
            True,
            "These security configs can be dynamically updated only per-listener using the listener prefix:",
        ),
        (
            {"group.share.assignment.interval.ms": "99999"},
            False,
            "group.share.assignment.interval.ms (99999) must be less than or equal to ",
        ),
    ],
)
def test_an_invalid_broker_change_is_rejected_with_invalid_request(
    texts: dict[str, str], per_broker: bool, message: str
) -> None:
    """The error code is INVALID_REQUEST for every cause, as in Kafka."""
    with pytest.raises(RefusedForBroker) as raised:
        validate_broker(BROKER_CONFIG, dict(texts), per_broker=per_broker)
    assert str(raised.value).startswith(message)
    assert raised.value.code == 42


def test_a_broker_change_returns_the_resulting_config() -> None:
    """The other dynamic layer is unchanged."""
    cluster, _ = validate_broker(BROKER_CONFIG, {"message.max.bytes": "2"}, per_broker=False)
    assert (cluster["message.max.bytes"], cluster.cluster) == (2, {"message.max.bytes": "2"})
    both, warnings = validate_broker(
        cluster, {"message.max.bytes": "3", "listener.name.a.ssl.keystore.location": "/k"}, per_broker=True
    )
    assert (both["message.max.bytes"], both.cluster, warnings) == (3, {"message.max.bytes": "2"}, ())


@pytest.mark.parametrize(
    ("current", "requested", "error"),
    [
        ("4", "2", None),
        ("4", "8", None),
        ("1", "2", None),
        ("4", "0", "Log cleaner threads should be at least 1"),
        ("4", "1", "Log cleaner threads cannot be reduced to less than half the current value 4"),
        ("4", "9", "Log cleaner threads cannot be increased to more than double the current value 4"),
    ],
)
def test_cleaner_threads_can_at_most_double_or_halve(current: str, requested: str, error: str | None) -> None:
    """The error messages are Kafka's; without a running cleaner any number is accepted."""
    change: dict[str, str | None] = {"log.cleaner.threads": requested}
    running, _ = BrokerConfig.load(f"log.cleaner.threads={current}")
    if error is None:
        assert validate_broker(running, change, per_broker=False)[0]["log.cleaner.threads"] == int(requested)
        return
    with pytest.raises(RefusedForBroker) as raised:
        validate_broker(running, change, per_broker=False)
    assert str(raised.value) == error
    without_cleaner, _ = BrokerConfig.load(f"log.cleaner.threads={current}\nlog.cleaner.enable=false")
    assert validate_broker(without_cleaner, change, per_broker=False)[0]["log.cleaner.threads"] == int(
        requested
    )


def test_each_cleaner_thread_needs_memory() -> None:
    """More than one MiB per thread, checked at startup and when either config is altered."""
    message = r"log\.cleaner\.dedupe\.buffer\.size must be at least 1MB per cleaner thread\."
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.load("log.cleaner.threads=2\nlog.cleaner.dedupe.buffer.size=2097153")
    running, _ = BrokerConfig.load("log.cleaner.dedupe.buffer.size=2097153")
    with pytest.raises(RefusedForBroker, match=message):
        validate_broker(running, {"log.cleaner.threads": "2"}, per_broker=False)
    assert validate_broker(running, {"log.cleaner.backoff.ms": "1"}, per_broker=False)[1] == ()
