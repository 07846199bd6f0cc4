"""Malicious frames: decoding raises only `CodecError` and uses bounded memory.

Covers rows 7 to 11 of the hostile inputs, for every request and all its versions.

`attacks` builds frames from a declaration that create the most objects from the fewest bytes: each array at
every depth is filled with the smallest elements, without tags, with tags, and with one nested element.
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
from tests.codec.strategies import MESSAGE_TYPES, versions_of

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
every_declaration = pytest.mark.parametrize("cls", MESSAGE_TYPES, ids=lambda cls: cls.__name__)


def golden() -> dict[str, list[tuple[int, bytes]]]:
    """Return short message bodies that Kafka encoded, as (version, bytes) by name of the message."""
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


def try_decode(cls: type[Struct], version: int, data: bytes) -> None:
    """Decode a frame; let every exception but `CodecError` propagate."""
    with suppress(CodecError):
        decode(cls, version, data)


@every_declaration
def test_every_truncation_is_rejected(cls: type[Struct]) -> None:
    """A frame cut at any byte, or with a byte appended, raises `CodecError`."""
    for version, data in GOLDEN.get(cls.__name__, []):
        for size in range(len(data)):
            with pytest.raises(CodecError):
                decode(cls, version, data[:size])
        with pytest.raises(CodecError):
            decode(cls, version, data + b"\0")


@every_declaration
def test_changed_bytes_raise_only_codec_errors(cls: type[Struct]) -> None:
    """Each byte in turn is set to 0xFF, the worst value for a length or text; then one bit is flipped."""
    rng = random.Random(cls.__name__)
    for version, data in GOLDEN.get(cls.__name__, []):
        for at in range(len(data)):
            for byte in (0xFF, data[at] ^ (1 << rng.randrange(8))):
                try_decode(cls, version, data[:at] + bytes([byte]) + data[at + 1 :])


@every_request
def test_random_bytes_raise_only_codec_errors(cls: type[Struct]) -> None:
    """Half of the inputs consist of small bytes, so that some lengths are plausible."""
    rng = random.Random(cls.__name__)
    for version in versions_of(cls):
        for _ in range(25):
            noise = rng.choices((0, 1, 2, 3, 5, 127, 128, 200, 255), k=rng.randrange(60))
            try_decode(cls, version, bytes(noise))
            try_decode(cls, version, rng.randbytes(rng.randrange(40)))


@every_request
def test_rows_07_and_08_false_counts_are_rejected_without_allocation(cls: type[Struct]) -> None:
    """Counts of 2^31-1, above the frame's size, or below -1, in each array and blob of each version."""
    for version in versions_of(cls):
        for field, wrap, flexible in holes(cls, version):
            width = 2 if field.kind == "string" else 4
            false_counts = (
                [varint(HUGE), varint(0xFFFFFFFF), varint(60), b"\xff\xff\xff\xff\x7f", b"\x80" * 6 + b"\0"]
                if flexible
                else [n.to_bytes(width, "big", signed=True) for n in (32767, 60, -2, -32768)]
                + ([HUGE.to_bytes(4, "big"), (-(2**31)).to_bytes(4, "big", signed=True)] * (width == 4))
            )
            for false_count in false_counts:
                frame = wrap(false_count)
                with pytest.raises(CodecError):
                    decode(cls, version, frame)
            if version == cls.__versions__.last:
                tracemalloc.start()
                try_decode(cls, version, wrap(false_counts[0]))
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                assert peak < 12_000, (
                    f"v{version} {field}: {peak} bytes for a frame of {len(wrap(false_counts[0]))}"
                )


def test_row_10_duplicate_descending_and_excess_tags_are_rejected() -> None:
    """Covers the tag section at the top level of a request."""
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
def test_row_09_an_unterminated_varint_is_rejected(length: int) -> None:
    """Decoding stops after five bytes."""
    with pytest.raises(CodecError, match="varint"):
        decode(ListGroupsRequest, 4, b"\xff" * length + b"\0")


@pytest.mark.parametrize("text", ["ff", "c080", "eda080", "f4908080", "e282"])
def test_row_08_invalid_utf8_is_rejected(text: str) -> None:
    """Invalid bytes, overlong forms, surrogates, code points beyond Unicode, truncated sequences."""
    raw = bytes.fromhex(text)
    front, rest = bytes([len(raw) + 1]) + raw, bytes.fromhex("00000001 02 6d 00 00")
    with pytest.raises(CodecError, match="not UTF-8"):
        decode(BY_NAME["Heartbeat"].request, 4, front + rest)


# --- memory --------------------------------------------------------------------------------------

MAX_MEMORY_PER_BYTE = 40
"""Limit of the memory in bytes per byte of the frame."""
FRAME_SIZE = 2_400


@pytest.fixture(scope="module")
def frozen() -> Iterator[None]:
    """Freeze existing objects, so that garbage collections are short."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@every_request
@pytest.mark.usefixtures("frozen")
def test_row_11_memory_is_bounded_by_the_frame(cls: type[Struct]) -> None:
    """Decoding a request never uses more than 40 bytes of memory per byte of the frame."""
    version = cls.__versions__.last  # Earlier versions need more bytes for the same objects.
    for where, frame in attacks(cls, version):
        assert decode(cls, version, frame) is not None
        peak = peak_memory(cls, version, frame)
        assert peak <= MAX_MEMORY_PER_BYTE * len(frame) + 1024, (
            f"{where}: {peak / len(frame):.1f} times the frame"
        )


@every_request
@pytest.mark.usefixtures("frozen")
def test_row_11_the_memory_estimate_of_a_large_frame_is_an_upper_bound(
    cls: type[Struct], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peak memory is at most the estimate plus four times the frame (a character may take four times its
    encoded bytes); a frame whose estimate exceeds the limit is rejected."""
    monkeypatch.setattr(compile, "COUNTED_FROM", 0)
    version = cls.__versions__.last
    for where, frame in attacks(cls, version):
        monkeypatch.setattr(compile, "MOST_MEMORY", 1 << 40)
        assert compile.decode(cls, version, frame) == compile.decode(cls, version, frame)
        estimate = (1 << 40) - budget.left
        peak = peak_memory(cls, version, frame)
        assert peak <= estimate + 4 * len(frame), f"{where}: {peak} bytes, estimated as {estimate}"
        monkeypatch.setattr(compile, "MOST_MEMORY", estimate)
        compile.decode(cls, version, frame)
        monkeypatch.setattr(compile, "MOST_MEMORY", estimate - 1)
        with pytest.raises(CodecError, match="bytes of memory"):
            compile.decode(cls, version, frame)


def test_row_11_the_memory_of_a_large_frame_is_limited() -> None:
    """A Fetch of a million partitions is decoded; a frame of millions of empty strings is rejected."""
    partitions = tuple(FetchPartition(partition=i % 5) for i in range(1000)) * 1000
    request = FetchRequest(topics=(FetchTopic(topic="t", partitions=partitions),))
    assert decode(FetchRequest, 4, encode(request, 4)).topics[0].partitions[-1].partition == 4
    with pytest.raises(CodecError, match="bytes of memory"):
        decode(ListGroupsRequest, 4, size(8_000_000, True) + b"\1" * 8_000_000 + b"\0")


@pytest.mark.parametrize("version", [2, 7])
def test_row_08_a_long_error_message_is_truncated(version: int) -> None:
    """An error message may quote client input; it is cut to 32767 bytes at a character boundary."""
    topic = CreatableTopicResult(name="t", error_message="a" + "é" * 20_000)
    body = encode(CreateTopicsResponse(topics=(topic,)), version)
    assert decode(CreateTopicsResponse, version, body).topics[0].error_message == "a" + "é" * 16_383


def test_row_08_a_string_of_more_than_32767_bytes_is_rejected() -> None:
    """As in Kafka, the limit also applies to compact strings, whose varint length could be larger."""
    longest = ListGroupsRequest(states_filter=("x" * 32767,))
    assert decode(ListGroupsRequest, 4, encode(longest, 4)) == longest
    with pytest.raises(CannotEncode, match="32768 bytes"):
        encode(ListGroupsRequest(states_filter=("x" * 32768,)), 4)
    with pytest.raises(CodecError, match="32768 bytes"):
        decode(ListGroupsRequest, 4, b"\2" + varint(32769) + b"x" * 32768 + b"\0")


def peak_memory(cls: type[Struct], version: int, frame: bytes) -> int:
    """Return the peak memory in bytes while the frame is decoded or rejected."""
    try_decode(cls, version, frame)  # Decoders are compiled at first use.
    gc.collect()  # Also empties the free lists, whose objects tracemalloc would not count.
    tracemalloc.start()
    try:
        try_decode(cls, version, frame)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def attacks(cls: type[Struct], version: int) -> Iterator[tuple[str, bytes]]:
    """Yield a label and a valid frame for each array field, filled with many small elements."""
    for field, wrap, flexible in holes(cls, version):
        if field.kind != "array":
            continue
        for number, element in enumerate(smallest_encodings(field.element, version, flexible)):
            count = FRAME_SIZE // len(element)
            yield (
                f"{field.wire}/{number} of {len(element)} bytes",
                wrap(size(count, flexible) + element * count),
            )
    if version in cls.__flexible__:
        tags = b"".join(varint(tag) + b"\0" for tag in range(100, 100 + FRAME_SIZE // 3))
        yield "tags", b"".join(encode_smallest(cls, version, True)) + varint(FRAME_SIZE // 3) + tags


def smallest_encodings(element: Any, version: int, flexible: bool) -> Iterator[bytes]:
    """Yield the smallest encoding of an element, and slightly longer ones that create more objects."""
    if isinstance(element, Primitive):
        yield encode_empty_primitive(element.name, flexible)
        if element.name == "string":
            yield size(2, flexible, 2) + "Ā".encode()
        return
    bare = b"".join(encode_smallest(element, version, flexible))
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
        contents = [(f.tag, encode_present(f, version)) for f in tagged]
        tags = b"".join(varint(tag) + varint(len(content)) + content for tag, content in contents)
        yield bare + varint(len(tagged)) + tags
    one = [
        encode_with_one_element(f, version)
        for f in element.__fields__
        if version in f.versions and f not in tagged
    ]
    yield b"".join(one) + b"\0"


def encode_with_one_element(field: Field, version: int) -> bytes:
    """Encode a field of a flexible struct, with one element if it is an array."""
    if field.kind == "array":
        return size(1, True) + next(smallest_encodings(field.element, version, True))
    return encode_present(field, version)


def encode_present(field: Field, version: int) -> bytes:
    """Encode a field in the fewest bytes, as a struct that is not null if it is one."""
    if field.kind != "struct":
        return b"".join(encode_empty(field, version, True))
    marker = b"\1" if version in field.nullable else b""
    return marker + b"".join(encode_smallest(field.element, version, True)) + b"\0"


def holes(cls: Any, version: int, flexible: bool | None = None) -> Iterator[tuple[Field, Any, bool]]:
    """Yield each array, string and blob field at any depth, a function that wraps content into a frame,
    and whether its length is compact."""
    flexible = version in cls.__flexible__ if flexible is None else flexible
    fields = [f for f in cls.__fields__ if version in f.versions]
    for field in fields:
        wrap = _wrapper_for(cls, field, version, flexible)
        compact = flexible if field.flexible is None else version in field.flexible
        if field.kind not in FIXED and field.kind != "struct":
            yield field, wrap, compact
        if isinstance(field.element, type):
            front = size(1, flexible) if field.kind == "array" else b"\1" * (version in field.nullable)
            for inner, wrap_inner, inner_compact in holes(field.element, version, flexible):
                yield inner, _wrap_nested(front, wrap_inner, wrap), inner_compact


def _wrap_nested(front: bytes, inner: Any, outer: Any) -> Any:
    return lambda content: outer(front + inner(content))


def _wrapper_for(cls: type[Struct], hole: Field, version: int, flexible: bool) -> Any:
    def wrap(content: bytes) -> bytes:
        parts = encode_smallest(cls, version, flexible, hole, content)
        if not flexible:
            return b"".join(parts)
        if not hole.is_tagged(version):
            return b"".join(parts) + b"\0"
        return b"".join(parts) + b"\1" + varint(hole.tag or 0) + varint(len(content)) + content

    return wrap


def encode_smallest(
    cls: Any, version: int, flexible: bool, hole: Field | None = None, content: bytes = b""
) -> list[bytes]:
    """Encode the untagged fields in the fewest bytes, with `content` in place of the field `hole`."""
    out = []
    for field in cls.__fields__:
        if version in field.versions and not field.is_tagged(version):
            out += [content] if field is hole else encode_empty(field, version, flexible)
    return out


def encode_empty(field: Field, version: int, flexible: bool) -> list[bytes]:
    if field.kind == "array":
        return [size(0, flexible)]
    if field.kind == "struct":
        if version in field.nullable:
            return [b"\xff"]
        return [*encode_smallest(field.element, version, flexible), b"\0" * flexible]
    return [
        encode_empty_primitive(field.kind, flexible if field.flexible is None else version in field.flexible)
    ]


def encode_empty_primitive(kind: str, compact: bool) -> bytes:
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
