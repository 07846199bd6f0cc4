"""The Parquet files of a warehouse: where they are, and what their names state.

    <table>/[@<cluster>/[<topic>-<partition>/]][<first>-][<last>-]v1[-<family>]-<checksum>.parquet

Everything but the size and the number of rows is in the path, so the add action of a Delta table, which has
these two, describes a file completely. A cluster's name is quoted with `@` instead of `%`, since paths in
Delta logs are URLs. Without a cluster's name its folder is `@`: programs that vacuum Delta tables skip paths
that begin with `_`, as `__consumer_offsets-0` does.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from konvene.pipeline.sources.files import Partition
from konvene.pipeline.warehouse.parquet import Written

__all__ = ["DataFile", "folder_of"]

_FILE = re.compile(r"(?:(?:(\d+)-)?(\d+)-)?v\d+(?:-([a-z0-9_]+))?-([0-9a-f]{12})\.parquet")
_LOG = re.compile(r"(.+)-(\d+)")


class DataFile(NamedTuple):
    """A Parquet file of a table."""

    table: str
    path: str
    """Path relative to the warehouse's directory."""
    cluster: str
    topic: str
    """Topic of the log that the file was made from; empty if it was not made from one log."""
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    bytes: int
    sha256: str
    """The first twelve digits of the checksum of its contents."""
    family: str = ""
    """For bronze files of `__consumer_offsets`: `commits` (types 0 and 1) or `groups` (all others). For gold
    files of a log with several buckets: the bucket and their number, as in `0of4`."""

    @classmethod
    def made(
        cls, table: str, folder: str, of: Partition, first: int, last: int, file: Written, family: str = ""
    ) -> DataFile:
        """Build the entry of a file that was just written to a folder of the warehouse."""
        where = of.cluster, of.topic, of.partition, first, last
        return cls(table, f"{folder}/{file.name}", *where, file.rows, file.bytes, file.sha256[:12], family)

    @classmethod
    def parsed(cls, path: str, rows: int, size: int) -> DataFile:
        """Build the entry of a file from its path. Raises ValueError if konvene does not name files so."""
        table, *folders, name = path.split("/")
        match = _FILE.fullmatch(name)
        cluster = _unquoted(folders.pop(0)) if folders and folders[0].startswith("@") else ""
        log = _LOG.fullmatch(folders[0]) if len(folders) == 1 else None
        if match is None or (folders and log is None):
            raise ValueError(f"{path} is not named as konvene names its files")
        of = Partition(cluster, log[1], int(log[2])) if log else Partition(cluster, "", -1)
        first, last, family, checksum = match.groups()
        where = of.cluster, of.topic, of.partition, int(first or 0), int(last or 0)
        return cls(table, path, *where, rows, size, checksum, family or "")

    @property
    def of(self) -> Partition:
        return Partition(self.cluster, self.topic, self.partition)

    @property
    def place(self) -> tuple[str, str, int, int, int, str]:
        """Sort key that orders files by log and offset."""
        return self.cluster, self.topic, self.partition, self.first_offset, self.last_offset, self.path


def folder_of(table: str, of: Partition) -> str:
    """Return the folder of a table's files for a log, relative to the warehouse's directory."""
    cluster = _quoted(of.cluster) if of.cluster or of.topic else ""
    log = f"{of.topic}-{of.partition}" if of.topic else ""
    return "/".join(part for part in (table, cluster, log) if part)


def _quoted(cluster: str) -> str:
    return "@" + quote(cluster, safe="").replace("%", "@")


def _unquoted(folder: str) -> str:
    return unquote(folder[1:].replace("@", "%"))
