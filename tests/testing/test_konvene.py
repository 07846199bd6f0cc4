"""`Konvene`: starting and stopping, topics and records, and the snapshots of groups."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tests.testing.wire import RawMember, committed, talk

from konvene.broker.net.endpoint import PLAINTEXT_ENDPOINT
from konvene.client import Cluster, Connection, Consumer, KafkaError
from konvene.client.admin.groups import CommittedOffset
from konvene.client.membership.state_machine import MembershipSettings
from konvene.client.streams.membership import StreamsMembership
from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.testing import Konvene, Record, TasksView, broker
from konvene.testing.fault_proxy import FaultProxy
from konvene.testing.node import Node


def test_broker_context_manager_starts_and_stops() -> None:
    """The topics exist inside the block; after it the port is closed."""
    with broker({"auto.create.topics.enable": False}, {"orders": 3}) as konvene:
        assert konvene.topics() == {"orders": 3}
        assert konvene.with_broker(lambda b: b.settings.config["auto.create.topics.enable"]) is False
        port = konvene.port
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 1):
        pass
    assert not konvene.running


def test_produce_rejects_a_single_value(konvene: Konvene) -> None:
    """Its characters would become records."""
    with pytest.raises(TypeError, match=r"for one record: \['hello'\]"):
        konvene.produce("orders", "hello")


def test_produce_records_and_consume(konvene: Konvene) -> None:
    """Text and bytes, by key, by partition or round-robin; `consume` waits for the requested count."""
    konvene.create_topic("orders", partitions=2, configs={"retention.ms": 60_000})
    konvene.produce("orders", ["a", b"b"])
    konvene.produce("orders", ["c"], partition=1)
    konvene.produce("orders", [None], key="k")
    found = konvene.records("orders")
    assert len(found) == 4
    assert [r.value for r in found if r.partition == 1 and r.key is None][-1] == b"c"
    assert [r.value for r in found if r.key == b"k"] == [None]
    assert {r.value for r in konvene.consume("orders", 4)} == {b"a", b"b", b"c", None}
    with pytest.raises(TimeoutError, match=r"orders has 4 records after 0.05 s, not 5"):
        konvene.consume("orders", 5, timeout=0.05)
    with pytest.raises(KafkaError) as error:
        konvene.create_topic("orders")
    assert error.value.code == Errors.TOPIC_ALREADY_EXISTS
    konvene.delete_topic("orders")
    assert konvene.topics() == {}


def test_produce_writes_keys_headers_timestamps_and_partitions(konvene: Konvene) -> None:
    """Those of a record override those of the call; a pair is a key and a value."""
    konvene.create_topic("orders", partitions=3)
    headers = {"trace": "7", "raw": b"\x00", "none": None}
    made = konvene.produce(
        "orders",
        [
            "plain",
            ("k", "pair"),
            Record("full", key=b"own", headers=headers, timestamp_ms=1_700_000_000_000, partition=0),
            Record(None, headers=[("twice", "1"), ("twice", "2")]),
        ],
        key="default",
        partition=2,
    )
    assert [each.partition for each in made] == [2, 2, 0, 2]
    full, plain, pair, last = konvene.records("orders")
    assert (full.key, full.value, full.timestamp) == (b"own", b"full", 1_700_000_000_000)
    assert full.headers == (("trace", b"7"), ("raw", b"\x00"), ("none", None))
    assert [(r.key, r.value) for r in (plain, pair)] == [(b"default", b"plain"), (b"k", b"pair")]
    assert (last.key, last.value) == (b"default", None)
    assert last.headers == (("twice", b"1"), ("twice", b"2"))
    assert len({each.partition for each in konvene.produce("orders", ["a", Record("b"), "c"])}) == 3
    with pytest.raises(TypeError, match="pairs of key and value"):
        konvene.produce("orders", [("a", "b", "c")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="for one record"):
        konvene.produce("orders", Record("a"))  # type: ignore[arg-type]


@pytest.mark.konvene(topics={"orders": 2})
def test_commit_creates_an_empty_group(konvene: Konvene) -> None:
    """A consumer of the group continues at the committed offsets; later commits are rejected."""
    konvene.produce("orders", ["a", "b", "c"], partition=0)
    konvene.commit("readers", {("orders", 0): 2, ("orders", 1): CommittedOffset(0, -1, "by a test")})
    group = konvene.group("readers")
    assert (group.state, group.members) == ("Empty", ())
    assert group.offsets == {"orders": {0: 2, 1: 0}}
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        konvene.commit("readers", {("letters", 0): 1})

    async def read() -> None:
        async with Cluster(konvene.bootstrap) as cluster, Consumer(cluster, "readers") as consumer:
            consumer.subscribe(["orders"])
            read: list[bytes | None] = []
            while not read:
                read += [record.value for record in await consumer.poll()]
            assert read == [b"c"]
            with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
                await asyncio.to_thread(konvene.commit, "readers", {("orders", 0): 0})

    asyncio.run(read())
    assert konvene.group("readers").offsets["orders"][0] == 3


@pytest.mark.konvene(topics={"orders": 1})
@pytest.mark.parametrize("how", ["stop", "kill", "power cut"])
def test_data_and_port_survive_a_restart(konvene: Konvene, how: str) -> None:
    """A power cut loses records that were not synced, as in Kafka; a stop or a kill loses none."""
    port = konvene.port
    konvene.produce("orders", ["one"])
    talk(konvene, lambda c: committed(c, 5))  # type: ignore[arg-type,return-value]
    konvene.stop() if how == "stop" else konvene.kill(power_cut=how == "power cut")
    assert not konvene.running
    with pytest.raises(RuntimeError, match="the broker is stopped"):
        konvene.records("orders")
    konvene.start()
    konvene.start()  # No effect on a running broker.
    assert (konvene.port, konvene.topics()) == (port, {"orders": 1})
    assert konvene.group("g").offsets == {"orders": {0: 5}}
    assert len(konvene.records("orders")) == (0 if how == "power cut" else 1)


class AcceptedTransport(asyncio.Transport):
    """A transport that only records whether it was aborted."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_killed_broker_serves_no_connection_that_it_accepted_before(konvene: Konvene) -> None:
    """What it would acknowledge there is lost: the next start has the data as of the kill."""

    async def accepted(node: Node) -> FaultProxy:
        return node._accept(PLAINTEXT_ENDPOINT)

    proxy, transport = konvene._run_on_loop(accepted), AcceptedTransport()
    konvene.kill()
    proxy.connection_made(transport)
    proxy.connection_lost(None)
    assert transport.aborted


@pytest.mark.konvene(folder=True, topics={"orders": 1})
@pytest.mark.parametrize("kill", [False, True])
def test_folder_keeps_the_data_in_kafka_files(konvene: Konvene, tmp_path: Path, kill: bool) -> None:
    """The segments are in the given folder; a power cut needs data in memory."""
    konvene.produce("orders", ["one"])
    konvene.restart(kill=kill)
    assert [r.value for r in konvene.records("orders")] == [b"one"]
    assert (tmp_path / "konvene" / "orders-0" / "00000000000000000000.log").stat().st_size > 0
    with pytest.raises(ValueError, match="power_cut needs a broker with its data in memory"):
        konvene.kill(power_cut=True)


@pytest.mark.konvene(topics={"orders": 2})
def test_classic_group_view(konvene: Konvene) -> None:
    """State, generation, assignments and committed offsets."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann, instance="a")
        await member.join()
        group = konvene.group("g")
        assert await committed(ann, 7, generation_id_or_member_epoch=1, member_id=member.member_id) == 0
        assert (group.state, group.generation, group.protocol) == ("Stable", 1, "range")
        assert group.member("a") == group.member(1) == group.member("ann") == group.member(member.member_id)
        assert group.member("a").assignment == {"orders": (0,)}
        assert str(konvene.group("g")) == (
            "group g is Stable in generation 1 with 1 member\n"
            f"  1. a = {member.member_id} (client ann at /127.0.0.1) owns orders:0\n"
            "  committed: orders-0 at 7"
        )
        with pytest.raises(LookupError, match="0 members match 'bob'"):
            group.member("bob")

    talk(konvene, work)
    assert konvene.group("unknown").state == "Dead"
    (rebalance,) = konvene.rebalances("g")
    assert (rebalance.generation, rebalance.causes, rebalance.cause_clients) == (
        1,
        ("member-joined",),
        ("ann",),
    )
    konvene.stop()
    assert konvene.rebalances() == [rebalance]


@pytest.mark.konvene(topics={"orders": 2}, settings={"group.consumer.assignment.interval.ms": 0})
def test_consumer_group_view(konvene: Konvene) -> None:
    """Epoch as generation, assignor as protocol; partitions pending revocation are owned.

    Each epoch is one rebalance, whether it has completed or not."""

    async def work(ann: Connection) -> None:
        for member in ("m1", "m2"):
            await ann.send(joining(member), 1)
        await ann.send(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=2), 1)

    talk(konvene, work)
    group = konvene.group("g")
    assert (group.state, group.generation, group.protocol) == ("Reconciling", 3, "uniform")
    assert [m.assignment for m in group.members] == [{"orders": (0, 1)}, {}]
    first, second = konvene.rebalances("g")
    assert (first.generation, first.state, first.causes, len(first.members)) == (
        2,
        "Stable",
        ("member-joined",),
        1,
    )
    assert first.duration_ms is not None and first.summary.startswith("epoch 2 is Stable with 1 member")
    assert (second.generation, second.state, second.causes) == (3, "Assigning", ("member-joined",))
    assert (second.duration_ms, second.members) == (None, ())


@pytest.mark.konvene(topics={"orders": 2}, settings={"group.streams.assignment.interval.ms": 0})
def test_streams_group_view(konvene: Konvene) -> None:
    """Tasks by role and source partitions of active tasks; tasks pending revocation are owned."""
    topology = Topology(
        (
            Subtopology("0", ("orders",), ("g-by-repartition",)),
            Subtopology("1", repartition_source_topics=(InternalTopic("g-by-repartition", 1),)),
        ),
        epoch=4,
    )

    async def work() -> None:
        ann, bob = (
            StreamsMembership(
                "g", each, topology, MembershipSettings(instance_id=f"i-{each}"), process_id=f"p-{each}"
            )
            for each in ("ann", "bob")
        )
        connection = await Connection.open("127.0.0.1", konvene.port, client_id="c")

        async def beat(member: StreamsMembership) -> None:
            member.handle_response(await connection.send(member.request(0), 1), 0)

        def settle(member: StreamsMembership) -> None:
            assert member.confirm_owned(member.incarnation, member.target_version, member.target)

        async with asyncio.timeout(20):
            while len(ann.target.active) < 3:  # Until the internal topic exists.
                await beat(ann)
                settle(ann)
        await beat(ann)
        (view,) = konvene.group("g").members
        assert view.tasks == TasksView(active=("0_0", "0_1", "1_0"))
        assert view.assignment == {"g-by-repartition": (0,), "orders": (0, 1)}
        assert str(view) == "i-ann = ann (client c at /127.0.0.1) owns active 0_0,0_1,1_0"
        await beat(bob)
        await beat(ann)
        group = konvene.group("g")
        assert (group.state, group.protocol, group.topology_epoch) == ("Reconciling", "sticky", 4)
        assert [m.process_id for m in group.members] == ["p-ann", "p-bob"]
        assert group.member("i-ann").tasks == view.tasks
        assert group.member("bob").tasks == TasksView()
        settle(ann)
        await beat(ann)
        await beat(bob)
        found = [m.tasks for m in konvene.group("g").members]
        assert sorted(task for each in found if each for task in each.active) == ["0_0", "0_1", "1_0"]
        assert konvene.group("g").state == "Stable"
        connection.close()

    asyncio.run(work())
    assert konvene.wait_stable("g", 2, timeout=1).members[1].instance_id == "i-bob"
    epochs = [row.generation for row in konvene.rebalances("g")]
    assert epochs == sorted(set(epochs)) and konvene.rebalances("g")[-1].state == "Stable"


def joining(member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )


def test_wait_stable_timeout_describes_the_group(konvene: Konvene) -> None:
    """The error has the group's state and its last rebalances."""

    async def work(ann: Connection) -> None:
        await RawMember(ann).join()
        with pytest.raises(TimeoutError) as error:
            konvene.wait_stable("g", 2, timeout=0.05)
        message = str(error.value)
        assert message.startswith("group g is not Stable with 2 members within 0.05 s; group g is Stable in")
        assert "member-joined: ann-" in message

    konvene.create_topic("orders")
    talk(konvene, work)


@pytest.mark.konvene(topics={"orders": 1})
def test_clean_removes_topics_groups_and_faults(konvene: Konvene) -> None:
    """Internal topics stay."""

    async def work(ann: Connection) -> None:
        await RawMember(ann).join()
        konvene.faults.lose_request("Heartbeat")
        konvene.clean()
        assert konvene.group("g").state in ("Dead", "Empty")

    talk(konvene, work)
    assert konvene.topics() == {}
    assert (konvene.faults.armed, konvene.faults.log) == ((), [])
