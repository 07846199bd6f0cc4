"""Results of Produce: batches, requests and producers; see `producing` for what is expected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.handlers.producing import VERSION, accepted, answer, refused, request, stored, topic
from tests.broker.hostile.forged import batch, old, packed, record, records
from tests.broker.hostile.wire import Target, frame, header, started

from konvene.codec import batches as rb
from konvene.codec.compile import encode
from konvene.codec.compression import Compression
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.messages.produce import (
    ProduceRequest,
)

ZSTD = Compression.ZSTD
NOWHERE = "no-such-topic"
PRODUCER = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 11}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with started(tmp_path_factory.mktemp("produce")) as target:
        yield target


BATCHES = {
    "a checksum that does not hold": (batch(crc=1), refused(Errors.CORRUPT_MESSAGE, -1)),
    "more records counted than there are": (batch(records(1), 2), refused(Errors.INVALID_RECORD)),
    "fewer records counted than there are": (batch(records(2), 1), refused(Errors.INVALID_RECORD)),
    "a base offset": (batch(base_offset=3), refused(Errors.INVALID_RECORD)),
    "a negative base offset": (batch(base_offset=-3), refused(Errors.INVALID_RECORD)),
    "a control batch": (batch(attributes=0x20), refused(Errors.INVALID_RECORD)),
    "no records": (batch(b"", 0), refused(Errors.INVALID_RECORD)),
    "a negative count": (batch(record_count=-1), refused(Errors.INVALID_RECORD)),
    "an offset delta above the count": (batch(last_offset_delta=5), refused(Errors.INVALID_RECORD)),
    "two batches": (batch() + batch(), refused(Errors.INVALID_RECORD, -1)),
    "a batch and something of no length": (batch() + bytes(30), refused(Errors.CORRUPT_MESSAGE, -1)),
    "no bytes": (b"", refused(Errors.INVALID_RECORD, -1)),
    "a message of magic 1": (old(1), refused(Errors.INVALID_RECORD, -1)),
    "a producer without a sequence": (
        batch(producer_id=9, producer_epoch=0), refused(Errors.INVALID_RECORD)),
}  # fmt: skip


@pytest.mark.parametrize("case", BATCHES)
def test_invalid_batch_has_kafkas_error_code(case: str, target: Target) -> None:
    """An error code without a message, and the log start offset if the log was reached."""
    data, expected = BATCHES[case]
    assert answer(target, topic(target, "batches"), data) == expected


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch(magic=3), "Invalid magic found in record: 3"),
        (batch(magic=-1), "Invalid magic found in record: -1"),
        (batch(batch_length=5), "Record size 5 is less than the minimum record overhead (14)"),
        (batch(batch_length=-1), "Record size -1 is less than the minimum record overhead (14)"),
    ],
    ids=["magic 3", "magic -1", "length 5", "length -1"],
)
def test_data_without_a_batch_rejects_the_request(data: bytes, why: str, target: Target) -> None:
    """Nothing is appended, and the error has a message."""
    name = topic(target, "spoilt", 2)
    response = target.ask(request(name, (0, batch()), (1, data)), VERSION)
    found = {p.index: p for t in response.responses for p in t.partition_responses}
    expected = refused(Errors.CORRUPT_MESSAGE, -1).replace(error_message=why)
    assert found == {0: expected, 1: expected.replace(index=1)}
    assert stored(target, name) == []


def test_truncated_batch_after_the_first_is_ignored(target: Target) -> None:
    name = topic(target, "cut")
    assert answer(target, name, batch() + batch()[:40]) == accepted(0)
    assert answer(target, name, batch() + b"\0") == accepted(1)
    assert [head.base_offset for head, _ in stored(target, name)] == [0, 1]


def test_zstd_is_rejected_in_older_versions(target: Target) -> None:
    name = topic(target, "zstd-early")
    data = packed(ZSTD, records(1))
    assert answer(target, name, data, 6) == refused(Errors.UNSUPPORTED_COMPRESSION_TYPE, -1).replace(
        log_start_offset=-1
    )
    assert answer(target, name, data, 7) == accepted(0)


def test_batch_size_limits(target: Target) -> None:
    """A batch may have up to max.message.bytes, and up to segment.bytes."""
    small = topic(target, "small", max_message_bytes=200)
    spare = 200 - len(batch(record(value=rb._sized(b"v" * 100))))
    assert answer(target, small, batch(record(value=rb._sized(b"v" * (100 + spare))))) == accepted(0)
    larger = batch(record(value=rb._sized(b"v" * (101 + spare))))
    assert answer(target, small, larger) == refused(Errors.MESSAGE_TOO_LARGE, -1)
    segment = topic(target, "segment", segment_bytes=1 << 20, max_message_bytes=3_000_000)
    data = batch(record(value=rb._sized(b"v" * 1_100_000)))
    assert answer(target, segment, data) == refused(Errors.RECORD_LIST_TOO_LARGE, -1)


def test_unknown_topics_and_partitions(target: Target) -> None:
    """By name up to version 12, by id since version 13; each has its own error."""
    name = topic(target, "names")
    known = target.topic(name)
    unknown = refused(Errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert answer(target, NOWHERE, batch()) == unknown
    assert answer(target, name, batch(), index=9) == unknown.replace(index=9)
    assert answer(target, known, batch(), 13, index=9) == unknown.replace(index=9)
    for no_id in (Uuid(b"1" * 16), ZERO_UUID):
        assert answer(target, no_id, batch(), 13) == refused(Errors.UNKNOWN_TOPIC_ID, -1)
    assert answer(target, known, batch(), 13) == accepted(0)


def test_invalid_acks_are_rejected(target: Target) -> None:
    """Errors of the topic or the batch come first."""
    name = topic(target, "acks")
    for acks in (2, -2, 100):
        assert answer(target, name, batch(), acks=acks) == refused(Errors.INVALID_REQUIRED_ACKS, -1)
    assert answer(target, NOWHERE, batch(), acks=2) == refused(Errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert answer(target, name, b"", acks=2) == refused(Errors.INVALID_RECORD, -1)
    assert answer(target, name, batch(crc=1), acks=2) == refused(Errors.INVALID_REQUIRED_ACKS, -1)
    assert answer(target, name, batch(), acks=-1) == accepted(0)


def test_empty_request_has_an_empty_response(target: Target) -> None:
    """No topics, or topics without partitions, with any acks."""
    name = topic(target, "nothing")
    for empty in (
        ProduceRequest(acks=1, timeout_ms=1, topic_data=()),
        ProduceRequest(acks=7, timeout_ms=1, topic_data=()),
        request(name),
    ):
        assert target.ask(empty, VERSION).responses == ()


QUIET = {
    "a sound batch": ({}, batch(), None),
    "a batch that was written before": ({}, batch(**PRODUCER), None),
    "a checksum that does not hold": ({}, batch(crc=1), "closed"),
    "records of a transaction": ({}, batch(attributes=0x10, **PRODUCER), "closed"),
    "records of a named transaction": ({"transaction": "t"}, batch(attributes=0x10, **PRODUCER), "closed"),
}


@pytest.mark.parametrize("case", QUIET)
def test_without_acks_an_error_closes_the_connection(case: str, target: Target) -> None:
    """Without an error there is no response: the next one belongs to the next request."""
    fields, data, ends = QUIET[case]
    name = topic(target, "quiet")
    answer(target, name, batch(**PRODUCER))
    with target.client() as client:
        client.send(frame(header(0, VERSION) + encode(request(name, (0, data), acks=0, **fields), VERSION)))
        found = client.ask(request(name, (9, b"")), VERSION)
    assert (None if found else "closed") == ends


def test_last_batch_of_a_repeated_partition_is_appended(target: Target) -> None:
    """There is one result: an error if either batch is invalid, although the other one is appended."""
    name = topic(target, "twice", 2)
    for data, expected in (
        ([batch(), batch(records(3), 3)], accepted(0)),
        ([batch(b"", 0)[:20], batch()], refused(Errors.INVALID_RECORD, -1)),
        ([batch(), b""], refused(Errors.INVALID_RECORD, -1)),
        ([batch(), batch(crc=1)], refused(Errors.CORRUPT_MESSAGE, -1)),
    ):
        response = target.ask(request(name, *((0, found) for found in data)), VERSION)
        assert [p for t in response.responses for p in t.partition_responses] == [expected]
    once = request(name, (0, batch()))
    response = target.ask(once.replace(topic_data=once.topic_data * 2), VERSION)
    assert [p for t in response.responses for p in t.partition_responses] == [accepted(5)]
    assert [head.record_count for head, _ in stored(target, name)] == [3, 1, 1, 1]


# producers ------------------------------------------------------------------------------------


def of(sequence: int, count: int = 1, epoch: int = 0, producer: int = 70) -> bytes:
    return batch(records(count), count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_producer_sequence_is_checked(target: Target) -> None:
    """A duplicate of the last five batches gets their offset and time; an older one is rejected."""
    name = topic(target, "sequence")
    out_of_order = refused(Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    written = 1_700_000_000_000
    for sequence in range(7):
        assert answer(target, name, of(sequence)) == accepted(sequence)
    assert answer(target, name, of(6)) == accepted(6, written)
    assert answer(target, name, of(2)) == accepted(2, written)
    assert answer(target, name, of(1)) == out_of_order
    assert answer(target, name, of(9)) == out_of_order
    assert answer(target, name, of(6, 2)) == out_of_order
    assert answer(target, name, of(5, epoch=1)) == out_of_order
    assert answer(target, name, of(0, epoch=1)) == accepted(7)
    assert answer(target, name, of(1)) == refused(Errors.INVALID_PRODUCER_EPOCH)
    assert answer(target, name, of(6)) == refused(Errors.INVALID_PRODUCER_EPOCH)


def test_unknown_producer_may_begin_at_any_sequence(target: Target) -> None:
    """With an epoch or without. Sequence numbers wrap after 2^31-1."""
    name = topic(target, "unknown-producer")
    assert answer(target, name, of(5, producer=71)) == accepted(0)
    assert answer(target, name, of(0, producer=71)) == refused(Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert answer(target, name, of(0, epoch=-1, producer=73)) == accepted(1)
    assert answer(target, name, of(1, epoch=-1, producer=73)) == accepted(2)
    assert answer(target, name, of(2**31 - 2, 3, producer=74)) == accepted(3)
    assert answer(target, name, of(1, producer=74)) == accepted(6)
    assert answer(target, name, of(0, producer=-5)) == accepted(7)
    assert answer(target, name, of(-3, producer=75)) == refused(Errors.INVALID_RECORD)


def test_transactional_batch_without_a_transaction_is_rejected(target: Target) -> None:
    """Without a transactional id the request is not allowed; with one the transaction is unknown."""
    name = topic(target, "transactions")
    data = batch(attributes=0x10, **PRODUCER)
    produce = request(name, (0, data), (7, batch()))
    response = target.ask(produce, VERSION)
    codes = {p.index: p for t in response.responses for p in t.partition_responses}
    not_allowed = refused(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    assert codes == {0: not_allowed, 7: not_allowed.replace(index=7)}
    unverified = refused(Errors.NOT_ENOUGH_REPLICAS, -1).replace(
        error_message="Unable to verify the partition has been added to the transaction. "
        "Underlying error: COORDINATOR_NOT_AVAILABLE"
    )
    assert answer(target, name, data, transaction="t") == unverified
    assert answer(target, name, data, transaction="t", acks=5) == unverified
    assert answer(target, name, batch(), transaction="t") == accepted(0)
    assert answer(target, name, batch(attributes=0x10), transaction="t") == accepted(1)
    unknown = refused(Errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert answer(target, NOWHERE, data, transaction="t") == unknown
