"""A broker's configuration: layers, sources, notices, validation errors and conflicting values."""

from __future__ import annotations

import pytest

from konvene.configs import BrokerConfig, ConfigError, Origin, Source
from konvene.configs.errors import ConflictingConfigs, ManyConfigErrors, UnknownConfig

# A server.properties such as Kafka ships for a single node.
KRAFT = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
log.dirs=/var/lib/a,/var/lib/b
offsets.topic.replication.factor=3
min.insync.replicas=2
log.retention.hours=168
group.initial.rebalance.delay.ms=0
"""


def test_a_server_properties_file_for_kafka_loads() -> None:
    """Configs without effect on a single node are accepted, with a notice that names file and line."""
    config, notices = BrokerConfig.load(KRAFT)
    assert config["group.initial.rebalance.delay.ms"] == 0
    assert config.log_dirs == ("/var/lib/a", "/var/lib/b")
    assert config.words("listeners") == ("PLAINTEXT://:9092", "CONTROLLER://:9093")
    assert notices == (
        "server.properties:4: controller.quorum.bootstrap.servers is Kafka's and changes nothing here",
        "server.properties:9: num.network.threads is Kafka's and changes nothing here",
        "server.properties:11: offsets.topic.replication.factor is 3; "
        "a single node keeps one copy, so 1 is used",
        "server.properties:12: min.insync.replicas is 2; a single node keeps one copy, so 1 is used",
    )


def test_a_broker_without_a_file_has_the_defaults() -> None:
    """A broker needs no configuration file."""
    config, notices = BrokerConfig.load()
    assert notices == ()
    assert repr(config) == "<BrokerConfig node 1: 0 static, 0 cluster, 0 broker>"
    assert config.origin("node.id") == Origin(Source.DEFAULT)
    assert (config["node.id"], config["log.retention.ms"]) == (1, None)
    assert (config.integer("group.max.size"), config.flag("log.cleaner.enable")) == (2**31 - 1, True)
    assert config.text("broker.rack") == ""
    assert config.log_dirs == ("/tmp/kafka-logs",)
    with pytest.raises(KeyError):
        config["no.such.key"]


def test_an_override_takes_precedence_over_the_file() -> None:
    """The last value wins, and each value has its origin."""
    text = "group.max.size=5\ngroup.min.session.timeout.ms=1\n"
    config, _ = BrokerConfig.load(text, [("group.max.size", "7")])
    assert config["group.max.size"] == 7
    assert config.origin("group.max.size") == Origin(Source.STATIC, "--set")
    assert config.origin("group.min.session.timeout.ms") == Origin(Source.STATIC, "server.properties:2")


def test_a_duplicate_key_gives_a_notice() -> None:
    """The later line wins, as in Java."""
    config, notices = BrokerConfig.load("group.max.size=5\ngroup.max.size=6\n", file="b.properties")
    assert config["group.max.size"] == 6
    twice = "group.max.size is set twice; this value counts, not that of b.properties:1"
    assert notices == (f"b.properties:2: {twice}",)


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("zookeeper.connect=localhost:2181", "was dropped by Kafka and changes nothing"),
        ("listener.name.internal.num.network.threads=1", "is Kafka's and changes nothing here"),
        ("rsm.config.bucket=b", "belongs to a Java plugin and changes nothing here"),
        ("ssl.provider=SunJSSE", "is Kafka's and changes nothing here"),
    ],
)
def test_a_config_without_effect_gives_a_notice(line: str, effect: str) -> None:
    """No config is ignored silently."""
    _, notices = BrokerConfig.load(line)
    assert notices == (f"server.properties:1: {line.partition('=')[0]} {effect}",)


@pytest.mark.parametrize(
    ("key", "closest"),
    [
        ("group.consumer.sesion.timeout.ms", "group.consumer.session.timeout.ms"),
        ("log.retention.hour", "log.retention.hours"),
        ("listener.name.internal.ssl.keystore.locatoin", "ssl.keystore.location"),
    ],
)
def test_an_unknown_key_is_rejected_with_the_closest_names(key: str, closest: str) -> None:
    """The message names the key, its origin and the closest known names."""
    with pytest.raises(UnknownConfig) as raised:
        BrokerConfig.load(None, [(key, "1")])
    assert str(raised.value).startswith(f"--set: Unknown broker config name: {key} (did you mean {closest}")


def test_an_unknown_key_without_a_close_name_is_rejected_without_suggestions() -> None:
    """Only similar names are suggested."""
    with pytest.raises(UnknownConfig, match=r"^server\.properties:1: Unknown broker config name: banana$"):
        BrokerConfig.load("banana=1")


def test_all_errors_are_reported_at_once() -> None:
    """A single start reports every invalid config."""
    with pytest.raises(ManyConfigErrors) as raised:
        BrokerConfig.load("banana=1\nlog.segment.bytes=-1\n", [("group.max.size", "0")])
    assert str(raised.value).splitlines() == [
        "server.properties:1: Unknown broker config name: banana",
        "server.properties:2: Invalid value -1 for configuration log.segment.bytes: "
        "Value must be at least 1048576",
        "--set: Invalid value 0 for configuration group.max.size: Value must be at least 1",
    ]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (
            {"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"},
            "group.min.session.timeout.ms (10) must be less than or equal to "
            "group.max.session.timeout.ms (9)",
        ),
        (
            {"group.consumer.session.timeout.ms": "60001"},
            "group.consumer.session.timeout.ms (60001) must be less than or equal to "
            "group.consumer.max.session.timeout.ms (60000)",
        ),
        (
            {"group.streams.min.session.timeout.ms": "5000", "group.streams.session.timeout.ms": "5000"},
            "group.streams.heartbeat.interval.ms (5000) must be less than "
            "group.streams.session.timeout.ms (5000)",
        ),
        (
            {"group.share.assignment.interval.ms": "15001"},
            "group.share.assignment.interval.ms (15001) must be less than or equal to "
            "group.share.max.assignment.interval.ms (15000)",
        ),
        (
            {"group.share.delivery.count.limit": "8", "group.share.max.delivery.count.limit": "7"},
            "group.share.delivery.count.limit (8) must be less than or equal to "
            "group.share.max.delivery.count.limit (7)",
        ),
        (
            {"group.share.max.share.sessions": "100"},
            "group.share.max.size (200) must be less than or equal to group.share.max.share.sessions (100)",
        ),
        (
            {"group.streams.num.standby.replicas": "3"},
            "group.streams.num.standby.replicas (3) must be less than or equal to "
            "group.streams.max.standby.replicas (2)",
        ),
        ({"group.share.assignors": "simple,x"}, "group.share.assignors must contain exactly one assignor"),
        (
            {"group.coordinator.rebalance.protocols": "consumer"},
            "group.coordinator.rebalance.protocols must contain classic",
        ),
        ({"log.retention.minutes": "0"}, "log.retention must be unlimited (-1) or at least 1 ms"),
        ({"log.roll.hours": "1", "log.roll.jitter.hours": "-1"}, None),
        ({"node.id": "1", "broker.id": "2"}, "node.id and broker.id must be set to the same value"),
        (
            {"offsets.topic.compression.codec": "9"},
            "offsets.topic.compression.codec must be 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip can be 0 only if max.connections.per.ip.overrides is set",
        ),
        (
            {"queued.max.request.bytes": "10"},
            "queued.max.request.bytes must be at least socket.request.max.bytes, or not above 0",
        ),
        (
            {"connection.failed.authentication.delay.ms": "600000"},
            "connection.failed.authentication.delay.ms must be less than connections.max.idle.ms",
        ),
    ],
)
def test_conflicting_values_are_rejected(sets: dict[str, str], message: str | None) -> None:
    """The broker does not start, and the message names both configs and their values."""
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.load(None, sets.items())
    assert message is None or message in str(raised.value).splitlines()


@pytest.mark.parametrize("sets", [{"broker.id": "7"}, {"node.id": "7"}, {"node.id": "7", "broker.id": "7"}])
def test_broker_id_and_node_id_are_synonyms(sets: dict[str, str]) -> None:
    """Setting one sets the other."""
    config, _ = BrokerConfig.load(None, sets.items())
    assert (config["node.id"], config["broker.id"]) == (7, 7)
    again, _ = config.with_dynamic({}, {})
    assert (again["node.id"], again["broker.id"]) == (7, 7)


def test_a_name_from_a_kip_is_accepted_for_kafkas_name() -> None:
    """A notice reports it, and the value keeps its origin when dynamic configs are applied."""
    config, notices = BrokerConfig.load("group.streams.assignor.name=highly_available")
    assert notices == (
        "server.properties:1: group.streams.assignor.name is called group.streams.assignors in Kafka",
    )
    assert config.words("group.streams.assignors") == ("highly_available",)
    assert config.origin("group.streams.assignors") == Origin(Source.STATIC, "server.properties:1")
    assert config.with_dynamic({}, {})[0].words("group.streams.assignors") == ("highly_available",)
    both = [("group.streams.assignors", "sticky"), ("group.streams.assignor.name", "highly_available")]
    assert BrokerConfig.load(None, both)[0].words("group.streams.assignors") == ("highly_available",)


def test_dynamic_configs_override_static_ones() -> None:
    """The broker's value overrides the cluster's, and that the file's; deleting one restores the next."""
    static, _ = BrokerConfig.load("message.max.bytes=1000\nnum.io.threads=2")
    both, warnings = static.with_dynamic({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    assert warnings == ()
    assert _bytes(both) == (3000, Origin(Source.BROKER))
    cluster, _ = both.with_dynamic({"message.max.bytes": "2000"}, {})
    assert _bytes(cluster) == (2000, Origin(Source.CLUSTER))
    neither, _ = cluster.with_dynamic({}, {})
    assert _bytes(neither) == _bytes(static) == (1000, Origin(Source.STATIC, "server.properties:1"))


def _bytes(config: BrokerConfig) -> tuple[int, Origin]:
    return config["message.max.bytes"], config.origin("message.max.bytes")


def test_invalid_stored_configs_are_ignored() -> None:
    """A broker starts in spite of invalid dynamic configs in its log, and warns."""
    config, warnings = BrokerConfig.load()[0].with_dynamic(
        {"message.max.bytes": "x", "node.id": "9", "ssl.protocol": "TLSv1.2", "removed": "1"}, {}
    )
    assert config.values == BrokerConfig.load()[0].values
    assert warnings == (
        "Invalid value x for configuration message.max.bytes: Not a number of type INT; "
        "the stored value is not used",
        "node.id cannot be altered while a broker runs; the stored value is not used",
        "ssl.protocol can be altered for one broker only; the stored value is not used",
    )


def test_a_stored_assignment_interval_is_clamped_to_the_limits() -> None:
    """Kafka clamps the three assignment intervals: their limits are static and may have changed."""
    static, _ = BrokerConfig.load("group.consumer.max.assignment.interval.ms=2000")
    config, warnings = static.with_dynamic({"group.consumer.assignment.interval.ms": "9000"}, {})
    assert config["group.consumer.assignment.interval.ms"] == 2000
    assert warnings == ("group.consumer.assignment.interval.ms is 9000, outside 0 to 2000; 2000 is used",)


def test_config_errors_share_a_base_class_with_a_code() -> None:
    """Callers need a single except clause."""
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.load("group.min.session.timeout.ms=10000000")
    assert isinstance(raised.value, ConflictingConfigs)
    assert raised.value.code == 40
