"""Interactive queries: the broker sends each instance the endpoints and partitions of the others, so that
each can name a key's owner, which has the right count.
"""

from collections import Counter
from typing import Any

import pytest

from ..brokers import Broker
from ..clients import eventually
from .app import Application, Instance, names

pytestmark = pytest.mark.java

KEYS = [f"k{n}" for n in range(20)]
PARTITIONS = 4


def at(port: int) -> dict[str, str]:
    return {"application.server": f"localhost:{port}"}


def agree(*instances: Instance) -> dict[str, Any]:
    """Wait until all instances know the same of all of them, and what that is."""

    def known() -> dict[str, Any] | None:
        answers = [instance.ask("everybody") for instance in instances]
        same = all(each == answers[0] for each in answers) and len(answers[0]) == len(instances)
        return answers[0] if same and owned(answers[0]) == PARTITIONS else None

    return eventually("knowledge of each other", known, 30, among=[instances[0].process])


def owned(endpoints_of_all: dict[str, Any]) -> int:
    """Return how many partitions of the source have an owner."""
    return sum(topic.endswith("-lines") for each in endpoints_of_all.values() for topic, _ in each["active"])


def owners(*instances: Instance) -> dict[str, Any]:
    """Return the owner of each key, on which all instances must agree."""
    answers = [instance.ask("owners", keys=KEYS) for instance in instances]
    assert all(each == answers[0] for each in answers)
    return answers[0]  # type: ignore[no-any-return]


def test_each_instance_knows_where_every_key_is(app: Application) -> None:
    """Both instances name the same owner for every key, each key is found there with the right count, and
    nowhere else. When one has left, the other knows itself to have all."""
    app.does("keys", lines=PARTITIONS, counts=1)
    app.write("lines", [(None, key, "x") for key in KEYS * 3])
    one, two = app.start("one", **at(7001)), app.start("two", **at(7002))
    app.is_shared_by(one, two, tasks=names(0, PARTITIONS))
    app.has_counted(Counter(KEYS * 3))
    endpoints_of_all = agree(one, two)
    assert {server: len(each["active"]) for server, each in endpoints_of_all.items()} == {
        "localhost:7001": 2,
        "localhost:7002": 2,
    }
    found = {"localhost:7001": one.ask("counts"), "localhost:7002": two.ask("counts")}
    whose = owners(one, two)
    for key in KEYS:
        server, standbys = whose[key]
        assert found[server][key] == 3
        assert standbys == []
    assert sorted(found["localhost:7001"] | found["localhost:7002"]) == sorted(KEYS)
    assert len(found["localhost:7001"]) + len(found["localhost:7002"]) == len(KEYS)
    endpoints = {member["endpoint"] for member in app.describe()["members"]}
    assert endpoints == {"localhost:7001", "localhost:7002"}
    one.close()
    assert list(agree(two)) == ["localhost:7002"]
    assert owners(two) == {key: ["localhost:7002", []] for key in KEYS}


def test_standbys_are_known_too(app: Application) -> None:
    """With a standby for each task, every key has a second place, which is the other instance."""
    app.is_set(num_standby_replicas=1)
    app.does("keys", lines=PARTITIONS, counts=1)
    app.write("lines", [(None, key, "x") for key in KEYS])
    one, two = app.start("one", **at(7001)), app.start("two", **at(7002))
    app.is_shared_by(one, two, tasks=names(0, PARTITIONS))

    def doubled() -> bool:
        answers = one.ask("owners", keys=KEYS), two.ask("owners", keys=KEYS)
        everywhere = {"localhost:7001", "localhost:7002"}
        return answers[0] == answers[1] and all(
            {a, *others} == everywhere for a, others in answers[0].values()
        )

    eventually("second place for each key", doubled, 30, among=[app.apps])


def test_instance_without_an_endpoint(app: Application) -> None:
    """It is in no endpoint list, but it knows the others' endpoints."""
    app.does("keys", lines=PARTITIONS, counts=1)
    app.write("lines", [(None, key, "x") for key in KEYS])
    one, two = app.start("one", **at(7001)), app.start("two")
    app.is_shared_by(one, two, tasks=names(0, PARTITIONS))

    def known() -> bool:
        return [list(instance.ask("everybody")) for instance in (one, two)] == [["localhost:7001"]] * 2

    eventually("knowledge of the one that has an address", known, 30, among=[app.apps])


def test_an_address_while_a_source_topic_is_missing(app: Application, broker: Broker) -> None:
    """An instance with an endpoint waits for its topic like any other. Kafka 4.4.0 answers it with an
    unexpected error, which ends it, since there is no configured topology."""
    app.is_set(heartbeat_interval_ms=5000)
    app.does("keys", counts=1)
    one = app.start("one", **at(7001))
    if broker.name == "kafka":
        assert "UnknownServerException" in one.fails()
        return
    app.becomes("NotReady", 1)
    app.has(lines=PARTITIONS)
    app.is_shared_by(one, tasks=names(0, PARTITIONS))
    assert list(agree(one)) == ["localhost:7001"]
