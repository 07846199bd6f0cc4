"""Arrow columns from the declarations of records: the type of each field, and the conversion of values.

An id is in Kafka's text form, null if it is all zeros. Integers keep their width except unsigned ones, which
Spark does not have. A field that is nullable in any version is nullable here. Undeclared tagged fields are
dropped: bronze has them.

Values are converted column by column at any depth: all partitions of all topics of all rows are one call.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from konvene.codec.schema import Field, Primitive, Struct
from konvene.codec.uuid import ZERO_UUID
from konvene.pipeline.arrays import Bools

__all__ = ["column", "fields", "id_text", "list_of", "struct_of", "type_of"]

_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "uint16": pa.int32(), "int32": pa.int32(),
    "int64": pa.int64(), "float64": pa.float64(), "uuid": pa.string(), "string": pa.string(),
    "bytes": pa.binary(), "records": pa.binary(),
}  # fmt: skip


def fields(cls: type[Struct], *, nullable: bool = False) -> list[pa.Field]:
    """Return the Arrow fields of a declared struct; with `nullable` each may be null, for rows without the
    struct."""
    return [pa.field(f.name, type_of(f), nullable=nullable or _nullable(f)) for f in cls.__fields__]


def type_of(f: Field) -> pa.DataType:
    if f.kind == "array":
        return pa.list_(_element(f.element))
    if f.kind == "struct":
        return pa.struct(fields(f.element))
    return _TYPES[f.kind]


def _element(element: Primitive[Any] | type[Struct]) -> pa.Field:
    if isinstance(element, Primitive):
        return pa.field("element", _TYPES[element.name], nullable=element.name == "uuid")
    return pa.field("element", pa.struct(fields(element)), nullable=False)


def _nullable(f: Field) -> bool:
    return f.kind == "uuid" or f.nullable.first <= f.nullable.last


def id_text(value: bytes | None) -> str | None:
    """Return an id in Kafka's text form."""
    if value is None or value == ZERO_UUID:
        return None
    return base64.urlsafe_b64encode(value)[:22].decode()


def column(f: Field, values: Sequence[Any]) -> pa.Array:
    """Convert the values of a field, one per row, to an Arrow column; None becomes null."""
    if f.kind == "array":
        return _lists(f.element, values)
    if f.kind == "struct":
        return _structs(f.element, values)
    return _plain(f.kind, values)


def _plain(kind: str, values: Sequence[Any]) -> pa.Array:
    if kind == "uuid":
        known: dict[bytes | None, str | None] = {value: id_text(value) for value in values}
        values = [known[value] for value in values]
    return pa.array(values, _TYPES[kind])


def _lists(element: Primitive[Any] | type[Struct], values: Sequence[Sequence[Any] | None]) -> pa.Array:
    sizes = np.fromiter((len(v) if v is not None else 0 for v in values), np.int32, len(values))
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    flat = [item for v in values if v for item in v]
    inner = _plain(element.name, flat) if isinstance(element, Primitive) else _structs(element, flat)
    return list_of(element, ends, inner, np.fromiter((v is None for v in values), bool, len(values)))


def _structs(cls: type[Struct], values: Sequence[Any]) -> pa.Array:
    """Convert structs, one per row, to an Arrow column; None becomes a null struct."""
    null = np.fromiter((v is None for v in values), bool, len(values))
    if null.any():
        instead = cls()
        values = [instead if v is None else v for v in values]
    return struct_of(cls, [column(f, [getattr(v, f.name) for v in values]) for f in cls.__fields__], null)


def list_of(
    element: Primitive[Any] | type[Struct],
    ends: npt.NDArray[np.int32],
    inner: pa.Array,
    null: Bools,
) -> pa.Array:
    """Return a list array: list i has `inner[ends[i]:ends[i + 1]]`, and is null where `null` is set."""
    mask = pa.array(null) if null.any() else None
    return pa.ListArray.from_arrays(pa.array(ends), inner, type=pa.list_(_element(element)), mask=mask)


def struct_of(cls: type[Struct], made: Sequence[pa.Array], null: Bools | None = None) -> pa.Array:
    """Return a struct array whose fields are the columns `made`; a struct is null where `null` is set."""
    mask = None if null is None or not null.any() else pa.array(null)
    return pa.StructArray.from_arrays(list(made), fields=fields(cls), mask=mask)
