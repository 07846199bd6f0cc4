"""Conversion of Arrow schemas and batches to Spark's types.

Spark checks the first batch of a source against its schema and trusts the others, so every batch is converted
here: columns by name, plain types, and no nulls in required columns.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

__all__ = ["conversion", "spark_schema"]


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to Spark's types."""
    return from_arrow_schema(schema)


def conversion(wanted: StructType) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that converts a batch to the columns and types of `wanted`, without copying those
    that match."""
    target = to_arrow_schema(wanted, timezone="UTC")

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(field.name) for field in target]
        if any(column.type != field.type for column, field in zip(columns, target, strict=True)):
            columns = [column.cast(field.type) for column, field in zip(columns, target, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=target)

    return convert
