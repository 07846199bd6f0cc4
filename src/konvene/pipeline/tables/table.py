"""What a table of the pipeline is: its columns and what they mean, as data.

Schemas of Arrow, of Spark and the reference in the docs are derived from these rows. Times are milliseconds
since 1970 as numbers, which every engine reads alike; a column that holds one ends in `_ms`.
"""

from __future__ import annotations

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
    """A row of `TABLES`."""

    name: str
    layer: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns by which a row is the only one of its kind."""

    def __repr__(self) -> str:
        return f"<{self.layer} table {self.name}, {len(self.columns)} columns>"

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])
