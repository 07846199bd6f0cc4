"""Compression: every packer's output comes back, and no input costs more than its limit."""

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

PACKED = [kind for kind in Compression if kind is not Compression.NONE]


@pytest.mark.parametrize("kind", list(Compression))
@given(data=st.binary(max_size=2000), times=st.integers(1, 200))
def test_what_is_packed_comes_back(kind: Compression, data: bytes, times: int):
    """Any bytes, repeated or not, survive each codec; a limit of exactly their size suffices."""
    plain = data * times
    assert decompress(kind, compress(kind, plain), limit=len(plain)) == plain


@pytest.mark.parametrize("kind", list(Compression))
def test_one_byte_above_the_limit_is_too_large(kind: Compression):
    """The limit is exact."""
    with pytest.raises(TooLarge):
        decompress(kind, compress(kind, b"x" * 100_001), limit=100_000)


@pytest.mark.parametrize("kind", PACKED)
def test_a_bomb_costs_no_more_than_its_limit(kind: Compression):
    """200 MB of zeros in a small stream are refused without ever being held."""
    plain = bytes(200_000_000)
    bomb = gzip.compress(plain, 1) if kind is Compression.GZIP else compress(kind, plain)
    del plain
    tracemalloc.start()
    with pytest.raises(TooLarge):
        decompress(kind, bomb, limit=1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000 + len(bomb)


def test_a_claimed_snappy_size_buys_no_memory():
    """A raw block that claims 60 MB in 20 bytes is malformed, whatever the limit."""
    with pytest.raises(Malformed):
        decompress(Compression.SNAPPY, b"\x80\x80\xe0\x1c" + b"\x00" * 16, limit=1 << 30)


@pytest.mark.parametrize("kind", PACKED)
@given(data=st.binary(max_size=300))
def test_any_bytes_unpack_or_raise_a_codec_error(kind: Compression, data: bytes):
    """Hostile bytes raise only the codec's own errors."""
    with contextlib.suppress(CodecError):
        assert len(decompress(kind, data, limit=10_000)) <= 10_000


@pytest.mark.parametrize("kind", PACKED)
def test_a_cut_stream_is_malformed(kind: Compression):
    """Each cut of a stream is refused or shorter: never an error of another family."""
    plain = bytes(range(256)) * 40
    packed = compress(kind, plain)
    for end in range(len(packed)):
        with contextlib.suppress(CodecError):
            assert decompress(kind, packed[:end], limit=len(plain)) != plain


def test_snappy_is_read_in_both_dialects():
    """Java's framed blocks and librdkafka's single raw block both unpack."""
    plain = b"konvene" * 20_000
    raw = bytes(cramjam.snappy.compress_raw(plain))
    assert decompress(Compression.SNAPPY, raw) == plain
    framed = compress(Compression.SNAPPY, plain)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert decompress(Compression.SNAPPY, framed) == plain


def test_lz4_frames_have_independent_blocks():
    """Kafka's reader refuses linked blocks: the flag says independent, and there is no content checksum."""
    flags = compress(Compression.LZ4, b"abc" * 100_000)[4]
    assert flags & 0x20
    assert not flags & 0x04


def test_a_code_that_does_not_exist_is_malformed():
    """Codes 5 to 7 have no meaning."""
    with pytest.raises(Malformed):
        decompress(5, b"abc")
