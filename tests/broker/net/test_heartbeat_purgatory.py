"""An answer that is kept leaves as soon as there is something to tell, or something else to answer.

The rules are those of real clients: a new epoch is news (R1); any other request comes first, and answers keep
their order (R5); the session counts from the answer (R6); who waits for others is not kept waiting (R7).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.holds import deadline, held, responsive
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


# --- R1: what is news ---


def test_a_new_assignment_is_told_at_once(tmp_path: Path) -> None:
    """Another member joins: the held one hears what it has to give up, and later of its new epoch."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker, RDKAFKA)
            epoch = await held(broker, a)
            assert repr(broker.heartbeat_purgatory) == HELD
            joined = await b.beat(joining("b", "orders"))
            assert (joined.member_epoch, joined.heartbeat_interval_ms) == (epoch + 1, 500)
            _, told = await a.answer()
            assert (told.member_epoch, told.heartbeat_interval_ms) == (epoch, 500)
            (kept,) = told.assignment.topic_partitions
            assert len(kept.partitions) == 1
            owned = (Owned(topic_id=kept.topic_id, partitions=kept.partitions),)
            given_up = await a.beat(staying("a", epoch, topic_partitions=owned))
            assert (given_up.member_epoch, given_up.heartbeat_interval_ms) == (epoch + 1, 5000)
            got = await b.beat(staying("b", epoch + 1))
            assert len(got.assignment.topic_partitions[0].partitions) == 1

    asyncio.run(main())


def test_a_new_epoch_is_told_at_once(tmp_path: Path) -> None:
    """Though the member has what it had: its next heartbeat would be fenced if it did not know."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            await broker.topic_creator.create_missing(["audit"])
            a, b = await Line.to(broker), await Line.to(broker)
            epoch = await held(broker, a)
            assert (await b.beat(joining("b", "audit"))).member_epoch == epoch + 1
            _, told = await a.answer()
            assert (told.error_code, told.member_epoch, told.assignment) == (0, epoch + 1, None)
            assert (await a.beat(staying("a", epoch + 1))).error_code == 0
            fenced = await a.beat(staying("a", epoch))
            assert fenced.error_code == Errors.FENCED_MEMBER_EPOCH

    asyncio.run(main())


def test_a_member_that_is_removed_hears_of_it(tmp_path: Path) -> None:
    """Its session is over while its heartbeat is held: UNKNOWN_MEMBER_ID, not a word of peace."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            await held(broker, a)
            coordinator = broker.groups.of("g")
            assert coordinator is not None and coordinator.fire_timer(session_key("g", "a"))
            _, told = await a.answer()
            assert told.error_code == Errors.UNKNOWN_MEMBER_ID

    asyncio.run(main())


def test_another_group_is_no_news(tmp_path: Path) -> None:
    """Members of other groups join and commit; the held one is left in peace."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            await held(broker, a)
            await held(broker, b, "b", group="h")
            assert len(broker.heartbeat_purgatory) == 2
            c = await Line.to(broker)
            await c.beat(joining("c", "orders", group="h"))
            await b.answer()
            assert repr(broker.heartbeat_purgatory) == HELD

    asyncio.run(main())


def test_a_change_of_topics_is_news(tmp_path: Path) -> None:
    """A topic that was waited for is made, and one grows: both are told at once."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, admin = await Line.to(broker), await Line.to(broker)
            epoch = await held(broker, a, "a", "orders", "audit")
            wanted = CreatableTopic(name="audit", num_partitions=1, replication_factor=1)
            made = await admin.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(wanted,), timeout_ms=1000))
            assert made.topics[0].error_code == 0
            _, told = await a.answer()
            assert told.member_epoch == epoch + 1
            assert len(told.assignment.topic_partitions) == 2

    asyncio.run(main())


def test_who_waits_for_others_does_not_wait_for_us(tmp_path: Path) -> None:
    """A member without its partition, and one that owes one, are told 500 ms and answered at once."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            epoch = await held(broker, a)
            await b.beat(joining("b", "orders"))
            await a.answer()
            for _ in range(3):
                waits = await b.beat(staying("b", epoch + 1))
                owes = await a.beat(staying("a", epoch))
                assert (waits.heartbeat_interval_ms, owes.heartbeat_interval_ms) == (500, 500)

    asyncio.run(main())


# --- R5: other requests of the connection ---


def test_any_other_request_comes_after_the_answer(tmp_path: Path) -> None:
    """It is not kept waiting, and the heartbeat is answered before it."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            epoch = await held(broker, a)
            beat = len(a.asked)
            a.send(METADATA, 12, MetadataRequest(topics=None))
            assert await a.answer() == (beat, (await quiet(broker, epoch)))
            assert (await a.answer())[0] == beat + 1
            assert len(broker.heartbeat_purgatory) == 0

    asyncio.run(main())


async def quiet(broker: Broker, epoch: int) -> Any:
    """What a settled member is answered; asked on another connection, by a client that is never held."""
    return await (await Line.to(broker, None)).beat(staying("a", epoch))


@pytest.mark.parametrize("groups", [1, 100])
def test_what_comes_in_one_piece_with_it(tmp_path: Path, groups: int) -> None:
    """A heartbeat with another request behind it in the same bytes, also a large one, is not held at all."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            told = await a.beat(joining("a", "orders"))
            stays = staying("a", told.member_epoch)
            await a.beat(stays)
            fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="n" * 1000),) * groups)
            beat = len(a.asked) + 1
            a.writer.write(a.frame(HEARTBEAT, 1, stays) + a.frame(OFFSET_FETCH, 8, fetch))
            a.writer.write(a.frame(METADATA, 12, MetadataRequest(topics=None)))
            assert [(await a.answer())[0] for _ in range(3)] == [beat, beat + 1, beat + 2]
            a.writer.write(a.frame(HEARTBEAT, 1, stays) + a.frame(OFFSET_FETCH, 8, fetch)[:7])
            assert (await a.answer())[0] == beat + 3

    asyncio.run(main())


def test_the_first_byte_of_a_request_is_enough(tmp_path: Path) -> None:
    """The rest may take its time."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            await held(broker, a)
            beat = len(a.asked)
            more = a.frame(METADATA, 12, MetadataRequest(topics=None))
            a.writer.write(more[:1])
            assert (await a.answer())[0] == beat
            a.writer.write(more[1:])
            assert (await a.answer())[0] == beat + 1

    asyncio.run(main())


def test_leaving_is_not_held_up(tmp_path: Path) -> None:
    """A farewell behind the held heartbeat: both are answered, and the member is gone."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            await held(broker, a)
            a.send(HEARTBEAT, 1, staying("a", -1))
            answers = [(await a.answer())[1] for _ in range(2)]
            assert [(x.error_code, x.member_epoch > 0) for x in answers] == [(0, True), (0, False)]
            assert (await a.beat(staying("a", 2))).error_code == Errors.UNKNOWN_MEMBER_ID

    asyncio.run(main())


def test_each_heartbeat_releases_the_one_before(tmp_path: Path) -> None:
    """A hundred without waiting for any answer: all are answered in order, and nothing is kept of them."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            epoch = await held(broker, a)
            first = len(a.asked)
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


def test_the_session_counts_from_the_answer(tmp_path: Path) -> None:
    """While it is held from the heartbeat, then from the answer: no answer shortens the time to come back."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            await held(broker, a)
            session_s = 45.0
            came = deadline(broker)
            assert came <= broker.loop.time() + session_s
            released = broker.loop.time()
            a.send(METADATA, 12, MetadataRequest(topics=None))
            await a.answer()
            assert deadline(broker) >= released + session_s
            assert deadline(broker) > came

    asyncio.run(main())
