"""Support for the functions that `compile` generates: the builder of their source, and what they call.

A `Source` collects the lines of a function being generated and the objects that it refers to. The rest of
this module are functions that generated code calls: for lengths, tagged fields, and the memory budget of a
frame. Nothing here depends on a message's declaration.
"""

from __future__ import annotations

import struct as _struct
import threading
from collections.abc import Callable
from typing import NoReturn, cast

from konvene.codec.errors import CannotEncode, Malformed, Truncated
from konvene.codec.schema import Reader, Writer
from konvene.codec.text import decode_text
from konvene.codec.uuid import Uuid
from konvene.codec.varint import write_unsigned_varint

MOST_TEXT = 0x7FFF
"""Maximum length of a string in bytes, also where its length is a varint, as in Kafka."""

TAG_WEIGHT = 160
"""Memory of a tagged field, rounded up."""

# --- what generated code calls -------------------------------------------------------------------


def _uvarint_rest(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint after its byte `first`, whose high bit is set.

    Returns the whole number and the next position.
    """
    value, shift = first & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise Malformed("a varint of more than five bytes")
    if value > 0xFFFFFFFF:
        raise Malformed("a varint beyond 32 bits")
    return value, position


def _text_rest(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a compact string's length after its byte `first`, whose high bit is set.

    Returns the length plus one, as it is encoded, and the next position.
    """
    value, position = _uvarint_rest(data, position, first)
    if value > MOST_TEXT + 1:
        raise Malformed(f"a string of {value - 1} bytes, where {MOST_TEXT} are the most")
    return value, position


class Budget(threading.local):
    """What is left of the memory budget (bytes) of the frame being read; each thread has its own budget."""

    left = 0


budget = Budget()


def _spend(weight: int) -> None:
    budget.left -= weight
    if budget.left < 0:
        raise Malformed("it would take more bytes of memory than a frame may")


_SHORT = tuple(write_unsigned_varint(n) for n in range(16384))


_EMPTY_TAGS = tuple((tag, b"") for tag in range(128))
_INT8 = (*range(128), *range(-128, 0)).__getitem__


def _length(n: int) -> bytes:
    return _SHORT[n] if n < 16384 else write_unsigned_varint(n)


def _text_length(n: int) -> bytes:
    if n > MOST_TEXT + 1:
        raise CannotEncode(f"a string of {n - 1} bytes, where {MOST_TEXT} are the most")
    return _length(n)


def _bad_length(name: str, length: int, left: int) -> NoReturn:
    if length < 0:
        raise Malformed(f"{name} is null or of negative length, which it may not be")
    raise Truncated(f"{name} claims {length} bytes or elements where {left} bytes are left")


def _no_place(name: str, version: int) -> NoReturn:
    raise CannotEncode(f"{name} is set, which version {version} has no field for")


def _read_counted_tags(
    data: bytes, position: int, end: int, known: dict[int, tuple[str, Reader]]
) -> tuple[dict[str, object], tuple[tuple[int, bytes], ...], int]:
    count = data[position]
    _spend(TAG_WEIGHT * (count if count < 0x80 else _uvarint_rest(data, position + 1, count)[0]))
    return _read_tags(data, position, end, known)


def _read_tags(
    data: bytes, position: int, end: int, known: dict[int, tuple[str, Reader]]
) -> tuple[dict[str, object], tuple[tuple[int, bytes], ...], int]:
    """Read a non-empty section of tagged fields; `known` has the name and reader of each declared tag.

    Returns `(values of declared fields by name, (tag, bytes) of unknown ones, position after the section)`.
    """
    count = data[position]
    position += 1
    if count >= 0x80:
        count, position = _uvarint_rest(data, position, count)
    if count * 2 > end - position:
        _bad_length("tagged fields", count, end - position)
    values: dict[str, object] = {}
    unknown = []
    last = -1
    for _ in range(count):
        tag = data[position]
        position += 1
        if tag >= 0x80:
            tag, position = _uvarint_rest(data, position, tag)
        if tag <= last:
            raise Malformed(f"tag {tag} after tag {last}")
        last = tag
        size = data[position]
        position += 1
        if size >= 0x80:
            size, position = _uvarint_rest(data, position, size)
        stop = position + size
        if stop > end:
            _bad_length(f"tag {tag}", size, end - position)
        if tag in known:
            name, read = known[tag]
            values[name], position = read(data, position, stop)
            if position != stop:
                raise Malformed(f"tag {tag} ({name}) has {size} bytes, of which some are not its own")
        else:
            unknown.append((tag, data[position:stop]) if size or tag > 127 else _EMPTY_TAGS[tag])
            position = stop
    return values, tuple(unknown), position


def _write_tags(tags: list[tuple[int, bytes]], write: Callable[[bytes], None]) -> None:
    tags.sort()
    write(_length(len(tags)))
    last = -1
    for tag, data in tags:
        if tag <= last:
            raise CannotEncode(f"tag {tag} twice: as a declared field and as an unknown one")
        last = tag
        write(_length(tag))
        write(_length(len(data)))
        write(data)


# --- the generator -------------------------------------------------------------------------------


class Source:
    """The source of a function being generated: its lines, and the objects that they refer to by name."""

    def __init__(self, *, counted: bool = False, lenient: bool = False) -> None:
        self.counted = counted
        self.lenient = lenient
        self.lines: list[str] = []
        self.space: dict[str, object] = {
            "_uvarint_rest": _uvarint_rest, "_bad_length": _bad_length, "_no_place": _no_place,
            "_read_tags": _read_tags, "_write_tags": _write_tags, "_length": _length, "_SHORT": _SHORT,
            "_Uuid": Uuid, "_unpack": _struct.unpack_from, "_pack": _struct.pack, "_Malformed": Malformed,
            "_Truncated": Truncated, "_memoryview": memoryview, "_new": object.__new__, "_INT8": _INT8,
            "_tuple": tuple, "_map": map, "_text_rest": _text_rest, "_text_length": _text_length,
            "_spend": _spend, "_read_counted_tags": _read_counted_tags,
            "_decode_text": decode_text,
        }  # fmt: skip
        self.indent = 1

    def add(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, stem: str, value: object) -> str:
        """Make an object (a default, a `struct.Struct`, a class) available to the code.

        Returns its name in the code, which contains `stem`.
        """
        name = f"_{stem}_{len(self.space)}"
        self.space[name] = value
        return name

    def reader(self, title: str) -> Reader:
        """Compile the lines as the body of a reader; `title` names it in tracebacks."""
        return cast("Reader", self._compile("read", "data, pos, end", title))

    def writer(self, title: str) -> Writer:
        """Compile the lines as the body of a writer; `title` names it in tracebacks."""
        return cast("Writer", self._compile("write", "value, w", title))

    def _compile(self, name: str, parameters: str, title: str) -> object:
        text = f"def {name}({parameters}):\n" + "\n".join(self.lines or ["    pass"])
        exec(compile(text, f"<{name} {title}>", "exec"), self.space)
        return self.space[name]
