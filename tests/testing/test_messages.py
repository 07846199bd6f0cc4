"""Faults done to messages: what the broker did, what the client heard, and that all else goes on in order."""

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

QUIET_MS = 100
"""So long a test waits for an answer that does not come."""


def offset_of(konvene: Konvene, group: str = "g", topic: str = "orders") -> int | None:
    """What a group has committed for partition 0."""
    return konvene.group(group).offsets.get(topic, {}).get(0)


def test_a_request_that_is_lost_was_never_made(konvene: Konvene) -> None:
    """The connection ends, nothing is committed; on the next connection all is as always."""
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
    assert (fault.happened, fault.armed) == (1, False)


def test_a_response_that_is_lost_was_done(konvene: Konvene) -> None:
    """The client hears nothing but the end of its connection; the commit is there."""
    konvene.faults.lose_response("OffsetCommit")

    async def work(connection: Connection) -> None:
        with pytest.raises(ConnectionLost):
            await committed(connection, 5)

    talk(konvene, work)
    assert offset_of(konvene) == 5


@pytest.mark.parametrize("way", ["request", "response"])
def test_a_connection_can_outlive_a_loss(konvene: Konvene, way: str) -> None:
    """connection="stays": the one message is missing, what follows on the connection is answered."""
    lose = konvene.faults.lose_request if way == "request" else konvene.faults.lose_response
    lose("OffsetCommit", connection="stays", group="g")

    async def work(connection: Connection) -> None:
        missing = connection.post(commit(5), COMMIT_VERSION)
        assert await committed(connection, 7, group="other") == 0
        assert not missing.done()
        missing.cancel()

    talk(konvene, work)
    assert offset_of(konvene) == (None if way == "request" else 5)
    assert offset_of(konvene, "other") == 7


@pytest.mark.parametrize("way", ["request", "response"])
def test_a_connection_can_fall_silent(konvene: Konvene, way: str) -> None:
    """connection="silent": nothing passes that way any more, as where a cable is pulled."""
    lose = konvene.faults.lose_request if way == "request" else konvene.faults.lose_response
    lose("OffsetCommit", connection="silent", group="g")

    async def work(connection: Connection) -> None:
        connection.post(commit(5), COMMIT_VERSION).add_done_callback(lambda done: done.exception())
        with pytest.raises(RequestTimedOut):
            await connection.send(commit(7, group="other"), COMMIT_VERSION, timeout_ms=QUIET_MS)

    talk(konvene, work)
    assert offset_of(konvene, "other") == (None if way == "request" else 7)


@pytest.mark.parametrize("way", ["request", "response"])
def test_what_is_held_keeps_its_place(konvene: Konvene, way: Any) -> None:
    """What comes behind it on its connection waits too; other connections do not."""
    fault = konvene.faults.hold("OffsetCommit", way=way, group="g")

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
        assert offset_of(konvene) == (None if way == "request" else 5)
        fault.release()
        await asyncio.wait_for(asyncio.gather(held, behind), 10)
        assert order == ["held", "behind"]

    talk(konvene, work)
    assert offset_of(konvene) == 5


@pytest.mark.parametrize("way", ["request", "response"])
def test_what_is_delayed_comes_by_itself(konvene: Konvene, way: Any) -> None:
    """It is answered in the end, and before what was asked after it."""
    fault = konvene.faults.delay("OffsetCommit", ms=50, way=way)

    async def work(connection: Connection) -> None:
        first = connection.post(commit(5), COMMIT_VERSION)
        assert await committed(connection, 6) == 0
        assert first.done()

    talk(konvene, work)
    assert (fault.happened, offset_of(konvene)) == (1, 6)


def test_a_request_that_is_doubled_is_answered_once(konvene: Konvene) -> None:
    """The records are there twice; the client is not confused by a second answer."""
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
@pytest.mark.parametrize("way", ["request", "response"])
def test_a_connection_ends_within_a_frame(konvene: Konvene, way: Any, at_byte: int) -> None:
    """A torn request is none. A torn response was done. The broker lives on."""
    konvene.faults.cut("OffsetCommit", at_byte=at_byte, way=way)

    async def work(connection: Connection) -> None:
        with pytest.raises(ConnectionLost):
            await committed(connection, 5)
        assert offset_of(konvene) == (None if way == "request" else 5)

    talk(konvene, work)
    talk(konvene, lambda connection: committed(connection, 6))  # type: ignore[arg-type,return-value]
    assert offset_of(konvene) == 6


def test_an_error_is_told_in_the_brokers_place(konvene: Konvene) -> None:
    """By name or code, in each API's own way; the broker does not know of it, and order is kept."""
    konvene.faults.answer("OffsetCommit", "REBALANCE_IN_PROGRESS", nth=2)
    konvene.faults.answer("heartbeat", 25)

    async def work(connection: Connection) -> None:
        posted = [connection.post(commit(n), COMMIT_VERSION) for n in (5, 6, 7)]
        answers = await asyncio.gather(*posted)
        codes = [a.topics[0].partitions[0].error_code for a in answers]
        assert codes == [0, Errors.REBALANCE_IN_PROGRESS, 0]
        assert await RawMember(connection, "nobody").heartbeat() == Errors.UNKNOWN_MEMBER_ID

    talk(konvene, work)
    assert offset_of(konvene) == 7
    assert len(konvene.faults.log) == 2


@pytest.mark.parametrize("way", ["both", "to the broker", "from the broker"])
def test_a_client_is_cut_off_until_it_is_not(konvene: Konvene, way: Any) -> None:
    """Nothing passes that way, on old connections and new ones; for other clients everything does."""

    async def work(connection: Connection) -> None:
        cut = konvene.faults.partition("ann", way=way)
        with pytest.raises(RequestTimedOut):
            await connection.send(commit(5), COMMIT_VERSION, timeout_ms=QUIET_MS)
        assert offset_of(konvene) == (5 if way == "from the broker" else None)
        with pytest.raises(ClientError):
            await Connection.open("127.0.0.1", konvene.port, client_id="ann", connect_timeout_ms=QUIET_MS)
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


def test_large_frames_pass_whole(konvene: Konvene) -> None:
    """A batch that is read in many pieces arrives as it was sent, also where it was held."""
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


# --- whose messages, and how often -------------------------------------------------------------


async def tell(konvene: Konvene, connection: Connection, *groups: str) -> list[int]:
    """The codes of one commit for each group."""
    return [await committed(connection, 1, group=group) for group in groups]


def refuse(konvene: Konvene, **match: Any) -> Fault:
    return konvene.faults.answer("OffsetCommit", "NOT_COORDINATOR", **match)


def test_a_fault_is_for_the_group_topic_and_client_that_it_names(konvene: Konvene) -> None:
    """Whoever is not meant is spared; the keywords all have to be so."""
    refuse(konvene, group="g", topic="letters", client="bob", times=None)

    async def work(ann: Connection) -> None:
        bob = await connect(konvene, "bob")
        assert await committed(ann, 1, topic="letters") == 0
        assert await committed(bob, 1, topic="orders") == 0
        assert await committed(bob, 1, topic="letters", group="h") == 0
        assert await committed(bob, 1, topic="letters") == Errors.NOT_COORDINATOR
        bob.close()

    talk(konvene, work)


def test_topics_are_known_by_their_ids_too(konvene: Konvene) -> None:
    """A newer request names its topics by id; a rule names them as people do."""
    konvene.faults.answer("Metadata", "LEADER_NOT_AVAILABLE", topic="letters")
    topic_id = konvene.inside(lambda broker: broker.catalogue.topics.by_name["letters"].id)

    async def work(connection: Connection) -> None:
        asked = MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic_id, name=None),))
        answer = await connection.send(asked)
        assert answer.topics[0].error_code == Errors.LEADER_NOT_AVAILABLE

    talk(konvene, work)


def test_a_member_is_known_by_its_place_and_by_each_of_its_names(konvene: Konvene) -> None:
    """The second of those that joined; its member id, its instance id, its client's id; its generation."""

    async def work(ann: Connection) -> None:
        bob = await connect(konvene, "bob")
        first, second = RawMember(ann, instance="a"), RawMember(bob, instance="b")
        await asyncio.gather(first.join(), second.join())
        members = konvene.group("g").members
        assert {m.client_id for m in members} == {"ann", "bob"}
        in_order = [first, second] if members[0].client_id == "ann" else [second, first]
        for who in (2, in_order[1].member_id, in_order[1].instance, members[1].client_id):
            konvene.faults.answer("Heartbeat", "UNKNOWN_MEMBER_ID", member=who, group="g")  # type: ignore[arg-type]
            assert await in_order[0].heartbeat() == 0
            assert await in_order[1].heartbeat() == Errors.UNKNOWN_MEMBER_ID
            assert await in_order[1].heartbeat() == 0
        konvene.faults.answer("Heartbeat", "UNKNOWN_MEMBER_ID", instance="b")  # Which v2 does not say.
        assert await first.heartbeat(version=2) == 0
        assert await second.heartbeat(version=2) == Errors.UNKNOWN_MEMBER_ID
        konvene.faults.answer("Heartbeat", "ILLEGAL_GENERATION", generation=first.generation, instance="a")
        first.generation -= 1
        assert await first.heartbeat() == Errors.ILLEGAL_GENERATION  # The broker says so itself.
        assert len(konvene.faults.armed) == 1
        first.generation += 1
        assert await first.heartbeat() == Errors.ILLEGAL_GENERATION
        assert konvene.faults.armed == ()
        bob.close()

    talk(konvene, work)


def test_a_fault_is_as_often_as_it_was_asked_for(konvene: Konvene) -> None:
    """The second and third; then it is over. One that is cancelled does not happen."""
    fault = refuse(konvene, nth=2, times=2)
    never = refuse(konvene, nth=2)
    never.cancel()

    async def work(connection: Connection) -> None:
        told = [await committed(connection, n) for n in range(4)]
        assert told == [0, Errors.NOT_COORDINATOR, Errors.NOT_COORDINATOR, 0]

    talk(konvene, work)
    assert (fault.happened, never.happened, never.armed) == (2, 0, False)
    with pytest.raises(TimeoutError, match="happened 2 times, not 3: answer the 2nd OffsetCommit request"):
        fault.wait(0.01, times=3)


def test_chance_has_a_seed(konvene: Konvene) -> None:
    """The same seed refuses the same requests; another one others."""
    told: list[list[int]] = []

    async def work(connection: Connection) -> None:
        for seed in (1, 1, 2):
            fault = refuse(konvene, probability=0.5, seed=seed, times=None)
            told.append([await committed(connection, n) for n in range(30)])
            fault.cancel()

    talk(konvene, work)
    assert told[0] == told[1] != told[2]
    assert set(told[0]) == {0, Errors.NOT_COORDINATOR}


def test_what_a_test_asks_itself_is_spared(konvene: Konvene) -> None:
    """No fault is done to `produce`, `records` and the like."""
    konvene.faults.lose_request(times=None)
    konvene.create_topic("notes")
    konvene.produce("notes", ["one"])
    assert [record.value for record in konvene.records("notes")] == [b"one"]
    assert konvene.faults.log == []


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda f: f.lose_request("Hartbeat"), "'Hartbeat' is not one of Kafka's APIs"),
        (lambda f: f.answer("Heartbeat", "NO_SUCH"), "'NO_SUCH' is not one of Kafka's errors"),
        (lambda f: f.answer("DescribeGroups", "NOT_COORDINATOR"), "has no place for an error"),
        (lambda f: f.fence("a", error="NOT_COORDINATOR"), "does not fence a member"),
        (lambda f: f.fail_append("g", "Fetch"), "Fetch writes nothing"),
    ],
)
def test_what_cannot_be_is_refused_at_once(konvene: Konvene, ask: Any, why: str) -> None:
    """A mistake in a test is told where it is made."""
    with pytest.raises(ValueError, match=why):
        ask(konvene.faults)
    assert konvene.faults.armed == ()


# --- a gate lets pass what it does not understand ----------------------------------------------


def test_a_request_without_an_answer_keeps_the_order(konvene: Konvene) -> None:
    """Produce with acks 0, in old and new versions: the next answer is the next request's."""
    konvene.faults.answer("OffsetCommit", "NOT_COORDINATOR", nth=2)
    batch = build_simple([(None, b"v")], 0)

    async def work(connection: Connection) -> None:
        letters = konvene.inside(lambda broker: broker.catalogue.topics.by_name["letters"].id)
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


NO_REQUESTS = [
    b"\x7f\xff\xff\xff",  # longer than any request may be
    b"\0\0\0\0",
    b"\xff\xff\xff\xff rest",
    b"\0\0\0\x02\0\0",  # shorter than a header
    b"\0\0\0\x0a\x03\xe7" + bytes(8),  # an API that is none
]


@pytest.mark.parametrize("data", NO_REQUESTS)
def test_what_is_no_request_is_the_brokers_to_judge(konvene: Konvene, data: bytes) -> None:
    """It closes the connection, with a fault in force that reads bodies, and serves the next client."""
    konvene.faults.hold(group="g", times=None)

    async def main() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", konvene.port)
        writer.write(data)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()

    asyncio.run(main())
    talk(konvene, lambda connection: committed(connection, 1, group="h"))  # type: ignore[arg-type,return-value]
    assert offset_of(konvene, "h") == 1


def test_a_body_that_cannot_be_read_matches_nothing(konvene: Konvene) -> None:
    """The broker closes on it, as it would without faults."""
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
def test_what_is_held_does_not_hold_up_the_end(konvene: Konvene, kill: bool) -> None:
    """A broker stops and starts with a request and a response held; what is released then is nobody's."""
    request = konvene.faults.hold("OffsetCommit", group="g")
    response = konvene.faults.hold("OffsetCommit", group="h", way="response")

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
