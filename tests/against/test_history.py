"""konvene records why each rebalance happened, with the right cause and member.

Apache Kafka has no such history, so these tests are skipped there. Each cause has a short scenario of its
own; test_stories.py checks whole scenarios.
"""

from pathlib import Path
from typing import Any

import pytest

from .brokers import Broker
from .clients import LIBRARIES, Client, Fleet, eventually, fleet_of
from .conftest import Admins
from .history import Rebalance, history, missing
from .stories import SESSION_MS

EACH = [pytest.param(name, marks=pytest.mark.java) if name == "java" else name for name in LIBRARIES]


@pytest.fixture(autouse=True)
def _the_broker_explains(broker: Broker) -> None:
    if not broker.explains:
        pytest.skip(f"{broker.name} does not tell why a group rebalances")


def causes(broker: Broker, group: str, kind: str) -> list[str | None]:
    return [
        cause.client_id
        for rebalance in history(broker, group)
        for cause in rebalance.causes
        if cause.kind == kind
    ]


def pair(fleet: Fleet, topic: str, library: str, **settings: Any) -> tuple[Client, Client]:
    """A group of two: an anchor, and the member whose doings are explained."""
    common: dict[str, Any] = {"group": topic, "topics": [topic], "session_timeout_ms": SESSION_MS}
    anchor = fleet.consumer("confluent-kafka", "anchor", **{**common, **settings})
    anchor.until("all partitions", lambda: len(anchor.holds()) == 4)
    member = fleet.consumer(library, "member", **{**common, **settings})
    both = (anchor, member)
    eventually("two and two", lambda: all(len(client.holds()) == 2 for client in both), among=both)
    return both


@pytest.mark.parametrize("library", EACH)
def test_a_join_and_a_clean_close(library: str, fleet: Fleet, topic: str, broker: Broker) -> None:
    """member-joined, then member-left with the same member id; and the client's own reason, where it gives
    one."""
    anchor, member = pair(fleet, topic, library)
    member_id = member.call("member")["member_id"]
    member.close()
    anchor.until("all partitions", lambda: len(anchor.holds()) == 4, 15)
    rebalances = history(broker, topic)
    wanted = [("member-joined", "anchor"), ("member-joined", "member"), ("member-left", "member")]
    assert missing(rebalances, wanted) == [], rebalances
    ids = {
        cause.member_id
        for rebalance in rebalances
        for cause in rebalance.causes
        if cause.client_id == "member"
    }
    assert ids == {member_id}


def test_a_subscription_that_changes(fleet: Fleet, topic: str, broker: Broker, admins: Admins) -> None:
    """A topic grows: the leader rejoins for it, and this is recorded, not a join of a new member."""
    anchor, member = pair(fleet, topic, "kafka-python", metadata_max_age_ms=1000)
    known = len(history(broker, topic))
    admins["confluent-kafka"].call("create_partitions", topic=topic, count=8)
    both = (anchor, member)
    eventually("four and four", lambda: all(len(client.holds()) == 4 for client in both), 25, among=both)
    later: list[Rebalance] = history(broker, topic)[known:]
    kinds = {cause.kind for rebalance in later for cause in rebalance.causes}
    assert kinds and kinds <= {"leader-rejoined", "member-metadata-changed", "topic-metadata-changed"}, later


def test_a_member_too_slow_for_the_rebalance(fleet: Fleet, topic: str, broker: Broker) -> None:
    """A member is suspended with a long session and a short rebalance timeout: the rebalance of a newcomer
    goes on without it, and its rebalance timeout is recorded."""
    settings: dict[str, Any] = {"group": topic, "topics": [topic]}
    times = {"session_timeout_ms": 30_000, "max_poll_interval_ms": 5_000}
    anchor = fleet.consumer("kafka-python", "anchor", **settings, **times)
    slow = fleet.consumer("kafka-python", "slow", **settings, **times)
    eventually("two and two", lambda: len(anchor.holds()) == len(slow.holds()) == 2, among=[anchor, slow])
    slow.sleep()
    late = fleet.consumer("kafka-python", "late", **settings, **times)
    eventually("two and two", lambda: len(anchor.holds()) == len(late.holds()) == 2, 15, among=[anchor, late])
    assert causes(broker, topic, "rebalance-timeout") == ["slow"]
    assert causes(broker, topic, "session-expired") == []


def test_a_static_member_that_stays_away(fleet: Fleet, topic: str, broker: Broker) -> None:
    """A killed static member keeps its partitions until its session expires; this is recorded as
    session-expired with its instance id."""
    settings: dict[str, Any] = {"group": topic, "topics": [topic], "session_timeout_ms": SESSION_MS}
    anchor = fleet.consumer("kafka-python", "anchor", instance_id="desk-0", **settings)
    member = fleet.consumer("aiokafka", "member", instance_id="desk-1", **settings)
    both = (anchor, member)
    eventually("two and two", lambda: all(len(client.holds()) == 2 for client in both), among=both)
    member.kill()
    anchor.until("all partitions", lambda: len(anchor.holds()) == 4, SESSION_MS / 1000 + 10)
    all_causes = [cause for rebalance in history(broker, topic) for cause in rebalance.causes]
    expired = [
        (cause.client_id, cause.instance_id) for cause in all_causes if cause.kind == "session-expired"
    ]
    assert expired == [("member", "desk-1")]


@pytest.mark.java
def test_a_cooperative_follow_up(fleet: Fleet, topic: str, broker: Broker) -> None:
    """With cooperative-sticky a newcomer's share is given up first and handed over in a second rebalance,
    and the second one's cause is the first."""
    pair(fleet, topic, "java", assignor="cooperative-sticky")
    rebalances = history(broker, topic)
    assert missing(rebalances, [("member-joined", "member")]) == [], rebalances
    assert any(cause.kind == "cooperative-follow-up" for cause in rebalances[-1].causes), rebalances


@pytest.mark.java
def test_a_removal_by_an_admin(fleet: Fleet, topic: str, broker: Broker, admins: Admins) -> None:
    """A removal by instance id is recorded with the instance id and the admin's reason."""
    settings: dict[str, Any] = {"group": topic, "topics": [topic], "session_timeout_ms": 30_000}
    anchor = fleet.consumer("kafka-python", "anchor", instance_id="desk-0", **settings)
    member = fleet.consumer("confluent-kafka", "member", instance_id="desk-1", **settings)
    both = (anchor, member)
    eventually("two and two", lambda: all(len(client.holds()) == 2 for client in both), among=both)
    member.kill()
    admins["java"].call("remove_members", group=topic, instance_ids=["desk-1"], reason="the desk is sold")
    anchor.until("all partitions", lambda: len(anchor.holds()) == 4, 10)
    last = history(broker, topic)[-1]
    [cause] = [cause for cause in last.causes if cause.instance_id == "desk-1"]
    assert cause.kind in ("removed-by-admin", "member-left")
    assert "the desk is sold" in (cause.reason or "")


def test_the_past_outlives_the_broker(own_broker: Broker, tmp_path: Path) -> None:
    """The history before a kill is unchanged after it, and the restart itself is no rebalance."""
    with fleet_of(own_broker.bootstrap, tmp_path / "clients") as fleet:
        fleet.admin("kafka-python").call("create_topics", topics=[{"name": "past", "partitions": 4}])
        anchor, member = pair(fleet, "past", "aiokafka", session_timeout_ms=20_000)
        member.close()
        anchor.until("all partitions", lambda: len(anchor.holds()) == 4, 15)
        before = history(own_broker, "past")
        assert missing(before, [("member-joined", "member"), ("member-left", "member")]) == [], before
        own_broker.kill9()
        own_broker.start()
        assert history(own_broker, "past") == before
