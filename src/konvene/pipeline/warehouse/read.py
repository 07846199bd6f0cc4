"""Reads tables without Spark: as batches, in bounded memory, with only the requested columns and rows.

Rows come log by log, and for each log in the order of offsets. A later ingest may have filled holes of an
earlier one, so files of one log can overlap: they are merged.

The files are those of a snapshot. Rows of silver can have their validity: up to the next record of the same
key. That depends on later records, so it is not stored; `validity` reads a table from its end and keeps for
each key the record that came next.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse.warehouse import DataFile, Warehouse

__all__ = [
    "VALIDITY", "batches", "described", "key_of", "layer_of", "meaning", "merged", "of_files", "schema_of",
    "table", "validity",
]  # fmt: skip

ROWS = 32_768
VALIDITY = (pa.field("valid_to_offset", pa.int64()), pa.field("valid_to_ms", pa.int64()))
"""Columns that `validity` adds: offset and time of the next record of the same key; null if there is none."""
_SILVER = {silver.name: silver for silver in TYPED.values()}


def layer_of(name: str) -> str:
    """Return the layer of a table: bronze, silver or gold."""
    return TABLES[name].layer if name in TABLES else "silver"


def described(name: str, word: str) -> pa.Schema:
    """Return a table's schema with the description of each column in its metadata, under the key `word`."""
    meanings = {column.name: column.meaning for column in TABLES[name].columns} if name in TABLES else {}
    fields = [
        field.with_metadata({word: meanings[field.name]}) if field.name in meanings else field
        for field in schema_of(name)
    ]
    return pa.schema(fields)


def meaning(name: str) -> str:
    """Return one sentence that describes a table."""
    if name in TABLES:
        return TABLES[name].meaning
    return f"Records of type {name}, as the coordinator's log has them."


def schema_of(name: str) -> pa.Schema:
    """Return the schema of a table of any layer. Raises KeyError for an unknown table."""
    schema: pa.Schema = TABLES[name].schema if name in TABLES else _SILVER[name].schema
    return schema


def table(
    warehouse: Warehouse, name: str, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
) -> pa.Table:
    """Return a whole table; for gold tables, which are small."""
    schema = schema_of(name)
    if columns is not None:
        schema = pa.schema([schema.field(column) for column in columns])
    return pa.Table.from_batches(batches(warehouse, name, columns, filter), schema)


def batches(
    warehouse: Warehouse,
    name: str,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    cluster: str | None = None,
    family: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows, some ten thousand at a time, ordered by log and offset.

    `filter` is an expression of `pyarrow.dataset`; row groups that Parquet's statistics exclude are not read.
    With `topic`, `partition`, `cluster` and `family` only files of these are read. Raises KeyError for an
    unknown table."""
    schema_of(name)
    files = warehouse.files(name, topic, partition, cluster=cluster, family=family)
    for _, of_log in itertools.groupby(files, key=lambda f: (f.cluster, f.topic, f.partition)):
        yield from of_files(warehouse.path, list(of_log), columns, filter)


def of_files(
    home: str | Path,
    files: Sequence[DataFile],
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    *,
    dictionaries: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files of one log and table, in offset order if the table has offsets.

    Without a filter, the columns `dictionaries` are read as dictionaries, which is faster for repetitive
    texts."""
    ordered = sorted(files, key=lambda f: f.place)
    while ordered:
        together, last = [ordered.pop(0)], 0
        last = together[0].last_offset
        while ordered and ordered[0].first_offset <= last:
            together.append(ordered.pop(0))
            last = max(last, together[-1].last_offset)
        by = _offset_of(together[0].table)
        if len(together) == 1 or by is None:
            for file in together:
                yield from _of_file(f"{home}/{file.path}", columns, filter, dictionaries)
            continue
        wanted = None if columns is None or by in columns else [*columns, by]
        streams = [_of_file(f"{home}/{f.path}", wanted or columns, filter, dictionaries) for f in together]
        for batch in merged(streams, by):
            yield batch if wanted is None else batch.select(list(columns or ()))


def merged(streams: Iterable[Iterator[pa.RecordBatch]], by: str = "offset") -> Iterator[pa.RecordBatch]:
    """Merge streams, each sorted by the column `by`, into one sorted stream. Holds one batch of each."""
    held = [batch for stream in streams if (batch := _next(stream)) is not None]
    while held:
        upto = min(batch.column(by)[-1].as_py() for batch, _ in held)
        parts: list[pa.RecordBatch] = []
        left: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
        for batch, stream in held:
            count = pc.sum(pc.less_equal(batch.column(by), upto)).as_py()
            if count:
                parts.append(batch.slice(0, count))
            rest = (batch.slice(count), stream) if count < batch.num_rows else _next(stream)
            if rest is not None:
                left.append(rest)
        held = left
        if len(parts) == 1:
            yield parts[0]
        else:
            rows = pa.Table.from_batches(parts).combine_chunks()
            yield from rows.take(pc.sort_indices(rows.column(by))).to_batches()


def _next(stream: Iterator[pa.RecordBatch]) -> tuple[pa.RecordBatch, Iterator[pa.RecordBatch]] | None:
    for batch in stream:
        if batch.num_rows:
            return batch, stream
    return None


def _of_file(
    path: str,
    columns: Sequence[str] | None,
    filter: pc.Expression | None,
    dictionaries: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    if filter is None:
        with pq.ParquetFile(path, read_dictionary=list(dictionaries) or None) as file:
            for i in range(file.num_row_groups):  # By itself it would join groups of few, long rows.
                yield from file.iter_batches(ROWS, [i], columns=_listed(columns), use_threads=False)
        return
    scanner = ds.dataset(path, format="parquet").scanner(
        columns=_listed(columns), filter=filter, batch_size=ROWS, batch_readahead=1, fragment_readahead=1,
        use_threads=False,
    )  # fmt: skip
    yield from (batch for batch in scanner.to_batches() if batch.num_rows)


def _listed(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


def _offset_of(name: str) -> str | None:
    """Return the column by which a table is sorted in log order; None if it has none."""
    names = schema_of(name).names
    return next((by for by in ("offset", "audit_offset", "base_offset") if by in names), None)


# validity -----------------------------------------------------------------------------------------


def key_of(name: str) -> list[str]:
    """Return the columns of a silver table that make up a record's key."""
    return [field.name for field in _SILVER[name].kind.key.__fields__]


def validity(
    warehouse: Warehouse,
    name: str,
    columns: Sequence[str] | None = None,
    *,
    partition: int | None = None,
    cluster: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of silver with the columns `VALIDITY`, log by log.

    The newest batch of a log comes first; rows within a batch are in log order. Memory holds one entry per
    key of a log, and its largest batch."""
    key = key_of(name)
    shown = [f.name for f in schema_of(name)] if columns is None else list(columns)
    wanted = list(dict.fromkeys([*shown, *key, "offset", "timestamp_ms"]))
    files = warehouse.files(name, None, partition, cluster=cluster)
    for _, of_log in itertools.groupby(files, key=lambda f: (f.cluster, f.topic, f.partition)):
        later: dict[tuple[object, ...], tuple[int, int]] = {}
        for batch in _backwards(warehouse.path, list(of_log), wanted):
            yield _until(batch, key, later).select([*shown, *(f.name for f in VALIDITY)])


def _backwards(home: str | Path, files: list[DataFile], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one log's files, from the end to the beginning."""
    ordered = sorted(files, key=lambda f: f.place)
    groups: list[list[DataFile]] = []
    last = -1
    for file in ordered:
        if groups and file.first_offset <= last:
            groups[-1].append(file)
        else:
            groups.append([file])
        last = max(last, file.last_offset)
    for together in reversed(groups):
        if len(together) > 1:  # Parts of one chunk that were filled in later: they are read at one go.
            yield from reversed(list(of_files(home, together, columns)))
            continue
        with pq.ParquetFile(f"{home}/{together[0].path}") as file:
            for i in reversed(range(file.num_row_groups)):
                rows = file.read_row_group(i, columns=columns, use_threads=False).combine_chunks()
                yield from rows.to_batches()


def _until(
    batch: pa.RecordBatch, key: list[str], later: dict[tuple[object, ...], tuple[int, int]]
) -> pa.RecordBatch:
    columns = [batch.column(name).to_pylist() for name in key]
    offsets, times = batch.column("offset").to_pylist(), batch.column("timestamp_ms").to_pylist()
    ends: list[tuple[int, int] | tuple[None, None]] = [(None, None)] * batch.num_rows
    keys = list(zip(*columns, strict=True))
    for i in range(batch.num_rows - 1, -1, -1):
        ends[i] = later.get(keys[i], (None, None))
        later[keys[i]] = offsets[i], times[i]
    arrays = [pa.array([end[i] for end in ends], field.type) for i, field in enumerate(VALIDITY)]
    schema = pa.schema([*batch.schema, *VALIDITY])
    return pa.RecordBatch.from_arrays([*batch.columns, *arrays], schema=schema)
