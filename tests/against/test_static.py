"""Static members (KIP-345): a group.instance.id that is bounced, fenced, removed, mixed with dynamic members,
and brought into a group and out of it while it works."""

from typing import Any

import pytest

from .brokers import Broker
from .clients import Client, Fleet, Partition, Refused, eventually, group_offsets
from .conftest import Admins
from .history import history
from .stories import (
    AIOKAFKA,
    CONFLUENT,
    JAVA,
    KAFKA_PYTHON,
    delivered_by,
    gaps,
    read_again,
    shared_holds,
    steps_back,
)
from .test_data import EACH

LONG_MS = 30_000
"""A session that does not end while a member is bounced."""

FENCED_INSTANCE_ID = 82

COMMIT_ERRORS: dict[str, list[tuple[int | None, str]]] = {
    KAFKA_PYTHON: [(FENCED_INSTANCE_ID, "FENCED_INSTANCE_ID")],
    # These two raise errors of their own once a heartbeat was answered with the error.
    JAVA: [(FENCED_INSTANCE_ID, "FENCED_INSTANCE_ID"), (None, "CommitFailedException")],
    CONFLUENT: [(FENCED_INSTANCE_ID, "FENCED_INSTANCE_ID"), (None, "FATAL")],
}
"""How a library calls the error of its commit."""

Assignment = dict[str | None, set[Partition]]


class Desks:
    """A group whose members may be static; a desk is an instance id."""

    def __init__(self, topic: str, fleet: Fleet, admin: Client, broker: Broker) -> None:
        self.topic = topic
        self.fleet = fleet
        self.admin = admin
        self.broker = broker
        self.members: list[Client] = []

    def sit(self, library: str, name: str, desk: str | None = None, **settings: Any) -> Client:
        settings = {"session_timeout_ms": LONG_MS, "commit": "sync"} | settings
        member = self.fleet.consumer(
            library, name, group=self.topic, topics=[self.topic], instance_id=desk, **settings
        )
        self.members.append(member)
        return member

    def share(self, *members: Client, partitions: int = 4) -> None:
        """Wait until these members hold all partitions, evenly."""
        everything = {(self.topic, partition) for partition in range(partitions)}

        def shared() -> bool:
            holds = [member.holds() for member in members]
            return set().union(*holds) == everything and {len(h) for h in holds} == {
                partitions // len(members)
            }

        eventually("even shares", shared, 30, among=members)

    def describe(self) -> tuple[str, Assignment, dict[str | None, str]]:
        """Return the group's state, and assignments and member ids by instance id."""
        group = self.admin.call("describe_groups", groups=[self.topic])[self.topic]
        has = {m["instance_id"]: {(t, p) for t, p in m["partitions"]} for m in group["members"]}
        return group["state"], has, {m["instance_id"]: m["member_id"] for m in group["members"]}

    def desks(self) -> list[str | None]:
        """The instance ids of the members once the group is stable."""

        def stable() -> list[str | None] | None:
            group = self.admin.call("describe_groups", groups=[self.topic])[self.topic]
            ids = sorted((m["instance_id"] for m in group["members"]), key=str)
            return ids if group["state"] == "Stable" else None

        return eventually("stable group", stable, 20, among=self.members)

    def past(self) -> Any:
        return history(self.broker, self.topic) if self.broker.explains else None

    def rebalances_since(self, past: Any) -> int | None:
        """Return the number of rebalances since then; None where the broker does not record them."""
        return len(history(self.broker, self.topic)) - len(past) if self.broker.explains else None


@pytest.fixture
def desks(topic: str, fleet: Fleet, admins: Admins, broker: Broker) -> Desks:
    return Desks(topic, fleet, admins["kafka-python"], broker)


def generation(member: Client) -> int:
    """Return the generation of a member whose library exposes it."""
    return int(member.call("member")["generation"])


@pytest.mark.parametrize("library", EACH)
def test_a_bounce_within_the_session_keeps_the_generation(library: str, desks: Desks) -> None:
    """A static member that closes does not leave; restarted with a new member id it has its former
    partitions, and no generation changes. This holds for the leader and for followers."""
    bounce(desks, library, "range", KAFKA_PYTHON)


@pytest.mark.parametrize(
    ("assignor", "leader", "library"),
    [
        pytest.param("cooperative-sticky", JAVA, JAVA, marks=pytest.mark.java, id="java"),
        pytest.param("cooperative-sticky", JAVA, CONFLUENT, marks=pytest.mark.java, id="java-and-confluent"),
        pytest.param("sticky", KAFKA_PYTHON, AIOKAFKA, id="kafka-python-and-aiokafka"),
    ],
)
def test_so_it_is_with_sticky_assignors(assignor: str, leader: str, library: str, desks: Desks) -> None:
    """The same where the member sends its former partitions, or would revoke only a part. (kafka-python does
    not lead a cooperative group here: it rejoins after an outdated heartbeat response.)"""
    bounce(desks, library, assignor, leader)


def bounce(desks: Desks, library: str, assignor: str, leader: str) -> None:
    """Close each of two members in turn, and start it again."""
    other = desks.sit(leader, "other", "desk-0", assignor=assignor)
    member = desks.sit(library, "member", "desk-1", assignor=assignor)
    desks.share(other, member)
    before, past = generation(other), desks.past()
    state, has, ids = desks.describe()
    assert state == "Stable"
    moves = len(other.of("revoked"))

    member.close()
    assert desks.describe() == (state, has, ids)
    again = desks.sit(library, "again", "desk-1", assignor=assignor)
    again.until("what it had", lambda: again.holds() == has["desk-1"])
    assert (generation(other), len(other.of("revoked"))) == (before, moves)

    held_by_other = other.holds()
    other.close()
    back = desks.sit(leader, "back", "desk-0", assignor=assignor)
    back.until("what it had", lambda: back.holds() == held_by_other)
    assert generation(back) == before
    state, has_now, ids_now = desks.describe()
    assert (state, has_now) == ("Stable", has)
    assert [desk for desk in has if ids_now[desk] == ids[desk]] == []
    assert desks.past() == past

    records = [{"topic": desks.topic, "partition": p, "key": None, "value": f"v{p}"} for p in range(4)]
    desks.fleet.producer(CONFLUENT).call("send", records=records)
    wanted = {desk: {f"v{partition}" for _, partition in has[desk]} for desk in has}

    def read() -> bool:
        return {"desk-0": set(back.values()), "desk-1": set(again.values())} == wanted

    eventually("records, each by the owner of its partition", read, 20, among=[back, again])


@pytest.mark.parametrize("library", [library for library in EACH if library != AIOKAFKA])
def test_of_two_with_one_instance_id_the_older_is_fenced(library: str, desks: Desks) -> None:
    """The newer member takes over the instance id at once, without a rebalance. The older one's commits are
    rejected: FENCED_INSTANCE_ID, which Java and librdkafka (as a fatal error) raise from poll, kafka-python
    from a commit."""
    other = desks.sit(KAFKA_PYTHON, "other", "desk-0")
    older = desks.sit(library, "older", "desk-1")
    desks.share(other, older)
    before, past = generation(other), desks.past()
    _, has, _ = desks.describe()
    older.call("hold")  # since Java takes the desk back at the next poll after the error
    newer = desks.sit(KAFKA_PYTHON, "newer", "desk-1")
    newer.until("the desk", lambda: newer.holds() == has["desk-1"])
    [*_, mine] = sorted(has["desk-1"])
    newer.call("commit", offsets=[[*mine, 5, "newer"]])
    with pytest.raises(Refused) as refused:
        older.call("commit", offsets=[[*mine, 1, "older"]])
    assert (refused.value.code, refused.value.name) in COMMIT_ERRORS[library]
    assert group_offsets(desks.admin, desks.topic) == [[*mine, 5, "newer"]]
    assert generation(other) == generation(newer) == before
    state, has_now, _ = desks.describe()
    assert (state, has_now) == ("Stable", has)
    assert desks.past() == past
    if library in (JAVA, CONFLUENT):
        older.call("go")
        error = older.until("an error", lambda: older.of("error"))[0]["error"]
        assert error["code"] == (FENCED_INSTANCE_ID if library == JAVA else -150), error
        assert "group.instance.id" in error["message"]


def test_aiokafka_takes_its_desk_back(desks: Desks) -> None:
    """aiokafka sends no instance id in heartbeats, so it gets UNKNOWN_MEMBER_ID instead of being fenced, and
    rejoins: now the newcomer is the older one, and is fenced. The generation stays."""
    other = desks.sit(KAFKA_PYTHON, "other", "desk-0")
    older = desks.sit(AIOKAFKA, "older", "desk-1")
    desks.share(other, older)
    before, past = generation(other), desks.past()
    _, has, ids = desks.describe()
    newer = desks.sit(KAFKA_PYTHON, "newer", "desk-1")
    newer.until("the desk", lambda: newer.holds() == has["desk-1"])
    older.until("the desk again", lambda: len(older.of("assigned")) == 2 and older.holds() == has["desk-1"])
    [*_, mine] = sorted(has["desk-1"])
    with pytest.raises(Refused) as refused:
        newer.call("commit", offsets=[[*mine, 1, ""]])
    assert refused.value.code == FENCED_INSTANCE_ID
    state, has_now, ids_now = desks.describe()
    assert (state, has_now, ids_now["desk-1"]) == ("Stable", has, older.call("member")["member_id"])
    assert ids_now["desk-1"] not in (ids["desk-1"], newer.call("member")["member_id"])
    assert generation(other) == before
    assert desks.past() == past


@pytest.mark.parametrize("library", [pytest.param(JAVA, marks=pytest.mark.java), KAFKA_PYTHON])
def test_a_removal_by_an_admin_is_one_rebalance(library: str, desks: Desks, admins: Admins) -> None:
    """A killed static member is removed by its instance id: the others take over its partitions one
    generation later. A second removal is rejected, and changes nothing."""
    other = desks.sit(CONFLUENT, "other", "desk-0")
    watch = desks.sit(KAFKA_PYTHON, "watch", "desk-2")
    member = desks.sit(AIOKAFKA, "member", "desk-1")
    eventually("shares", lambda: min(len(m.holds()) for m in desks.members) == 1, 30, among=desks.members)
    before, past = generation(watch), desks.past()
    member.kill()
    admin = admins[library]
    admin.call("remove_members", group=desks.topic, instance_ids=["desk-1"], reason="moved out")
    desks.share(other, watch)
    assert desks.desks() == ["desk-0", "desk-2"]
    assert generation(watch) == before + 1
    assert desks.rebalances_since(past) in (1, None)
    with pytest.raises(Refused) as refused:
        admin.call("remove_members", group=desks.topic, instance_ids=["desk-1"], reason="moved out")
    assert refused.value.code == 25  # UNKNOWN_MEMBER_ID
    assert generation(watch) == before + 1


def test_static_and_dynamic_members_side_by_side(desks: Desks, admins: Admins) -> None:
    """A static member's bounce is not noticed; a dynamic one's is two rebalances, one for its leave and one
    for its return. (aiokafka leads, since kafka-python's range forgets a static member that stands behind a
    dynamic one.)"""
    watch = desks.sit(AIOKAFKA, "watch", "desk-0")
    static = desks.sit(KAFKA_PYTHON, "static", "desk-1")
    desks.share(watch, static)
    dynamic = desks.sit(CONFLUENT, "dynamic")
    eventually("shares", lambda: min(len(m.holds()) for m in desks.members) == 1, 30, among=desks.members)
    assert desks.desks() == [None, "desk-0", "desk-1"]
    before, past, held = generation(watch), desks.past(), static.holds()
    static.close()
    again = desks.sit(KAFKA_PYTHON, "again", "desk-1")
    again.until("what it had", lambda: again.holds() == held)
    assert generation(watch) == before
    dynamic.close()
    desks.share(watch, again)
    assert generation(watch) == before + 1
    late = desks.sit(CONFLUENT, "late")
    here = [watch, again, late]
    eventually("shares", lambda: min(len(m.holds()) for m in here) == 1, 30, among=here)
    assert generation(watch) == before + 2
    assert desks.rebalances_since(past) in (2, None)


@pytest.mark.java
def test_desks_are_given_and_taken_while_the_group_works(desks: Desks) -> None:
    """One by one three members are restarted with an instance id, and one by one without it again, as the
    admin removes the one that was closed: nothing is lost, nothing that was committed is read again or taken
    back, and no partition ever has two owners."""
    topic = desks.topic
    desks.admin.call("create_partitions", topic=topic, count=6)
    producer = desks.fleet.producer(CONFLUENT, "producer", idempotence=True)
    producer.call("stream", topic=topic, prefix="v", count=1_000_000, rate_per_s=100)
    libraries = (CONFLUENT, AIOKAFKA, JAVA)
    here = {n: desks.sit(library, f"dynamic-{n}") for n, library in enumerate(libraries)}
    desks.share(*here.values(), partitions=6)
    assert desks.desks() == [None, None, None]
    for n, library in enumerate(libraries):
        here[n].close()
        here[n] = desks.sit(library, f"static-{n}", f"desk-{n}")
        desks.share(*here.values(), partitions=6)
    assert desks.desks() == ["desk-0", "desk-1", "desk-2"]
    for n, library in enumerate(libraries):
        here[n].close()
        desks.admin.call("remove_members", group=topic, instance_ids=[f"desk-{n}"])
        here[n] = desks.sit(library, f"again-{n}")
        desks.share(*here.values(), partitions=6)
    assert desks.desks() == [None, None, None]

    producer.call("settle")
    wanted = set(producer.acked())
    eventually("all values", lambda: wanted <= delivered_by(desks.members), 30, among=desks.members)
    assert producer.of("failed") == []
    assert shared_holds(desks.members) == []
    assert read_again(desks.members) == []
    assert steps_back(desks.members) == []
    assert gaps(desks.members) == []
