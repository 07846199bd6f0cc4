"""Record batches with one wrong field; everything else is valid, including the checksum."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
from crc32c import crc32c

from konvene.codec.batches import Record, build
from konvene.codec.compression import Compression, compress
from konvene.codec.varint import write_varint, write_varlong

NOW_MS = 1_700_000_000_000
_HEADER = struct.Struct(">qiibIhiqqqhii")
_FIELDS = (
    "base_offset", "batch_length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count",
)  # fmt: skip
_COVERED_AT = 21


def batch(body: bytes | None = None, count: int = 1, **overrides: Any) -> bytes:
    """Build a batch around the bytes of `count` records; `overrides` replace fields of its header.

    The checksum covers the replaced fields, unless `crc` is one of them.
    """
    body = records(count) if body is None else body
    fields = {
        "base_offset": 0,
        "batch_length": len(body) + 49,
        "leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": count,
    } | overrides
    raw = _HEADER.pack(*(fields[name] for name in _FIELDS)) + body
    if "crc" in overrides:
        return raw
    return raw[:17] + crc32c(raw[_COVERED_AT:]).to_bytes(4, "big") + raw[_COVERED_AT:]


def packed(kind: Compression, body: bytes, count: int = 1, **overrides: Any) -> bytes:
    """Build a batch with compressed records."""
    return batch(compress(kind, body), count, **{"attributes": int(kind)} | overrides)


def records(count: int) -> bytes:
    """Encode `count` valid records, with offsets from 0."""
    return b"".join(record(delta=delta) for delta in range(count))


def record(
    *,
    delta: int = 0,
    time: int = 0,
    key: bytes = b"\x01",
    value: bytes = b"\x02v",
    headers: bytes = b"\0",
    size: int | None = None,
) -> bytes:
    """Encode a record; `key`, `value` and `headers` are the raw bytes, including their lengths."""
    content = b"\0" + write_varlong(time) + write_varint(delta) + key + value + headers
    return write_varint(len(content) if size is None else size) + content


def sound(value: bytes = b"v") -> bytes:
    """Build a valid batch of one record."""
    return build([Record(0, NOW_MS, None, value)])


def old(magic: int) -> bytes:
    """Build a message of format 0 or 1, which preceded record batches."""
    time = NOW_MS.to_bytes(8, "big") if magic == 1 else b""
    content = bytes([magic, 0]) + time + b"\xff\xff\xff\xff" + b"\0\0\0\1v"
    message = zlib.crc32(content).to_bytes(4, "big") + content
    return bytes(8) + len(message).to_bytes(4, "big") + message


def sized(size: int) -> bytes:
    """Build a valid batch of exactly `size` bytes."""
    (made,) = (data for rest in range(66, 76) if len(data := sound(bytes(size - rest))) == size)
    return made


def bomb(kind: Compression, unpacked: int) -> bytes:
    """Build a decompression bomb: one record with a value of `unpacked` zeros (whole MiB).

    One compressed MiB is repeated, so the uncompressed value never exists in this process.
    """
    length = write_varint(unpacked)
    front = write_varint(5 + len(length) + unpacked) + b"\0\0\0\x01" + length
    pack = _PIECES[kind]
    pieces = pack(front) + pack(bytes(1 << 20)) * (unpacked >> 20) + pack(b"\0")
    begin, end = _FRAMES.get(kind, (b"", b""))
    return batch(begin + pieces + end, attributes=int(kind))


def _snappy_block(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return len(block).to_bytes(4, "big") + block


_PIECES: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.GZIP: lambda data: compress(Compression.GZIP, data, 9),
    Compression.SNAPPY: _snappy_block,
    Compression.LZ4: lambda data: compress(Compression.LZ4, data, 9)[7:-4],
    Compression.ZSTD: lambda data: compress(Compression.ZSTD, data, 19),
}
_FRAMES = {
    Compression.SNAPPY: (b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1), b""),
    Compression.LZ4: (compress(Compression.LZ4, bytes(1 << 20), 9)[:7], bytes(4)),
}
"""Header and trailer around all pieces. Kafka's lz4 reader accepts a single frame only."""
