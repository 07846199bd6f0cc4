"""Internal topics as the broker makes them; source topics that are missing, wrong, growing or a pattern."""

from typing import Any

import pytest

from ..clients import Refused, eventually
from .app import Application, names

pytestmark = pytest.mark.java


def made(app: Application, part: str, *configs: str) -> tuple[int, dict[str, Any]]:
    """A topic's number of partitions, and what some of its configs are."""
    topic = app.topic(part)
    partitions = app.apps.call("describe_topics", topics=[topic])[topic]["partitions"]
    topic_configs = app.apps.call("describe_configs", topic=topic)
    return partitions, {name: topic_configs[name] for name in configs}


def test_internal_topics_are_the_brokers_work(app: Application) -> None:
    """The broker creates the repartition topic and the changelog, with the topology's configs and as many
    partitions as the source has."""
    app.does("words", lines=3, counts=1)
    app.write("lines", [(n % 3, None, "some words") for n in range(30)])
    one = app.start("one", **{"topic.retention.bytes": "12345678"})
    app.is_shared_by(one, tasks=names(0, 3) | names(1, 3))
    app.makes("counts", [str(n) for n in range(1, 31)] * 2)
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "12345678"}
    assert made(app, "words-repartition", *kept) == (3, kept)
    compacted = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    assert made(app, "counts-changelog", *compacted) == (3, compacted)
    assert sum(app.ends("counts-changelog").values()) == 60

    def purged() -> bool:
        return app.ends("words-repartition", at="earliest") == app.ends("words-repartition")

    eventually("deletion of what was read", purged, 20, among=[app.apps])


def test_a_topic_that_is_there_already_is_taken_as_it_is(app: Application) -> None:
    """An operator has made the changelog, with a config of its own: the broker leaves it alone."""
    app.does("keys", lines=2, counts=1)
    topic = {"name": app.topic("counts-changelog"), "partitions": 2, "configs": {"cleanup.policy": "delete"}}
    app.apps.call("create_topics", topics=[topic])
    app.write("lines", [(None, "k", "x")] * 5)
    one = app.start("one")
    app.makes("counts", ["1", "2", "3", "4", "5"])
    app.is_shared_by(one, tasks=names(0, 2))
    assert made(app, "counts-changelog", "cleanup.policy") == (2, {"cleanup.policy": "delete"})


def test_a_missing_source_topic_is_waited_for(app: Application) -> None:
    """The group is NotReady and no member has a task while a source topic is missing; the client waits for
    two heartbeats. Once the topic exists, work begins."""
    app.is_set(heartbeat_interval_ms=5000)
    app.does("upper", capitals=1)
    one = app.start("one")
    description = app.becomes("NotReady", 1)
    assert description["members"][0]["assignment"] == {"active": [], "standby": [], "warmup": []}
    app.has(lines=2)
    app.write("lines", [(0, None, "late"), (1, None, "but here")])
    app.is_shared_by(one, tasks=names(0, 2))
    app.makes("capitals", ["LATE", "BUT HERE"])
    app.is_explained(("topology-initialized", one), ("topology-ready", None))


def test_who_waits_too_long_for_a_source_topic_gives_up(app: Application) -> None:
    """After two heartbeats the client ends with an error that names the topic; an instance that is started
    when the topic is there works."""
    app.does("upper", capitals=1)
    one = app.start("one")
    assert f"Missing source topics: Source topics {app.topic('lines')} are missing." in one.fails()
    app.has(lines=2)
    app.write("lines", [(0, None, "at last")])
    two = app.start("two")
    app.is_shared_by(two, tasks=names(0, 2))
    app.makes("capitals", ["AT LAST"])


def test_topics_that_cannot_be_joined(app: Application) -> None:
    """Sources of a join with different numbers of partitions: the broker reports it, and the client ends."""
    app.does("pairs", left=2, right=3, pairs=1)
    one = app.start("one")
    assert app.topic("left") in (message := one.fails())
    assert "TopologyException" in message
    assert app.topic("right") in message


def test_an_internal_topic_of_the_wrong_size(app: Application) -> None:
    """A changelog with another number of partitions than the source has: the broker refuses to go on rather
    than to alter it."""
    app.does("keys", lines=2, counts=1)
    app.has(**{"counts-changelog": 3})
    one = app.start("one")
    assert app.topic("counts-changelog") in one.fails()
    assert made(app, "counts-changelog") == (3, {})


def test_a_source_topic_that_grows(app: Application) -> None:
    """More partitions of a topic without state behind it: the new ones become tasks by themselves."""
    app.does("upper", lines=2, capitals=1)
    one = app.start("one")
    before = app.is_shared_by(one, tasks=names(0, 2))
    epoch = app.describe()["group_epoch"]
    app.apps.call("create_partitions", topic=app.topic("lines"), count=5)
    after = app.is_shared_by(one, tasks=names(0, 5))
    assert after[one.name] > before[one.name]
    assert app.describe()["group_epoch"] > epoch
    app.write("lines", [(n, None, f"line {n}") for n in range(5)])
    app.makes("capitals", [f"LINE {n}" for n in range(5)])
    app.is_explained(("topic-metadata-changed", None))


def test_a_source_topic_that_is_deleted(app: Application) -> None:
    """The group is no longer ready, and the client ends with an error that names the topic."""
    app.does("upper", lines=2, capitals=1)
    one = app.start("one")
    app.is_shared_by(one, tasks=names(0, 2))
    app.apps.call("delete_topics", topics=[app.topic("lines")])
    assert f"Missing source topics: Source topics {app.topic('lines')} are missing." in one.fails()
    app.is_explained(("topology-ready", None), ("topology-not-ready", None))


def test_another_topology_in_the_same_group(app: Application) -> None:
    """An instance that does something else than the others is refused, and they go on."""
    app.does("upper", lines=2, more=2, capitals=1, counts=1)
    one = app.start("one")
    app.is_shared_by(one, tasks=names(0, 2))
    app.topology = "both"
    other = app.start("other")
    assert "InvalidRequestException" in (message := other.fails())
    assert "topology" in message.lower()
    app.write("lines", [(0, None, "on it goes")])
    app.makes("capitals", ["ON IT GOES"])
    app.is_shared_by(one, tasks=names(0, 2))


def test_patterns_are_refused_by_streams_itself(app: Application) -> None:
    """A topology that subscribes to a pattern is rejected before any request is sent."""
    app.does("pattern", lines=1, capitals=1)
    with pytest.raises(Refused, match="Pattern subscriptions are not supported with the STREAMS protocol"):
        app.start("one")
    with pytest.raises(Refused, match="not found"):
        app.describe()


def test_static_members_are_refused_by_streams_itself(app: Application) -> None:
    """So is `group.instance.id`, which brokers know since Kafka 4.4 but no client of this version has."""
    app.does("upper", lines=1, capitals=1)
    with pytest.raises(Refused, match="Streams rebalance protocol does not support static membership"):
        app.start("one", **{"consumer.group.instance.id": "desk-1"})
