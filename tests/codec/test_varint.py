"""Variable-length numbers: Kafka's own bytes, both ways, and nothing longer than it may be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.codec import varint
from konvene.codec.errors import CannotEncode, CodecError, Malformed, Truncated

VECTORS = Path(__file__).parents[1] / "vectors" / "hashes.jsonl.gz"
GOLDEN = [
    row
    for row in map(json.loads, gzip.decompress(VECTORS.read_bytes()).splitlines())
    if row["kind"] == "varint"
]

KINDS = {
    "zigzagVarint": (varint.write_varint, varint.read_varint),
    "zigzagVarlong": (varint.write_varlong, varint.read_varlong),
    "unsignedVarint": (varint.write_unsigned_varint, varint.read_unsigned_varint),
}


def test_golden_numbers_are_there():
    """The golden file has numbers of each kind, so the next test tests something."""
    assert len(GOLDEN) > 10
    assert all(any(kind in row for row in GOLDEN) for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_kafkas_bytes_both_ways(kind: str):
    """Each golden number writes as Kafka writes it and reads back to itself."""
    write, read = KINDS[kind]
    for row in GOLDEN:
        if row.get(kind) is None:
            continue
        data = bytes.fromhex(row[kind])
        value = row["value"]
        if kind == "unsignedVarint":
            value &= 0xFFFF_FFFF
        assert write(value) == data
        assert read(b"\xff" + data + b"\x00", 1) == (value, 1 + len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_signed_number_comes_back(value: int):
    """What is written is read back, in at most 10 bytes (5 where it has 32 bits)."""
    data = varint.write_varlong(value)
    assert varint.read_varlong(data, 0) == (value, len(data))
    assert len(data) <= 10
    if -(2**31) <= value < 2**31:
        assert varint.write_varint(value) == data
        assert len(data) <= 5


@given(st.integers(0, 2**64 - 1))
def test_any_unsigned_number_comes_back(value: int):
    """What is written is read back, unsigned, in at most 10 bytes."""
    data = varint.write_unsigned_varlong(value)
    assert varint.read_unsigned_varlong(data, 0) == (value, len(data))


@given(st.binary(max_size=12), st.integers(0, 12))
def test_any_bytes_are_a_number_or_a_codec_error(data: bytes, pos: int):
    """No bytes make a reader raise anything but the codec's own errors, or pass its width."""
    for read, bits in (
        (varint.read_varint, 31),
        (varint.read_varlong, 63),
        (varint.read_unsigned_varint, 32),
        (varint.read_unsigned_varlong, 64),
    ):
        try:
            value, after = read(data, pos)
        except CodecError:
            continue
        assert pos < after <= len(data)
        assert -(2**bits) <= value < 2**bits


def test_too_long_too_wide_and_cut_numbers_are_refused():
    """A sixth (eleventh) byte, a bit beyond the width and a missing end each have their error."""
    with pytest.raises(Malformed):
        varint.read_unsigned_varint(b"\x80" * 5 + b"\x01", 0)
    with pytest.raises(Malformed):
        varint.read_varlong(b"\x80" * 10 + b"\x01", 0)
    with pytest.raises(Malformed):
        varint.read_unsigned_varint(b"\xff\xff\xff\xff\x1f", 0)
    with pytest.raises(Truncated):
        varint.read_varint(b"\x80\x80", 0)
    with pytest.raises(Truncated):
        varint.read_varint(b"", 0)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (varint.write_varint, 2**31),
        (varint.write_varint, -(2**31) - 1),
        (varint.write_varlong, 2**63),
        (varint.write_unsigned_varint, 2**32),
        (varint.write_unsigned_varint, -1),
        (varint.write_unsigned_varlong, 2**64),
    ],
)
def test_a_number_that_does_not_fit_is_not_written(write, value):
    """A writer never wraps a number silently."""
    with pytest.raises(CannotEncode):
        write(value)
