"""A held heartbeat is answered as soon as the group changes or the client sends another request.

The rules are those of real clients: a new epoch is news (R1); any other request comes first, and answers keep
their order (R5); the session counts from the response (R6); members that wait for others are not held (R7).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.holds import deadline, join_and_hold, responsive
from tests.broker.net.raw_connections import HEARTBEAT, RDKAFKA, Line, joining, staying, until

from konvene.broker.broker import Broker
from konvene.errors import Errors
from konvene.groups.consumer.decision import session_key
from konvene.messages.consumer_group_heartbeat import TopicPartitions as Owned
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.metadata import MetadataRequest
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

CREATE_TOPICS, METADATA, OFFSET_FETCH = 19, 3, 9
HELD = "<1 heartbeats held>"


# --- R1: changes that release a heartbeat ---


def test_new_assignment_releases_the_heartbeat(tmp_path: Path) -> None:
    """Another member joins: the held one receives the partitions to revoke, and later its new epoch."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker, RDKAFKA)
            epoch = await join_and_hold(broker, a)
            assert repr(broker.heartbeat_purgatory) == HELD
            joined = await b.beat(joining("b", "orders"))
            assert (joined.member_epoch, joined.heartbeat_interval_ms) == (epoch + 1, 500)
            _, response = await a.answer()
            assert (response.member_epoch, response.heartbeat_interval_ms) == (epoch, 500)
            (kept,) = response.assignment.topic_partitions
            assert len(kept.partitions) == 1
            owned = (Owned(topic_id=kept.topic_id, partitions=kept.partitions),)
            given_up = await a.beat(staying("a", epoch, topic_partitions=owned))
            assert (given_up.member_epoch, given_up.heartbeat_interval_ms) == (epoch + 1, 5000)
            response = await b.beat(staying("b", epoch + 1))
            assert len(response.assignment.topic_partitions[0].partitions) == 1

    asyncio.run(main())


def test_new_epoch_releases_the_heartbeat(tmp_path: Path) -> None:
    """Even without a new assignment, since the next heartbeat of an older epoch would be fenced."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            await broker.topic_creator.create_missing(["audit"])
            a, b = await Line.to(broker), await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            assert (await b.beat(joining("b", "audit"))).member_epoch == epoch + 1
            _, response = await a.answer()
            assert (response.error_code, response.member_epoch, response.assignment) == (0, epoch + 1, None)
            assert (await a.beat(staying("a", epoch + 1))).error_code == 0
            fenced = await a.beat(staying("a", epoch))
            assert fenced.error_code == Errors.FENCED_MEMBER_EPOCH

    asyncio.run(main())


def test_expiry_releases_the_heartbeat(tmp_path: Path) -> None:
    """The session expires while its heartbeat is held: the response is UNKNOWN_MEMBER_ID."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            await join_and_hold(broker, a)
            coordinator = broker.groups.of("g")
            assert coordinator is not None and coordinator.fire_timer(session_key("g", "a"))
            _, response = await a.answer()
            assert response.error_code == Errors.UNKNOWN_MEMBER_ID

    asyncio.run(main())


def test_changes_of_other_groups_do_not_release(tmp_path: Path) -> None:
    """Members of other groups join and commit; the heartbeat stays held."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            await join_and_hold(broker, a)
            await join_and_hold(broker, b, "b", group="h")
            assert len(broker.heartbeat_purgatory) == 2
            c = await Line.to(broker)
            await c.beat(joining("c", "orders", group="h"))
            await b.answer()
            assert repr(broker.heartbeat_purgatory) == HELD

    asyncio.run(main())


def test_topic_changes_release_the_heartbeat(tmp_path: Path) -> None:
    """A missing topic is created, and another gets more partitions."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, admin = await Line.to(broker), await Line.to(broker)
            epoch = await join_and_hold(broker, a, "a", "orders", "audit")
            wanted = CreatableTopic(name="audit", num_partitions=1, replication_factor=1)
            created = await admin.ask(
                CREATE_TOPICS, 7, CreateTopicsRequest(topics=(wanted,), timeout_ms=1000)
            )
            assert created.topics[0].error_code == 0
            _, response = await a.answer()
            assert response.member_epoch == epoch + 1
            assert len(response.assignment.topic_partitions) == 2

    asyncio.run(main())


def test_unreconciled_members_are_not_held(tmp_path: Path) -> None:
    """A member that waits for a partition, and one that has to revoke one, get an interval of 500 ms."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            await b.beat(joining("b", "orders"))
            await a.answer()
            for _ in range(3):
                waits = await b.beat(staying("b", epoch + 1))
                owes = await a.beat(staying("a", epoch))
                assert (waits.heartbeat_interval_ms, owes.heartbeat_interval_ms) == (500, 500)

    asyncio.run(main())


# --- R5: other requests of the connection ---


def test_other_request_releases_the_heartbeat_before_it(tmp_path: Path) -> None:
    """The request is not delayed, and responses are in order."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            beat = len(a.sent_requests)
            a.send(METADATA, 12, MetadataRequest(topics=None))
            assert await a.answer() == (beat, (await quiet(broker, epoch)))
            assert (await a.answer())[0] == beat + 1
            assert len(broker.heartbeat_purgatory) == 0

    asyncio.run(main())


async def quiet(broker: Broker, epoch: int) -> Any:
    """Return the response of a stable member, by a connection whose heartbeats are never held."""
    line = await Line.to(broker, None)
    await line.beat(staying("a", epoch))  # The first response of a connection has the assignment.
    return await line.beat(staying("a", epoch))


@pytest.mark.parametrize("groups", [1, 100])
def test_heartbeat_with_a_following_request_is_not_held(tmp_path: Path, groups: int) -> None:
    """Both arrive in the same read; the following request may be a large one."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            response = await a.beat(joining("a", "orders"))
            stays = staying("a", response.member_epoch)
            await a.beat(stays)
            fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="n" * 1000),) * groups)
            beat = len(a.sent_requests) + 1
            a.writer.write(a.frame(HEARTBEAT, 1, stays) + a.frame(OFFSET_FETCH, 8, fetch))
            a.writer.write(a.frame(METADATA, 12, MetadataRequest(topics=None)))
            assert [(await a.answer())[0] for _ in range(3)] == [beat, beat + 1, beat + 2]
            a.writer.write(a.frame(HEARTBEAT, 1, stays) + a.frame(OFFSET_FETCH, 8, fetch)[:7])
            assert (await a.answer())[0] == beat + 3

    asyncio.run(main())


def test_first_byte_of_a_request_releases_the_heartbeat(tmp_path: Path) -> None:
    """Before the request is complete."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            await join_and_hold(broker, a)
            beat = len(a.sent_requests)
            more = a.frame(METADATA, 12, MetadataRequest(topics=None))
            a.writer.write(more[:1])
            assert (await a.answer())[0] == beat
            a.writer.write(more[1:])
            assert (await a.answer())[0] == beat + 1

    asyncio.run(main())


def test_leave_request_is_not_delayed(tmp_path: Path) -> None:
    """It follows a held heartbeat: both are answered, and the member is removed."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            await join_and_hold(broker, a)
            a.send(HEARTBEAT, 1, staying("a", -1))
            answers = [(await a.answer())[1] for _ in range(2)]
            assert [(x.error_code, x.member_epoch > 0) for x in answers] == [(0, True), (0, False)]
            assert (await a.beat(staying("a", 2))).error_code == Errors.UNKNOWN_MEMBER_ID

    asyncio.run(main())


def test_next_heartbeat_releases_the_previous_one(tmp_path: Path) -> None:
    """A hundred heartbeats without waiting: all are answered in order, and none stays held."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            first = len(a.sent_requests)
            for _ in range(100):
                a.send(HEARTBEAT, 1, staying("a", epoch))
                await a.writer.drain()
                await asyncio.sleep(0)
            assert [(await a.answer())[0] for _ in range(100)] == list(range(first, first + 100))
            await until(lambda: len(broker.heartbeat_purgatory) == 1)
            assert sum(map(len, broker.heartbeat_purgatory._slots.values())) == 1
            a.close()
            await until(lambda: len(broker.heartbeat_purgatory) == 0)
            assert len(broker.heartbeat_purgatory.ends) == 0

    asyncio.run(main())


# --- R6: the session ---


def test_session_is_renewed_when_the_response_is_sent(tmp_path: Path) -> None:
    """Until then it counts from the heartbeat, so that a hold never shortens the session."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            await join_and_hold(broker, a)
            session_s = 45.0
            came = deadline(broker)
            assert came <= broker.loop.time() + session_s
            released = broker.loop.time()
            a.send(METADATA, 12, MetadataRequest(topics=None))
            await a.answer()
            assert deadline(broker) >= released + session_s
            assert deadline(broker) > came

    asyncio.run(main())
