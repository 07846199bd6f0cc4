"""Vectorised decoding of any declared record: the first field of all rows, then the second, and so on.

This is the broker's decoder (`konvene.codec.compile`) transposed. A cursor has one position per row, and a
field moves them all. The k-th elements of all rows' arrays are read in one step, so arrays of thousands of
structs are not decoded here.

No decision differs from the broker's decoder: a row with anything unusual (invalid UTF-8, a length that does
not fit, trailing bytes, an array that is too long) is not `plain`. It is left to that decoder, which reads or
rejects it. A test compares both for everything that can be declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from konvene.codec.generated import MOST_TEXT
from konvene.codec.schema import Field, Primitive, Struct, default_of
from konvene.pipeline.arrays import Bools, Ints
from konvene.pipeline.codec.batches import Bytes
from konvene.pipeline.codec.bronze import LogRecords, int16_at, spans, texts
from konvene.pipeline.codec.columns import column, id_text, list_of, struct_of
from konvene.pipeline.codec.records import unsigned
from konvene.records.coordinator import RecordType

__all__ = ["Raw", "decode", "ids_at", "keys_and_values", "numbers_at"]

MAX_STRUCTS = 64
"""Maximum number of structs or strings in an array; the broker's decoder reads rows with longer arrays."""

MAX_TAGS = 8

_KINDS = {
    "bool": ("i1", np.bool_), "int8": ("i1", np.int8), "int16": (">i2", np.int16),
    "uint16": (">u2", np.int32), "int32": (">i4", np.int32), "int64": (">i8", np.int64),
    "float64": (">f8", np.float64),
}  # fmt: skip


class Raw:
    """Binary values in a buffer: begin and end of each, and whether it is null."""

    __slots__ = ("at", "data", "end", "null")

    def __init__(self, data: Bytes, at: Ints, length: Ints) -> None:
        self.data = data
        self.at = at
        self.end: Ints = at + np.maximum(length, 0)
        self.null: Bools = length < 0

    def __repr__(self) -> str:
        return f"<{len(self.at)} values in {len(self.data)} bytes>"


def keys_and_values(records: LogRecords) -> tuple[Raw, Raw]:
    """Return the keys and the values of records, where they are in the log."""
    found = records.found
    data = found.block.data
    return Raw(data, found.key, found.key_length), Raw(data, found.value, found.value_length)


@dataclass(slots=True)
class _Cursor:
    """Current position and end of each row, and whether the row could be decoded so far."""

    data: Bytes
    pos: Ints
    end: Ints
    plain: Bools

    def __len__(self) -> int:
        return len(self.pos)

    def __repr__(self) -> str:
        return f"<{len(self)} rows, {int(self.plain.sum())} plain>"

    def some(self, rows: Ints) -> _Cursor:
        """Return a copy of the cursor for some of the rows."""
        return _Cursor(self.data, self.pos[rows], self.end[rows], self.plain[rows])

    def join(self, rows: Ints, other: _Cursor) -> None:
        """Copy back positions and validity from a cursor that `some` returned for these rows."""
        self.pos[rows] = other.pos
        self.plain[rows] = other.plain


def decode(records: LogRecords, kind: RecordType) -> tuple[Bools, list[pa.Array]]:
    """Decode the records that have no unusual feature (see the module docstring) all at once.

    Returns a mask of these records (`plain`), and their columns of key and value in declaration order."""
    key, value = keys_and_values(records)
    cursor = _Cursor(key.data, key.at + 2, key.end, ~key.null)
    columns = _struct(kind.key, 0, False, cursor)
    plain = cursor.plain & (cursor.pos == key.end)
    version = int16_at(value.data, value.at)
    there = ~value.null
    pieces: list[tuple[Ints, list[pa.Array]]] = []
    for one in np.unique(version[there]).tolist():
        rows = np.flatnonzero(there & (version == one))
        if one not in kind.value.__versions__:
            plain[rows] = False
            continue
        cursor = _Cursor(value.data, value.at[rows] + 2, value.end[rows], np.ones(len(rows), bool))
        pieces.append((rows, _struct(kind.value, one, one in kind.value.__flexible__, cursor)))
        plain[rows] &= cursor.plain & (cursor.pos == cursor.end)
    for i, f in enumerate(kind.value.__fields__):
        columns.append(_gathered([(rows, made[i]) for rows, made in pieces], len(plain), column(f, [None])))
    if not plain.all():
        columns = [each.filter(pa.array(plain)) for each in columns]
    return plain, columns


def _struct(cls: type[Struct], version: int, flexible: bool, cursor: _Cursor) -> list[pa.Array]:
    """Decode the struct at each row's position into columns; tagged fields are at its end."""
    made: dict[str, pa.Array] = {}
    tagged = []
    for f in cls.__fields__:
        if version not in f.versions:
            made[f.name] = _gathered([], len(cursor), column(f, [default_of(f)]))
        elif f.is_tagged(version):
            tagged.append(f)
        else:
            compact = flexible if f.flexible is None else version in f.flexible
            made[f.name] = _field(f, version, compact, cursor)
    if flexible:
        made |= _tags(tagged, version, cursor)
    return [made[f.name] for f in cls.__fields__]


def _field(f: Field, version: int, compact: bool, cursor: _Cursor) -> pa.Array:
    nullable = version in f.nullable
    if f.kind == "array":
        return _array(f, version, compact, nullable, cursor)
    if f.kind != "struct":
        return _primitive(f.kind, compact, nullable, cursor)
    if nullable:
        return _nullable_struct(f.element, version, compact, cursor, absent=255)
    return struct_of(f.element, _struct(f.element, version, compact, cursor))


def _primitive(kind: str, compact: bool, nullable: bool, cursor: _Cursor) -> pa.Array:
    if kind in _KINDS:
        layout, width = _KINDS[kind][0], np.dtype(_KINDS[kind][0]).itemsize
        values = numbers_at(cursor.data, cursor.pos, layout)
        cursor.pos += width
        return pa.array(values.astype(_KINDS[kind][1]))
    if kind == "uuid":
        there = cursor.plain & (cursor.pos + 16 <= cursor.end)
        found = ids_at(cursor.data, cursor.pos, there)
        cursor.pos += 16
        cursor.plain &= there
        return found
    length = _length(compact, 2 if kind == "string" else 4, cursor)
    there = cursor.plain & (length >= 0) & (length <= cursor.end - cursor.pos)
    if kind == "string":
        there &= length <= MOST_TEXT
    at = cursor.pos.copy()
    null = length == -1 if nullable else np.zeros(len(length), bool)
    if kind == "string":
        values, is_text = texts(cursor.data, at, length, there)
    else:
        values, is_text = spans(cursor.data, at, length, there), there
    cursor.plain &= is_text | null
    cursor.pos += np.where(there, length, 0)
    return values


def _length(compact: bool, width: int, cursor: _Cursor) -> Ints:
    """Decode the length of a string or array for each row; -1 means null.

    `width` is the number of bytes of a length that is not `compact`."""
    if compact:
        wrong = np.zeros(len(cursor), bool)
        length = unsigned(cursor.data, cursor.pos, wrong) - 1
        cursor.plain &= ~wrong
        return length
    length = numbers_at(cursor.data, cursor.pos, f">i{width}").astype(np.int64)
    cursor.pos += width
    return length


def _nullable_struct(
    cls: type[Struct], version: int, flexible: bool, cursor: _Cursor, absent: int
) -> pa.Array:
    """Decode nullable structs: the byte 1 precedes a struct, the byte `absent` means null."""
    marker = _byte(cursor)
    cursor.plain &= (marker == 1) | (marker == absent)
    rows = np.flatnonzero(cursor.plain & (marker == 1))
    inner = cursor.some(rows)
    parts = _struct(cls, version, flexible, inner)
    cursor.join(rows, inner)
    nothing = column_of_none(cls)
    whole = [
        _gathered([(rows, part)], len(cursor), instead) for part, instead in zip(parts, nothing, strict=True)
    ]
    null = np.ones(len(cursor), bool)
    null[rows] = False
    return struct_of(cls, whole, null)


def column_of_none(cls: type[Struct]) -> list[pa.Array]:
    """Return columns of length one with the default of each field, to fill the rows whose struct is null."""
    return [column(f, [getattr(cls(), f.name)]) for f in cls.__fields__]


def _byte(cursor: _Cursor) -> Ints:
    there = cursor.pos < cursor.end
    cursor.plain &= there
    byte = cursor.data.take(cursor.pos, mode="clip").astype(np.int64) if len(cursor.data) else cursor.pos * 0
    cursor.pos += 1
    return byte


# arrays -------------------------------------------------------------------------------------------


def _array(f: Field, version: int, compact: bool, nullable: bool, cursor: _Cursor) -> pa.Array:
    count = _length(compact, 4, cursor)
    null = (count == -1) if nullable else np.zeros(len(count), bool)
    there = cursor.plain & (count >= 0) & (count <= cursor.end - cursor.pos)
    element = f.element
    if isinstance(element, Primitive) and element.name in _KINDS:
        there &= count * np.dtype(_KINDS[element.name][0]).itemsize <= cursor.end - cursor.pos
    else:
        there &= count <= MAX_STRUCTS
    cursor.plain &= there | null
    count = np.where(there, count, 0)
    ends = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=ends[1:])
    if isinstance(element, Primitive) and element.name in _KINDS:
        inner = _run(element.name, count, ends, cursor)
    else:
        inner = _steps(element, version, compact, count, ends, cursor)
    return list_of(element, ends.astype(np.int32), inner, null)


def _run(kind: str, count: Ints, ends: Ints, cursor: _Cursor) -> pa.Array:
    """Decode an array of numbers of the type `kind` for each row, at the cursor's position.

    `count` has the length of each row's array, `ends` their running sum."""
    layout, kept = _KINDS[kind]
    width = np.dtype(layout).itemsize
    at = np.repeat(cursor.pos - ends[:-1] * width, count) + np.arange(int(ends[-1])) * width
    cursor.pos += count * width
    return pa.array(numbers_at(cursor.data, at, layout).astype(kept))


def _steps(
    element: Primitive[Any] | type[Struct],
    version: int,
    compact: bool,
    count: Ints,
    ends: Ints,
    cursor: _Cursor,
) -> pa.Array:
    """Decode an array of strings or structs for each row: the first elements of all rows in one step, then
    the second ones, and so on.

    `count` has the length of each row's array, `ends` their running sum."""
    pieces: list[tuple[Ints, pa.Array]] = []
    for step in range(int(count.max(initial=0))):
        rows = np.flatnonzero(count > step)
        inner = cursor.some(rows)
        if isinstance(element, Primitive):
            made = _primitive(element.name, compact, False, inner)
        else:
            made = struct_of(element, _struct(element, version, compact, inner))
        cursor.join(rows, inner)
        pieces.append((ends[rows] + step, made))
    if isinstance(element, Primitive):
        instead = column(element("0+").named("element"), [element.zero])
    else:
        instead = struct_of(element, column_of_none(element))
    return _gathered(pieces, int(ends[-1]), instead)


# tags ---------------------------------------------------------------------------------------------


def _tags(fields: Sequence[Field], version: int, cursor: _Cursor) -> dict[str, pa.Array]:
    """Decode tagged fields into columns, skipping undeclared tags."""
    count = _length(True, 4, cursor) + 1
    cursor.plain &= count <= MAX_TAGS
    left = np.where(cursor.plain, count, 0)
    last = np.full(len(cursor), -1, np.int64)
    pieces: dict[str, list[tuple[Ints, pa.Array]]] = {f.name: [] for f in fields}
    for step in range(int(left.max(initial=0))):
        rows = np.flatnonzero(cursor.plain & (left > step))
        inner = cursor.some(rows)
        tag = _length(True, 4, inner) + 1
        size = _length(True, 4, inner) + 1
        inner.plain &= (tag > last[rows]) & (size <= inner.end - inner.pos)
        last[rows] = tag
        after = inner.pos + np.where(inner.plain, size, 0)
        for f in fields:
            tagged = np.flatnonzero(inner.plain & (tag == f.tag))
            if len(tagged):
                value = inner.some(tagged)
                value.end = after[tagged]
                pieces[f.name].append((rows[tagged], _tag(f, version, value)))
                value.plain &= value.pos == value.end
                inner.plain[tagged] = value.plain
        inner.pos = after
        cursor.join(rows, inner)
    return {f.name: _gathered(pieces[f.name], len(cursor), column(f, [default_of(f)])) for f in fields}


def _tag(f: Field, version: int, cursor: _Cursor) -> pa.Array:
    """Decode the value of a tagged field. A null struct is encoded as a byte 0."""
    if f.kind == "struct" and version in f.nullable:
        return _nullable_struct(f.element, version, True, cursor, absent=0)
    return _field(f, version, True, cursor)


# pieces -------------------------------------------------------------------------------------------


def _gathered(pieces: Sequence[tuple[Ints, pa.Array]], count: int, instead: pa.Array) -> pa.Array:
    """Assemble a column of `count` rows from pieces with row numbers; all other rows get the value
    `instead`."""
    if len(pieces) == 1 and len(pieces[0][0]) == count:
        rows, made = pieces[0]
        return made if (rows[1:] > rows[:-1]).all() else made.take(pa.array(np.argsort(rows)))
    index = np.zeros(count, np.int64)
    at = 1
    for rows, made in pieces:
        index[rows] = np.arange(at, at + len(made))
        at += len(made)
    return pa.concat_arrays([instead, *(made for _, made in pieces)]).take(pa.array(index))


def numbers_at(data: Bytes, at: Ints, layout: str) -> npt.NDArray[Any]:
    """Return the big-endian numbers at these positions; the value is undefined for positions out of
    bounds."""
    width = np.dtype(layout).itemsize
    if len(data) < width:
        return np.zeros(len(at), np.dtype(layout).newbyteorder("="))
    every = np.ndarray((len(data) - width + 1,), layout, buffer=data, strides=(1,))
    if len(at) and (at.min() < 0 or at.max() >= len(every)):
        at = np.clip(at, 0, len(every) - 1)
    return every[at].astype(np.dtype(layout).newbyteorder("="))


def ids_at(data: Bytes, at: Ints, there: Bools) -> pa.Array:
    """Return ids of 16 bytes in Kafka's text form, null where `there` is False. Each distinct id is converted
    once."""
    if not there.any():
        return pa.nulls(len(at), pa.string())
    if not there.all():
        at = np.where(there, at, at[there][0])
        return pc.if_else(pa.array(there), ids_at(data, at, there | True), pa.scalar(None, pa.string()))
    high, low = (pa.array(numbers_at(data, at + n, ">i8")).dictionary_encode() for n in (0, 8))
    both = pa.array(high.indices.to_numpy() * np.int64(len(low.dictionary)) + low.indices.to_numpy())
    found = both.dictionary_encode()
    distinct = found.dictionary.to_numpy()
    halves = [
        half.dictionary.to_numpy()[at].astype(">i8").tobytes()
        for half, at in ((high, distinct // len(low.dictionary)), (low, distinct % len(low.dictionary)))
    ]
    texts_ = [id_text(halves[0][n : n + 8] + halves[1][n : n + 8]) for n in range(0, len(halves[0]), 8)]
    return pa.array(texts_, pa.string()).take(found.indices)
