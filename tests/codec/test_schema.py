"""The declaration language: versions, values, binary layout and JSON."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import pytest

from konvene.codec.compile import decode, decode_from, encode, encode_into
from konvene.codec.errors import CannotEncode, Malformed, Truncated
from konvene.codec.json import from_json, to_json
from konvene.codec.schema import (
    NEVER,
    Struct,
    Versions,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uuid,
)
from konvene.codec.uuid import ZERO_UUID, Uuid


class Point(Struct):
    x: int = int32("0+")
    label: str | None = string("0+", nullable="2+", default=None)


class Example(Struct, key=7, versions="0-3", flexible="2+"):
    flag: bool = boolean("0+")
    small: int = int8("0+", default=-1)
    port: int = uint16("1+", ignorable=True)
    strict: int = int16("1+")
    big: int = int64("0+", default=9223372036854775807)
    ratio: float = float64("0+")
    topic_id: Uuid = uuid("0+")
    raw: bytes = bytes_("0+")
    batch: Any = records("0+", nullable="0+", default=None)
    names: tuple[str, ...] = array(string, "0+")
    ids: tuple[Uuid, ...] = array(uuid, "0+")
    codes: tuple[int, ...] = array(int8, "0+")
    points: tuple[Point, ...] | None = array(Point, "0+", nullable="1+")
    centre: Point | None = struct(Point, "2+", nullable="2+", default=None, ignorable=True)
    hint: str = string("2+", tag=0, default="none")
    corner: Point = struct(Point, "2+", tag=3)
    odd: int = int32("0+", wire="oddlySPELLED")


class Newer(Struct, versions="0", flexible="0+"):
    known: int = int32("0+", tag=4, default=-1)


class Older(Struct, versions="0", flexible="0+"):
    """An older version of `Newer`, without its tagged field."""


class Number(Struct, versions="0", flexible="0+"):
    value: float = float64("0+")


# --- declarations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "last", "included", "excluded"),
    [
        ("3", 3, 3, (3,), (2, 4)),
        ("3-5", 3, 5, (3, 4, 5), (2, 6)),
        ("3+", 3, 32767, (3, 99), (2,)),
        ("none", 1, 0, (), (0, 1, 2)),
    ],
)
def test_versions_in_kafkas_notation(
    text: str, first: int, last: int, included: tuple[int, ...], excluded: tuple[int, ...]
) -> None:
    """A version range is parsed from Kafka's notation and printed in it."""
    versions = Versions.parse(text)
    assert (versions.first, versions.last) == (first, last)
    assert all(v in versions for v in included)
    assert not any(v in versions for v in excluded)
    assert str(versions) == text


def test_a_declaration_exposes_its_fields() -> None:
    """`__fields__` has one Field per declared attribute, with Kafka's names."""
    fields = {f.name: f for f in Example.__fields__}
    assert (Example.__key__, Example.__versions__, Example.__flexible__) == (7, (0, 3), (2, 32767))
    assert repr(fields["topic_id"]) == "Field(TopicId: uuid in 0+)"
    assert fields["topic_id"].json_name == "topicId"
    assert fields["odd"].wire == "oddlySPELLED"
    assert fields["hint"].tagged == (2, 32767)
    assert fields["small"].tagged == NEVER


# --- values --------------------------------------------------------------------------------------


def test_repr_shows_fields_that_differ_from_the_default() -> None:
    """Default values are omitted, also nested structs; a memoryview is shown as bytes."""
    assert repr(Example()) == "Example()"
    assert repr(Example(small=-1, corner=Point())) == "Example()"
    assert repr(Example(small=3, points=(Point(x=1),))) == "Example(small=3, points=(Point(x=1),))"
    assert repr(Example(batch=memoryview(b"abc"))) == "Example(batch=b'abc')"


def test_values_are_equal_by_content_and_type() -> None:
    """Equal values have equal hashes; unknown tags and the class are part of the comparison."""
    assert Example(names=("a",)) == Example(names=("a",))
    assert hash(Example(names=("a",))) == hash(Example(names=("a",)))
    assert Example(small=1) != Example(small=2)
    assert Newer().replace(unknown_tags=((9, b""),)) != Newer()
    assert Older() != Newer()
    assert Older() != ()
    assert {Example(small=1), Example(small=1)} == {Example(small=1)}


def test_values_are_immutable() -> None:
    """Attributes cannot be set, deleted or added; positional and unknown arguments are rejected."""
    value = Example()
    with pytest.raises(AttributeError, match="Example is a value: small cannot be set"):
        value.small = 1  # type: ignore[misc]
    with pytest.raises(AttributeError, match="Example is a value: small cannot be deleted"):
        del value.small
    with pytest.raises(AttributeError):
        value.other = 1
    with pytest.raises(TypeError):
        Example(1)  # type: ignore
    with pytest.raises(TypeError):
        Example(other=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        _ = value.__dict__


def test_replace_changes_only_what_is_named() -> None:
    """Other fields and unknown tags are kept, and the original value is unchanged."""
    first = Newer(known=1).replace(unknown_tags=((9, b"x"),))
    assert first.replace(known=2) == Newer(known=2).replace(unknown_tags=((9, b"x"),))
    assert first == Newer(known=1).replace(unknown_tags=((9, b"x"),))


def test_decoded_values_can_be_pickled() -> None:
    """A record batch is decoded as a view of the frame and pickled as bytes."""
    batch = bytes(range(61))
    read = decode(Example, 0, encode(Example(batch=batch, points=()), 0))
    assert type(read.batch) is memoryview
    again = pickle.loads(pickle.dumps(read))
    assert again == read == Example(batch=batch)
    assert type(again.batch) is bytes


def test_records_too_short_for_a_batch_are_copied() -> None:
    """A memoryview takes about two hundred bytes, which a frame of many empty batches would multiply."""
    for size in (0, 1, 60):
        read = decode(Example, 0, encode(Example(batch=bytes(size), points=()), 0))
        assert read.batch == bytes(size)
        assert type(read.batch) is bytes


def test_every_int8_in_an_array() -> None:
    """All 256 values survive encoding."""
    value = Example(codes=tuple(range(-128, 128)), points=())
    assert decode(Example, 2, encode(value, 2)) == value


# --- bytes ---------------------------------------------------------------------------------------


def test_layout_of_a_version_that_is_not_flexible() -> None:
    """Lengths of strings take two bytes, all others four; there are no tags."""
    value = Example(flag=True, raw=b"r", names=("n",), codes=(-1, 2), points=(Point(x=5, label="p"),), odd=6)
    expected = "01 ff 7fffffffffffffff 0000000000000000" + "00" * 16
    expected += "00000001 72  ffffffff  00000001 0001 6e  00000000  00000002 ff02"
    expected += "00000001 00000005 0001 70  00000006"
    assert encode(value, 0) == bytes.fromhex(expected)
    assert decode(Example, 0, bytes.fromhex(expected)) == value


def test_layout_of_a_flexible_version() -> None:
    """Lengths are varints of length + 1, or 0 for null; each struct ends with its tags in ascending order."""
    value = Example(
        port=65535, names=("n",), points=None, centre=Point(), corner=Point(x=1), hint="h"
    ).replace(unknown_tags=((1, b"z"), (300, b"")))
    expected = "00 ff ffff 0000 7fffffffffffffff 0000000000000000" + "00" * 16
    expected += "01  00  02 02 6e  01  01  00  01 00000000 00 00  00000000"
    expected += "04  00 02 02 68  01 01 7a  03 06 00000001 00 00  ac02 00"
    assert encode(value, 3) == bytes.fromhex(expected)
    assert decode(Example, 3, bytes.fromhex(expected)) == value


@pytest.mark.parametrize("size", [126, 127, 128, 16382, 16383, 16384, 2097151])
def test_lengths_at_varint_boundaries(size: int) -> None:
    """The length takes another byte from 127, 16383 and 2097151 on."""
    value = Example(raw=b"x" * size, points=())
    written = encode(value, 2)
    width = 1 + (size + 1 >= 1 << 7) + (size + 1 >= 1 << 14) + (size + 1 >= 1 << 21)
    assert len(written) == len(encode(Example(points=()), 2)) + size + width - 1
    assert decode(Example, 2, written) == value


def test_long_fields_are_not_copied() -> None:
    """The encoder passes on the record batch object itself; the decoder returns a view of the frame."""
    batch, parts = memoryview(bytes(10_000)), list[bytes]()
    encode_into(Example(batch=batch, points=()), 2, parts)
    assert any(part is batch for part in parts)
    frame = b"".join(parts)
    assert decode(Example, 2, frame).batch.obj is frame


def test_unknown_tags_are_forwarded() -> None:
    """An undeclared tag is kept as bytes and encoded again."""
    written = encode(Newer(known=5), 0)
    older = decode(Older, 0, written)
    assert older == Older().replace(unknown_tags=((4, b"\0\0\0\5"),))
    assert encode(older, 0) == written


def test_a_tagged_field_may_be_sent_with_its_default() -> None:
    """Some clients send it; it decodes like an omitted tag."""
    assert decode(Newer, 0, bytes.fromhex("01 04 04 ffffffff")) == Newer()
    assert encode(Newer(), 0) == b"\0"


def test_decoding_in_the_middle_of_a_frame() -> None:
    """`decode_from` returns the end position; `decode` rejects bytes after the value."""
    frame = b"head" + encode(Newer(known=5), 0) + b"tail"
    assert decode_from(Newer, 0, frame, 4) == (Newer(known=5), len(frame) - 4)
    with pytest.raises(Malformed, match="4 bytes left over"):
        decode(Newer, 0, frame, 4)


def test_nan_survives_encoding() -> None:
    """NaN is encoded and decoded, although it is not equal to itself."""
    read = decode(Number, 0, encode(Number(value=float("nan")), 0))
    assert read.value != read.value
    assert to_json(read, 0) == {"value": "NaN"}


@pytest.mark.parametrize(
    "value",
    [
        Example(small=128),
        Example(port=65536),
        Example(port=-1),
        Example(big=1 << 63),
        Example(small="1"),  # type: ignore[arg-type]
        Example(small=None),  # type: ignore[arg-type]
        Example(names=None),  # type: ignore[arg-type]
        Example(names=(None,)),  # type: ignore[arg-type]
        Example(names=("\ud800",)),
        Example(names=("x" * 32768,)),
        Example(points=(Point(label="\udfff"),)),
        Example(points=(Point(label=None),)),
        Example(ratio=10**400),
        Example(codes=(300,)),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_values_that_cannot_be_encoded_are_rejected(value: Example) -> None:
    """Numbers out of range, disallowed nulls and strings with surrogates raise CannotEncode."""
    with pytest.raises(CannotEncode):
        encode(value, 1)


def test_an_unknown_tag_with_a_declared_number_is_rejected() -> None:
    """The tag would be encoded twice, which decoders reject."""
    with pytest.raises(CannotEncode, match="tag 4 twice"):
        encode(Newer(known=5).replace(unknown_tags=((4, b""),)), 0)


def test_fields_missing_from_the_version() -> None:
    """An ignorable field is dropped; any other must have its default."""
    assert encode(Example(port=1, points=()), 0) == encode(Example(points=()), 0)
    with pytest.raises(CannotEncode, match="Strict is set, which version 0 has no field for"):
        encode(Example(strict=1), 0)
    with pytest.raises(CannotEncode, match="Example has no version 4"):
        encode(Example(), 4)


@pytest.mark.parametrize(
    ("hex_", "error"),
    [
        ("", Truncated),
        ("01", Truncated),
        ("02 04 04 00000001 04 04 00000001", Malformed),  # a tag twice
        ("02 05 00 04 04 00000001", Malformed),  # descending tags
        ("01 04 03 000000", Truncated),  # a tag too short for its field
        ("01 04 05 0000000100", Malformed),  # and one too long
        ("01 04 ffffffff0f 00000001", Truncated),
        ("ffffffff0f", Truncated),
        ("808080808000", Malformed),  # six bytes
        ("ffffffff1f", Malformed),  # beyond 32 bits
        ("00 00", Malformed),
    ],
)
def test_damaged_tags_are_rejected(hex_: str, error: type[Exception]) -> None:
    """Each kind of damage to a tag section raises its error."""
    with pytest.raises(error):
        decode(Newer, 0, bytes.fromhex(hex_))


# --- JSON and ids --------------------------------------------------------------------------------


def test_json_has_kafkas_form() -> None:
    """Names begin with a lower-case letter, bytes are base64, ids are text, unset tags are omitted."""
    value = Example(raw=b"\xff", topic_id=Uuid(range(16)), hint="h", points=(Point(x=1),), ratio=float("inf"))
    document = to_json(value, 2)
    assert document == {
        "flag": False, "small": -1, "port": 0, "strict": 0, "big": 9223372036854775807, "ratio": "Infinity",
        "topicId": "AAECAwQFBgcICQoLDA0ODw", "raw": "/w==", "batch": None, "names": [], "ids": [],
        "codes": [], "points": [{"x": 1, "label": None}], "centre": None, "hint": "h", "oddlySPELLED": 0,
    }  # fmt: skip
    assert from_json(Example, document, 2) == value
    assert "strict" not in to_json(value, 0)


@pytest.mark.parametrize(
    "invalid",
    [
        {"unknown": 1},
        {"strict": 1},
        {"names": "text"},
        {"points": [5]},
        {"raw": "!!!!"},
        {"raw": "a"},
        {"raw": 5},
        {"topicId": "short"},
        {"ratio": "much"},
        [],
    ],
    ids=repr,
)
def test_invalid_json_is_rejected(invalid: Any) -> None:
    """Unknown names, invalid types, invalid base64, ids and numbers raise Malformed."""
    with pytest.raises(Malformed):
        from_json(Example, invalid, 0)


def test_uuids_are_printed_and_parsed_as_in_kafka() -> None:
    """Sixteen bytes print as 22 characters of base64; padding is accepted, any other text is rejected."""
    assert str(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    value = Uuid.parse("_-8AAAAAAAAAAAAAAAAAAA")
    assert (repr(value), bytes(value[:2])) == ("Uuid(_-8AAAAAAAAAAAAAAAAAAA)", b"\xff\xef")
    assert Uuid.parse("_-8AAAAAAAAAAAAAAAAAAA==") == value
    assert base64.urlsafe_b64encode(value).startswith(str(value).encode())
    for text in ("", "AAAA", "A" * 23, "A" * 21 + "!", "AAAAAAAAAAAAAAAAAAAAAA!!", "é" * 22, "A A" * 8):
        with pytest.raises(Malformed, match="not a Kafka id"):
            Uuid.parse(text)
