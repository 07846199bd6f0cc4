"""DescribeConfigs tells what Kafka's would: values, sources, synonyms, types; no secrets."""

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
    """1 in the file, 2 for the cluster, 3 for this broker."""
    name = "message.max.bytes"
    return _broker(f"{name}=1").with_dynamic({name: "2"}, {name: "3"})[0]


def _only(entries: Iterable[Described]) -> Described:
    (entry,) = entries
    return entry


def test_the_number_of_a_source_is_the_one_on_the_wire() -> None:
    """ConfigSource, from UNKNOWN to GROUP."""
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


def test_a_topics_default_is_the_brokers() -> None:
    """The synonym is the broker's setting and its default."""
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


def test_synonyms_go_from_the_strongest_layer_to_the_default() -> None:
    """Topic, this broker, the cluster, the file, the default."""
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


def test_retention_in_hours_claims_to_be_the_default() -> None:
    """Kafka drops the synonyms before the finest unit, and so do we."""
    coarse = _only(describe_topic(_broker("log.retention.hours=1"), {}, ["retention.ms"]))
    assert (coarse.value, coarse.source, coarse.synonyms) == ("3600000", Source.DEFAULT, ())
    fine = _only(describe_topic(_broker("log.retention.hours=1\nlog.retention.ms=7"), {}, ["retention.ms"]))
    assert (fine.value, fine.source) == ("7", Source.STATIC)
    assert fine.synonyms == (
        Synonym("log.retention.ms", "7", Source.STATIC),
        Synonym("log.retention.hours", "1", Source.STATIC),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_all_settings_are_told_in_order_but_internal_ones() -> None:
    """No names asked, or none at all, means every name."""
    every = [entry.name for entry in describe_topic(_broker(), {})]
    assert every == sorted(every)
    assert len(every) == 37
    assert "internal.segment.bytes" not in every
    assert [entry.name for entry in describe_topic(_broker(), {}, [])] == every
    own = describe_topic(_broker(), {"internal.segment.bytes": "9"}, ["internal.segment.bytes"])
    assert _only(own).value == "9"
    assert describe_topic(_broker(), {}, ["no.such.name"]) == ()


def test_a_groups_settings() -> None:
    """The broker's setting is the synonym; a group shows what was said, not what it is held to."""
    name = "consumer.session.timeout.ms"
    entry = _only(describe_group(_broker(), {name: "1"}, [name]))
    assert (entry.value, entry.source, entry.kind) == ("1", Source.GROUP, Kind.INT)
    assert entry.synonyms == (
        Synonym("consumer.session.timeout.ms", "1", Source.GROUP),
        Synonym("group.consumer.session.timeout.ms", "45000", Source.DEFAULT),
    )
    alone = _only(describe_group(_broker(), {}, ["share.isolation.level"]))
    assert (alone.value, alone.source) == ("read_uncommitted", Source.DEFAULT)
    assert alone.synonyms == (Synonym("share.isolation.level", "read_uncommitted", Source.DEFAULT),)


def test_an_internal_group_setting_is_told_where_the_broker_sets_it() -> None:
    """As in Kafka, saying it on the broker makes it visible."""
    name = "streams.num.warmup.replicas"
    assert describe_group(_broker(), {}, [name]) == ()
    assert _only(describe_group(_broker(f"group.{name}=3"), {}, [name])).value == "3"


def test_settings_of_warm_ups_are_told_in_mode_kip() -> None:
    """Kafka hides them, as it makes no warm-ups yet."""
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
    said = describe_group(_broker(), {names[0]: "77"}, names)
    assert (_only(said).value, _only(said).source) == ("77", Source.GROUP)


def test_a_brokers_settings() -> None:
    """What can be altered is not read-only; what falls back shows what to."""
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


def test_a_secret_is_never_told() -> None:
    """Neither a password nor a setting that the table does not know has a value, or a synonym with one."""
    text = "ssl.key.password=s3cret\nlistener.name.a.ssl.key.password=s3cret\nrsm.config.key=s3cret"
    entries = {entry.name: entry for entry in describe_broker(_broker(text))}
    for name in ("ssl.key.password", "listener.name.a.ssl.key.password", "rsm.config.key"):
        entry = entries[name]
        assert (entry.sensitive, entry.value, entry.source) == (True, None, Source.STATIC)
    assert entries["rsm.config.key"].kind == 0
    assert "s3cret" not in repr(entries)


def test_the_cluster_tells_only_what_was_altered_for_all() -> None:
    """The resource without a name."""
    broker = _layered()
    entry = _only(describe_cluster(broker))
    assert (entry.name, entry.value, entry.source) == ("message.max.bytes", "2", Source.CLUSTER)
    assert entry.synonyms == (Synonym("message.max.bytes", "2", Source.CLUSTER),)
    assert describe_cluster(_broker()) == ()
