"""Deterministic Parquet output: the same rows, the same bytes, under the same name.

A file is written under a temporary name and renamed when it is complete. Its name has the range of offsets
that it was made from, the version of the writer, and the beginning of its checksum: so a file that others
read is never overwritten with other bytes, and writing the same ones again changes nothing.

Rows arrive in batches of any size and leave in row groups of a fixed one (fewer rows if they are long), so
neither the bytes nor the memory depend on the batches. Nothing here reads a clock.
"""

# Files are named by text, and each is opened, written and renamed once:
# ruff: noqa: PTH103, PTH105, PTH108

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["GROUP_BYTES", "GROUP_ROWS", "VERSION", "Sink", "Written"]

GROUP_ROWS = 50_000
GROUP_BYTES = 32 << 20
VERSION = 1
"""Version of the writer. Files of another version are written again, under another name."""
_PART = ".part"


class Written(NamedTuple):
    """A file that is complete: its name, size and checksum."""

    name: str
    rows: int
    bytes: int
    sha256: str


class _Hashing:
    """A sequentially written file that computes the checksum of its contents."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def write(self, data: bytes | memoryview) -> int:
        self._hash.update(data)
        view = memoryview(data)
        self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class Sink:
    """Writer of one file of a table. No file is created if there are no rows."""

    def __init__(
        self, folder: str | Path, schema: pa.Schema, rows: int | None = None, size: int | None = None
    ) -> None:
        self._folder = str(folder)
        self._schema = schema
        self._most_rows, self._most_bytes = rows or GROUP_ROWS, size or GROUP_BYTES
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._written = 0
        self._part = ""
        self._file: _Hashing | None = None
        self._writer: Any = None

    def __repr__(self) -> str:
        return f"<{self._written + self._rows} rows for {self._folder}>"

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Their columns must be those of the schema, in its order."""
        at = 0
        while at < batch.num_rows:
            piece = batch.slice(at, self._most_rows - self._rows)
            at += piece.num_rows
            self._waiting.append(piece)
            self._rows += piece.num_rows
            self._bytes += piece.nbytes
            if self._rows >= self._most_rows or self._bytes >= self._most_bytes:
                self._flush()

    def close(self, name_of: Callable[[str], str]) -> Written | None:
        """Complete the file under the name that `name_of` returns for the beginning of its checksum; None
        without rows."""
        if self._rows:
            self._flush()
        if self._file is None:
            return None
        self._writer.close()
        self._file.close()
        sha256 = self._file.hexdigest()
        name = name_of(sha256[:12])
        os.replace(self._part, os.path.join(self._folder, name))
        return Written(name, self._written, self._file.size, sha256)

    def abandon(self) -> None:
        """Delete the incomplete file."""
        if self._file is not None and not self._file.closed:
            with contextlib.suppress(OSError):
                self._writer.close()
            self._file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._part)

    def _flush(self) -> None:
        if self._file is None:
            os.makedirs(self._folder, exist_ok=True)
            handle, self._part = tempfile.mkstemp(_PART, ".", self._folder)
            self._file = _Hashing(os.fdopen(handle, "wb"))
            self._writer = pq.ParquetWriter(self._file, self._schema, **_options(self._schema))
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(table, row_group_size=self._most_rows)
        self._written += self._rows
        self._waiting, self._rows, self._bytes = [], 0, 0


def _options(schema: pa.Schema) -> dict[str, object]:
    """Return the writer's options: dictionaries for repetitive columns, statistics for those used in
    filters."""
    plain = [f.name for f in schema if not pa.types.is_binary(f.type) and not pa.types.is_nested(f.type)]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [n for n in plain if n not in _EACH_ITS_OWN],
        "column_encoding": {n: "DELTA_BINARY_PACKED" for n in plain if n in _RISING},
        "write_statistics": [n for n in plain if n not in _NOT_SOUGHT],
        "store_schema": True,
    }


_EACH_ITS_OWN = frozenset({"offset", "timestamp_ms", "committed_offset", "commit_timestamp"})
_RISING = _EACH_ITS_OWN - {"timestamp_ms"}
"""Columns stored with delta encoding: half the time and a tenth of the bytes. The timestamps of a batch are
equal, which compression handles by itself."""
_NOT_SOUGHT = frozenset({"producer_epoch", "leader_epoch"})
