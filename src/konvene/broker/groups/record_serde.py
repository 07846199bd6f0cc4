"""Encodes and decodes the records of group coordinators in the batches of their log.

A coordinator loads its whole log at the start. Most of it is committed offsets: batches of records of one
group and topic that differ in partition, offset, epoch and time only. Such a run is decoded in one step into
one `OffsetsCommitted`, all other records one by one. Replaying either gives the same shard.

A record of a transaction is decoded as `InTransaction`, a transaction marker as `TransactionEnded`
(`records.transactional`). Replay decides about their effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

from konvene.codec.batches import (
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchHeader,
    Record,
    read_end_marker,
    read_record,
    records,
)
from konvene.codec.compression import decompress
from konvene.codec.errors import CorruptBatch, Truncated
from konvene.records.commits import (
    Committed,
    OffsetCommitted,
    OffsetsCommitted,
    decode_group_record,
    encode_group_record,
)
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.runtime.ports import RecordSerde

_COMPRESSION = 0x07
_FIXED = 22
"""Bytes of a commit's value besides its metadata and tags: version, offset, leader epoch, time."""

_TAGS = (1, 19)
"""Bytes of the tagged fields: none, or a topic id."""

_GAPS = (3, 4)
"""Bytes between a record's size and its key's size: attributes, timestamp delta, offset delta."""

_new = tuple.__new__


Decoded = Iterator[tuple[int, int, object]]
"""Offset, timestamp and record; a run of commits has the offset and timestamp of its last one."""


def read(batch: memoryview, header: BatchHeader) -> Decoded:
    """Decode the records of a batch: ordinary ones, those of a transaction, or a transaction marker.

    Raises `CodecError` if the batch is inconsistent, as `batches.records`.
    """
    if header.is_control:
        return _read_marker(batch, header)
    return _read_in_transaction(batch, header) if header.is_transactional else _read_plain(batch, header)


def _read_marker(batch: memoryview, header: BatchHeader) -> Decoded:
    for entry in records(batch, header):
        marker = read_end_marker(entry)
        if marker is not None:
            yield entry.offset, entry.timestamp, TransactionEnded(header.producer_id, marker.committed)


def _read_in_transaction(batch: memoryview, header: BatchHeader) -> Decoded:
    for offset, timestamp, record in _read_plain(batch, header):
        yield offset, timestamp, InTransaction(header.producer_id, record)


def _read_plain(batch: memoryview, header: BatchHeader) -> Decoded:
    body = batch[HEADER_SIZE : header.batch_length + PREFIX_SIZE]
    data = decompress(header.attributes & _COMPRESSION, body) if body else b""
    left, last, pos = header.record_count, -1, 0
    while left:
        try:
            entry, end, delta = read_record(data, pos, header.base_offset, header.base_timestamp, None)
        except IndexError:
            raise Truncated(
                f"the records of the batch at offset {header.base_offset} are truncated"
            ) from None
        if not last < delta <= header.last_offset_delta:
            raise CorruptBatch(f"offset delta {delta} after {last} in the batch at {header.base_offset}")
        record: object = decode_group_record(entry.key, entry.value)
        count, last = 1, delta
        if type(record) is OffsetCommitted and data[end : end + 2] == data[pos : pos + 2]:
            rest = memoryview(data)[pos : pos + left * (end - pos)]
            count, last, record = _run(rest, entry, record, delta, header)
        if record is not None:
            yield header.base_offset + last, entry.timestamp, record
        left -= count
        pos += count * (end - pos)
    if pos != len(data):
        raise CorruptBatch(f"{len(data) - pos} surplus bytes in the batch at offset {header.base_offset}")


def _run(
    data: memoryview, entry: Record, first: OffsetCommitted, delta: int, header: BatchHeader
) -> tuple[int, int, OffsetCommitted | OffsetsCommitted]:
    """Decode a run of commits that equal `first` except for partition, offset, epoch and time.

    Return their count, the offset delta of the last one, and one record with all of them. `data` begins with
    `first`, whose raw record is `entry` and whose offset delta is `delta`.
    """
    committed, key, value = first.committed, entry.key or b"", entry.value or b""
    version = int.from_bytes(value[:2], "big")
    if committed is None or committed.expire_ms != -1 or version not in (3, 4) or entry.headers:
        return 1, delta, first
    metadata = value[14] if version == 4 else 2 + int.from_bytes(value[14:16], "big")
    tags = len(value) - _FIXED - metadata
    if (version == 4 and (metadata >= 0x80 or tags not in _TAGS)) or (version == 3 and tags):
        return 1, delta, first
    size_bytes = 1 if data[0] < 0x80 else 2
    size = size_bytes + ((data[0] & 0x7F | (data[1] << 7 if size_bytes == 2 else 0)) >> 1)
    names = _length_bytes(len(key)) + len(key) - 4
    between = _length_bytes(len(value))
    gap = size - size_bytes - names - 4 - between - len(value) - 1
    if gap not in _GAPS:
        return 1, delta, first
    layout = _layout(size_bytes, gap, names, between, metadata, tags + 1)
    constant: tuple[bytes, ...] = ()
    rows: dict[int, Committed] = {}
    count, last = 0, delta - 1
    for row in layout.iter_unpack(data[: len(data) // size * size]):
        own_size, deltas, front, partition, length, kind, offset, epoch, text, time, tail = row
        own_delta = _offset_delta(deltas)
        if not last < own_delta <= header.last_offset_delta:
            break
        if not constant:
            constant = (own_size, front, length, kind, text, tail)
        elif (own_size, front, length, kind, text, tail) != constant:
            break
        rows[partition] = _new(Committed, (offset, epoch, committed.metadata, time, -1, committed.topic_id))
        count, last = count + 1, own_delta
    if not count:
        return 1, delta, first
    return count, last, OffsetsCommitted(first.group, first.topic, rows)


def _offset_delta(deltas: bytes) -> int:
    """Return the offset delta in `deltas`, which also has the record's attributes and timestamp delta.

    Return -1 unless the timestamp delta has one byte and the offset delta is not negative."""
    last = deltas[-1]
    if deltas[1] >= 0x80 or last >= 0x80:
        return -1
    if len(deltas) == 3:
        return -1 if last & 1 else last >> 1
    low = deltas[2]
    return -1 if low < 0x80 or low & 1 else (low & 0x7F | last << 7) >> 1


def _length_bytes(length: int) -> int:
    return 1 if length < 64 else 2 if length < 8192 else 3


@lru_cache(maxsize=256)
def _layout(size: int, gap: int, names: int, between: int, metadata: int, tags: int) -> Struct:
    return Struct(f">{size}s{gap}s{names}si{between}shqi{metadata}sq{tags}s")


GROUP_SERDE = RecordSerde(encode_group_record, read)
