"""Rows 21 to 23 of the hostile inputs: fetches by alleged replicas, with unusual values, of forged sessions.

The error codes are Kafka's; `KONVENE_AGAINST=kafka` checks them again.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.broker.hostile.wire import Client, Target, frame, header
from tests.codec.test_hostile import size

from konvene.codec.batches import Record, build
from konvene.codec.compile import decode, encode
from konvene.errors import Errors
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "hostile-fetch"
HUGE = 2**31 - 1
NONE, UNKNOWN = Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION
NO_SESSION, WRONG_EPOCH = Errors.FETCH_SESSION_ID_NOT_FOUND, Errors.INVALID_FETCH_SESSION_EPOCH


@pytest.fixture(autouse=True)
def topic(target: Target) -> None:
    target.topic(TOPIC, 3)


def partition(index: int = 0, **overrides: Any) -> FetchPartition:
    return FetchPartition(**{"partition": index, "fetch_offset": 0, "partition_max_bytes": HUGE} | overrides)


def fetch(*partitions: FetchPartition, topic: str = TOPIC, **overrides: Any) -> FetchRequest:
    topics = (FetchTopic(topic=topic, partitions=partitions),) if partitions else ()
    fields = {"topics": topics, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": HUGE}
    return FetchRequest(**fields | overrides)


def codes(answer: Any) -> list[Errors]:
    return [Errors(p.error_code) for t in answer.responses for p in t.partitions]


FOLLOWERS = {
    "a follower": (fetch(partition(), replica_id=1), Errors.NOT_LEADER_OR_FOLLOWER),
    "an unknown follower": (fetch(partition(), replica_id=5), Errors.NOT_LEADER_OR_FOLLOWER),
    "a follower that knows an epoch": (
        fetch(partition(current_leader_epoch=0), replica_id=5),
        Errors.UNKNOWN_LEADER_EPOCH,
    ),
    "a debugger": (fetch(partition(), replica_id=-2), NONE),
    "an invalid replica id": (fetch(partition(), replica_id=-5), NONE),
}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_row_21_a_client_that_claims_to_be_a_replica(name: str, target: Target) -> None:
    """A fetch as a follower is rejected; other replica ids are served like a consumer."""
    request, expected = FOLLOWERS[name]
    answer = target.ask(request, 12)
    assert (codes(answer), answer.responses[0].partitions[0].records) == ([expected], b"")


ODD = {
    "a negative partition": (fetch(partition(-1)), [UNKNOWN]),
    "partition 2^31-1": (fetch(partition(HUGE)), [UNKNOWN]),
    "a negative offset": (fetch(partition(fetch_offset=-1)), [Errors.OFFSET_OUT_OF_RANGE]),
    "offset 2^63-1": (fetch(partition(fetch_offset=2**63 - 1)), [Errors.OFFSET_OUT_OF_RANGE]),
    "a future leader epoch": (fetch(partition(current_leader_epoch=HUGE)), [Errors.UNKNOWN_LEADER_EPOCH]),
    "records of a future epoch": (fetch(partition(last_fetched_epoch=HUGE)), [Errors.OFFSET_OUT_OF_RANGE]),
    "a log start of 2^63-1": (fetch(partition(log_start_offset=2**63 - 1)), [NONE]),
    "no bytes": (fetch(partition(), max_bytes=0), [NONE]),
    "a negative minimum": (fetch(partition(), min_bytes=-5, max_wait_ms=500), [NONE]),
    "a negative wait": (fetch(partition(), max_wait_ms=-1), [NONE]),
    "a topic without a name": (fetch(partition(), topic=""), [UNKNOWN]),
    "a topic that is a path": (fetch(partition(), topic="../" + TOPIC), [UNKNOWN]),
    "nothing": (fetch(), []),
    "one partition a thousand times": (fetch(*[partition()] * 1000), [NONE]),
    "one partition in a session, a thousand times": (fetch(*[partition()] * 1000, session_epoch=0), [NONE]),
}


@pytest.mark.parametrize("name", ODD)
def test_row_22_unusual_values(name: str, target: Target) -> None:
    """Each partition is answered once, however often the request names it and with whatever values."""
    request, expected = ODD[name]
    assert codes(target.ask(request, 12)) == expected


def test_row_22_min_bytes_that_are_never_reached(target: Target) -> None:
    """Such a fetch waits for its `max_wait_ms`; other connections are served meanwhile."""
    with target.client() as waiting:
        began = time.monotonic()
        waiting.send(frame(header(1, 12) + encode(fetch(partition(), min_bytes=HUGE, max_wait_ms=700), 12)))
        assert codes(target.ask(fetch(partition()), 12)) == [NONE]
        assert waiting.frame() is not None
        assert time.monotonic() - began >= 0.6


def test_row_22_a_repeated_partition_returns_its_records_once(target: Target) -> None:
    """The request names the same partition a thousand times, with the largest `partition_max_bytes`."""
    target.topic(TOPIC + "-full")
    batch = build([Record(0, 1, None, bytes(500_000))])
    data = PartitionProduceData(index=0, records=batch)
    sent = ProduceRequest(
        acks=1, timeout_ms=9000, topic_data=(TopicProduceData(name=TOPIC + "-full", partition_data=(data,)),)
    )
    assert target.ask(sent, 12).responses[0].partition_responses[0].error_code == 0
    answer = target.ask(fetch(*[partition()] * 1000, topic=TOPIC + "-full"), 12)
    assert [len(p.records) for p in answer.responses[0].partitions] == [len(batch)]


def test_row_22_a_response_is_bounded(target: Target) -> None:
    """A response exceeds the broker's `fetch.max.bytes` by at most one batch, whatever the client allows."""
    target.topic(TOPIC + "-deep", 3)
    batch = build([Record(0, 1, None, bytes(1_000_000))])
    for index in range(3):
        data = PartitionProduceData(index=index, records=batch)
        topics = (TopicProduceData(name=TOPIC + "-deep", partition_data=(data,)),)
        for _ in range(22):
            produced = target.ask(ProduceRequest(acks=1, timeout_ms=9000, topic_data=topics), 12)
            assert produced.responses[0].partition_responses[0].error_code == 0
    answer = target.ask(fetch(*map(partition, range(3)), topic=TOPIC + "-deep"), 12)
    size = sum(len(p.records) for p in answer.responses[0].partitions)
    assert 55 * 1024 * 1024 - 2 * len(batch) < size < 55 * 1024 * 1024 + len(batch)


@pytest.mark.parametrize(("count", "different"), [(100_000, True), (1_000_000, False)])
def test_row_22_very_many_partitions(count: int, different: bool, target: Target) -> None:
    """Each distinct partition is answered, and the memory is released afterwards."""
    if target.is_kafka and different:
        pytest.skip("Kafka takes a minute")
    before = target.rss_mib
    one = encode(fetch(partition()), 4)  # It ends with the number of partitions and one of 16 bytes.
    rows = b"".join((i if different else 0).to_bytes(4, "big") + one[-12:] for i in range(count))
    body = one[:-20] + size(count, False) + rows
    with target.client() as client:
        client.send(frame(header(1, 4) + body))
        answer = client.frame()
    assert answer is not None
    partitions = decode(FetchResponse, 4, answer, 4).responses[0].partitions
    assert [p.error_code for p in partitions[:3]] == [NONE] * (3 if different else 1)
    assert len(partitions) == (count if different else 1)
    assert target.ask(fetch(partition()), 12) is not None
    assert target.is_kafka or target.rss_mib - before < 200


FORGED = {
    "an unknown session": ((12345, 1), NO_SESSION),
    "no session, and an epoch": ((0, 7), NO_SESSION),
    "a negative session": ((-1, 1), NO_SESSION),
    "a negative epoch": ((12345, -2), NO_SESSION),
    "the end of an unknown session": ((12345, -1), NONE),
    "the start of an unknown session": ((12345, 0), NONE),
}


@pytest.mark.parametrize("name", FORGED)
def test_row_23_a_forged_session(name: str, target: Target) -> None:
    """An unknown session receives an error and no partitions; ending or starting one is a full fetch."""
    (session, epoch), error = FORGED[name]
    answer = target.ask(fetch(partition(), session_id=session, session_epoch=epoch), 12)
    assert answer.error_code == error
    assert codes(answer) == ([NONE] if error is NONE else [])


def test_row_23_session_epochs_out_of_order(target: Target) -> None:
    """A skipped or repeated epoch is rejected; the session continues with the next one."""

    def error_at(client: Client, epoch: int) -> Any:
        return client.ask(fetch(session_id=opened.session_id, session_epoch=epoch), 12).error_code

    with target.client() as client:
        opened = client.ask(fetch(partition(), session_epoch=0), 12)
        assert opened.session_id
        errors = [error_at(client, epoch) for epoch in (2, 1, 1, 3, HUGE, 2, -1, 3)]
    assert errors == [WRONG_EPOCH, NONE, WRONG_EPOCH, WRONG_EPOCH, WRONG_EPOCH, NONE, NONE, NO_SESSION]


def test_row_23_sessions_are_bounded(target: Target) -> None:
    """A fetch above `max.incremental.fetch.session.cache.slots` is served without a session."""
    with target.client() as client:
        opened = [client.ask(fetch(partition(), session_epoch=0), 12) for _ in range(1_100)]
    assert all(codes(answer) == [NONE] for answer in opened)
    held = {answer.session_id for answer in opened} - {0}
    assert 900 < len(held) <= 1_000
    with target.client() as client:
        for session in held:
            client.ask(fetch(session_id=session, session_epoch=-1), 12)
        assert client.ask(fetch(partition(), session_epoch=0), 12).session_id
