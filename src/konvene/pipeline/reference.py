"""The reference page of the tables, rendered: `python -m konvene.pipeline.reference FILE` writes it.

A test compares the page in the repository with what this renders, so that no column changes unseen. Types are
named as Spark's SQL names them. What silver's tables are for is said here, since they are made from the
declarations of records, which do not say it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from konvene.pipeline.codec.typed import TYPED, SilverTable
from konvene.pipeline.codec.typed import WHERE as SILVER_WHERE
from konvene.pipeline.tables import TABLES, Table
from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_REBALANCE, SIM_RUN

__all__ = ["SILVER", "ddl", "render_reference", "sql_type"]

HEAD = """# Tables

Every table of the pipeline, rendered from `konvene.pipeline.tables` and the declarations of records; change
them there and run `python -m konvene.pipeline.reference docs/reference/tables.md`.

- **Bronze** is what the logs say, byte for byte, **silver** the same as typed columns, one table for each
  type of record, **gold** what it comes to.
- Types are Spark's. A column can be null only where it says so.
- Times are milliseconds since 1970. A column that holds one, or a length of time, ends in `_ms`, but in
  silver, where fields have Kafka's names.
- By the columns of its key a row is the only one of its kind, within a table.
"""

LAYERS = {
    "bronze": "What was read, as it was read. It is the only copy of what a cleaner has removed since.",
    "gold": "What the records come to. It is made of bronze and silver, and can be made again from them.",
}

SILVER_HEAD = """One row for each record. These columns are in front of all:
"""

SILVER_TAIL = """Then come the fields of the record's key and those of its value, under the names that Kafka's
schemas give them, in snake case; of a tombstone all fields of the value are null. Ids are Kafka's text of
them, null where they are all zeros. A field that a version of the record lacks has its default. How long a
row held depends on what came later, so it is not stored: reading adds `valid_to_offset` and `valid_to_ms`,
the next record of the same key, null where there is none. The key of each of these tables is `cluster`,
`log_partition`, `offset`.
"""

WHERE = {
    "cluster": "The cluster's id, or the name that was given to the input.",
    "log_topic": "The log that the record stands in,",
    "log_partition": "its partition,",
    "offset": "and where in it.",
    "timestamp_ms": "When the record was made; with log-append time, when it was appended.",
    "batch_base_offset": "Where its batch begins: records of one batch were written by one decision.",
    "tombstone": "Whether the record only says that what its key names is gone.",
}

SILVER = {
    "legacy_offset_commit": "A committed offset, as it was written before 2013.",
    "offset_commit": "An offset that a group committed for a partition; `committed_offset` is its field "
    "`offset`.",
    "group_metadata": "A generation of a classic group, whole: its members, what they support, who has what.",
    "consumer_group_metadata": "The epoch of a consumer group.",
    "consumer_group_partition_metadata": "The topics that a consumer group knew; only its tombstones are "
    "written by now.",
    "consumer_group_member_metadata": "Who a member of a consumer group is, and what it subscribes to.",
    "consumer_group_target_assignment_metadata": "The epoch for which a consumer group's target was made.",
    "consumer_group_target_assignment_member": "What a member of a consumer group is to have.",
    "consumer_group_current_member_assignment": "What a member of a consumer group has, and what it is to "
    "give up.",
    "share_group_member_metadata": "Who a member of a share group is, and what it subscribes to.",
    "share_group_metadata": "The epoch of a share group.",
    "share_group_target_assignment_metadata": "The epoch for which a share group's target was made.",
    "share_group_target_assignment_member": "What a member of a share group is to have.",
    "share_group_current_member_assignment": "What a member of a share group has.",
    "share_group_state_partition_metadata": "For which partitions of a share group there is share state, or "
    "will be.",
    "consumer_group_regular_expression": "The topics that an expression of a consumer group came to.",
    "streams_group_metadata": "The epoch of a streams group.",
    "streams_group_member_metadata": "Who a member of a streams group is, and in which process.",
    "streams_group_target_assignment_metadata": "The epoch for which a streams group's target was made.",
    "streams_group_target_assignment_member": "The tasks that a member of a streams group is to have.",
    "streams_group_current_member_assignment": "The tasks that a member of a streams group has, by role, and "
    "those it is to give up.",
    "streams_group_topology": "The subtopologies of a streams group and their topics.",
    "share_snapshot": "The whole share state of a partition: where it begins, and what became of records "
    "behind that.",
    "share_update": "What changed in a share state since the record before.",
    "transaction_log": "The state of a transactional id: its producer, its partitions, how far it is.",
}
"""What the rows of silver's tables say."""

_SQL = {
    pa.string(): "string", pa.binary(): "binary", pa.bool_(): "boolean", pa.int8(): "tinyint",
    pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double",
}  # fmt: skip


def sql_type(kind: pa.DataType) -> str:
    """A type as Spark's SQL names it. KeyError for one that no table may have."""
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in kind)}>"
    return _SQL[kind]


def ddl(schema: pa.Schema) -> str:
    """The columns as Spark takes them in a CREATE TABLE, or as the schema of a reader."""
    ends = ("" if field.nullable else " NOT NULL" for field in schema)
    return ", ".join(f"`{f.name}` {sql_type(f.type)}{end}" for f, end in zip(schema, ends, strict=True))


def render_reference() -> str:
    """The whole page, ending in a newline."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield HEAD
    yield "## Bronze\n"
    yield LAYERS["bronze"] + "\n"
    yield from _tables(table for table in TABLES.values() if table.layer == "bronze")
    yield "## Silver\n"
    yield SILVER_HEAD
    yield from _columns((field, WHERE[field.name]) for field in SILVER_WHERE)
    yield SILVER_TAIL
    for table in TYPED.values():
        yield from _silver(table)
    yield "## Gold\n"
    yield LAYERS["gold"] + "\n"
    yield from _tables(table for table in TABLES.values() if table.layer == "gold")
    yield "## Sweeps\n"
    yield "What `konvene sim sweep` writes, beside no log.\n"
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
    fields = list(table.schema)[len(SILVER_WHERE) :]
    declared = [("key", f) for f in kind.key.__fields__] + [("value", f) for f in kind.value.__fields__]
    for field, (part, told) in zip(fields, declared, strict=True):
        since = told.versions if part == "value" and told.versions.first > versions.first else ""
        yield f"| `{field.name}` | {_type(field)} | {part} | {since} |"
    yield ""


def _type(field: pa.Field) -> str:
    return f"`{sql_type(field.type)}`" + (", or null" if field.nullable else "")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reference(), encoding="utf-8")
