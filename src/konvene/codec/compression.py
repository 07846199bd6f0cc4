"""The compression codecs of record batches, with safe decompression.

A size that a stream declares is never trusted. `decompress` limits its output: a stream that would exceed the
limit raises `TooLarge` before that much memory is used, and an invalid stream raises `Malformed`. A
decompression bomb therefore costs at most the limit.

Snappy has two forms: Java's client wraps blocks in the "xerial" framing, librdkafka sends one raw block. Both
are read; the framing is written.

Limitation: lz4 and zstd are decompressed by a library that fills a buffer of a given size or fails, so an
unknown size is found by trying growing buffers. Each is four times as large as the one before, so that the
failed attempts add about a third to the work.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam

from konvene.codec.errors import Malformed, TooLarge

Buffer = bytes | bytearray | memoryview

#: More than any batch a broker accepts unpacks to, and small enough to survive.
DEFAULT_LIMIT = 64 * 1024 * 1024


class Compression(IntEnum):
    """Compression codec, the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Name of the codec in configurations: `none`, `gzip`, ..."""
        return self.name.lower()


def compress(kind: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` in the framing that Kafka's clients read; `level` None is the codec's default."""
    return _PACK[kind](bytes(data), level)


def decompress(kind: Compression | int, data: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """Decompress `data`. Raises `TooLarge` above `limit` bytes and `Malformed` for an invalid stream."""
    try:
        unpack = _UNPACK[kind]
    except KeyError:
        raise Malformed(f"compression {int(kind)} does not exist") from None
    return unpack(data, limit)


# none -----------------------------------------------------------------------------------------


def _unpack_none(data: Buffer, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(limit)
    return bytes(data)


# gzip -----------------------------------------------------------------------------------------


def _pack_gzip(data: bytes, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, wbits=31)


def _unpack_gzip(data: Buffer, limit: int) -> bytes:
    """Decompress consecutive gzip members, as Java's reader does."""
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(rest, limit - size + 1)
        except zlib.error as error:
            raise Malformed(f"gzip: {error}") from None
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not member.eof:
            raise Malformed("gzip: the stream has no end")
        rest = member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


# snappy ---------------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024


def _pack_snappy(data: bytes, _level: int | None) -> bytes:
    out = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        out.append(len(block).to_bytes(4, "big"))
        out.append(block)
    return b"".join(out)


def _unpack_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _unpack_snappy_block(view, limit)
    if len(view) < len(_XERIAL_HEADER):
        raise Malformed("snappy: the header is cut")
    parts: list[bytes] = []
    size, at, end = 0, len(_XERIAL_HEADER), len(view)
    while at < end:
        length = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if at > end or length > end - at:
            raise Malformed("snappy: a block is cut")
        part = _unpack_snappy_block(view[at : at + length], limit - size)
        parts.append(part)
        size += len(part)
        at += length
    return b"".join(parts)


def _unpack_snappy_block(block: memoryview, limit: int) -> bytes:
    """Decompress a raw block, which begins with its decompressed size.

    A block that claims to hold more than 64 times its own size is invalid: no element expands that much.
    """
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * 64:
            raise Malformed(f"snappy: {len(block)} bytes cannot hold {size}")
        if size > limit:
            raise _too_large(limit)
        out = bytearray(size)
        done = cramjam.snappy.decompress_raw_into(block, out) if size else 0
    except cramjam.DecompressionError as error:
        raise Malformed(str(error)) from None
    if done != size:
        raise Malformed(f"snappy: {size} bytes were promised, {done} came")
    return bytes(out)


# lz4 and zstd ---------------------------------------------------------------------------------


def _pack_lz4(data: bytes, level: int | None) -> bytes:
    """Compress to a frame of independent blocks, because Kafka cannot read linked ones.

    Without a level, the fast method is used.
    """
    wanted = 1 if level is None else level
    packer = cramjam.lz4.Compressor(level=wanted, content_checksum=False, block_linked=False)
    packer.compress(data)
    return bytes(packer.finish())


def _pack_zstd(data: bytes, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def _unpack_growing(name: str, into: Callable[[Buffer, bytearray], int]) -> Callable[[Buffer, int], bytes]:
    def unpack(data: Buffer, limit: int) -> bytes:
        room = min(limit, max(4096, len(data) * 4))
        while True:
            out = bytearray(room)
            try:
                size = into(data, out)
            except cramjam.DecompressionError as error:
                if "whole buffer" not in str(error):
                    raise Malformed(f"{name}: {error}") from None
                if room >= limit:
                    raise _too_large(limit) from None
                room = min(limit, room * 4)
            else:
                return bytes(memoryview(out)[:size])

    return unpack


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the records unpack to more than {limit} bytes")


_PACK: dict[Compression, Callable[[bytes, int | None], bytes]] = {
    Compression.NONE: lambda data, _level: data,
    Compression.GZIP: _pack_gzip,
    Compression.SNAPPY: _pack_snappy,
    Compression.LZ4: _pack_lz4,
    Compression.ZSTD: _pack_zstd,
}
_UNPACK: dict[int, Callable[[Buffer, int], bytes]] = {
    Compression.NONE: _unpack_none,
    Compression.GZIP: _unpack_gzip,
    Compression.SNAPPY: _unpack_snappy,
    Compression.LZ4: _unpack_growing("lz4", cramjam.lz4.decompress_into),
    Compression.ZSTD: _unpack_growing("zstd", cramjam.zstd.decompress_into),
}
