"""Groups of other protocol types than consumers: to the broker a protocol is a name, and all that members
exchange are bytes.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .brokers import Broker
from .clients import Fleet, Refused, eventually
from .conftest import Admins
from .raw import Described, Raw

MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, INCONSISTENT_GROUP_PROTOCOL = 79, 27, 23
GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, UNKNOWN_MEMBER_ID = 69, 68, 25

WORKER = b"\x00\x01http://worker:8083/\xff\xfe\x00"
"""No consumer's subscription, and no text."""

REGISTRY = b'{"version":1,"host":"registry","port":8081,"master_eligibility":true}'

Join = Callable[[str], Raw]


@pytest.fixture
def member(broker: Broker, admins: Admins) -> Iterator[Join]:
    """Makes a connection for a member of the named group; all are closed at the end."""
    assert admins["kafka-python"]  # which waits for the coordinator
    with ExitStack() as opened:
        yield lambda group: opened.enter_context(Raw(broker.port, group))


def admit(raw: Raw, kind: str, protocols: dict[str, bytes]) -> None:
    """A newcomer's two JoinGroups, the second of which waits for the others."""
    raw.send_join(kind, protocols)
    first = raw.joined()
    assert (first.error, first.generation, first.members) == (MEMBER_ID_REQUIRED, -1, {})
    assert first.member_id
    raw.send_join(kind, protocols)


def must_rejoin(raw: Raw) -> None:
    """By a heartbeat, soon: what another connection has just sent may be read a little later."""
    eventually("rebalance", lambda: raw.heartbeat() == REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize(
    ("kind", "first", "second", "alone", "together"),
    [
        pytest.param("connect", ["default"], ["default"], "default", "default", id="connect-eager"),
        pytest.param(
            "connect",
            ["sessioned", "compatible", "default"],
            ["compatible", "default"],
            "sessioned",
            "compatible",
            id="connect-compatible",
        ),
        pytest.param(
            "connect",
            ["sessioned", "compatible", "default"],
            ["sessioned", "compatible", "default"],
            "sessioned",
            "sessioned",
            id="connect-sessioned",
        ),
        pytest.param("sr", ["v0"], ["v0"], "v0", "v0", id="schema-registry"),
    ],
)
def test_a_group_of_another_kind(
    kind: str,
    first: list[str],
    second: list[str],
    alone: str,
    together: str,
    member: Join,
    request: pytest.FixtureRequest,
    admins: Admins,
) -> None:
    """Two members join, receive each other's metadata and assignments byte by byte in the preferred protocol
    that both support, and leave again; the group is described and listed with its own type throughout."""
    group = f"others-{request.node.callspec.id}"
    metadata = REGISTRY if kind == "sr" else WORKER
    mine = {name: metadata + name.encode() for name in first}
    yours = {name: metadata + name.encode() + b"2" for name in second}
    one, two = member(group), member(group)

    admit(one, kind, mine)
    joined = one.joined()
    assert (joined.error, joined.generation, joined.protocol) == (0, 1, alone)
    assert (joined.leader, joined.members) == (one.member_id, {one.member_id: mine[alone]})
    one.send_sync({one.member_id: b"\x00\x00all\xff"})
    assert one.synced() == (0, b"\x00\x00all\xff")
    assert one.heartbeat() == 0

    admit(two, kind, yours)
    must_rejoin(one)
    one.send_join(kind, mine)
    led, followed = one.joined(), two.joined()
    assert (led.error, led.generation, led.protocol, led.leader) == (0, 2, together, one.member_id)
    assert led.members == {one.member_id: mine[together], two.member_id: yours[together]}
    assert (followed.error, followed.generation, followed.protocol) == (0, 2, together)
    assert (followed.leader, followed.members) == (one.member_id, {})
    two.send_sync({})
    one.send_sync({one.member_id: b"\x01half", two.member_id: b""})
    assert (one.synced(), two.synced()) == ((0, b"\x01half"), (0, b""))
    assert one.describe() == Described(
        0,
        "Stable",
        kind,
        together,
        {one.member_id: (mine[together], b"\x01half"), two.member_id: (yours[together], b"")},
    )
    assert one.listed() == kind
    description = {row["group"]: row for row in admins["kafka-python"].call("list_groups")}[group]
    assert (description["protocol_type"], description["state"], description["type"].lower()) == (
        kind,
        "Stable",
        "classic",
    )

    assert two.leave() == (0, [0])
    must_rejoin(one)
    assert one.delete() == NON_EMPTY_GROUP
    one.send_join(kind, mine)
    assert (one.joined().generation, one.describe().state) == (3, "CompletingRebalance")
    assert one.leave() == (0, [0])
    assert one.leave() == (0, [UNKNOWN_MEMBER_ID])
    assert one.describe() == Described(0, "Empty", kind, "", {})
    assert one.listed() == kind
    assert one.delete() == 0
    assert one.delete() == GROUP_ID_NOT_FOUND
    assert one.describe() == Described(0, "Dead", "", "", {})
    assert one.listed() is None


def test_no_consumer_comes_into_a_group_of_workers(member: Join, fleet: Fleet, topic: str) -> None:
    """INCONSISTENT_GROUP_PROTOCOL for a consumer, and for a worker that speaks another protocol; the group
    does not notice."""
    worker = member(topic)
    admit(worker, "connect", {"default": WORKER})
    assert worker.joined().error == 0
    worker.send_sync({worker.member_id: b"all"})
    assert worker.synced() == (0, b"all")
    consumer = fleet.consumer("kafka-python", "consumer", group=topic, topics=[topic])
    error = consumer.until("refusal", lambda: consumer.of("error"))[0]["error"]
    assert error["code"] == INCONSISTENT_GROUP_PROTOCOL
    stranger = member(topic)
    stranger.send_join("connect", {"sessioned": WORKER})
    assert stranger.joined().error == INCONSISTENT_GROUP_PROTOCOL
    assert worker.heartbeat() == 0
    assert worker.describe() == Described(
        0, "Stable", "connect", "default", {worker.member_id: (WORKER, b"all")}
    )


@pytest.mark.java
def test_javas_admin_sees_what_kind_a_group_is(member: Join, admins: Admins) -> None:
    """describeClassicGroups describes a group of workers, describeConsumerGroups fails."""
    group = "others-of-java"
    worker = member(group)
    admit(worker, "connect", {"compatible": WORKER})
    assert worker.joined().error == 0
    worker.send_sync({worker.member_id: b"all"})
    assert worker.synced() == (0, b"all")
    admin = admins["java"]
    listed = {row["group"]: row for row in admin.call("list_groups")}[group]
    assert listed == {"group": group, "protocol_type": "connect", "state": "Stable", "type": "Classic"}
    description = admin.call("describe_classic_groups", groups=[group])[group]
    assert (description["state"], description["assignor"]) == ("Stable", "compatible")
    assert [(m["member_id"], m["client_id"], m["partitions"]) for m in description["members"]] == [
        (worker.member_id, "raw", [])
    ]
    with pytest.raises(Refused) as refused:
        admin.call("describe_groups", groups=[group])
    assert "connect" in str(refused.value)
