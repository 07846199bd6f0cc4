"""Results of Produce: single records, their timestamps and codecs; see `producing` for what is expected.

Where konvene answers otherwise than Kafka, both answers stand here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from tests.broker.handlers.producing import accepted, answer, now_ms, refused, stored, timed, topic
from tests.broker.hostile.forged import batch, packed, record, records
from tests.broker.hostile.wire import Target, started

from konvene.codec import batches as rb
from konvene.codec.compression import Compression, compress
from konvene.errors import Errors
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.produce import (
    PartitionProduceResponse,
)

GZIP, LZ4 = Compression.GZIP, Compression.LZ4


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with started(tmp_path_factory.mktemp("produce")) as target:
        yield target


# records --------------------------------------------------------------------------------------


def keyless(name: str) -> str:
    return f"Compacted topic cannot accept message without key in topic partition {name}-0"


def test_records_without_a_key_are_rejected_in_a_compacted_topic(target: Target) -> None:
    """Each has an error with its index, and the message has the first three; also if compressed."""
    name = topic(target, "keys", cleanup_policy="compact")
    mixed = batch(record(key=b"\x02k") + b"".join(record(delta=i) for i in range(1, 5)), 5)
    for data, faults in (
        (batch(), [0]),
        (mixed, [1, 2, 3, 4]),
        (packed(GZIP, records(2), 2), [0, 1]),
    ):
        expected = refused(Errors.INVALID_RECORD, 0, *((at, keyless(name)) for at in faults))
        assert answer(target, name, data) == expected
    assert answer(target, name, batch(), 8) == refused(Errors.INVALID_RECORD, 0, (0, keyless(name)))
    assert answer(target, name, batch(), 7) == refused(Errors.INVALID_RECORD)


def within(found: PartitionProduceResponse, at_ms: int, before: int, after: int) -> tuple[int, int]:
    """Return the allowed timestamps of an error message, for a request sent at `at_ms`."""
    message = found.record_errors[-1].batch_index_error_message or ""
    low, high = (int(bound) for bound in message.rpartition("[")[2].rstrip("]").split(", "))
    assert at_ms <= low + before == high - after <= now_ms()
    return low, high


def out_of_range(timestamp: int, offset: int, bounds: tuple[int, int]) -> str:
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{bounds[0]}, {bounds[1]}]"
    )


def test_timestamps_too_far_from_the_clock_are_rejected(target: Target) -> None:
    """Too old, too new or negative: each record by itself, whatever the header has."""
    name = topic(
        target, "stamps", message_timestamp_before_max_ms=60_000, message_timestamp_after_max_ms=30_000
    )
    at = now_ms()
    for times, faults in (
        ((at, at - 120_000, at - 90_000), [1, 2]),
        ((at, at + 90_000, at), [1]),
        ((-5, at), [0]),
    ):
        found = answer(target, name, timed(*times, max_timestamp=at))
        bounds = within(found, at, 60_000, 30_000)
        expected = [(i, out_of_range(times[i], i, bounds)) for i in faults]
        assert found == refused(Errors.INVALID_TIMESTAMP, 0, *expected)
    assert answer(target, name, timed(at, at - 1, max_timestamp=at + 10**9)) == accepted(0)
    assert answer(target, name, timed(-1, at)) == accepted(2)
    assert [head.max_timestamp for head, _ in stored(target, name)] == [at, at]


def test_timestamp_error_determines_the_error_code(target: Target) -> None:
    """INVALID_TIMESTAMP, even if the first record error is a missing key."""
    name = topic(target, "both", cleanup_policy="compact", message_timestamp_after_max_ms=30_000)
    at = now_ms()
    body = record() + record(delta=1, time=90_000, key=b"\x02k") + record(delta=2, time=90_000)
    found = answer(target, name, batch(body, 3, base_timestamp=at, max_timestamp=at))
    message = found.record_errors[1].batch_index_error_message or ""
    assert message.startswith(f"Timestamp {at + 90_000} of message with offset 1 is out of range.")
    assert found == refused(Errors.INVALID_TIMESTAMP, 0, (0, keyless(name)), (1, message), (2, keyless(name)))


def test_timestamp_overflow_wraps_as_in_java(target: Target) -> None:
    """A delta of 2^63-1 from the first timestamp is negative."""
    name = topic(target, "wrap")
    at = now_ms()
    data = batch(record(time=2**63 - 1), base_timestamp=at, max_timestamp=at)
    message = answer(target, name, data).record_errors[0].batch_index_error_message or ""
    assert message.startswith(f"Timestamp {at + 2**63 - 1 - 2**64} ")


def test_log_append_time_of_a_producer_is_rejected(target: Target) -> None:
    """In topics with log append time. Elsewhere all records get the header's timestamp."""
    name = topic(target, "claims", message_timestamp_type="LogAppendTime")
    for data, shown in (
        (batch(attributes=8), "DefaultRecord(offset=0, timestamp=1700000000000, key=0 bytes, value=1 bytes)"),
        (
            packed(GZIP, record(key=b"\x02k", value=b"\x01"), attributes=9),
            "PartialDefaultRecord(offset=0, timestamp=1700000000000, key=1 bytes, value=-1 bytes)",
        ),
    ):
        fault = f"Invalid timestamp type in message {shown}. "
        fault += "Producer should not set timestamp type to LogAppendTime."
        assert answer(target, name, data) == refused(Errors.INVALID_TIMESTAMP, 0, (0, fault))
    plain = topic(target, "claims-plain")
    at = now_ms()
    assert answer(target, plain, timed(at, at + 5, attributes=0x748, max_timestamp=at + 9)) == accepted(0)
    ((head, found),) = stored(target, plain)
    assert (head.attributes, head.max_timestamp) == (0x40, at + 9)
    assert [entry.timestamp for entry in found] == [at, at + 5]


def test_max_timestamp_is_computed_from_the_records(target: Target) -> None:
    """Whatever the header has, also in compressed batches."""
    name = topic(target, "lies")
    at = now_ms()
    packed_ = packed(
        GZIP, record() + record(delta=1, time=7), 2, base_timestamp=at, max_timestamp=at + 10**12
    )
    for data in (
        timed(at, at + 5000, at + 1, max_timestamp=at - 10),
        timed(at, at + 5000, at + 1, max_timestamp=at + 10**12),
        timed(-1, -1, max_timestamp=at),
        packed_,
    ):
        assert not answer(target, name, data).error_code
    assert [head.max_timestamp - at for head, _ in stored(target, name)] == [5000, 5000, -1 - at, 7]


def test_log_append_time_is_returned_and_stored(target: Target) -> None:
    """The result and the stored header have the same timestamp."""
    name = topic(target, "appended", message_timestamp_type="LogAppendTime")
    at = now_ms()
    first = answer(target, name, timed(5, 10**15))
    assert at <= first.log_append_time_ms <= now_ms()
    assert first == accepted(0, first.log_append_time_ms)
    ((head, found),) = stored(target, name)
    assert (head.attributes, head.base_timestamp, head.max_timestamp) == (8, 5, first.log_append_time_ms)
    assert {entry.timestamp for entry in found} == {first.log_append_time_ms}


GAPS = {
    "offsets with a gap": (batch(record() + record(delta=2), 2), Errors.NONE),
    "gzip: offsets with a gap": (packed(GZIP, record() + record(delta=2), 2), Errors.UNKNOWN_SERVER_ERROR),
}


@pytest.mark.parametrize("case", GAPS)
def test_sparse_offsets_are_rejected(case: str, target: Target) -> None:
    """Kafka only checks compressed batches, and fails on those."""
    data, kafkas = GAPS[case]
    found = answer(target, topic(target, "gaps"), data)
    assert found.error_code == (kafkas if target.is_kafka else Errors.INVALID_RECORD)


# codecs ---------------------------------------------------------------------------------------

PRODUCER = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 11}


@pytest.mark.parametrize("kind", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_recompressed_with_the_codec_of_the_topic(kind: str, target: Target) -> None:
    """Their headers equal Kafka's. Batches that have the codec already are stored unchanged."""
    name = topic(target, f"codec-{kind}", compression_type=kind)
    codec = Compression.NONE if kind == "uncompressed" else Compression[kind.upper()]
    at = now_ms()
    later = batch(
        b"".join(record(delta=i, time=by) for i, by in enumerate((5, 3, 7))),
        3, base_timestamp=at, max_timestamp=at, **PRODUCER,
    )  # fmt: skip
    zipped = packed(GZIP, record() + record(delta=1, time=1), 2, base_timestamp=at, max_timestamp=at + 500)
    claims = timed(at, at + 3, attributes=0x748, max_timestamp=at + 77)
    assert [answer(target, name, data).base_offset for data in (later, zipped, claims)] == [0, 3, 5]
    assert answer(target, name, later) == accepted(0, at + 7)
    same = codec is Compression.NONE
    expected = [
        (0, int(codec), 2, 0 if same else 5, 7, 9, 2, 11, 3),
        (3, int(codec), 1, 0, 1, -1, -1, -1, 2),
        (5, 0x40 if same else int(codec), 1, 0 if same else 77, 77, -1, -1, -1, 2),
    ]
    found = stored(target, name)
    assert [
        (
            head.base_offset, head.attributes, head.last_offset_delta, head.base_timestamp - at,
            head.max_timestamp - at, head.producer_id, head.producer_epoch, head.base_sequence,
            head.record_count,
        )
        for head, _ in found
    ] == expected  # fmt: skip
    times = [[entry.timestamp - at for entry in entries] for _, entries in found]
    assert times == [[5, 3, 7], [0, 1], [0, 3] if same else [77, 77]]


def test_recompressed_batch_has_log_append_time(target: Target) -> None:
    name = topic(target, "codec-time", compression_type="lz4", message_timestamp_type="LogAppendTime")
    at = now_ms()
    append_time_ms = answer(target, name, timed(at, at + 5)).log_append_time_ms
    ((head, _),) = stored(target, name)
    assert (head.attributes, head.base_timestamp, head.max_timestamp) == (8 | LZ4, at, append_time_ms)


def test_recompressed_batch_may_be_too_large(target: Target) -> None:
    """The size is checked before and after recompression."""
    name = topic(target, "codec-size", compression_type="uncompressed", max_message_bytes=200)
    data = packed(GZIP, record(value=rb._sized(b"v" * 300)))
    assert len(data) < 200
    assert answer(target, name, data) == refused(Errors.MESSAGE_TOO_LARGE, -1)


def test_decompressed_record_size_is_limited(target: Target) -> None:
    """`max.decompressed.message.bytes` applies to each record of a compressed batch."""
    name = topic(target, "unpacked", max_decompressed_message_bytes=100)
    long, short = record(value=rb._sized(b"v" * 300)), record(value=rb._sized(b"v" * 60))
    three = short + record(delta=1, value=rb._sized(b"v" * 60)) + record(delta=2, value=rb._sized(b"v" * 60))
    assert answer(target, name, packed(GZIP, long)) == refused(Errors.INVALID_RECORD)
    assert answer(target, name, batch(long)) == accepted(0)
    assert answer(target, name, packed(GZIP, three, 3)) == accepted(1)


def test_changed_codec_applies_to_later_batches(target: Target) -> None:
    """Stored batches stay unchanged."""
    name = topic(target, "codec-changed")
    assert answer(target, name, timed(now_ms())) == accepted(0)
    for offset, (setting, value) in enumerate(
        (("compression.type", "gzip"), ("message.timestamp.type", "LogAppendTime")), 1
    ):
        changed = AlterableConfig(name=setting, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=(changed,))
        target.ask(IncrementalAlterConfigsRequest(resources=(resource,)))
        deadline = time.monotonic() + 10
        while not settings_seen(target, name, setting, value):
            assert time.monotonic() < deadline
        assert answer(target, name, timed(now_ms())).base_offset == offset
    assert [head.attributes for head, _ in stored(target, name)] == [0, GZIP, GZIP | 8]


def settings_seen(target: Target, name: str, setting: str, value: str) -> bool:
    resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=(setting,))
    (found,) = target.ask(DescribeConfigsRequest(resources=(resource,))).results
    return bool(found.configs and found.configs[0].value == value)


LZ4_LEVELS = {9: 1, 1: 3, 2: 3, 12: 12}
"""`compression.lz4.level` and the codec's level; Kafka's default selects the fast compressor."""


@pytest.mark.parametrize("kind", [GZIP, LZ4, Compression.ZSTD], ids=lambda kind: kind.label)
def test_compression_level_of_the_topic_is_used(kind: Compression, target: Target) -> None:
    """The bytes equal the codec's at that level; against Kafka only the sizes are compared."""
    setting = f"compression_{kind.label}_level"
    chance = random.Random(5)
    words = [bytes(chance.choices(b"abcdefgh", k=chance.randrange(2, 9))) for _ in range(500)]
    body = record(value=rb._sized(b" ".join(chance.choices(words, k=20_000))))
    sizes = []
    for level in LZ4_LEVELS if kind is LZ4 else (1, 9):
        name = topic(target, f"level-{kind.label}-{level}", compression_type=kind.label, **{setting: level})
        assert answer(target, name, batch(body)) == accepted(0)
        ((head, _),) = stored(target, name)
        sizes.append(head.size - rb.HEADER_SIZE)
        ours = compress(kind, body, LZ4_LEVELS[level] if kind is LZ4 else level)
        assert target.is_kafka or sizes[-1] == len(ours)
    assert sizes[0] > sizes[-1]
