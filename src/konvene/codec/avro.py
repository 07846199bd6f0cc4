"""Avro's binary encoding: from bytes to values that can be written as JSON, and back.

The values are those of Avro's JSON encoding, as Kafka's Avro tools print it: a value of a union is null or an
object with the name of its branch as the key, such as `{"string": "x"}`; bytes and fixed are text with one
character per byte (ISO-8859-1); NaN and the infinities are text.

Bytes may be hostile: nesting and the number of values are limited, so that a small input cannot exhaust the
stack or the memory. Every byte must belong to the value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

from konvene.codec.avro_schema import Schema, parse_schema
from konvene.codec.errors import CannotEncode, CodecError, Malformed, TooLarge, Truncated
from konvene.codec.varint import read_varlong, write_varlong

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Schema", "decode", "encode", "parse_schema"]

MAX_DEPTH = 100
"""Levels of nesting of a value."""

MAX_VALUES = 500_000
"""Values in one input, counting records and each of their fields. The size of the input does not limit them,
as a null takes no byte."""

_INT = range(-(2**31), 2**31)
_LONG = range(-(2**63), 2**63)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# reading --------------------------------------------------------------------------------------


def decode(schema: Schema, data: bytes) -> Any:
    """Decode one value. Raises `CodecError` unless the bytes are exactly one value of the schema."""
    reader = _Reader(data)
    try:
        value = reader.read(schema)
    except CodecError as error:
        raise type(error)(f"{_place(reader.path)}{error}") from None
    if reader.pos != len(data):
        raise Malformed(f"{len(data) - reader.pos} bytes remain after the value")
    return value


class _Reader:
    """Bytes with a position, and the path of names to the value that is being read."""

    __slots__ = ("data", "path", "pos", "values")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.values = 0
        self.path: list[str] = []

    def read(self, schema: Schema) -> Any:
        self.values += 1
        if self.values > MAX_VALUES:
            raise TooLarge(f"more than {MAX_VALUES} values")
        return _READERS[schema.kind](self, schema)

    def inside(self, name: str, schema: Schema) -> Any:
        """Read a value that is a part of another one. After an error `path` is that of the failed value."""
        if len(self.path) == MAX_DEPTH:
            raise TooLarge(f"nested more than {MAX_DEPTH} levels deep")
        self.path.append(name)
        value = self.read(schema)
        self.path.pop()
        return value

    def long(self) -> int:
        value, self.pos = read_varlong(self.data, self.pos)
        return value

    def take(self, size: int) -> bytes:
        after = self.pos + size
        if size < 0 or after > len(self.data):
            raise Truncated(f"{size} bytes do not fit in the {len(self.data) - self.pos} that remain")
        taken = self.data[self.pos : after]
        self.pos = after
        return taken

    def text(self) -> str:
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise Malformed("the text is not UTF-8") from None

    def blocks(self) -> Iterator[int]:
        """Yield the index of each item of an array or map: it is written in blocks of counted items."""
        index = 0
        while count := self.long():
            if count < 0:
                count = -count
                self.long()  # The size of the block in bytes.
            for _ in range(count):
                yield index
                index += 1


def _read_boolean(reader: _Reader, schema: Schema) -> bool:
    (byte,) = reader.take(1)
    if byte > 1:
        raise Malformed(f"the boolean is {byte}")
    return byte == 1


def _read_int(reader: _Reader, schema: Schema) -> int:
    value = reader.long()
    if value not in _INT:
        raise Malformed(f"the int is {value}")
    return value


def _read_float(reader: _Reader, schema: Schema) -> float | str:
    value: float = struct.unpack("<f", reader.take(4))[0]
    if not math.isfinite(value):
        return _not_finite(value)
    # The shortest number that is the same float.
    return next(short for digits in range(6, 10) if _as_float(short := float(f"{value:.{digits}g}")) == value)


def _as_float(value: float) -> float:
    """Return the nearest number of single precision."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _read_double(reader: _Reader, schema: Schema) -> float | str:
    value: float = struct.unpack("<d", reader.take(8))[0]
    return value if math.isfinite(value) else _not_finite(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _read_enum(reader: _Reader, schema: Schema) -> str:
    index = reader.long()
    if not 0 <= index < len(schema.symbols):
        raise Malformed(f"enum {schema.name} has no symbol {index}")
    return schema.symbols[index]


def _read_union(reader: _Reader, schema: Schema) -> Any:
    index = reader.long()
    if not 0 <= index < len(schema.branches):
        raise Malformed(f"the union has no branch {index}")
    branch = schema.branches[index]
    return None if branch.kind == "null" else {branch.name: reader.inside(branch.name, branch)}


def _read_array(reader: _Reader, schema: Schema) -> list[Any]:
    assert schema.items is not None
    return [reader.inside(str(index), schema.items) for index in reader.blocks()]


def _read_map(reader: _Reader, schema: Schema) -> dict[str, Any]:
    assert schema.items is not None
    made: dict[str, Any] = {}
    for _ in reader.blocks():
        key = reader.text()
        made[key] = reader.inside(key, schema.items)
    return made


def _read_record(reader: _Reader, schema: Schema) -> dict[str, Any]:
    return {field.name: reader.inside(field.name, field.schema) for field in schema.fields}


_READERS: dict[str, Callable[[_Reader, Schema], Any]] = {
    "null": lambda reader, schema: None,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": lambda reader, schema: reader.long(),
    "float": _read_float,
    "double": _read_double,
    "bytes": lambda reader, schema: reader.take(reader.long()).decode("latin-1"),
    "string": lambda reader, schema: reader.text(),
    "fixed": lambda reader, schema: reader.take(schema.size).decode("latin-1"),
    "enum": _read_enum,
    "union": _read_union,
    "array": _read_array,
    "map": _read_map,
    "record": _read_record,
}


# writing --------------------------------------------------------------------------------------


def encode(schema: Schema, value: Any) -> bytes:
    """Encode a value as `decode` returns it. Raises `CannotEncode` for one that the schema does not allow."""
    path: list[str] = []
    out = bytearray()
    try:
        _write(out, path, schema, value)
    except CannotEncode as error:
        raise CannotEncode(f"{_place(path)}{error}") from None
    return bytes(out)


def _write(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    _WRITERS[schema.kind](out, path, schema, value)


def _write_inside(out: bytearray, path: list[str], name: str, schema: Schema, value: Any) -> None:
    """Write a value that is a part of another one. After an error `path` is that of the failed value."""
    if len(path) == MAX_DEPTH:
        raise CannotEncode(f"nested more than {MAX_DEPTH} levels deep")
    path.append(name)
    _write(out, path, schema, value)
    path.pop()


def _require(is_valid: bool, schema: Schema, value: Any) -> None:
    if not is_valid:
        article = "an" if schema.kind[0] in "aeiou" else "a"
        shown = "null" if value is None else repr(value)
        raise CannotEncode(f"{shown[:80]} is not {article} {schema.kind}")


def _write_null(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    _require(value is None, schema, value)


def _write_boolean(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    _require(isinstance(value, bool), schema, value)
    out.append(value)


def _write_whole(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    bounds = _INT if schema.kind == "int" else _LONG
    _require(isinstance(value, int) and not isinstance(value, bool) and value in bounds, schema, value)
    out += write_varlong(value)


def _write_number(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    if isinstance(value, str):
        _require(value in _NOT_FINITE, schema, value)
        value = _NOT_FINITE[value]
    _require(isinstance(value, int | float) and not isinstance(value, bool), schema, value)
    try:
        out += struct.pack("<f" if schema.kind == "float" else "<d", value)
    except OverflowError:
        raise CannotEncode(f"{value!r} is too large for a {schema.kind}"[:120]) from None


def _write_string(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    _require(isinstance(value, str), schema, value)
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise CannotEncode("the text has a lone surrogate") from None
    out += write_varlong(len(data)) + data


def _write_bytes(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    _require(isinstance(value, str), schema, value)
    try:
        data = value.encode("latin-1")
    except UnicodeEncodeError:
        raise CannotEncode("bytes are text with the characters U+0000 to U+00FF") from None
    if schema.kind == "bytes":
        out += write_varlong(len(data))
    elif len(data) != schema.size:
        raise CannotEncode(f"{len(data)} bytes, but {schema.name} has {schema.size}")
    out += data


def _write_enum(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    if value not in schema.symbols:
        raise CannotEncode(f"{value!r} is not one of {', '.join(schema.symbols)}"[:200])
    out += write_varlong(schema.symbols.index(value))


def _write_union(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    name = "null" if value is None else next(iter(value), "") if isinstance(value, dict) else ""
    names = [branch.name for branch in schema.branches]
    if name not in names or (value is not None and len(value) != 1):
        forms = " or ".join("null" if each == "null" else f'{{"{each}": …}}' for each in names)
        raise CannotEncode(f"a value of this union is {forms}")
    index = names.index(name)
    out += write_varlong(index)
    if value is not None:
        _write_inside(out, path, name, schema.branches[index], value[name])


def _write_array(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    _require(isinstance(value, list), schema, value)
    assert schema.items is not None
    if value:
        out += write_varlong(len(value))
        for index, each in enumerate(value):
            _write_inside(out, path, str(index), schema.items, each)
    out.append(0)


def _write_map(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    _require(isinstance(value, dict), schema, value)
    assert schema.items is not None
    if value:
        out += write_varlong(len(value))
        for key, each in value.items():
            _write_string(out, path, schema, key)
            _write_inside(out, path, key, schema.items, each)
    out.append(0)


def _write_record(out: bytearray, path: list[str], schema: Schema, value: Any) -> None:
    _require(isinstance(value, dict), schema, value)
    names = {field.name for field in schema.fields}
    unknown = [name for name in value if name not in names]
    missing = [field.name for field in schema.fields if field.name not in value]
    if unknown or missing:
        problem = f"has no field {unknown[0]}" if unknown else f"needs the field {missing[0]}"
        raise CannotEncode(f"record {schema.name} {problem}")
    for field in schema.fields:
        _write_inside(out, path, field.name, field.schema, value[field.name])


_WRITERS: dict[str, Callable[[bytearray, list[str], Schema, Any], None]] = {
    "null": _write_null,
    "boolean": _write_boolean,
    "int": _write_whole,
    "long": _write_whole,
    "float": _write_number,
    "double": _write_number,
    "bytes": _write_bytes,
    "string": _write_string,
    "fixed": _write_bytes,
    "enum": _write_enum,
    "union": _write_union,
    "array": _write_array,
    "map": _write_map,
    "record": _write_record,
}


def _place(path: list[str]) -> str:
    """Return the path as the beginning of an error message; empty for the value as a whole."""
    if not path:
        return ""
    shown = path if len(path) <= 8 else [*path[:4], "…", *path[-3:]]
    return f"{'.'.join(shown)[:200]}: "
