"""Record batches: Kafka's own bytes read and written, and damaged ones refused."""

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


def _shown(header: rb.BatchHeader, entries: list[Record]) -> dict[str, Any]:
    """A batch in the words of the golden file."""
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
def test_a_batch_reads_as_kafka_reads_it(label: str):
    """Header, checksum and every record agree with Kafka's own reading, for each compression."""
    row = GOLDEN[label]
    shown = []
    for header, view in rb.batches(bytes.fromhex(row["hex"])):
        rb.check(view, header)
        shown.append(_shown(header, rb.records(view, header)))
    assert row["batches"] == shown


def _rebuilt(header: rb.BatchHeader, view: memoryview, compression: Compression) -> bytes:
    """The batch written again from its records and header alone."""
    original = bytearray(view)
    original[22] &= ~0x08  # under the broker's time, the records still carry the producer's
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
def test_an_uncompressed_batch_is_written_as_kafka_writes_it(label: str):
    """Byte for byte, checksum included."""
    data = bytes.fromhex(GOLDEN[label]["hex"])
    written = b"".join(_rebuilt(h, v, Compression.NONE) for h, v in rb.batches(data))
    assert data.hex() == written.hex()


@pytest.mark.parametrize("label", [label for label in GOLDEN if not label.startswith(("none/", "control/"))])
def test_a_compressed_batch_says_the_same_again(label: str):
    """Written again with the same codec, a batch has the same header fields and records."""
    for header, view in rb.batches(bytes.fromhex(GOLDEN[label]["hex"])):
        again = _rebuilt(header, view, header.compression)
        new = rb.read_header(again)
        rb.check(again, new)
        assert rb.records(view) == rb.records(again)
        same = {"crc": 0, "batch_length": 0}
        assert header._replace(**same) == new._replace(**same)


@pytest.mark.parametrize("label", [label for label in GOLDEN if label.startswith("control/commit")])
def test_an_end_marker_is_kafkas(label: str):
    """A transaction marker built from its meaning has Kafka's bytes."""
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
def test_the_quick_way_and_the_general_way_write_the_same(entries, timestamp, base, transactional):
    """`build_simple` is `build` without the options."""
    slow = rb.build(
        [Record(base + at, timestamp, key, value) for at, (key, value) in enumerate(entries)],
        leader_epoch=7,
        producer_id=5,
        producer_epoch=2,
        base_sequence=3,
        transactional=transactional,
    )
    quick = rb.build_simple(
        entries,
        timestamp,
        base_offset=base,
        leader_epoch=7,
        producer_id=5,
        producer_epoch=2,
        base_sequence=3,
        transactional=transactional,
    )
    assert slow == quick


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
def test_any_records_come_back(rows, compression, base):
    """Gaps, old times, nulls, headers: what is built is read back, checksum sound."""
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
def test_a_stamp_moves_a_batch_and_keeps_it_sound(base, epoch, append_time):
    """Base offset, epoch and, where wanted, the broker's time change; the records stay."""
    data = bytearray(rb.build_simple([(b"k", b"v"), (None, b"w")], 1000) + b"another batch")
    size = rb.read_header(data).size
    rb.stamp(data, base, epoch, append_time)
    header = rb.read_header(data)
    rb.check(data[:size], header)
    assert data[size:] == b"another batch"
    assert (header.base_offset, header.partition_leader_epoch) == (base, epoch)
    time = 1000 if append_time is None else append_time
    assert [(base, time, b"k", b"v", ()), (base + 1, time, None, b"w", ())] == rb.records(data[:size])


def test_another_newest_time_is_written_and_nothing_else_that_counts():
    """The checksum follows; attributes that nobody defined are gone, as in Kafka."""
    data = bytearray(rb.build_simple([(b"k", b"v")], 1000))
    data[21:23] = b"\x07\x40"
    rb.stamp(data, 4, 2, max_timestamp=2000)
    header = rb.read_header(data)
    rb.check(data, header)
    assert (header.base_offset, header.partition_leader_epoch) == (4, 2)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (0x40, 1000, 2000)
    assert [record.timestamp for record in rb.records(data)] == [1000]


def test_a_claimed_broker_time_is_taken_back():
    """A producer cannot stamp the broker's time: under CreateTime the claim is cleared."""
    data = bytearray(rb.build_simple([(b"k", b"v")], 1000))
    plain = bytes(data)
    rb.stamp(data, 0, -1, 5000)
    assert rb.read_header(data).timestamp_type is TimestampType.LOG_APPEND_TIME
    rb.stamp(data, 0, -1)
    header = rb.read_header(data)
    rb.check(data, header)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert rb.records(plain) == rb.records(data)


@pytest.mark.parametrize("label", ["none/headers-nulls", "gzip/headers-nulls", "control/abort0"])
def test_every_flipped_bit_behind_the_checksum_is_noticed(label: str):
    """Whatever byte is damaged, `check` or the header reader says so; before the checksum stands only
    what a leader stamps."""
    data = bytes.fromhex(GOLDEN[label]["hex"])
    for at in [*range(8, 12), *range(16, len(data))]:
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(CodecError):
                rb.check(damaged, rb.read_header(damaged))


@given(st.binary(max_size=120), st.integers(-3, 40), st.integers(-3, 40), st.integers(0, 4))
def test_hostile_records_raise_only_codec_errors(body, count, delta, compression):
    """A sound header in front of any bytes: records or a codec error, never another exception."""
    base = rb.build_simple([(b"k", b"v")], 0)
    data = rb.read_header(base)._replace(
        batch_length=49 + len(body), attributes=compression, record_count=count, last_offset_delta=delta
    )
    raw = rb._HEADER.pack(*data) + body
    try:
        out = rb.records(raw, limit=10_000)
    except CodecError:
        return
    assert len(out) == max(count, 0)


def test_each_damage_has_its_error():
    """Too short, another magic, an impossible length, a lying count, a bomb, a missing key."""
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
    """Compaction leaves empty batches behind to remember a producer: they read as no records."""
    header = rb.read_header(rb.build_simple([(b"k", b"v")], 0))._replace(batch_length=49, record_count=0)
    assert rb.records(rb._HEADER.pack(*header)) == []
