"""Faults on messages: what the broker processes, what the client receives, and that order is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.testing.wire import COMMIT_VERSION, RawMember, commit, committed, connect, talk

from konvene.client import ClientError, ClientSettings, Cluster, Connection, Producer
from konvene.client.errors import ConnectionLost, RequestTimedOut
from konvene.codec.batches import build_simple
from konvene.errors import Errors
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.testing import Fault, Konvene

pytestmark = pytest.mark.konvene(topics={"orders": 2, "letters": 1})

NO_RESPONSE_MS = 100
"""Time that a test waits for a response that must not come."""


def offset_of(konvene: Konvene, group: str = "g", topic: str = "orders") -> int | None:
    """Return the committed offset of partition 0."""
    return konvene.group(group).offsets.get(topic, {}).get(0)


def test_lost_request_never_reaches_the_broker(konvene: Konvene) -> None:
    """The connection is closed and nothing is committed; the next connection works."""
    fault = konvene.faults.lose_request("OffsetCommit")

    async def work(connection: Connection) -> None:
        with pytest.raises(ConnectionLost):
            await committed(connection, 5)
        assert offset_of(konvene) is None
        again = await connect(konvene)
        assert await committed(again, 6) == 0
        again.close()

    talk(konvene, work)
    assert offset_of(konvene) == 6
    assert (fault.applied, fault.armed) == (1, False)


def test_lost_response_leaves_the_request_processed(konvene: Konvene) -> None:
    """The client sees only the closed connection; the commit is stored."""
    konvene.faults.lose_response("OffsetCommit")

    async def work(connection: Connection) -> None:
        with pytest.raises(ConnectionLost):
            await committed(connection, 5)

    talk(konvene, work)
    assert offset_of(konvene) == 5


@pytest.mark.parametrize("direction", ["request", "response"])
def test_connection_stays_open_after_a_loss(konvene: Konvene, direction: str) -> None:
    """connection="stays": one message is missing, later requests on the connection are answered."""
    lose = konvene.faults.lose_request if direction == "request" else konvene.faults.lose_response
    lose("OffsetCommit", connection="stays", group="g")

    async def work(connection: Connection) -> None:
        missing = connection.post(commit(5), COMMIT_VERSION)
        assert await committed(connection, 7, group="other") == 0
        assert not missing.done()
        missing.cancel()

    talk(konvene, work)
    assert offset_of(konvene) == (None if direction == "request" else 5)
    assert offset_of(konvene, "other") == 7


@pytest.mark.parametrize("direction", ["request", "response"])
def test_connection_falls_silent_after_a_loss(konvene: Konvene, direction: str) -> None:
    """connection="silent": all later messages of that direction are lost."""
    lose = konvene.faults.lose_request if direction == "request" else konvene.faults.lose_response
    lose("OffsetCommit", connection="silent", group="g")

    async def work(connection: Connection) -> None:
        connection.post(commit(5), COMMIT_VERSION).add_done_callback(lambda done: done.exception())
        with pytest.raises(RequestTimedOut):
            await connection.send(commit(7, group="other"), COMMIT_VERSION, timeout_ms=NO_RESPONSE_MS)

    talk(konvene, work)
    assert offset_of(konvene, "other") == (None if direction == "request" else 7)


@pytest.mark.parametrize("direction", ["request", "response"])
def test_held_message_blocks_later_ones_of_its_connection(konvene: Konvene, direction: Any) -> None:
    """Other connections are not blocked; the order is kept on release."""
    fault = konvene.faults.hold("OffsetCommit", direction=direction, group="g")

    async def work(connection: Connection) -> None:
        order: list[str] = []
        held = connection.post(commit(5), COMMIT_VERSION)
        held.add_done_callback(lambda _: order.append("held"))
        behind = connection.post(commit(6, group="other"), COMMIT_VERSION)
        behind.add_done_callback(lambda _: order.append("behind"))
        beside = await connect(konvene, "bob")
        assert await committed(beside, 1, group="beside") == 0
        beside.close()
        fault.wait()
        assert not held.done()
        assert not behind.done()
        assert offset_of(konvene) == (None if direction == "request" else 5)
        fault.release()
        await asyncio.wait_for(asyncio.gather(held, behind), 10)
        assert order == ["held", "behind"]

    talk(konvene, work)
    assert offset_of(konvene) == 5


@pytest.mark.parametrize("direction", ["request", "response"])
def test_delayed_message_keeps_its_order(konvene: Konvene, direction: Any) -> None:
    """A delayed request is answered before the requests sent after it."""
    fault = konvene.faults.delay("OffsetCommit", ms=50, direction=direction)

    async def work(connection: Connection) -> None:
        first = connection.post(commit(5), COMMIT_VERSION)
        assert await committed(connection, 6) == 0
        assert first.done()

    talk(konvene, work)
    assert (fault.applied, offset_of(konvene)) == (1, 6)


def test_duplicated_request_is_answered_once(konvene: Konvene) -> None:
    """The broker appends the records twice; the client receives one response."""
    konvene.faults.duplicate("Produce", topic="letters")

    async def work() -> None:
        ann = ClientSettings(client_id="ann")
        async with Cluster(konvene.bootstrap, ann) as cluster, Producer(cluster) as producer:
            first = await (await producer.send("letters", b"a"))
            second = await (await producer.send("letters", b"b"))
        assert (first.offset, second.offset) == (0, 2)

    asyncio.run(work())
    assert [record.value for record in konvene.records("letters")] == [b"a", b"a", b"b"]


@pytest.mark.parametrize("at_byte", [0, 3, 9, 20])
@pytest.mark.parametrize("direction", ["request", "response"])
def test_connection_is_cut_within_a_frame(konvene: Konvene, direction: Any, at_byte: int) -> None:
    """The broker ignores a torn request; the request of a torn response was processed."""
    konvene.faults.cut("OffsetCommit", at_byte=at_byte, direction=direction)

    async def work(connection: Connection) -> None:
        with pytest.raises(ConnectionLost):
            await committed(connection, 5)
        assert offset_of(konvene) == (None if direction == "request" else 5)

    talk(konvene, work)
    talk(konvene, lambda connection: committed(connection, 6))  # type: ignore[arg-type,return-value]
    assert offset_of(konvene) == 6


def test_answer_replaces_the_brokers_response(konvene: Konvene) -> None:
    """The error is given by name or code; the broker does not receive the request, and order is kept."""
    konvene.faults.answer("OffsetCommit", "REBALANCE_IN_PROGRESS", nth=2)
    konvene.faults.answer("heartbeat", 25)

    async def work(connection: Connection) -> None:
        posted = [connection.post(commit(n), COMMIT_VERSION) for n in (5, 6, 7)]
        responses = await asyncio.gather(*posted)
        codes = [a.topics[0].partitions[0].error_code for a in responses]
        assert codes == [0, Errors.REBALANCE_IN_PROGRESS, 0]
        assert await RawMember(connection, "unknown").heartbeat() == Errors.UNKNOWN_MEMBER_ID

    talk(konvene, work)
    assert offset_of(konvene) == 7
    assert len(konvene.faults.log) == 2


@pytest.mark.parametrize("direction", ["both", "to the broker", "from the broker"])
def test_partition_cuts_a_client_off_until_cancelled(konvene: Konvene, direction: Any) -> None:
    """Messages of the client are lost on old and new connections; other clients are unaffected."""

    async def work(connection: Connection) -> None:
        cut = konvene.faults.partition("ann", direction=direction)
        with pytest.raises(RequestTimedOut):
            await connection.send(commit(5), COMMIT_VERSION, timeout_ms=NO_RESPONSE_MS)
        assert offset_of(konvene) == (5 if direction == "from the broker" else None)
        with pytest.raises(ClientError):
            await Connection.open(
                "127.0.0.1", konvene.port, client_id="ann", connect_timeout_ms=NO_RESPONSE_MS
            )
        bob = await connect(konvene, "bob")
        assert await committed(bob, 6, group="other") == 0
        bob.close()
        for fault in cut:
            fault.cancel()
        back = await connect(konvene)
        assert await committed(back, 7) == 0
        back.close()

    talk(konvene, work)
    assert offset_of(konvene) == 7


def test_large_frames_pass_unchanged(konvene: Konvene) -> None:
    """A batch received in many pieces arrives unchanged, even if it was held."""
    fault = konvene.faults.hold("Produce")
    values = [bytes([n]) * 400_000 for n in range(2)]

    async def work() -> None:
        ann = ClientSettings(client_id="ann")
        async with Cluster(konvene.bootstrap, ann) as cluster, Producer(cluster) as producer:
            sent = [await producer.send("letters", value) for value in values]
            await asyncio.to_thread(fault.wait)
            fault.release()
            await asyncio.gather(*sent)

    asyncio.run(work())
    assert [record.value for record in konvene.records("letters")] == values


# --- selecting messages and limiting faults -------------------------------------------------------------


def reject_commits(konvene: Konvene, **match: Any) -> Fault:
    return konvene.faults.answer("OffsetCommit", "NOT_COORDINATOR", **match)


def test_fault_matches_group_topic_and_client(konvene: Konvene) -> None:
    """A message matches only if it matches all keywords."""
    reject_commits(konvene, group="g", topic="letters", client="bob", times=None)

    async def work(ann: Connection) -> None:
        bob = await connect(konvene, "bob")
        assert await committed(ann, 1, topic="letters") == 0
        assert await committed(bob, 1, topic="orders") == 0
        assert await committed(bob, 1, topic="letters", group="h") == 0
        assert await committed(bob, 1, topic="letters") == Errors.NOT_COORDINATOR
        bob.close()

    talk(konvene, work)


def test_topic_names_match_requests_with_topic_ids(konvene: Konvene) -> None:
    """A rule has the topic's name, a newer request its id."""
    konvene.faults.answer("Metadata", "LEADER_NOT_AVAILABLE", topic="letters")
    topic_id = konvene.with_broker(lambda broker: broker.catalogue.topics.by_name["letters"].id)

    async def work(connection: Connection) -> None:
        request = MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic_id, name=None),))
        response = await connection.send(request)
        assert response.topics[0].error_code == Errors.LEADER_NOT_AVAILABLE

    talk(konvene, work)


def test_fault_matches_members_by_position_and_name(konvene: Konvene) -> None:
    """By position, member id, instance id, client id and generation."""

    async def work(ann: Connection) -> None:
        bob = await connect(konvene, "bob")
        first, second = RawMember(ann, instance="a"), RawMember(bob, instance="b")
        await asyncio.gather(first.join(), second.join())
        members = konvene.group("g").members
        assert {m.client_id for m in members} == {"ann", "bob"}
        by_position = [first, second] if members[0].client_id == "ann" else [second, first]
        for name in (2, by_position[1].member_id, by_position[1].instance, members[1].client_id):
            konvene.faults.answer("Heartbeat", "UNKNOWN_MEMBER_ID", member=name, group="g")  # type: ignore[arg-type]
            assert await by_position[0].heartbeat() == 0
            assert await by_position[1].heartbeat() == Errors.UNKNOWN_MEMBER_ID
            assert await by_position[1].heartbeat() == 0
        konvene.faults.answer("Heartbeat", "UNKNOWN_MEMBER_ID", instance="b")  # v2 has no instance id.
        assert await first.heartbeat(version=2) == 0
        assert await second.heartbeat(version=2) == Errors.UNKNOWN_MEMBER_ID
        konvene.faults.answer("Heartbeat", "ILLEGAL_GENERATION", generation=first.generation, instance="a")
        first.generation -= 1
        assert await first.heartbeat() == Errors.ILLEGAL_GENERATION  # From the broker itself.
        assert len(konvene.faults.armed) == 1
        first.generation += 1
        assert await first.heartbeat() == Errors.ILLEGAL_GENERATION
        assert konvene.faults.armed == ()
        bob.close()

    talk(konvene, work)


def test_nth_and_times_limit_a_fault(konvene: Konvene) -> None:
    """The fault applies to the second and third message, a cancelled one to none."""
    fault = reject_commits(konvene, nth=2, times=2)
    cancelled = reject_commits(konvene, nth=2)
    cancelled.cancel()

    async def work(connection: Connection) -> None:
        codes = [await committed(connection, n) for n in range(4)]
        assert codes == [0, Errors.NOT_COORDINATOR, Errors.NOT_COORDINATOR, 0]

    talk(konvene, work)
    assert (fault.applied, cancelled.applied, cancelled.armed) == (2, 0, False)
    with pytest.raises(
        TimeoutError, match=r"applied 2 times within 0\.01 s, not 3: answer the 2nd OffsetCommit request"
    ):
        fault.wait(0.01, times=3)


def test_probability_is_seeded(konvene: Konvene) -> None:
    """The same seed selects the same requests, another seed different ones."""
    codes: list[list[int]] = []

    async def work(connection: Connection) -> None:
        for seed in (1, 1, 2):
            fault = reject_commits(konvene, probability=0.5, seed=seed, times=None)
            codes.append([await committed(connection, n) for n in range(30)])
            fault.cancel()

    talk(konvene, work)
    assert codes[0] == codes[1] != codes[2]
    assert set(codes[0]) == {0, Errors.NOT_COORDINATOR}


def test_faults_skip_requests_of_the_test_itself(konvene: Konvene) -> None:
    """`produce`, `records` and the like are never affected."""
    konvene.faults.lose_request(times=None)
    konvene.create_topic("notes")
    konvene.produce("notes", ["one"])
    assert [record.value for record in konvene.records("notes")] == [b"one"]
    assert konvene.faults.log == []


@pytest.mark.parametrize(
    ("create_fault", "message"),
    [
        (lambda f: f.lose_request("Hartbeat"), "'Hartbeat' is not a Kafka API"),
        (lambda f: f.answer("Heartbeat", "NO_SUCH"), "'NO_SUCH' is not a Kafka error"),
        (lambda f: f.answer("DescribeGroups", "NOT_COORDINATOR"), "has no error code"),
        (lambda f: f.fence("a", error="NOT_COORDINATOR"), "does not fence a member"),
        (lambda f: f.fail_append("g", "Fetch"), "Fetch appends nothing"),
    ],
)
def test_invalid_fault_raises_at_once(konvene: Konvene, create_fault: Any, message: str) -> None:
    """Invalid arguments raise ValueError, and no fault is armed."""
    with pytest.raises(ValueError, match=message):
        create_fault(konvene.faults)
    assert konvene.faults.armed == ()


# --- the proxy passes what it cannot decode ---------------------------------------------------


def test_request_without_response_keeps_the_order(konvene: Konvene) -> None:
    """After a Produce with acks=0, in old and new versions, the next response belongs to the next request."""
    konvene.faults.answer("OffsetCommit", "NOT_COORDINATOR", nth=2)
    batch = build_simple([(None, b"v")], 0)

    async def work(connection: Connection) -> None:
        letters = konvene.with_broker(lambda broker: broker.catalogue.topics.by_name["letters"].id)
        for version in (3, 8, 9, 12, 13):
            rows = (PartitionProduceData(index=0, records=batch),)
            topic = TopicProduceData(name="letters", partition_data=rows)
            if version == 13:
                topic = TopicProduceData(topic_id=letters, partition_data=rows)
            connection.send_without_response(
                ProduceRequest(acks=0, timeout_ms=1000, topic_data=(topic,)), version
            )
        assert [await committed(connection, n) for n in range(3)] == [0, Errors.NOT_COORDINATOR, 0]

    talk(konvene, work)
    assert len(konvene.records("letters")) == 5


INVALID_REQUESTS = [
    b"\x7f\xff\xff\xff",  # longer than the largest request
    b"\0\0\0\0",
    b"\xff\xff\xff\xff rest",
    b"\0\0\0\x02\0\0",  # shorter than a header
    b"\0\0\0\x0a\x03\xe7" + bytes(8),  # an unknown API
]


@pytest.mark.parametrize("data", INVALID_REQUESTS)
def test_invalid_request_is_passed_to_the_broker(konvene: Konvene, data: bytes) -> None:
    """The broker closes the connection, even with an armed fault that reads bodies, and serves the next
    client."""
    konvene.faults.hold(group="g", times=None)

    async def main() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", konvene.port)
        writer.write(data)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()

    asyncio.run(main())
    talk(konvene, lambda connection: committed(connection, 1, group="h"))  # type: ignore[arg-type,return-value]
    assert offset_of(konvene, "h") == 1


def test_undecodable_body_matches_no_fault(konvene: Konvene) -> None:
    """The broker closes the connection, as it does without faults."""
    konvene.faults.lose_request(group="g", connection="stays", times=None)
    frame = b"\0\x0c\0\x04\0\0\0\x01\0\x03ann\0" + b"\xff" * 6

    async def main() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", konvene.port)
        writer.write(len(frame).to_bytes(4, "big") + frame)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()

    asyncio.run(main())
    assert konvene.faults.log == []


@pytest.mark.parametrize("kill", [False, True])
def test_broker_restarts_with_held_messages(konvene: Konvene, kill: bool) -> None:
    """A held request and a held response do not block a restart; releasing them afterwards has no effect."""
    request = konvene.faults.hold("OffsetCommit", group="g")
    response = konvene.faults.hold("OffsetCommit", group="h", direction="response")

    async def work(connection: Connection) -> None:
        other = await connect(konvene, "bob")
        waiting = [
            connection.post(commit(5), COMMIT_VERSION),
            other.post(commit(6, group="h"), COMMIT_VERSION),
        ]
        for fault in (request, response):
            await asyncio.to_thread(fault.wait)
        await asyncio.to_thread(konvene.restart, kill=kill)
        request.release()
        response.release()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [ConnectionLost, ConnectionLost]

    talk(konvene, work)
    assert (offset_of(konvene), offset_of(konvene, "h")) == (None, 6)
