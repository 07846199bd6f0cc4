"""The definition of a table: its columns and their meaning, as data.

The schemas for Arrow and Spark and the reference page are derived from these rows. Times are milliseconds
since 1970 as integers, which every engine reads alike; such columns end in `_ms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

__all__ = ["LAYERS", "Column", "Table"]

LAYERS = ("bronze", "silver", "gold")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False


@dataclass(frozen=True)
class Table:
    """The definition of a table of the pipeline."""

    name: str
    layer: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns that identify a row."""

    def __repr__(self) -> str:
        return f"<{self.layer} table {self.name}, {len(self.columns)} columns>"

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])

    def batch(self, rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
        """Return a batch of one or more rows, each a tuple in the order of the columns."""
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
