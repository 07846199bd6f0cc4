"""Varints: Kafka's bytes, round trips, and rejection of overlong encodings."""

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


def test_the_golden_file_has_numbers_of_each_kind():
    """Otherwise the next test would check nothing."""
    assert len(GOLDEN) > 10
    assert all(any(kind in row for row in GOLDEN) for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_encode_to_kafkas_bytes_and_back(kind: str):
    """Each golden number encodes to Kafka's bytes, and these decode to the number."""
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
def test_any_signed_number_survives_a_round_trip(value: int):
    """A signed number takes at most 10 bytes, or 5 if it fits into 32 bits."""
    data = varint.write_varlong(value)
    assert varint.read_varlong(data, 0) == (value, len(data))
    assert len(data) <= 10
    if -(2**31) <= value < 2**31:
        assert varint.write_varint(value) == data
        assert len(data) <= 5


@given(st.integers(0, 2**64 - 1))
def test_any_unsigned_number_survives_a_round_trip(value: int):
    """Any unsigned 64-bit number decodes to itself."""
    data = varint.write_unsigned_varlong(value)
    assert varint.read_unsigned_varlong(data, 0) == (value, len(data))


@given(st.binary(max_size=12), st.integers(0, 12))
def test_any_bytes_are_a_number_or_a_codec_error(data: bytes, pos: int):
    """For any bytes a reader returns a number within its width or raises CodecError."""
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


def test_overlong_too_wide_and_truncated_numbers_are_rejected():
    """A sixth (eleventh) byte or a bit beyond the width is Malformed; a missing end is Truncated."""
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
def test_a_number_out_of_range_is_not_encoded(write, value):
    """A writer raises CannotEncode instead of wrapping around."""
    with pytest.raises(CannotEncode):
        write(value)
