"""The record batch (magic 2), in which records are sent and stored.

A batch is a header of 61 bytes followed by its records, which may be compressed as a whole. This module
defines the position of each field, validates batches, and builds them (uncompressed ones byte for byte as
Kafka does). It gives offsets and epochs no meaning, opens no file and reads no clock.

The checksum covers everything after itself. The base offset and the leader epoch precede it, so a leader
stamps them into a producer's batch in place.

Hot paths: `build_simple` (each coordinator write) and `records` (each coordinator load) decode
variable-length numbers inline, whose common size is one byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from konvene.codec.compression import DEFAULT_LIMIT, Buffer, Compression, compress, decompress
from konvene.codec.errors import CannotEncode, CorruptBatch, Malformed, Truncated
from konvene.codec.varint import read_varint, read_varlong, write_varint, write_varlong

HEADER_SIZE = 61
#: Bytes that `batch_length` does not count: the base offset and the length itself.
PREFIX_SIZE = 12
MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FRONT = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
_CRC_AT = 17
_COVERED_AT = 21
_MAX_TIMESTAMP_AT = 35

_COMPRESSION = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40
_DEFINED = 0x7F

_new_tuple = tuple.__new__

Headers = tuple[tuple[str, bytes | None], ...]


class TimestampType(IntEnum):
    """Source of a batch's timestamps: the producer (CREATE_TIME) or the broker that appended it."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """Kafka's text for the type, as its console consumer prints it."""
        return "LogAppendTime" if self else "CreateTime"


class ControlType(IntEnum):
    """Type of a control record; numbers not listed are UNKNOWN and skipped."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Record(NamedTuple):
    """One record; a `value` of None is a tombstone. The timestamp is in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class EndMarker(NamedTuple):
    """The content of an end-transaction marker: commit or abort, and the epoch of its coordinator."""

    committed: bool
    coordinator_epoch: int


class BatchHeader(NamedTuple):
    """The 61-byte header of a batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.batch_length + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; 0 follows 2^31-1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def compression(self) -> Compression:
        """Compression codec of the records. Raises `Malformed` for a code that does not exist."""
        try:
            return Compression(self.attributes & _COMPRESSION)
        except ValueError:
            raise Malformed(f"compression {self.attributes & _COMPRESSION} does not exist") from None

    @property
    def timestamp_type(self) -> TimestampType:
        return (
            TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & _CONTROL != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon(self) -> int | None:
        """Time (ms) after which a cleaning may remove the batch's tombstones or marker; None if not set.

        A batch with a delete horizon stores it in place of its base timestamp.
        """
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None


# reading --------------------------------------------------------------------------------------


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Read the header at `pos`.

    Raises `Truncated` if fewer than 61 bytes remain, `Malformed` for another magic, `CorruptBatch` for an
    impossible length. The checksum is not verified: that is what `check` is for.
    """
    try:
        fields = _HEADER.unpack_from(buf, pos)
    except struct.error:
        raise Truncated(
            f"{len(buf) - pos} bytes are fewer than the {HEADER_SIZE} of a batch header"
        ) from None
    header = _new_tuple(BatchHeader, fields)
    if fields[3] != MAGIC:
        raise Malformed(f"magic {fields[3]} at {pos}: only record batches of magic 2 are known")
    if fields[1] < HEADER_SIZE - PREFIX_SIZE:
        raise CorruptBatch(f"a batch of {fields[1]} bytes at {pos} is shorter than its header")
    return header


def batches(buf: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each batch of `buf`: `(header, view of its bytes)`. Raises `Truncated` if the last one is
    incomplete."""
    view = memoryview(buf)
    pos, end = 0, len(view)
    while pos < end:
        header = read_header(view, pos)
        after = pos + header.batch_length + PREFIX_SIZE
        if after > end:
            raise Truncated(f"the batch at {pos} has {header.size} bytes, {end - pos} are there")
        yield header, view[pos:after]
        pos = after


def check_sum(batch: Buffer, header: BatchHeader) -> None:
    """Verify size and checksum of a whole batch; raise `CorruptBatch` if they do not match."""
    if len(batch) != header.batch_length + PREFIX_SIZE:
        raise CorruptBatch(f"the header has a size of {header.size} bytes, the batch has {len(batch)}")
    if crc32c(memoryview(batch)[_COVERED_AT:]) != header.crc:
        raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not hold")


def check(batch: Buffer, header: BatchHeader) -> None:
    """Verify checksum, counts and offsets of a whole batch; raise `CorruptBatch` if they do not match."""
    check_sum(batch, header)
    delta, count = header.last_offset_delta, header.record_count
    if (
        header.base_offset < 0
        or not -1 < count <= delta + 1
        or header.base_offset + delta > 0x7FFF_FFFF_FFFF_FFFF
    ):
        raise CorruptBatch(
            f"the batch at offset {header.base_offset} counts {count} records up to {delta} beyond its first"
        )


def records(
    batch: Buffer, header: BatchHeader | None = None, *, limit: int = DEFAULT_LIMIT, keyed: bool = False
) -> list[Record]:
    """Return all records of a batch, with absolute offsets and timestamps.

    Raises `TooLarge` if the decompressed records exceed `limit` bytes, and `CorruptBatch`, `Truncated` or
    `Malformed` unless all lengths and counts agree, offsets ascend within the batch and no bytes remain.
    With `keyed`, a record without a key is `Malformed`. Does not verify the checksum: call `check` first if
    the bytes may be damaged.
    """
    if header is None:
        header = read_header(batch)
    body: Buffer = memoryview(batch)[HEADER_SIZE : header.batch_length + PREFIX_SIZE]
    if header.record_count == 0 and not body:
        return []
    data = decompress(header.attributes & _COMPRESSION, body, limit)
    out: list[Record] = []
    stamped = header.max_timestamp if header.attributes & _LOG_APPEND_TIME else None
    pos, last_delta = 0, -1
    try:
        for _ in range(header.record_count):
            record, pos, delta = read_record(data, pos, header.base_offset, header.base_timestamp, stamped)
            if not last_delta < delta <= header.last_offset_delta:
                raise CorruptBatch(
                    f"record {len(out)} of the batch at offset {header.base_offset} has offset delta {delta}"
                )
            if keyed and record.key is None:
                raise Malformed(f"record {len(out)} of the batch at offset {header.base_offset} has no key")
            last_delta = delta
            out.append(record)
    except IndexError:
        raise Truncated(f"the records of the batch at offset {header.base_offset} are cut") from None
    if pos != len(data):
        raise CorruptBatch(f"{len(data) - pos} bytes too many in the batch at offset {header.base_offset}")
    return out


def read_record(
    data: bytes, pos: int, base_offset: int, base_timestamp: int, stamped: int | None
) -> tuple[Record, int, int]:
    """Read one record; return `(record, position after it, its offset delta)`.

    `stamped` is the timestamp of every record if the broker set it, else None. An IndexError means that the
    bytes end inside the record. Long because the one-byte case of each number (for sizes also the two-byte
    case) is inline: this runs for every record that a coordinator loads.
    """
    at = pos
    size = data[pos]
    if size < 0x80:
        size, pos = (size >> 1) ^ -(size & 1), pos + 1
    elif data[pos + 1] < 0x80:
        size = size & 0x7F | data[pos + 1] << 7
        size, pos = (size >> 1) ^ -(size & 1), pos + 2
    else:
        size, pos = read_varint(data, pos)
    end = pos + size
    if size < 0 or end > len(data):
        raise CorruptBatch(f"a record of {size} bytes does not fit at {at}")
    pos += 1  # attributes: none are defined for a record
    time_delta = data[pos]
    if time_delta < 0x80:
        time_delta, pos = (time_delta >> 1) ^ -(time_delta & 1), pos + 1
    else:
        time_delta, pos = read_varlong(data, pos)
    delta = data[pos]
    if delta < 0x80:
        delta, pos = (delta >> 1) ^ -(delta & 1), pos + 1
    else:
        delta, pos = read_varint(data, pos)
    key: bytes | None
    length = data[pos]
    if length < 0x80:
        length, pos = (length >> 1) ^ -(length & 1), pos + 1
    else:
        length, pos = read_varint(data, pos)
    if length >= 0:
        key = data[pos : pos + length]
        pos += length
    elif length == -1:
        key = None
    else:
        raise _negative(length)
    value: bytes | None
    length = data[pos]
    if length < 0x80:
        length, pos = (length >> 1) ^ -(length & 1), pos + 1
    elif data[pos + 1] < 0x80:
        length = length & 0x7F | data[pos + 1] << 7
        length, pos = (length >> 1) ^ -(length & 1), pos + 2
    else:
        length, pos = read_varint(data, pos)
    if length >= 0:
        value = data[pos : pos + length]
        pos += length
    elif length == -1:
        value = None
    else:
        raise _negative(length)
    headers: Headers = ()
    count = data[pos]
    if count == 0:
        pos += 1
    else:
        headers, pos = _read_headers(data, pos, end)
    if pos != end:
        raise CorruptBatch(f"the record at {at} has a size of {size} bytes but {size + pos - end} remain")
    timestamp = base_timestamp + time_delta if stamped is None else stamped
    return Record(base_offset + delta, timestamp, key, value, headers), pos, delta


def _read_headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count, pos = read_varint(data, pos)
    if count < 0 or count > end - pos:
        raise CorruptBatch(f"{count} record headers do not fit in {end - pos} bytes")
    out: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, pos = read_varint(data, pos)
        if length < 0 or length > end - pos:
            raise CorruptBatch(f"a record header with a key of {length} bytes does not fit")
        try:
            key = data[pos : pos + length].decode()
        except UnicodeDecodeError:
            raise Malformed("the key of a record header is not UTF-8") from None
        pos += length
        length, pos = read_varint(data, pos)
        if length > end - pos:
            raise CorruptBatch(f"a record header with a value of {length} bytes does not fit")
        if length >= 0:
            out.append((key, data[pos : pos + length]))
            pos += length
        elif length == -1:
            out.append((key, None))
        else:
            raise _negative(length)
    return tuple(out), pos


def _negative(length: int) -> CorruptBatch:
    return CorruptBatch(f"a length of {length} bytes")


# writing --------------------------------------------------------------------------------------


def build(
    entries: Iterable[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
) -> bytes:
    """Build one batch of `entries`: at least one record, with ascending offsets that may have gaps.

    `base_offset` and `last_offset` default to those of the first and last record; pass them if compaction
    removed records at either end. `level` is the compression level. With LOG_APPEND_TIME the header's maximum
    timestamp is `log_append_time_ms`; the records keep their timestamp deltas, as in Kafka. `delete_horizon`
    takes the place of the base timestamp, see `BatchHeader.delete_horizon`.
    """
    kept = list(entries)
    if not kept:
        raise CannotEncode("a batch without records")
    first = kept[0].offset if base_offset is None else base_offset
    base_timestamp = kept[0].timestamp if delete_horizon is None else delete_horizon
    last = kept[-1].offset if last_offset is None else last_offset
    if last < kept[-1].offset or not 0 <= last - first <= 0x7FFF_FFFF:
        raise CannotEncode(f"a batch from offset {first} to {last}")
    parts: list[bytes] = []
    before = first - 1
    for record in kept:
        if record.offset <= before:
            raise CannotEncode(f"offset {record.offset} behind {before} in one batch")
        before = record.offset
        parts.append(_write_record(record, record.offset - first, record.timestamp - base_timestamp))
    max_timestamp = max(record.timestamp for record in kept)
    attributes = int(compression)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= _LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    if transactional:
        attributes |= _TRANSACTIONAL
    if control:
        attributes |= _CONTROL
    if delete_horizon is not None:
        attributes |= _DELETE_HORIZON
    body = b"".join(parts)
    if compression is not Compression.NONE:
        body = compress(compression, body, level)
    covered = _COVERED.pack(
        attributes,
        last - first,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(kept),
    )
    return _seal(first, leader_epoch, covered, body)


def build_simple(
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytes:
    """Build an uncompressed batch of (key, value) pairs with one timestamp, as coordinators write it."""
    parts: list[bytes] = []
    delta = 0
    for key, value in pairs:
        body = b"\0\0%b%b%b\0" % (
            _SMALL[delta] if delta < _SMALL_COUNT else write_varint(delta),
            b"\1" if key is None else _sized(key),
            b"\1" if value is None else _sized(value),
        )
        parts.append(_sized(body))
        delta += 1
    if not delta:
        raise CannotEncode("a batch without records")
    covered = _COVERED.pack(
        _TRANSACTIONAL if transactional else 0,
        delta - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        delta,
    )
    return _seal(base_offset, leader_epoch, covered, parts[0] if delta == 1 else b"".join(parts))


def end_marker(
    committed: bool,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build the control batch that ends a transaction in one partition."""
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    return build(
        [
            Record(
                base_offset,
                timestamp_ms,
                struct.pack(">hh", 0, kind),
                struct.pack(">hi", 0, coordinator_epoch),
            )
        ],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(record: Record) -> ControlType:
    """Return the type of a control record. Raises `Malformed` if its key is invalid."""
    key = record.key
    if key is None or len(key) < 4:
        raise Malformed("the key of a control record is too short")
    try:
        return ControlType(int.from_bytes(key[2:4], "big", signed=True))
    except ValueError:
        return ControlType.UNKNOWN


def read_end_marker(record: Record) -> EndMarker | None:
    """Decode an end-transaction marker; None for a control record of another type."""
    kind = control_type(record)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    if record.value is None or len(record.value) < 6:
        raise Malformed("the value of a transaction marker is too short")
    return EndMarker(kind is ControlType.COMMIT, int.from_bytes(record.value[2:6], "big", signed=True))


def stamp(
    batch: bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int | None = None,
    max_timestamp: int | None = None,
) -> None:
    """Write the leader's base offset and epoch into a batch, in place.

    The checksum does not cover these two fields. With `log_append_time_ms` the batch is marked
    LOG_APPEND_TIME and gets that timestamp. Without it, a batch so marked becomes CREATE_TIME again, and
    `max_timestamp`, if given, replaces the header's maximum. A change to type or timestamp also updates the
    checksum and clears undefined attribute bits.
    """
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, leader_epoch)
    attributes = batch[_COVERED_AT + 1]
    if log_append_time_ms is not None:
        max_timestamp = log_append_time_ms
        attributes |= _LOG_APPEND_TIME
    elif max_timestamp is None and not attributes & _LOG_APPEND_TIME:
        return
    else:
        attributes &= ~_LOG_APPEND_TIME
    struct.pack_into(">h", batch, _COVERED_AT, attributes & _DEFINED)
    if max_timestamp is not None:
        struct.pack_into(">q", batch, _MAX_TIMESTAMP_AT, max_timestamp)
    size = int.from_bytes(batch[8:12], "big") + PREFIX_SIZE
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_COVERED_AT:size]))


def repack(
    header: BatchHeader,
    data: bytes,
    compression: Compression,
    level: int | None,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> bytes:
    """Rebuild a producer's batch with another compression; `data` holds its valid, decompressed records.

    As in Kafka, the first record's timestamp becomes the base timestamp. Records are rewritten only if this
    changes the base timestamp, or if the batch is marked LOG_APPEND_TIME.
    """
    stamped = header.max_timestamp if header.attributes & _LOG_APPEND_TIME else None
    first, _, _ = read_record(data, 0, 0, header.base_timestamp, stamped)
    base_timestamp = first.timestamp
    if base_timestamp != header.base_timestamp or stamped is not None:
        written, pos = bytearray(), 0
        for index in range(header.record_count):
            record, pos, _ = read_record(data, pos, 0, header.base_timestamp, stamped)
            written += _write_record(record, index, record.timestamp - base_timestamp)
        data = bytes(written)
    attributes = int(compression) | header.attributes & _TRANSACTIONAL
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= _LOG_APPEND_TIME
    covered = _COVERED.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    return _seal(
        header.base_offset, header.partition_leader_epoch, covered, compress(compression, data, level)
    )


def with_records(
    header: BatchHeader,
    data: bytes,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    delete_horizon: bool,
    level: int | None = None,
) -> bytes:
    """Rebuild a batch of which a cleaning kept `count` records; its offsets and sequence numbers stay.

    `data` holds these records, decompressed. With `delete_horizon`, `base_timestamp` is the delete horizon,
    and the records' timestamps are relative to it.
    """
    attributes = header.attributes & _DEFINED & ~_DELETE_HORIZON
    covered = _COVERED.pack(
        attributes | _DELETE_HORIZON if delete_horizon else attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    body = compress(header.compression, data, level) if attributes & _COMPRESSION else data
    return _seal(header.base_offset, header.partition_leader_epoch, covered, body)


def without_records(header: BatchHeader) -> bytes:
    """Return a batch without its records: a header with the same producer, offsets and sequence numbers."""
    covered = _COVERED.pack(
        header.attributes & (_LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL),
        header.last_offset_delta,
        NO_TIMESTAMP,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )
    return _seal(header.base_offset, header.partition_leader_epoch, covered, b"")


def _seal(base_offset: int, leader_epoch: int, covered: bytes, body: bytes) -> bytes:
    length = HEADER_SIZE - PREFIX_SIZE + len(body)
    if length > 0x7FFF_FFFF:
        raise CannotEncode(f"a batch of {length} bytes")
    crc = crc32c(body, crc32c(covered))
    return _FRONT.pack(base_offset, length, leader_epoch, MAGIC, crc) + covered + body


def _write_record(record: Record, offset_delta: int, time_delta: int) -> bytes:
    parts = [b"\0", write_varlong(time_delta), write_varint(offset_delta)]
    parts.append(b"\1" if record.key is None else _sized(record.key))
    parts.append(b"\1" if record.value is None else _sized(record.value))
    parts.append(write_varint(len(record.headers)))
    for name, value in record.headers:
        parts.append(_sized(name.encode()))
        parts.append(b"\1" if value is None else _sized(value))
    return _sized(b"".join(parts))


def _sized(data: bytes) -> bytes:
    length = len(data)
    return (_SMALL[length] if length < _SMALL_COUNT else write_varint(length)) + data


#: Precomputed zigzag numbers from 0, for lengths and deltas.
_SMALL_COUNT = 1024
_SMALL = [write_varint(number) for number in range(_SMALL_COUNT)]
