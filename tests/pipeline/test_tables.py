"""Conventions that hold for all tables of the pipeline."""

from __future__ import annotations

import pyarrow as pa
import pytest

from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.reference import ddl
from konvene.pipeline.tables import TABLES, Table
from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_REBALANCE, SIM_RUN
from konvene.pipeline.tables.table import LAYERS

ALL = [*TABLES.values(), SIM_RUN, SIM_METRIC, SIM_REBALANCE]
GOLD_KEYS = ("cluster", "group_id")

each_table = pytest.mark.parametrize("table", ALL, ids=lambda table: table.name)


def test_names_are_unique_in_all_layers() -> None:
    """A table is read by its name alone."""
    names = [table.name for table in ALL] + [silver.name for silver in TYPED.values()]
    assert len(names) == len(set(names))
    assert all(name == table.name for name, table in TABLES.items())


@each_table
def test_key_columns_are_not_nullable(table: Table) -> None:
    columns = {column.name: column for column in table.columns}
    assert len(columns) == len(table.columns), "two columns have one name"
    assert table.key and len(set(table.key)) == len(table.key)
    assert not [name for name in table.key if columns[name].nullable]


@each_table
def test_times_are_milliseconds_in_int64(table: Table) -> None:
    """All columns that end in `_ms` are int64, also within structs, and no column has a temporal type."""

    def times(fields: list[pa.Field]) -> None:
        for field in fields:
            kind = field.type.value_type if pa.types.is_list(field.type) else field.type
            if pa.types.is_struct(kind):
                times(list(kind))
            assert not field.name.endswith("_ms") or kind == pa.int64(), field.name
            assert not pa.types.is_temporal(kind), field.name

    times(list(table.schema))


@each_table
def test_each_column_has_a_description(table: Table) -> None:
    """Descriptions are sentences; those in a list of related columns may end in commas."""
    assert table.layer in LAYERS
    assert table.meaning[0].isupper() and table.meaning.endswith("."), table.meaning
    for column in table.columns:
        assert column.meaning.endswith((".", ",")), column.name
        assert "  " not in column.meaning, column.name


@each_table
def test_ddl_has_all_columns(table: Table) -> None:
    made = ddl(table.schema)
    assert made.count("` ") == len(table.columns)
    assert made.startswith(f"`{table.schema.names[0]}` ")


@pytest.mark.parametrize("silver", TYPED.values(), ids=lambda silver: silver.name)
def test_silver_types_exist_in_spark(silver: object) -> None:
    schema = silver.schema  # type: ignore[attr-defined]
    assert len(set(schema.names)) == len(schema.names)
    assert ddl(schema)


def test_gold_keys_begin_with_cluster_and_group() -> None:
    """So one filter selects a group in every gold table."""
    for table in TABLES.values():
        if table.layer == "gold" and table.name != "pipeline_run":
            assert table.key[:2] == GOLD_KEYS, table.name


def test_repr_names_the_layer_and_column_count() -> None:
    assert repr(TABLES["lag"]) == f"<gold table lag, {len(TABLES['lag'].columns)} columns>"
