"""Members of the consumer protocol join, leave, die and are suspended, alone and beside classic ones;
commits; full groups; assignors.
"""

from pathlib import Path

import pytest

from ..clients import eventually, fleet_of
from ..conftest import Admins, a_broker
from ..history import missing
from .conftest import SETTINGS
from .group import CONFLUENT, JAVA, KAFKA_PYTHON, SESSION_MS, Group, is_refused

EACH = [pytest.param(JAVA, marks=pytest.mark.java), CONFLUENT]
"""Every library that speaks the consumer protocol."""

COMPANIES = [
    pytest.param((JAVA, JAVA, JAVA), marks=pytest.mark.java, id="java"),
    pytest.param((CONFLUENT, CONFLUENT, CONFLUENT), id="confluent"),
    pytest.param((CONFLUENT, JAVA, CONFLUENT), marks=pytest.mark.java, id="mixed"),
]


@pytest.mark.parametrize("libraries", COMPANIES)
def test_one_becomes_three_and_one_again(libraries: tuple[str, ...], group: Group) -> None:
    """One has everything; when two more come at once they have a third each, and when two leave the one that
    is left has everything again, long before any session is over (which here is 45 seconds)."""
    group.has()
    group.is_fed()
    first = group.join(libraries[0], "first")
    group.share(first)
    group.is_read_by(first)
    second, third = group.join_all(libraries[1:], "more")
    group.share(first, second, third)
    group.is_read_by(first, second, third)
    first.close()
    group.share(second, third, within_s=20)
    third.close()
    group.share(second, within_s=20)
    group.keeps()
    assert group.kind() == "Consumer"
    if (past := group.past()) is not None:
        wanted = [("member-joined", c.name) for c in (first, second)]
        wanted += [("member-left", c.name) for c in (first, third)]
        assert missing(past, wanted) == []


@pytest.mark.java
def test_both_protocols_in_one_group(group: Group) -> None:
    """Classic members, eager ones, join a consumer group and are served as they have always been; each
    member's leave gives the others its share."""
    group.has()
    group.is_fed()
    first = group.join(JAVA, "first")
    group.share(first)
    classic = group.join(KAFKA_PYTHON, "classic", protocol="classic", assignor="range")
    group.share(first, classic)
    more = group.join(CONFLUENT, "more")
    group.share(first, classic, more)
    description = group.settled(3)
    assert description["type"] == "Consumer"
    assert {row["client_id"]: row["upgraded"] for row in description["members"]} == {
        first.name: True,
        classic.name: False,
        more.name: True,
    }
    classic.close()
    group.share(first, more)
    first.close()
    group.share(more)
    group.keeps()


@pytest.mark.parametrize("library", EACH)
def test_a_killed_member_is_missed_when_its_session_is_over(library: str, group: Group) -> None:
    """A killed member sends no leave: the others take over its partitions after the group's session timeout,
    not before."""
    group.has()
    group.expires_soon()
    group.is_fed()
    stays, dies = group.join_all((CONFLUENT, library), "member")
    group.share(stays, dies)
    group.is_read_by(stays, dies)
    dies.kill()
    group.share(stays)
    killed_ns = dies.ended_ns
    assert killed_ns is not None
    took_ms = (stays.of("assigned")[-1]["at"] - killed_ns) / 1e6
    assert took_ms > SESSION_MS - 1000  # its last heartbeat is up to an interval older than its death
    group.keeps()
    if (past := group.past()) is not None:
        assert missing(past, [("session-expired", dies.name)]) == []


@pytest.mark.parametrize("library", EACH)
def test_a_member_that_sleeps_through_its_session_comes_back(library: str, group: Group) -> None:
    """Stopped for longer than its session it loses everything; continued, it learns that it is lost, joins
    again and has its share, and its old commits change nothing."""
    group.has()
    group.expires_soon()
    group.is_fed()
    awake, sleeper = group.join_all((CONFLUENT, library), "member")
    group.share(awake, sleeper)
    group.is_read_by(awake, sleeper)
    sleeper.sleep()
    group.share(awake)
    group.is_read_by(awake)
    before = group.committed()
    sleeper.wake()
    sleeper.until("the news that it has lost all", lambda: sleeper.of("lost"))
    group.share(awake, sleeper)
    group.is_read_by(awake, sleeper)
    assert {p: o for p, o in before.items() if group.committed()[p] < o} == {}
    group.keeps(except_times_of=(sleeper,))


@pytest.mark.parametrize("library", EACH)
def test_who_unsubscribes_has_left(library: str, group: Group) -> None:
    """Its process lives on without being a member, the other has everything at once; and when it subscribes
    again it is a member again."""
    group.has()
    group.is_fed()
    stays, goes = group.join_all((CONFLUENT, library), "member")
    group.share(stays, goes)
    goes.call("unsubscribe")
    group.share(stays, within_s=20)
    assert goes.process.poll() is None
    assert goes.holds() == set()
    goes.call("subscribe", topics=[group.topic])
    group.share(stays, goes)
    group.is_read_by(stays, goes)
    group.keeps()


@pytest.mark.parametrize("commit", ["async", "auto"])
@pytest.mark.parametrize("library", EACH)
def test_asynchronous_and_automatic_commits(library: str, commit: str, group: Group) -> None:
    """Asynchronous and automatic commits arrive while the group rebalances, never go back, and in the end
    are the ends of the logs."""
    group.has()
    group.is_fed()
    first = group.join(library, "first", commit=commit)
    group.share(first)
    group.is_read_by(first)
    second = group.join(library, "second", commit=commit)
    group.share(first, second)
    group.is_read_by(first, second)
    before = group.committed()
    first.close()
    group.share(second, within_s=20)
    assert {p: o for p, o in before.items() if group.committed()[p] < o} == {}
    if commit == "async":
        group.keeps()
    else:
        group.all_is_read()
    eventually("commits of everything", lambda: group.committed() == group.ends(), 20, among=[second])


@pytest.mark.parametrize("library", EACH)
def test_a_full_group_refuses_one_more(library: str, tmp_path: Path) -> None:
    """GROUP_MAX_SIZE_REACHED (81), which is fatal; who is there is not disturbed, and when one leaves there
    is room again."""
    broker = a_broker(tmp_path / "broker", SETTINGS | {"group.consumer.max.size": "2"})
    broker.start()
    try:
        with fleet_of(broker.bootstrap, tmp_path / "clients") as fleet:
            group = Group("full", fleet, Admins(fleet), broker)
            group.has()
            first, second = group.join_all((CONFLUENT, library), "member")
            group.share(first, second)
            moves = len(first.of("assigned")), len(second.of("assigned"))
            third = group.join(library, "third")
            is_refused(third, 81, "Consumer group has reached maximum size")
            assert (len(first.of("assigned")), len(second.of("assigned"))) == moves
            second.close()
            group.share(first)
            fourth = group.join(library, "fourth")
            group.share(first, fourth)
    finally:
        broker.kill9()


@pytest.mark.parametrize("library", EACH)
def test_the_range_assignor_of_the_server(library: str, group: Group) -> None:
    """Requested by its members, the range assignor gives each member the same range of each topic."""
    other = f"{group.topic}-other"
    group.has()
    group.has(topic=other)
    group.is_fed()
    members = group.join_all((library, CONFLUENT), "member", remote_assignor="range")

    def stretches() -> bool:
        wanted = [{(t, p) for t in (group.topic, other) for p in half} for half in (range(3), range(3, 6))]
        return sorted(map(sorted, (m.holds() for m in members))) == sorted(map(sorted, wanted))

    eventually("the same half of both topics for each", stretches, 30, among=members)
    described = group.admins[CONFLUENT].call("describe_groups", groups=[group.name])[group.name]
    assert (described["state"], described["assignor"]) == ("Stable", "range")
    group.keeps()


@pytest.mark.parametrize("library", EACH)
def test_an_unknown_assignor_is_refused(library: str, group: Group) -> None:
    """A member that requests an unknown assignor gets UNSUPPORTED_ASSIGNOR (112), while the others go on."""
    group.has()
    member = group.join(CONFLUENT, "member")
    group.share(member)
    moves = len(member.of("assigned"))
    stranger = group.join(library, "stranger", remote_assignor="whatever")
    is_refused(stranger, 112, "assignor")
    assert len(member.of("assigned")) == moves
