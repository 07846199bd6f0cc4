"""Renders the reference page of the tables: `python -m konvene.pipeline.reference FILE`.

A test compares the page in the repository with this output, so no column changes unnoticed. Types are named
as in Spark SQL. The descriptions of the silver tables are here, since these tables are derived from the
declarations of records, which have none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from konvene.pipeline.codec.typed import POSITION_COLUMNS, TYPED, SilverTable
from konvene.pipeline.tables import TABLES, Table
from konvene.pipeline.tables.record import RECORD
from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_REBALANCE, SIM_RUN

__all__ = ["SILVER", "ddl", "render_reference", "sql_type"]

HEAD = """# Tables

Every table of the pipeline, rendered from `konvene.pipeline.tables` and the declarations of records. Change
them there and run `python -m konvene.pipeline.reference docs/reference/tables.md`.

- **Bronze** has the contents of the logs, byte for byte; **silver** has the same as typed columns, one table
  for each type of record; **gold** has what is derived from them.
- Types are those of Spark SQL. A column is nullable only if its type says so.
- Times are milliseconds since 1970. Columns with times and durations end in `_ms`, except in silver, where
  fields have Kafka's names.
- The columns of its key identify a row within a table.
"""

LAYERS = {
    "bronze": "The records as they were read: the only copy of those that compaction has removed since.",
    "gold": "Tables derived from bronze and silver, from which they can be built again.",
}

SILVER_HEAD = """One row for each record. All tables begin with these columns:
"""

SILVER_TAIL = """The fields of the record's key and value follow, under the names of Kafka's schemas in
snake case; for a tombstone all fields of the value are null. Ids are in Kafka's text form, null if they are
all zeros. A field that a version of the record lacks has its default. How long a row was valid depends on
later records, so it is not stored: reading adds `valid_to_offset` and `valid_to_ms`, offset and time of the
next record of the same key, null if there is none. The key of each of these tables is `cluster`,
`log_partition`, `offset`.
"""

POSITION_MEANINGS = {
    "cluster": "The cluster id, or the name that was given to the input.",
    "log_topic": "The topic of the log.",
    "log_partition": "The partition of the log.",
    "offset": "The offset of the record.",
    "timestamp_ms": "When the record was created; with log-append time, when it was appended.",
    "batch_base_offset": "First offset of its batch. A batch of Kafka may have several decisions.",
    "tombstone": "Whether the record deletes the entry of its key.",
}

SILVER = {
    "legacy_offset_commit": "A committed offset, as it was written before 2013.",
    "offset_commit": "An offset that a group committed for a partition; `committed_offset` is its field "
    "`offset`.",
    "group_metadata": "A generation of a classic group: its members, their protocols and assignments.",
    "consumer_group_metadata": "The epoch of a consumer group.",
    "consumer_group_partition_metadata": "The topics that a consumer group knew; today only "
    "tombstones of it are written.",
    "consumer_group_member_metadata": "A member of a consumer group and its subscription.",
    "consumer_group_target_assignment_metadata": "The epoch of a consumer group's target assignment.",
    "consumer_group_target_assignment_member": "The target assignment of a member of a consumer group.",
    "consumer_group_current_member_assignment": "The current assignment of a member of a consumer group, "
    "and its pending revocations.",
    "share_group_member_metadata": "A member of a share group and its subscription.",
    "share_group_metadata": "The epoch of a share group.",
    "share_group_target_assignment_metadata": "The epoch of a share group's target assignment.",
    "share_group_target_assignment_member": "The target assignment of a member of a share group.",
    "share_group_current_member_assignment": "The current assignment of a member of a share group.",
    "share_group_state_partition_metadata": "The partitions of a share group whose share state is "
    "initialized or being initialized.",
    "consumer_group_regular_expression": "The topics that a subscription regex of a consumer group matches.",
    "streams_group_metadata": "The epoch of a streams group.",
    "streams_group_member_metadata": "A member of a streams group and its process.",
    "streams_group_target_assignment_metadata": "The epoch of a streams group's target assignment.",
    "streams_group_target_assignment_member": "The target assignment of a member of a streams group.",
    "streams_group_current_member_assignment": "The current tasks of a member of a streams group, by role, "
    "and its pending revocations.",
    "streams_group_topology": "The subtopologies of a streams group and their topics.",
    "share_snapshot": "The whole share state of a partition: its start offset, and the delivery states after "
    "it.",
    "share_update": "Changes of a share state since the previous record.",
    "transaction_log": "The state of a transactional id: its producer, partitions and transaction state.",
}
"""Descriptions of the silver tables."""

_SQL = {
    pa.string(): "string", pa.binary(): "binary", pa.bool_(): "boolean", pa.int8(): "tinyint",
    pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double",
}  # fmt: skip


def sql_type(kind: pa.DataType) -> str:
    """Return a type as Spark SQL names it. Raises KeyError for types that no table may have."""
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in kind)}>"
    return _SQL[kind]


def ddl(schema: pa.Schema) -> str:
    """Return the columns in Spark SQL, for a CREATE TABLE statement or for the schema of a reader."""
    ends = ("" if field.nullable else " NOT NULL" for field in schema)
    return ", ".join(f"`{f.name}` {sql_type(f.type)}{end}" for f, end in zip(schema, ends, strict=True))


def render_reference() -> str:
    """Return the whole page, ending in a newline."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield HEAD
    yield "## Bronze\n"
    yield LAYERS["bronze"] + "\n"
    yield from _tables(table for table in TABLES.values() if table.layer == "bronze")
    yield from _tables((RECORD,))
    yield "## Silver\n"
    yield SILVER_HEAD
    yield from _columns((field, POSITION_MEANINGS[field.name]) for field in POSITION_COLUMNS)
    yield SILVER_TAIL
    for table in TYPED.values():
        yield from _silver(table)
    yield "## Gold\n"
    yield LAYERS["gold"] + "\n"
    yield from _tables(table for table in TABLES.values() if table.layer == "gold")
    yield "## Sweeps\n"
    yield "The tables that `konvene sim sweep` writes.\n"
    yield from _tables((SIM_RUN, SIM_METRIC, SIM_REBALANCE))


def _tables(tables: Iterable[Table]) -> Iterator[str]:
    for table in tables:
        yield f"### `{table.name}`\n"
        yield table.meaning + "\n"
        yield f"Key: {', '.join(f'`{name}`' for name in table.key)}.\n"
        if table.name == SIM_REBALANCE.name:
            yield "The columns are those of [`rebalance`](#rebalance).\n"
            continue
        meanings = (column.meaning for column in table.columns)
        yield from _columns(zip(table.schema, meanings, strict=True))


def _columns(columns: Iterable[tuple[pa.Field, str]]) -> Iterator[str]:
    yield "| Column | Type | Meaning |"
    yield "| --- | --- | --- |"
    for field, meaning in columns:
        yield f"| `{field.name}` | {_type(field)} | {meaning.replace('|', chr(92) + '|')} |"
    yield ""


def _silver(table: SilverTable) -> Iterator[str]:
    kind = table.kind
    yield f"### `{table.name}`\n"
    versions = kind.value.__versions__
    word = "version" if versions.first == versions.last else "versions"
    yield f"{SILVER[table.name]} `{table.log_topic}`, type {kind.code}, {word} {versions}.\n"
    yield "| Column | Type | Of | Versions |"
    yield "| --- | --- | --- | --- |"
    fields = list(table.schema)[len(POSITION_COLUMNS) :]
    declared = [("key", f) for f in kind.key.__fields__] + [("value", f) for f in kind.value.__fields__]
    for field, (part, declaration) in zip(fields, declared, strict=True):
        since = (
            declaration.versions if part == "value" and declaration.versions.first > versions.first else ""
        )
        yield f"| `{field.name}` | {_type(field)} | {part} | {since} |"
    yield ""


def _type(field: pa.Field) -> str:
    return f"`{sql_type(field.type)}`" + (", or null" if field.nullable else "")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reference(), encoding="utf-8")
