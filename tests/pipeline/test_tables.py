"""The tables keep their own rules, so that whoever reads one has read how to read all."""

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
    """A table is asked for by its name alone."""
    names = [table.name for table in ALL] + [silver.name for silver in TYPED.values()]
    assert len(names) == len(set(names))
    assert all(name == table.name for name, table in TABLES.items())


@each_table
def test_a_key_is_made_of_columns_that_are_never_null(table: Table) -> None:
    columns = {column.name: column for column in table.columns}
    assert len(columns) == len(table.columns), "two columns have one name"
    assert table.key and len(set(table.key)) == len(table.key)
    assert not [name for name in table.key if columns[name].nullable]


@each_table
def test_times_are_milliseconds_in_int64(table: Table) -> None:
    """The types of all columns that end in `_ms`, within structs too; and no other kind of time anywhere."""

    def times(fields: list[pa.Field]) -> None:
        for field in fields:
            kind = field.type.value_type if pa.types.is_list(field.type) else field.type
            if pa.types.is_struct(kind):
                times(list(kind))
            assert not field.name.endswith("_ms") or kind == pa.int64(), field.name
            assert not pa.types.is_temporal(kind), field.name

    times(list(table.schema))


@each_table
def test_each_column_says_what_it_means(table: Table) -> None:
    """In sentences; a list of columns that make up one thing may end in commas."""
    assert table.layer in LAYERS
    assert table.meaning[0].isupper() and table.meaning.endswith("."), table.meaning
    for column in table.columns:
        assert column.meaning.endswith((".", ",")), column.name
        assert "  " not in column.meaning, column.name


@each_table
def test_a_create_table_of_spark_can_be_made(table: Table) -> None:
    made = ddl(table.schema)
    assert made.count("` ") == len(table.columns)
    assert made.startswith(f"`{table.schema.names[0]}` ")


@pytest.mark.parametrize("silver", TYPED.values(), ids=lambda silver: silver.name)
def test_silver_has_types_that_spark_knows(silver: object) -> None:
    schema = silver.schema  # type: ignore[attr-defined]
    assert len(set(schema.names)) == len(schema.names)
    assert ddl(schema)


def test_gold_about_groups_is_found_by_cluster_and_group() -> None:
    """Whoever looks for a group filters all of gold alike."""
    for table in TABLES.values():
        if table.layer == "gold" and table.name != "pipeline_run":
            assert table.key[:2] == GOLD_KEYS, table.name


def test_a_table_tells_itself_in_a_line() -> None:
    assert repr(TABLES["lag"]) == f"<gold table lag, {len(TABLES['lag'].columns)} columns>"
