"""Record batches: Kafka's bytes are decoded and encoded, and damaged batches are rejected."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.codec import batches as rb
from konvene.codec.batches import Record, TimestampType
from konvene.codec.compression import Compression
from konvene.codec.errors import CannotEncode, CodecError, CorruptBatch, Malformed, TooLarge, Truncated

VECTORS = Path(__file__).parents[1] / "vectors" / "batches.jsonl.gz"
GOLDEN = {row["label"]: row for row in map(json.loads, gzip.decompress(VECTORS.read_bytes()).splitlines())}
NAMES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _as_row(header: rb.BatchHeader, entries: list[Record]) -> dict[str, Any]:
    """Return the batch as a row of the golden file."""
    shown: dict[str, Any] = {
        "magic": header.magic,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "nextOffset": header.next_offset,
        "sizeInBytes": header.size,
        "checksum": header.crc,
        "compression": header.compression.label,
        "timestampType": NAMES[header.timestamp_type],
        "maxTimestamp": header.max_timestamp,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "isTransactional": header.is_transactional,
        "isControlBatch": header.is_control,
        "baseTimestamp": header.base_timestamp,
        "count": header.record_count,
        "records": [],
    }
    if header.delete_horizon is not None:
        shown["deleteHorizonMs"] = header.delete_horizon
    for record in entries:
        row: dict[str, Any] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "sequence": -1
            if header.base_sequence < 0
            else (header.base_sequence + record.offset - header.base_offset) & 0x7FFF_FFFF,
            "key": _hex(record.key),
            "value": _hex(record.value),
            "headers": [{"key": name, "value": _hex(value)} for name, value in record.headers],
        }
        if header.is_control:
            row["controlType"] = rb.control_type(record).name
            marker = rb.read_end_marker(record)
            if marker is not None:
                row["coordinatorEpoch"] = marker.coordinator_epoch
        shown["records"].append(row)
    return shown


@pytest.mark.parametrize("label", GOLDEN)
def test_a_batch_decodes_as_in_kafka(label: str):
    """Header, checksum and records equal those that Kafka decoded, for each compression type."""
    row = GOLDEN[label]
    shown = []
    for header, view in rb.batches(bytes.fromhex(row["hex"])):
        rb.check(view, header)
        shown.append(_as_row(header, rb.records(view, header)))
    assert row["batches"] == shown


def _rebuilt(header: rb.BatchHeader, view: memoryview, compression: Compression) -> bytes:
    """Rebuild the batch from its records and header."""
    original = bytearray(view)
    original[22] &= ~0x08  # with LogAppendTime, the records still carry the producer's timestamps
    return rb.build(
        rb.records(original),
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.partition_leader_epoch,
        compression=compression,
        timestamp_type=header.timestamp_type,
        log_append_time_ms=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        delete_horizon=header.delete_horizon,
    )


@pytest.mark.parametrize("label", [label for label in GOLDEN if label.startswith(("none/", "control/"))])
def test_an_uncompressed_batch_encodes_to_kafkas_bytes(label: str):
    """All bytes are equal, including the checksum."""
    data = bytes.fromhex(GOLDEN[label]["hex"])
    written = b"".join(_rebuilt(h, v, Compression.NONE) for h, v in rb.batches(data))
    assert data.hex() == written.hex()


@pytest.mark.parametrize("label", [label for label in GOLDEN if not label.startswith(("none/", "control/"))])
def test_a_rebuilt_compressed_batch_has_the_same_content(label: str):
    """Rebuilt with the same compression, a batch has the same header fields and records."""
    for header, view in rb.batches(bytes.fromhex(GOLDEN[label]["hex"])):
        rebuilt = _rebuilt(header, view, header.compression)
        rebuilt_header = rb.read_header(rebuilt)
        rb.check(rebuilt, rebuilt_header)
        assert rb.records(view) == rb.records(rebuilt)
        ignored = {"crc": 0, "batch_length": 0}
        assert header._replace(**ignored) == rebuilt_header._replace(**ignored)


@pytest.mark.parametrize("label", [label for label in GOLDEN if label.startswith("control/commit")])
def test_an_end_marker_encodes_to_kafkas_bytes(label: str):
    """A transaction marker built from its decoded fields has Kafka's bytes."""
    data = bytes.fromhex(GOLDEN[label]["hex"])
    header = rb.read_header(data)
    marker = rb.read_end_marker(rb.records(data)[0])
    assert marker is not None
    assert marker.committed
    assert data == rb.end_marker(
        marker.committed,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=header.max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
    )


pairs = st.lists(
    st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=1500)),
    min_size=1,
    max_size=80,
)


@given(pairs, st.integers(0, 2**60), st.integers(0, 2**60), st.booleans())
def test_build_simple_equals_build(entries, timestamp, base, transactional):
    """`build_simple` returns the same bytes as `build` for records without headers and compression."""
    general = rb.build(
        [Record(base + at, timestamp, key, value) for at, (key, value) in enumerate(entries)],
        leader_epoch=7,
        producer_id=5,
        producer_epoch=2,
        base_sequence=3,
        transactional=transactional,
    )
    simple = rb.build_simple(
        entries,
        timestamp,
        base_offset=base,
        leader_epoch=7,
        producer_id=5,
        producer_epoch=2,
        base_sequence=3,
        transactional=transactional,
    )
    assert general == simple


header_lists = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=100)), max_size=5).map(
    tuple
)
record_lists = st.lists(
    st.tuples(
        st.integers(1, 10_000),
        st.integers(-(2**40), 2**60),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=500),
        header_lists,
    ),
    min_size=1,
    max_size=30,
)


@given(record_lists, st.sampled_from(list(Compression)), st.integers(0, 2**62))
def test_any_records_survive_a_round_trip(rows, compression, base):
    """Offset gaps, decreasing timestamps, nulls and headers are decoded as encoded, with a valid checksum."""
    entries, offset = [], base
    for gap, *rest in rows:
        offset += gap
        entries.append(Record(offset, *rest))
    data = rb.build(entries, compression=compression)
    header = rb.read_header(data)
    rb.check(data, header)
    assert rb.records(data) == entries
    assert header.max_timestamp == max(record.timestamp for record in entries)


@given(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.none() | st.integers(0, 2**60))
def test_stamping_sets_offset_epoch_and_append_time(base, epoch, append_time):
    """`stamp` sets base offset, leader epoch and an optional append time; records and checksum stay valid."""
    data = bytearray(rb.build_simple([(b"k", b"v"), (None, b"w")], 1000) + b"another batch")
    size = rb.read_header(data).size
    rb.stamp(data, base, epoch, append_time)
    header = rb.read_header(data)
    rb.check(data[:size], header)
    assert data[size:] == b"another batch"
    assert (header.base_offset, header.partition_leader_epoch) == (base, epoch)
    time = 1000 if append_time is None else append_time
    assert [(base, time, b"k", b"v", ()), (base + 1, time, None, b"w", ())] == rb.records(data[:size])


def test_stamping_a_max_timestamp_changes_no_other_field():
    """The checksum is updated; undefined attribute bits are cleared, as in Kafka."""
    data = bytearray(rb.build_simple([(b"k", b"v")], 1000))
    data[21:23] = b"\x07\x40"
    rb.stamp(data, 4, 2, max_timestamp=2000)
    header = rb.read_header(data)
    rb.check(data, header)
    assert (header.base_offset, header.partition_leader_epoch) == (4, 2)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (0x40, 1000, 2000)
    assert [record.timestamp for record in rb.records(data)] == [1000]


def test_stamping_clears_a_log_append_time_set_by_the_producer():
    """With CreateTime, the timestamp type is reset to CREATE_TIME."""
    data = bytearray(rb.build_simple([(b"k", b"v")], 1000))
    original = bytes(data)
    rb.stamp(data, 0, -1, 5000)
    assert rb.read_header(data).timestamp_type is TimestampType.LOG_APPEND_TIME
    rb.stamp(data, 0, -1)
    header = rb.read_header(data)
    rb.check(data, header)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert rb.records(original) == rb.records(data)


@pytest.mark.parametrize("label", ["none/headers-nulls", "gzip/headers-nulls", "control/abort0"])
def test_every_flipped_bit_is_detected(label: str):
    """`check` or `read_header` rejects every damaged byte but base offset and leader epoch, which the leader
    sets and the checksum does not cover."""
    data = bytes.fromhex(GOLDEN[label]["hex"])
    for at in [*range(8, 12), *range(16, len(data))]:
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(CodecError):
                rb.check(damaged, rb.read_header(damaged))


@given(st.binary(max_size=120), st.integers(-3, 40), st.integers(-3, 40), st.integers(0, 4))
def test_hostile_records_raise_only_codec_errors(body, count, delta, compression):
    """A valid header followed by any bytes gives records or a codec error, never another exception."""
    base = rb.build_simple([(b"k", b"v")], 0)
    data = rb.read_header(base)._replace(
        batch_length=49 + len(body), attributes=compression, record_count=count, last_offset_delta=delta
    )
    raw = rb._HEADER.pack(*data) + body
    try:
        found = rb.records(raw, limit=10_000)
    except CodecError:
        return
    assert len(found) == max(count, 0)


def test_each_kind_of_damage_has_its_error():
    """Truncation, wrong magic, impossible length, wrong count, decompression bomb, missing key."""
    data = rb.build_simple([(b"k", b"v")] * 3, 5)
    with pytest.raises(Truncated):
        rb.read_header(data[:60])
    with pytest.raises(Malformed):
        rb.read_header(data[:16] + b"\x01" + data[17:])
    with pytest.raises(CorruptBatch):
        rb.read_header(data[:8] + b"\x00\x00\x00\x30" + data[12:])
    with pytest.raises(Truncated):
        list(rb.batches(data + data[:-1]))
    header = rb.read_header(data)
    with pytest.raises(CorruptBatch):
        rb.records(data, header._replace(record_count=2))
    with pytest.raises(Truncated):
        rb.records(data, header._replace(record_count=4, last_offset_delta=5))
    with pytest.raises(CorruptBatch):
        rb.records(data, header._replace(last_offset_delta=1))
    with pytest.raises(TooLarge):
        rb.records(rb.build([Record(0, 0, None, bytes(10**6))], compression=Compression.ZSTD), limit=10**5)
    with pytest.raises(Malformed):
        rb.records(rb.build_simple([(None, b"v")], 0), keyed=True)
    for entries in ([], [Record(5, 0, None, None), Record(5, 0, None, None)]):
        with pytest.raises(CannotEncode):
            rb.build(entries)


def test_an_empty_batch_has_no_records():
    """Compaction keeps empty batches for their producer state; they have no records."""
    header = rb.read_header(rb.build_simple([(b"k", b"v")], 0))._replace(batch_length=49, record_count=0)
    assert rb.records(rb._HEADER.pack(*header)) == []
