"""Members that die or sleep, and groups that are full: the others go on, and nothing old is taken for new."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .brokers import Broker
from .clients import (
    LIBRARIES,
    Client,
    Event,
    Fleet,
    Refused,
    eventually,
    fleet_of,
    group_offsets,
    meet_the_coordinator,
)
from .conftest import Admins, a_broker
from .history import history
from .stories import AIOKAFKA, CONFLUENT, JAVA, KAFKA_PYTHON, SESSION_MS, read_again, shared_holds, steps_back

PARTITIONS = 12
TOO_LATE = {
    JAVA: ["CommitFailedException"],
    KAFKA_PYTHON: ["CommitFailedError"],
    AIOKAFKA: ["CommitFailedError"],
    # The error code: the member is unknown, or has already begun to rejoin.
    CONFLUENT: ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"],
}
"""How a library calls the error of a commit by a member that is none any more."""


@pytest.mark.java
def test_who_slept_through_its_session_commits_nothing_old(fleet: Fleet, topic: str, admins: Admins) -> None:
    """One member of each library is suspended with a commit in flight, and one more is killed. Another takes
    over their partitions and commits further. Resumed, each one's old commit is rejected, it rejoins, and
    reads on from the group's offsets: no commit goes back, nothing committed is read again, and every record
    is delivered."""
    admin = admins["kafka-python"]
    admin.call("create_partitions", topic=topic, count=PARTITIONS)
    writer = fleet.producer(CONFLUENT, "writer")
    written: set[str] = set()

    def write(mark: str) -> None:
        """One record for each partition."""
        values = [f"{mark}-{partition}" for partition in range(PARTITIONS)]
        records = [{"topic": topic, "partition": p, "key": None, "value": v} for p, v in enumerate(values)]
        writer.call("send", records=records)
        written.update(values)

    def committed_are(offset: int) -> bool:
        rows = group_offsets(admin, topic)
        return [row[:3] for row in rows] == [[topic, p, offset] for p in range(PARTITIONS)]

    settings: dict[str, Any] = {"group": topic, "topics": [topic], "session_timeout_ms": SESSION_MS}
    awake = fleet.consumer(KAFKA_PYTHON, "awake", commit="sync", **settings)
    sleepers = [fleet.consumer(name, f"sleeper-{name}", commit="sync", **settings) for name in LIBRARIES]
    mortal = fleet.consumer(CONFLUENT, "mortal", commit="sync", **settings)
    everyone = [awake, *sleepers, mortal]
    eventually("two each", lambda: {len(m.holds()) for m in everyone} == {2}, 40, among=everyone)
    write("one")
    eventually("first commits", lambda: committed_are(1), 20, among=everyone)

    old = {sleeper: sorted(sleeper.holds()) for sleeper in sleepers}
    for sleeper in sleepers:
        sleeper.call("hold")
        sleeper.sleep()
    mortal.kill()
    commits = {
        sleeper: sleeper.submit("commit", offsets=[[*partition, 0, "old"] for partition in old[sleeper]])
        for sleeper in sleepers
    }
    awake.until("everything", lambda: len(awake.holds()) == PARTITIONS, SESSION_MS / 1000 + 15)
    write("two")
    eventually("second commits", lambda: committed_are(2), 20, among=[awake])

    for sleeper in sleepers:
        sleeper.wake()
    for sleeper in sleepers:
        with pytest.raises(Refused) as refused:
            sleeper.answer(commits[sleeper])
        assert refused.value.name in TOO_LATE[sleeper.library]
    assert committed_are(2)
    for sleeper in sleepers:
        sleeper.call("go")
    here = [awake, *sleepers]
    eventually("shares for all five", lambda: min(len(m.holds()) for m in here) == 2, 40, among=here)
    write("three")
    eventually("third commits", lambda: committed_are(3), 20, among=here)
    assert {value for member in everyone for value in member.values()} == written
    assert steps_back(everyone) == []
    assert read_again(everyone) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose groups may have two members, who have five seconds to come."""
    broker = a_broker(tmp_path / "small", {"group.max.size": "2", "group.initial.rebalance.delay.ms": "5000"})
    broker.start()
    try:
        yield broker
    finally:
        broker.kill9()


@pytest.fixture
def small_fleet(small: Broker, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(small.bootstrap, tmp_path / "clients") as fleet:
        yield fleet


def begin(client: Client, fleet: Fleet, **settings: Any) -> int:
    """Let a client begin to be a consumer, without waiting for it."""
    return client.submit(
        "start", role="consumer", bootstrap=fleet.bootstrap, client_id=client.name, **settings
    )


def refusal(client: Client, begun: int) -> Event:
    """Return the error with which a client is rejected, at once or from poll."""
    try:
        client.answer(begun, 40)
    except Refused as refused:
        return {"code": refused.code, "name": refused.name, "message": str(refused)}
    return dict(client.until("refusal", lambda: client.of("error"), 40)[0]["error"])


@pytest.mark.java
def test_a_full_group_refuses_everyone_else(small: Broker, small_fleet: Fleet) -> None:
    """Two members that join within group.initial.rebalance.delay.ms are in the first generation together. A
    third of any library is rejected: GROUP_MAX_SIZE_REACHED, as far as the library knows it. The two are not
    disturbed, and when one leaves another can join."""
    admin = small_fleet.admin(KAFKA_PYTHON, "admin")
    admin.call("create_topics", topics=[{"name": "small", "partitions": 4}])
    meet_the_coordinator(admin)
    settings: dict[str, Any] = {"group": "small", "topics": ["small"], "session_timeout_ms": 30_000}
    pair = [small_fleet.launch(library, f"one-{library}") for library in (AIOKAFKA, KAFKA_PYTHON)]
    for client in pair:
        client.until("greeting", lambda client=client: client.of("ready"))
    for client, begun in [(client, begin(client, small_fleet, **settings)) for client in pair]:
        client.answer(begun, 40)
    eventually("two and two", lambda: {len(m.holds()) for m in pair} == {2}, 40, among=pair)
    assert [client.call("member")["generation"] for client in pair] == [1, 1]
    moves = [len(client.of("assigned")) for client in pair]

    strangers = [small_fleet.launch(library, f"stranger-{library}") for library in LIBRARIES]
    for stranger, begun in [(client, begin(client, small_fleet, **settings)) for client in strangers]:
        error = refusal(stranger, begun)
        if stranger.library == AIOKAFKA:  # whose table of errors ends before
            assert "UnknownError" in error["message"]
        else:
            assert (error["code"], error["name"]) == (81, "GROUP_MAX_SIZE_REACHED")
    description = admin.call("describe_groups", groups=["small"])["small"]
    assert description["state"] == "Stable"
    assert {member["client_id"] for member in description["members"]} == {client.name for client in pair}
    assert [client.call("member")["generation"] for client in pair] == [1, 1]
    assert [len(client.of("assigned")) for client in pair] == moves
    if small.explains:
        assert [rebalance.generation for rebalance in history(small, "small")] == [1]
    for stranger in strangers:
        stranger.kill()
    first, second = pair
    first.close()
    late = small_fleet.consumer(JAVA, "late", **settings)
    eventually("two and two", lambda: len(late.holds()) == len(second.holds()) == 2, 40, among=[late, second])
    assert shared_holds([*pair, late]) == []
