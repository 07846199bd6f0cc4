"""Changes are combined as IncrementalAlterConfigs says and judged as Kafka judges them."""

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
def test_operations(
    current: dict[str, str], operation: int, value: str | None, after: dict[str, str]
) -> None:
    """A list that is not set is altered from its default; what is there is not added again."""
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
def test_what_cannot_be_done(
    change: tuple[str, int, str | None], error: type[ConfigError], message: str
) -> None:
    """A request that means nothing is INVALID_REQUEST, one that cannot be is INVALID_CONFIG."""
    with pytest.raises(error) as refused:
        altered(TOPIC, {}, [Alteration(*change)])
    assert str(refused.value).startswith(message)
    assert refused.value.code == (42 if error is BadRequest else 40)


def test_a_key_is_altered_once() -> None:
    """Two changes of one key in a request have no order."""
    with pytest.raises(BadRequest, match="altered twice"):
        altered(TOPIC, {}, [Alteration("retention.ms", SET, "1"), Alteration("retention.ms", DELETE, None)])


def test_a_topics_settings_are_judged_one_by_one() -> None:
    """Unknown, out of bounds, or null."""
    assert validate_topic_config("retention.ms", "1") == 1
    with pytest.raises(UnknownConfig, match=r"^Unknown topic config name: retention\.m \(did you mean"):
        validate_topic_config("retention.m", "1")
    with pytest.raises(ConfigError, match="Value must be at least -1"):
        validate_topic_config("retention.ms", "-2")
    with pytest.raises(ConfigError, match=r"Null value not supported for topic configs: retention\.ms"):
        validate_topic_config("retention.ms", None)


def test_a_topics_settings_are_judged_together() -> None:
    """With what the broker says; there is no tiered storage."""
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
def test_a_groups_settings_are_judged_within_the_brokers_limits(texts: dict[str, str], message: str) -> None:
    """A new value beyond the limits is refused rather than held."""
    with pytest.raises(ConfigError) as refused:
        validate_group(BROKER_CONFIG, dict(texts))
    assert str(refused.value) == message
    assert refused.value.code == 40


def test_a_group_may_name_any_built_in_task_assignor_unless_somebody_said_which() -> None:
    name = {"streams.assignor.name": "highly_available"}
    assert validate_group(BROKER_CONFIG, dict(name)) == name
    alone, _ = BrokerConfig.load(None, [("group.streams.assignors", "sticky")])
    with pytest.raises(ConfigError, match="not a registered task assignor"):
        validate_group(alone, dict(name))


def test_a_groups_session_must_outlast_its_heartbeat() -> None:
    """With the broker's value for the one that the group does not say."""
    broker, _ = BrokerConfig.load("group.consumer.min.session.timeout.ms=4000")
    session = "consumer.session.timeout.ms"
    with pytest.raises(ConfigError) as refused:
        validate_group(broker, {session: "5000"})
    words = f"{session} (5000) must be greater than consumer.heartbeat.interval.ms (5000)"
    assert str(refused.value) == words
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
def test_a_brokers_change_is_refused_with_invalid_request(
    texts: dict[str, str], per_broker: bool, message: str
) -> None:
    """Whatever the reason, as in Kafka."""
    with pytest.raises(RefusedForBroker) as refused:
        validate_broker(BROKER_CONFIG, dict(texts), per_broker=per_broker)
    assert str(refused.value).startswith(message)
    assert refused.value.code == 42


def test_a_brokers_change_gives_the_configuration_after_it() -> None:
    """The other dynamic layer stays as it was."""
    cluster, _ = validate_broker(BROKER_CONFIG, {"message.max.bytes": "2"}, per_broker=False)
    assert (cluster["message.max.bytes"], cluster.cluster) == (2, {"message.max.bytes": "2"})
    both, warnings = validate_broker(
        cluster, {"message.max.bytes": "3", "listener.name.a.ssl.keystore.location": "/k"}, per_broker=True
    )
    assert (both["message.max.bytes"], both.cluster, warnings) == (3, {"message.max.bytes": "2"}, ())


@pytest.mark.parametrize(
    ("now", "wanted", "refusal"),
    [
        ("4", "2", None),
        ("4", "8", None),
        ("1", "2", None),
        ("4", "0", "Log cleaner threads should be at least 1"),
        ("4", "1", "Log cleaner threads cannot be reduced to less than half the current value 4"),
        ("4", "9", "Log cleaner threads cannot be increased to more than double the current value 4"),
    ],
)
def test_a_running_cleaner_has_at_most_twice_or_half_as_many_threads(
    now: str, wanted: str, refusal: str | None
) -> None:
    """In Kafka's words; where no cleaner runs, nobody minds."""
    change: dict[str, str | None] = {"log.cleaner.threads": wanted}
    running, _ = BrokerConfig.load(f"log.cleaner.threads={now}")
    if refusal is None:
        assert validate_broker(running, change, per_broker=False)[0]["log.cleaner.threads"] == int(wanted)
        return
    with pytest.raises(RefusedForBroker) as refused:
        validate_broker(running, change, per_broker=False)
    assert str(refused.value) == refusal
    off, _ = BrokerConfig.load(f"log.cleaner.threads={now}\nlog.cleaner.enable=false")
    assert validate_broker(off, change, per_broker=False)[0]["log.cleaner.threads"] == int(wanted)


def test_each_cleaner_has_memory() -> None:
    """More than a mebibyte each: at the start, and when either is altered."""
    words = r"log\.cleaner\.dedupe\.buffer\.size must be at least 1MB per cleaner thread\."
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.load("log.cleaner.threads=2\nlog.cleaner.dedupe.buffer.size=2097153")
    running, _ = BrokerConfig.load("log.cleaner.dedupe.buffer.size=2097153")
    with pytest.raises(RefusedForBroker, match=words):
        validate_broker(running, {"log.cleaner.threads": "2"}, per_broker=False)
    assert validate_broker(running, {"log.cleaner.backoff.ms": "1"}, per_broker=False)[1] == ()
