"""The reference page of the tables is rendered from their definitions and is up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from konvene.pipeline.codec.typed import POSITION_COLUMNS, TYPED
from konvene.pipeline.reference import POSITION_MEANINGS, SILVER, ddl, render_reference, sql_type
from konvene.pipeline.tables import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"


def test_page_is_up_to_date() -> None:
    """`make docs` writes the page."""
    assert PAGE.read_text("utf-8") == render_reference()


def test_each_table_has_a_section_and_each_column_a_line() -> None:
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", render_reference(), re.M | re.S))
    names = {*TABLES, *(silver.name for silver in TYPED.values())}
    assert names <= sections.keys()
    for table in TABLES.values():
        assert re.findall(r"^\| `(\w+)`", sections[table.name], re.M) == table.schema.names
    for silver in TYPED.values():
        columns = re.findall(r"^\| `(\w+)`", sections[silver.name], re.M)
        assert columns == silver.schema.names[len(POSITION_COLUMNS) :]


def test_each_silver_table_has_a_description() -> None:
    """A new record type needs a description of its table."""
    assert set(SILVER) == {silver.name for silver in TYPED.values()}
    assert list(POSITION_MEANINGS) == [field.name for field in POSITION_COLUMNS]
    for sentence in [*SILVER.values(), *POSITION_MEANINGS.values()]:
        assert sentence[0].isupper() or sentence.startswith(("its", "and")), sentence
        assert sentence.endswith((".", ",")), sentence


def test_sql_types_of_nested_columns() -> None:
    kind = pa.list_(pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.map_(pa.string(), pa.bool_()))]))
    assert sql_type(kind) == "array<struct<a:tinyint,b:map<string,boolean>>>"
    schema = pa.schema([pa.field("a", pa.int16(), nullable=False), pa.field("b", pa.float64())])
    assert ddl(schema) == "`a` smallint NOT NULL, `b` double"
    with pytest.raises(KeyError):
        sql_type(pa.timestamp("ms"))


def test_sql_types_match_sparks_own_names() -> None:
    """Compares every table without a Spark session."""
    types = pytest.importorskip("pyspark.sql.pandas.types")
    schemas = [table.schema for table in TABLES.values()] + [silver.schema for silver in TYPED.values()]
    for schema in schemas:
        spark_types = types.from_arrow_schema(schema)
        assert [sql_type(field.type) for field in schema] == [
            field.dataType.simpleString() for field in spark_types
        ]
