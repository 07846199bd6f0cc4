"""Bytes from a peer who means harm: always a `CodecError`, never another error, and never much memory.

Rows 7 to 11 of the hostile inputs, for every request and all its versions.

`attacks` builds, from a declaration, frames that make as many objects of as few bytes as it can think of:
every array at every depth filled with the smallest elements, bare, with tags, and with one element inside.
"""

from __future__ import annotations

import gc
import gzip
import json
import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.codec.strategies import WHOLE, versions_of

from konvene.codec import compile
from konvene.codec.compile import FIXED, decode, encode
from konvene.codec.errors import CannotEncode, CodecError
from konvene.codec.generated import budget
from konvene.codec.schema import Field, Primitive, Struct
from konvene.messages import API_KEYS, BY_NAME
from konvene.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.list_groups import ListGroupsRequest

VECTORS = Path(__file__).parents[1] / "vectors"
HUGE = 2**31 - 1
REQUESTS = [api.request for api in API_KEYS.values()]
every_request = pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
every_declaration = pytest.mark.parametrize("cls", WHOLE, ids=lambda cls: cls.__name__)


def golden() -> dict[str, list[tuple[int, bytes]]]:
    """Bodies that Kafka wrote, by name of the message: (version, bytes), of moderate length."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for file in ("messages.jsonl.gz", "records.jsonl.gz"):
        with gzip.open(VECTORS / file, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                vector = json.loads(line)
                data = bytes.fromhex(vector["hex"])[2 if vector.get("type") in ("key", "value") else 0 :]
                if vector["kind"] == "typical" and len(data) < 1500:
                    found.setdefault(vector["name"], []).append((vector["version"], data))
    return found


GOLDEN = golden()


def refused_or_read(cls: type[Struct], version: int, data: bytes) -> None:
    """Any error but a `CodecError` leaves this function."""
    with suppress(CodecError):
        decode(cls, version, data)


@every_declaration
def test_every_truncation_is_refused(cls: type[Struct]) -> None:
    """No part of a frame is a frame, wherever it is cut, and nor is a frame with a byte too many."""
    for version, data in GOLDEN.get(cls.__name__, []):
        for size in range(len(data)):
            with pytest.raises(CodecError):
                decode(cls, version, data[:size])
        with pytest.raises(CodecError):
            decode(cls, version, data + b"\0")


@every_declaration
def test_flipped_bytes(cls: type[Struct]) -> None:
    """Each byte in turn becomes the worst one for a length, a marker or a text; then a bit of it flips."""
    chance = random.Random(cls.__name__)
    for version, data in GOLDEN.get(cls.__name__, []):
        for at in range(len(data)):
            for byte in (0xFF, data[at] ^ (1 << chance.randrange(8))):
                refused_or_read(cls, version, data[:at] + bytes([byte]) + data[at + 1 :])


@every_request
def test_noise(cls: type[Struct]) -> None:
    """Random bytes, of which many are small so that some lengths make sense."""
    chance = random.Random(cls.__name__)
    for version in versions_of(cls):
        for _ in range(25):
            noise = chance.choices((0, 1, 2, 3, 5, 127, 128, 200, 255), k=chance.randrange(60))
            refused_or_read(cls, version, bytes(noise))
            refused_or_read(cls, version, chance.randbytes(chance.randrange(40)))


@every_request
def test_rows_07_and_08_lying_counts_are_refused_at_no_cost(cls: type[Struct]) -> None:
    """A count of 2^31-1, one too many, or below -1, at each array and blob of each version."""
    for version in versions_of(cls):
        for field, wrap, flexible in holes(cls, version):
            width = 2 if field.kind == "string" else 4
            lies = (
                [varint(HUGE), varint(0xFFFFFFFF), varint(60), b"\xff\xff\xff\xff\x7f", b"\x80" * 6 + b"\0"]
                if flexible
                else [n.to_bytes(width, "big", signed=True) for n in (32767, 60, -2, -32768)]
                + ([HUGE.to_bytes(4, "big"), (-(2**31)).to_bytes(4, "big", signed=True)] * (width == 4))
            )
            for lie in lies:
                frame = wrap(lie)
                with pytest.raises(CodecError):
                    decode(cls, version, frame)
            if version == cls.__versions__.last:
                tracemalloc.start()
                refused_or_read(cls, version, wrap(lies[0]))
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                assert peak < 12_000, f"v{version} {field}: {peak} bytes for a frame of {len(wrap(lies[0]))}"


def test_row_10_the_same_tag_twice_tags_that_fall_and_too_many() -> None:
    """In the tags of a request's own level."""
    api = BY_NAME["Heartbeat"]
    front = bytes.fromhex("02 67 00000001 02 6d 00")
    for tags in ("02 05 00 05 00", "02 06 00 05 00", "01 05 02 00", "ffffffff0f 05 00", "80 80 80 80 80 00"):
        with pytest.raises(CodecError):
            decode(api.request, 4, front + bytes.fromhex(tags))
    assert decode(api.request, 4, front + bytes.fromhex("02 05 00 06 01 61")).unknown_tags == (
        (5, b""),
        (6, b"a"),
    )


@pytest.mark.parametrize("length", [5, 6, 10, 10_000_000])
def test_row_09_a_varint_without_an_end(length: int) -> None:
    """Five bytes are the most, and no more of them are looked at."""
    with pytest.raises(CodecError, match="varint"):
        decode(ListGroupsRequest, 4, b"\xff" * length + b"\0")


@pytest.mark.parametrize("text", ["ff", "c080", "eda080", "f4908080", "e282"])
def test_row_08_text_that_is_not_utf8(text: str) -> None:
    """Overlong forms, surrogates, beyond Unicode, cut short."""
    raw = bytes.fromhex(text)
    front, rest = bytes([len(raw) + 1]) + raw, bytes.fromhex("00000001 02 6d 00 00")
    with pytest.raises(CodecError, match="not UTF-8"):
        decode(BY_NAME["Heartbeat"].request, 4, front + rest)


# --- memory --------------------------------------------------------------------------------------

MOST = 40
"""Bytes of objects for each byte of the frame: what the cheapest lie can cost us."""
FRAME = 2_400


@pytest.fixture(scope="module")
def frozen() -> Iterator[None]:
    """All that is there so far is out of the collector's sight, so that a collection is short."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@every_request
@pytest.mark.usefixtures("frozen")
def test_row_11_memory_is_bounded_by_the_frame(cls: type[Struct]) -> None:
    """While a request is read there are never more than 40 bytes of objects for each byte of it."""
    version = cls.__versions__.last  # Earlier ones need more bytes for the same objects.
    for where, frame in attacks(cls, version):
        assert decode(cls, version, frame) is not None
        peak = peak_of(cls, version, frame)
        assert peak <= MOST * len(frame) + 1024, f"{where}: {peak / len(frame):.1f} times the frame"


@every_request
@pytest.mark.usefixtures("frozen")
def test_row_11_the_reckoning_of_a_large_frame_holds(
    cls: type[Struct], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is reckoned for a frame, and its texts (a character may take four times its bytes), is never less
    than what it takes; beyond the limit it is refused before it has taken more."""
    monkeypatch.setattr(compile, "COUNTED_FROM", 0)
    version = cls.__versions__.last
    for where, frame in attacks(cls, version):
        monkeypatch.setattr(compile, "MOST_MEMORY", 1 << 40)
        assert compile.decode(cls, version, frame) == compile.decode(cls, version, frame)
        reckoned = (1 << 40) - budget.left
        peak = peak_of(cls, version, frame)
        assert peak <= reckoned + 4 * len(frame), f"{where}: {peak} bytes, reckoned as {reckoned}"
        monkeypatch.setattr(compile, "MOST_MEMORY", reckoned)
        compile.decode(cls, version, frame)
        monkeypatch.setattr(compile, "MOST_MEMORY", reckoned - 1)
        with pytest.raises(CodecError, match="bytes of memory"):
            compile.decode(cls, version, frame)


def test_row_11_a_large_frame_is_reckoned() -> None:
    """A million partitions of a Fetch are read; a frame that would make gigabytes of empty texts is not."""
    partitions = tuple(FetchPartition(partition=i % 5) for i in range(1000)) * 1000
    request = FetchRequest(topics=(FetchTopic(topic="t", partitions=partitions),))
    assert decode(FetchRequest, 4, encode(request, 4)).topics[0].partitions[-1].partition == 4
    with pytest.raises(CodecError, match="bytes of memory"):
        decode(ListGroupsRequest, 4, size(8_000_000, True) + b"\1" * 8_000_000 + b"\0")


@pytest.mark.parametrize("version", [2, 7])
def test_row_08_an_error_message_is_cut(version: int) -> None:
    """It may quote what a client sent; it is told in part, and in whole characters."""
    topic = CreatableTopicResult(name="t", error_message="a" + "é" * 20_000)
    body = encode(CreateTopicsResponse(topics=(topic,)), version)
    assert decode(CreateTopicsResponse, version, body).topics[0].error_message == "a" + "é" * 16_383


def test_row_08_a_text_of_more_than_32767_bytes() -> None:
    """A varint could say more; Kafka neither reads nor writes it, and in a record there would be no room."""
    longest = ListGroupsRequest(states_filter=("x" * 32767,))
    assert decode(ListGroupsRequest, 4, encode(longest, 4)) == longest
    with pytest.raises(CannotEncode, match="32768 bytes"):
        encode(ListGroupsRequest(states_filter=("x" * 32768,)), 4)
    with pytest.raises(CodecError, match="32768 bytes"):
        decode(ListGroupsRequest, 4, b"\2" + varint(32769) + b"x" * 32768 + b"\0")


def peak_of(cls: type[Struct], version: int, frame: bytes) -> int:
    """The most bytes held at once while the frame is read (or refused)."""
    refused_or_read(cls, version, frame)  # Readers are compiled at first use.
    gc.collect()  # Which also empties the free lists, whose objects would not be counted.
    tracemalloc.start()
    try:
        refused_or_read(cls, version, frame)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def attacks(cls: type[Struct], version: int) -> Iterator[tuple[str, bytes]]:
    """Frames that are wholly legal, each with one array of very many very small elements."""
    for field, wrap, flexible in holes(cls, version):
        if field.kind != "array":
            continue
        for number, element in enumerate(smallest(field.element, version, flexible)):
            count = FRAME // len(element)
            yield (
                f"{field.wire}/{number} of {len(element)} bytes",
                wrap(size(count, flexible) + element * count),
            )
    if version in cls.__flexible__:
        many = b"".join(varint(tag) + b"\0" for tag in range(100, 100 + FRAME // 3))
        yield "tags", b"".join(plain(cls, version, True)) + varint(FRAME // 3) + many


def smallest(element: Any, version: int, flexible: bool) -> Iterator[bytes]:
    """The element in its fewest bytes, and in some more that make more objects."""
    if isinstance(element, Primitive):
        yield blank(element.name, flexible)
        if element.name == "string":
            yield size(2, flexible, 2) + "Ā".encode()
        return
    bare = b"".join(plain(element, version, flexible))
    if not flexible:
        yield bare
        return
    yield bare + b"\0"
    tagged = sorted((f for f in element.__fields__ if f.is_tagged(version)), key=lambda f: f.tag)
    free = next(tag for tag in range(99) if tag not in {f.tag for f in tagged})
    yield bare + bytes([1, free, 0])
    yield bare + bytes([1, free, 1, 0])
    yield bare + bytes([1, free, 2]) + b"ab"
    if tagged:
        contents = [(f.tag, present(f, version)) for f in tagged]
        tags = b"".join(varint(tag) + varint(len(content)) + content for tag, content in contents)
        yield bare + varint(len(tagged)) + tags
    one = [one_inside(f, version) for f in element.__fields__ if version in f.versions and f not in tagged]
    yield b"".join(one) + b"\0"


def one_inside(field: Field, version: int) -> bytes:
    """A field with one element, of a flexible struct."""
    if field.kind == "array":
        return size(1, True) + next(smallest(field.element, version, True))
    return present(field, version)


def present(field: Field, version: int) -> bytes:
    """A field that is there in its fewest bytes, not null where it is a struct."""
    if field.kind != "struct":
        return b"".join(empty(field, version, True))
    marker = b"\1" if version in field.nullable else b""
    return marker + b"".join(plain(field.element, version, True)) + b"\0"


def holes(cls: Any, version: int, flexible: bool | None = None) -> Iterator[tuple[Field, Any, bool]]:
    """Every array and blob at every depth: the field, what wraps bytes for it into a frame, if compact."""
    flexible = version in cls.__flexible__ if flexible is None else flexible
    fields = [f for f in cls.__fields__ if version in f.versions]
    for field in fields:
        wrap = _around(cls, field, version, flexible)
        compact = flexible if field.flexible is None else version in field.flexible
        if field.kind not in FIXED and field.kind != "struct":
            yield field, wrap, compact
        if isinstance(field.element, type):
            front = size(1, flexible) if field.kind == "array" else b"\1" * (version in field.nullable)
            for inner, wrap_inner, inner_compact in holes(field.element, version, flexible):
                yield inner, _after(front, wrap_inner, wrap), inner_compact


def _after(front: bytes, inner: Any, outer: Any) -> Any:
    return lambda content: outer(front + inner(content))


def _around(cls: type[Struct], hole: Field, version: int, flexible: bool) -> Any:
    def wrap(content: bytes) -> bytes:
        parts = plain(cls, version, flexible, hole, content)
        if not flexible:
            return b"".join(parts)
        if not hole.is_tagged(version):
            return b"".join(parts) + b"\0"
        return b"".join(parts) + b"\1" + varint(hole.tag or 0) + varint(len(content)) + content

    return wrap


def plain(
    cls: Any, version: int, flexible: bool, hole: Field | None = None, content: bytes = b""
) -> list[bytes]:
    """The untagged fields in their fewest bytes, but for `hole`, which is `content`."""
    out = []
    for field in cls.__fields__:
        if version in field.versions and not field.is_tagged(version):
            out += [content] if field is hole else empty(field, version, flexible)
    return out


def empty(field: Field, version: int, flexible: bool) -> list[bytes]:
    if field.kind == "array":
        return [size(0, flexible)]
    if field.kind == "struct":
        if version in field.nullable:
            return [b"\xff"]
        return [*plain(field.element, version, flexible), b"\0" * flexible]
    return [blank(field.kind, flexible if field.flexible is None else version in field.flexible)]


def blank(kind: str, compact: bool) -> bytes:
    if kind in FIXED:
        return b"\x80" * FIXED[kind][1]
    return size(0, compact, 2 if kind == "string" else 4)


def size(count: int, compact: bool, width: int = 4) -> bytes:
    return varint(count + 1) if compact else struct.pack(">i" if width == 4 else ">h", count)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
