"""Fetch over a connection: records, limits, waiting, errors and sessions."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.broker.storage.partitions import MAX_DAMAGE_WARNINGS
from konvene.codec.batches import batches
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.log.errors import DamagedLog
from konvene.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

UNKNOWN_TOPIC_ID = Uuid(b"an unknown topic")
A_WHILE = 150


def part(index: int = 0, offset: int = 0, **more: Any) -> FetchPartition:
    settings = {"partition_max_bytes": 1 << 20} | more
    return FetchPartition(partition=index, fetch_offset=offset, **settings)


def fetch(topic: Uuid, *partitions: FetchPartition, **more: Any) -> FetchRequest:
    topics = (FetchTopic(topic_id=topic, partitions=partitions),) if partitions else ()
    settings: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1 << 20} | more
    return FetchRequest(topics=topics, **settings)


def brief(response: FetchResponse) -> list[tuple[int, int, int]]:
    """Summarize each partition of a response: index, error and records."""
    return [
        (p.partition_index, p.error_code, sum(header.record_count for header, _ in batches(p.records or b"")))
        for topic in response.responses
        for p in topic.partitions
    ]


def test_response_has_records_and_watermarks(tmp_path: Path) -> None:
    """By topic id and by name. A partition without further records has none."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t", 2)
        client.write("t", b"a", b"b")
        answer = await client.send(fetch(topic, part(0), part(1)))
        assert brief(answer) == [(0, 0, 2), (1, 0, 0)]
        first = answer.responses[0].partitions[0]
        assert (first.high_watermark, first.last_stable_offset, first.log_start_offset) == (2, 2, 0)
        assert first.aborted_transactions is None
        named = FetchRequest(
            topics=(FetchTopic(topic="t", partitions=(part(0),)),), min_bytes=1, max_bytes=1 << 20
        )
        for version in (4, 7, 12):
            assert brief(await client.send(named, version)) == [(0, 0, 2)]

    run_with_broker(tmp_path, scenario)


def test_invalid_partitions_have_errors(tmp_path: Path) -> None:
    """Each partition has its own error, as in Kafka, and the response is not delayed."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t")
        client.write("t", b"a")
        cases = {
            Errors.OFFSET_OUT_OF_RANGE: part(0, 9),
            Errors.UNKNOWN_TOPIC_OR_PARTITION: part(7),
            Errors.UNKNOWN_LEADER_EPOCH: part(0, current_leader_epoch=5),
            Errors.UNKNOWN_SERVER_ERROR: part(0, partition_max_bytes=-1),
        }
        for error, request in cases.items():
            answer = await client.send(fetch(topic, request, max_wait_ms=60_000))
            assert brief(answer) == [(request.partition, error, 0)]
            result = answer.responses[0].partitions[0]
            assert (result.high_watermark, result.log_start_offset) == (-1, -1)
        assert brief(await client.send(fetch(UNKNOWN_TOPIC_ID, part()))) == [(0, Errors.UNKNOWN_TOPIC_ID, 0)]
        assert brief(await client.send(fetch(ZERO_UUID, part()))) == [(0, Errors.UNKNOWN_TOPIC_ID, 0)]
        hidden = FetchRequest(topics=(FetchTopic(topic="__cluster_metadata", partitions=(part(),)),))
        assert brief(await client.send(hidden, 12)) == [(0, Errors.UNKNOWN_TOPIC_OR_PARTITION, 0)]

    run_with_broker(tmp_path, scenario)


def test_invalid_limits_and_isolation_levels_fail_as_in_kafka(tmp_path: Path) -> None:
    """A negative limit fails if there are records to read, an unknown isolation level always."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t")
        invalid = fetch(topic, part(partition_max_bytes=-1)), fetch(topic, part(), max_bytes=-1)
        for request in invalid:
            assert brief(await client.send(request)) == [(0, Errors.NONE, 0)]
        client.write("t", b"a")
        for request in invalid:
            assert brief(await client.send(request)) == [(0, Errors.UNKNOWN_SERVER_ERROR, 0)]
        answer = await client.send(fetch(topic, part(0), isolation_level=2))
        assert (answer.error_code, answer.responses) == (Errors.UNKNOWN_SERVER_ERROR, ())
        named = FetchRequest(topics=(FetchTopic(topic="t", partitions=(part(0),)),), isolation_level=2)
        answer = await client.send(named, 12)
        assert answer.error_code == Errors.UNKNOWN_SERVER_ERROR
        assert brief(answer) == [(0, Errors.UNKNOWN_SERVER_ERROR, 0)]

    run_with_broker(tmp_path, scenario)


def test_fetches_of_replicas_are_rejected(tmp_path: Path) -> None:
    """There is only one replica, the leader. Negative replica ids are consumers."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t")
        client.write("t", b"a")
        for replica, epoch, error in (
            (5, -1, Errors.NOT_LEADER_OR_FOLLOWER),
            (5, 0, Errors.UNKNOWN_LEADER_EPOCH),
            (-2, 0, Errors.NONE),
        ):
            state = ReplicaState(replica_id=replica)
            request = fetch(topic, part(0, current_leader_epoch=epoch), replica_state=state)
            assert brief(await client.send(request))[0][1] == error

    run_with_broker(tmp_path, scenario)


def test_diverging_epoch_is_returned(tmp_path: Path) -> None:
    """A client whose offset is above the end of its last epoch receives the end of that epoch."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t")
        client.write("t", b"a", b"b")
        answer = await client.send(fetch(topic, part(0, 9, last_fetched_epoch=0), max_wait_ms=60_000))
        data = answer.responses[0].partitions[0]
        assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 0, 2)
        ahead = await client.send(fetch(topic, part(0, 0, last_fetched_epoch=4)))
        assert brief(ahead) == [(0, Errors.OFFSET_OUT_OF_RANGE, 0)]

    run_with_broker(tmp_path, scenario)


def test_first_batch_ignores_size_limits(tmp_path: Path) -> None:
    """The first batch is returned whatever the limits; the following ones have to fit."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t", 3)
        for index in range(3):
            client.write("t", b"x" * 100, index=index)
            client.write("t", b"y" * 100, index=index)
        three = (part(0), part(1), part(2))
        counts = {}
        for max_bytes in (0, 1, 400, 800, 1 << 20):
            answer = await client.send(fetch(topic, *three, max_bytes=max_bytes))
            counts[max_bytes] = [count for _, _, count in brief(answer)]
        assert counts == {
            0: [1, 0, 0], 1: [1, 0, 0], 400: [2, 0, 0], 800: [2, 2, 0], 1 << 20: [2, 2, 2],
        }  # fmt: skip
        small = tuple(part(i, partition_max_bytes=1) for i in range(3))
        assert [count for _, _, count in brief(await client.send(fetch(topic, *small)))] == [1, 0, 0]

    run_with_broker(tmp_path, scenario)


def test_repeated_partition_has_one_result(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t", 2)
        client.write("t", b"a")
        answer = await client.send(fetch(topic, part(0, 1), part(1), part(0, 0)))
        assert brief(answer) == [(0, 0, 1), (1, 0, 0)]

    run_with_broker(tmp_path, scenario)


async def send_timed(client: BrokerClient, request: FetchRequest) -> tuple[FetchResponse, bool]:
    began = time.monotonic()
    answer = await client.send(request)
    return answer, time.monotonic() - began >= A_WHILE / 1000 * 0.9


def test_fetch_without_enough_records_waits(tmp_path: Path) -> None:
    """Only if it has a readable partition and no error. A missing partition does not end the wait."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t", 2)
        client.write("t", b"a")
        wait = {"max_wait_ms": A_WHILE}
        cases = [
            (True, fetch(topic, part(1), **wait)),
            (True, fetch(topic, part(1), part(9), **wait)),
            (True, fetch(topic, part(0), **wait | {"min_bytes": 10_000})),
            (False, fetch(topic, part(0), **wait | {"min_bytes": 10_000, "max_bytes": 10})),
            (False, fetch(topic, part(1), **wait | {"min_bytes": 0})),
            (False, fetch(topic, part(0), **wait)),
            (False, fetch(topic, part(9), **wait)),
            (False, fetch(topic, part(1), part(0, 99), **wait)),
            (False, fetch(topic, **wait)),
        ]
        for slow, request in cases:
            assert (await send_timed(client, request))[1] == slow, request

    run_with_broker(tmp_path, scenario)


def test_waiting_fetch_completes_with_min_bytes(tmp_path: Path) -> None:
    """Records of several batches and partitions add up to `min_bytes`."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t", 2)
        request = fetch(topic, part(0), part(1), max_wait_ms=60_000, min_bytes=500)
        waiting = asyncio.ensure_future(client.send(request))
        await asyncio.sleep(0.05)
        for index in (0, 1, 0):
            assert not waiting.done()
            client.write("t", b"x" * 100, index=index)
            await asyncio.sleep(0.02)
        assert brief(await waiting) == [(0, 0, 2), (1, 0, 1)]
        partition = client.broker.partitions.get("t", 0)
        assert partition is not None and not partition.waiting

    run_with_broker(tmp_path, scenario)


def test_waiting_fetch_completes_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t")
        waiting = asyncio.ensure_future(client.send(fetch(topic, part(), max_wait_ms=60_000)))
        await asyncio.sleep(0.05)
        await client.drop("t")
        assert brief(await waiting)[0][1] != Errors.NONE

    run_with_broker(tmp_path, scenario)


def test_read_committed_stops_at_an_open_transaction(tmp_path: Path) -> None:
    """After its end the response has the aborted transactions."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t")
        client.write("t", b"a")
        partition = client.broker.partitions.get("t", 0)
        assert partition is not None
        partition.log.append_built(
            [(None, b"b")], 0, 1_000, producer_id=9, producer_epoch=0, transactional=True
        )
        open_ = await client.send(fetch(topic, part(), isolation_level=1))
        assert brief(open_) == [(0, 0, 1)]
        data = open_.responses[0].partitions[0]
        assert (data.high_watermark, data.last_stable_offset, data.aborted_transactions) == (2, 1, ())
        assert brief(await client.send(fetch(topic, part()))) == [(0, 0, 2)]
        partition.log.append_marker(False, 0, 1_000, producer_id=9, producer_epoch=0, coordinator_epoch=0)
        done = await client.send(fetch(topic, part(), isolation_level=1))
        assert brief(done) == [(0, 0, 3)]
        (aborted,) = done.responses[0].partitions[0].aborted_transactions
        assert (aborted.producer_id, aborted.first_offset) == (9, 1)

    run_with_broker(tmp_path, scenario)


def test_fetch_session_from_full_fetch_to_close(tmp_path: Path) -> None:
    """All partitions, none, one that grew, a recreated topic, and the final epoch."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t", 2)
        client.write("t", b"a")
        full = await client.send(fetch(topic, part(0), part(1), session_epoch=0))
        session = full.session_id
        assert session > 0 and brief(full) == [(0, 0, 1), (1, 0, 0)]

        async def next_(epoch: int, *partitions: FetchPartition, **more: Any) -> FetchResponse:
            answer = await client.send(
                fetch(topic, *partitions, session_id=session, session_epoch=epoch, **more)
            )
            assert isinstance(answer, FetchResponse)
            return answer

        assert brief(await next_(1, part(0, 1))) == []
        client.write("t", b"b", index=1)
        grown = await next_(2)
        assert (grown.session_id, brief(grown)) == (session, [(1, 0, 1)])
        assert (await next_(2)).error_code == Errors.INVALID_FETCH_SESSION_EPOCH
        await client.drop("t")
        assert brief(await next_(3)) == [
            (0, Errors.UNKNOWN_TOPIC_OR_PARTITION, 0), (1, Errors.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ]  # fmt: skip
        again = await client.topic("t", 1)
        assert again != topic
        assert brief(await next_(4))[0] == (0, Errors.INCONSISTENT_TOPIC_ID, 0)
        forget = (ForgottenTopic(topic_id=topic, partitions=(0, 1)),)
        assert (await next_(5, forgotten_topics_data=forget)).session_id == 0
        assert (await next_(6)).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND

    run_with_broker(tmp_path, scenario)


def test_session_cost_is_linear_in_its_partitions(tmp_path: Path) -> None:
    """Ten times as many unknown partitions cost ten times the CPU to fetch and forget, not a hundred."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t")

        async def cost(count: int) -> float:
            """Return the CPU seconds of a session of `count` partitions, opened and emptied."""
            before = time.process_time()
            full = await client.send(fetch(topic, *(part(i) for i in range(count)), session_epoch=0))
            assert len(full.responses[0].partitions) == count
            forget = (ForgottenTopic(topic_id=topic, partitions=tuple(range(count))),)
            emptied = fetch(topic, session_id=full.session_id, session_epoch=1, forgotten_topics_data=forget)
            assert (await client.send(emptied)).session_id == 0
            return time.process_time() - before

        await cost(1_000)  # Warm-up: compiles codecs and imports modules.
        assert await cost(100_000) < 40 * await cost(10_000)

    run_with_broker(tmp_path, scenario)


def damage_length(tmp_path: Path, folder: str, offset: int) -> None:
    """Set the length of the batch that begins at `offset` to 1."""
    (path,) = (tmp_path / folder).glob("*.log")
    data = bytearray(path.read_bytes())
    at = 0
    while int.from_bytes(data[at : at + 8], "big") != offset:
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    data[at + 8 : at + 12] = (1).to_bytes(4, "big")
    path.write_bytes(data)


def test_damaged_log_is_reported_as_corrupt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As by Kafka: CORRUPT_MESSAGE for the partition only. Each position is logged once, with what to do."""

    async def scenario(client: BrokerClient) -> None:
        topic = await client.topic("t", 2)
        partition = client.broker.partitions.get("t", 0)
        assert partition is not None
        for n in range(1, 5):
            partition.append([(None, b"a")], 1_000 * n)
        client.write("t", b"other", index=1)
        damage_length(tmp_path, "t-0", 2)
        for offset in (2, 3, 2):
            for level in (0, 1):
                answer = await client.send(fetch(topic, part(0, offset), part(1), isolation_level=level))
                assert brief(answer) == [(0, Errors.CORRUPT_MESSAGE, 0), (1, 0, 1)]
        lookup = ListOffsetsTopic(
            name="t", partitions=(ListOffsetsPartition(partition_index=0, timestamp=4_000),)
        )
        (row,) = (await client.send(ListOffsetsRequest(topics=(lookup,)))).topics[0].partitions
        assert row.error_code == Errors.CORRUPT_MESSAGE
        damage_length(tmp_path, "t-0", 1)
        assert brief(await client.send(fetch(topic, part(0, 1)))) == [(0, Errors.CORRUPT_MESSAGE, 0)]

    run_with_broker(tmp_path, scenario)
    first, second = [row.getMessage() for row in caplog.records if "cannot be read" in row.getMessage()]
    folder = tmp_path / "t-0"
    assert first.startswith(f"t-0 cannot be read: {folder}/{0:020}.log is damaged at byte ")
    assert first.endswith(f": a batch of 1 bytes; `konvene log verify {folder}` shows all damage")
    assert first != second


def test_warnings_of_a_damaged_log_are_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: BrokerClient) -> None:
        await client.topic("t")
        partition = client.broker.partitions.get("t", 0)
        assert partition is not None
        for position in range(100):
            partition.report_damage(DamagedLog("t-0", position, "a batch of 1 bytes"))

    run_with_broker(tmp_path, scenario)
    assert len([row for row in caplog.records if "cannot be read" in row.getMessage()]) == MAX_DAMAGE_WARNINGS
