"""DescribeConfigs returns Kafka's values, sources, synonyms and types, and no secrets."""

from __future__ import annotations

from collections.abc import Iterable

from konvene.configs import BrokerConfig, Source
from konvene.configs.describe import (
    Described,
    Synonym,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)
from konvene.configs.setting import Kind


def _broker(text: str = "") -> BrokerConfig:
    return BrokerConfig.load(text)[0]


def _layered() -> BrokerConfig:
    """Return a config with message.max.bytes 1 in the file, 2 for the cluster, 3 for this broker."""
    name = "message.max.bytes"
    return _broker(f"{name}=1").with_dynamic({name: "2"}, {name: "3"})[0]


def _only(entries: Iterable[Described]) -> Described:
    (entry,) = entries
    return entry


def test_sources_have_the_numbers_of_the_wire() -> None:
    """The numbers are those of Kafka's ConfigSource, from UNKNOWN to GROUP."""
    assert [(source.name, int(source)) for source in Source] == [
        ("UNKNOWN", 0),
        ("TOPIC", 1),
        ("BROKER", 2),
        ("CLUSTER", 3),
        ("STATIC", 4),
        ("DEFAULT", 5),
        ("BROKER_LOGGER", 6),
        ("CLIENT_METRICS", 7),
        ("GROUP", 8),
    ]


def test_a_topic_defaults_to_the_brokers_value() -> None:
    """The synonym is the broker's config with its default."""
    assert _only(describe_topic(_broker(), {}, ["max.message.bytes"])) == Described(
        name="max.message.bytes",
        value="1048588",
        source=Source.DEFAULT,
        read_only=False,
        sensitive=False,
        synonyms=(Synonym("message.max.bytes", "1048588", Source.DEFAULT),),
        kind=Kind.INT,
        documentation="Largest batch of records, after compression, that the topic takes.",
    )


def test_synonyms_are_ordered_by_precedence() -> None:
    """Topic, broker, cluster, file, default."""
    broker = _layered()
    entry = _only(describe_topic(broker, {"max.message.bytes": "4"}, ["max.message.bytes"]))
    assert (entry.value, entry.source, entry.is_default) == ("4", Source.TOPIC, False)
    assert entry.synonyms == (
        Synonym("max.message.bytes", "4", Source.TOPIC),
        Synonym("message.max.bytes", "3", Source.BROKER),
        Synonym("message.max.bytes", "2", Source.CLUSTER),
        Synonym("message.max.bytes", "1", Source.STATIC),
        Synonym("message.max.bytes", "1048588", Source.DEFAULT),
    )


def test_retention_in_hours_is_reported_as_the_default() -> None:
    """As in Kafka, a coarser unit counts as the default unless the finest unit is set."""
    coarse = _only(describe_topic(_broker("log.retention.hours=1"), {}, ["retention.ms"]))
    assert (coarse.value, coarse.source, coarse.synonyms) == ("3600000", Source.DEFAULT, ())
    fine = _only(describe_topic(_broker("log.retention.hours=1\nlog.retention.ms=7"), {}, ["retention.ms"]))
    assert (fine.value, fine.source) == ("7", Source.STATIC)
    assert fine.synonyms == (
        Synonym("log.retention.ms", "7", Source.STATIC),
        Synonym("log.retention.hours", "1", Source.STATIC),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_all_topic_configs_but_internal_ones_are_described_in_order() -> None:
    """An empty or missing list of names requests all of them."""
    names = [entry.name for entry in describe_topic(_broker(), {})]
    assert names == sorted(names)
    assert len(names) == 37
    assert "internal.segment.bytes" not in names
    assert [entry.name for entry in describe_topic(_broker(), {}, [])] == names
    own = describe_topic(_broker(), {"internal.segment.bytes": "9"}, ["internal.segment.bytes"])
    assert _only(own).value == "9"
    assert describe_topic(_broker(), {}, ["no.such.name"]) == ()


def test_group_configs() -> None:
    """The broker's config is the synonym; the value shown is the configured one, not the clamped one."""
    name = "consumer.session.timeout.ms"
    entry = _only(describe_group(_broker(), {name: "1"}, [name]))
    assert (entry.value, entry.source, entry.kind) == ("1", Source.GROUP, Kind.INT)
    assert entry.synonyms == (
        Synonym("consumer.session.timeout.ms", "1", Source.GROUP),
        Synonym("group.consumer.session.timeout.ms", "45000", Source.DEFAULT),
    )
    without_synonym = _only(describe_group(_broker(), {}, ["share.isolation.level"]))
    assert (without_synonym.value, without_synonym.source) == ("read_uncommitted", Source.DEFAULT)
    assert without_synonym.synonyms == (Synonym("share.isolation.level", "read_uncommitted", Source.DEFAULT),)


def test_an_internal_group_config_is_described_if_the_broker_sets_it() -> None:
    """As in Kafka, setting it on the broker makes it visible."""
    name = "streams.num.warmup.replicas"
    assert describe_group(_broker(), {}, [name]) == ()
    assert _only(describe_group(_broker(f"group.{name}=3"), {}, [name])).value == "3"


def test_warmup_configs_are_described_in_kip_mode() -> None:
    """Kafka hides them, because it does not assign warm-up tasks yet."""
    names = [
        "streams.acceptable.recovery.lag",
        "streams.num.warmup.replicas",
        "streams.task.offset.interval.ms",
    ]
    bounds = ["group.streams.max.warmup.replicas", "group.streams.min.task.offset.interval.ms"]
    every = sorted([*bounds, *(f"group.{name}" for name in names)])
    kip = _broker("konvene.streams.mode=kip")
    assert [entry.name for entry in describe_group(kip, {}, names)] == names
    assert [entry.name for entry in describe_broker(kip, every)] == every
    assert describe_group(_broker(), {}, names) == ()
    assert describe_broker(_broker(), every) == ()
    altered = describe_group(_broker(), {names[0]: "77"}, names)
    assert (_only(altered).value, _only(altered).source) == ("77", Source.GROUP)


def test_broker_configs() -> None:
    """Dynamic configs are not read-only; a config with a fallback lists it among its synonyms."""
    entries = {entry.name: entry for entry in describe_broker(_broker("log.retention.hours=1"))}
    assert entries["node.id"].read_only
    assert not entries["log.retention.ms"].read_only
    assert (entries["log.retention.ms"].value, entries["log.retention.ms"].source) == (None, Source.DEFAULT)
    assert entries["log.retention.hours"].synonyms == (
        Synonym("log.retention.hours", "1", Source.STATIC),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )
    assert "group.consumer.regex.refresh.interval.ms" not in entries
    assert entries["konvene.audit.enable"].value == "true"


def test_a_secret_is_never_described() -> None:
    """Passwords and unknown configs have neither a value nor a synonym with a value."""
    text = "ssl.key.password=s3cret\nlistener.name.a.ssl.key.password=s3cret\nrsm.config.key=s3cret"
    entries = {entry.name: entry for entry in describe_broker(_broker(text))}
    for name in ("ssl.key.password", "listener.name.a.ssl.key.password", "rsm.config.key"):
        entry = entries[name]
        assert (entry.sensitive, entry.value, entry.source) == (True, None, Source.STATIC)
    assert entries["rsm.config.key"].kind == 0
    assert "s3cret" not in repr(entries)


def test_the_cluster_resource_lists_only_cluster_wide_changes() -> None:
    """It is the broker resource with an empty name."""
    broker = _layered()
    entry = _only(describe_cluster(broker))
    assert (entry.name, entry.value, entry.source) == ("message.max.bytes", "2", Source.CLUSTER)
    assert entry.synonyms == (Synonym("message.max.bytes", "2", Source.CLUSTER),)
    assert describe_cluster(_broker()) == ()
