"""Compression: round trips of each type, and decompression within its size limit."""

from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.codec.compression import Compression, compress, decompress
from konvene.codec.errors import CodecError, Malformed, TooLarge

COMPRESSED = [kind for kind in Compression if kind is not Compression.NONE]


@pytest.mark.parametrize("kind", list(Compression))
@given(data=st.binary(max_size=2000), times=st.integers(1, 200))
def test_compressed_data_survives_a_round_trip(kind: Compression, data: bytes, times: int):
    """Any bytes survive each compression type; a limit of exactly their size suffices."""
    plain = data * times
    assert decompress(kind, compress(kind, plain), limit=len(plain)) == plain


@pytest.mark.parametrize("kind", list(Compression))
def test_one_byte_above_the_limit_is_too_large(kind: Compression):
    """The size limit is exact."""
    with pytest.raises(TooLarge):
        decompress(kind, compress(kind, b"x" * 100_001), limit=100_000)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_decompression_bomb_uses_no_more_memory_than_its_limit(kind: Compression):
    """A small stream of 200 MB of zeros is rejected without being decompressed as a whole."""
    plain = bytes(200_000_000)
    bomb = gzip.compress(plain, 1) if kind is Compression.GZIP else compress(kind, plain)
    del plain
    tracemalloc.start()
    with pytest.raises(TooLarge):
        decompress(kind, bomb, limit=1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000 + len(bomb)


def test_a_false_snappy_size_allocates_no_memory():
    """A raw block of 20 bytes with a declared size of 60 MB is malformed, whatever the limit."""
    with pytest.raises(Malformed):
        decompress(Compression.SNAPPY, b"\x80\x80\xe0\x1c" + b"\x00" * 16, limit=1 << 30)


@pytest.mark.parametrize("kind", COMPRESSED)
@given(data=st.binary(max_size=300))
def test_any_bytes_decompress_or_raise_a_codec_error(kind: Compression, data: bytes):
    """Malformed input raises only CodecError."""
    with contextlib.suppress(CodecError):
        assert len(decompress(kind, data, limit=10_000)) <= 10_000


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_truncated_stream_does_not_decompress_to_the_original(kind: Compression):
    """Each truncation raises CodecError or gives other data; no other exception escapes."""
    plain = bytes(range(256)) * 40
    packed = compress(kind, plain)
    for end in range(len(packed)):
        with contextlib.suppress(CodecError):
            assert decompress(kind, packed[:end], limit=len(plain)) != plain


def test_snappy_is_decompressed_in_both_framings():
    """Java's framed blocks and librdkafka's single raw block are both accepted."""
    plain = b"konvene" * 20_000
    raw = bytes(cramjam.snappy.compress_raw(plain))
    assert decompress(Compression.SNAPPY, raw) == plain
    framed = compress(Compression.SNAPPY, plain)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert decompress(Compression.SNAPPY, framed) == plain


def test_lz4_frames_have_independent_blocks():
    """The block-independence flag is set, as Kafka requires, and the content-checksum flag is not."""
    flags = compress(Compression.LZ4, b"abc" * 100_000)[4]
    assert flags & 0x20
    assert not flags & 0x04


def test_an_unknown_compression_code_is_malformed():
    """Codes 5 to 7 are undefined."""
    with pytest.raises(Malformed):
        decompress(5, b"abc")
