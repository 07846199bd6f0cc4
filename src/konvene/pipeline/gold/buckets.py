"""Buckets: the parts in which several tasks compute the gold of one log partition.

The rows of a group follow from its own records, those of `lag` from the commits of one group and partition.
So the groups, or the keys of commits, of a large log are divided by a hash. The number of buckets follows
from the number of rows alone, so all engines write the same files; it is a power of two, so it changes
rarely while a log grows.

The hash is CRC-32 of the UTF-8 text, which Python and Spark SQL compute alike.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.arrays import Ints, ints

__all__ = [
    "COMMITS", "GROUP_RECORDS", "MOST", "WHOLE_LOG", "Bucket", "commit_buckets", "group_buckets", "number",
]  # fmt: skip

GROUP_RECORDS = 64_000
"""Records of groups per bucket."""
COMMITS = 2_000_000
"""Commits per bucket. They cost much less, and each bucket reads all of the log's rows."""
MOST = 64
TOPIC_FACTOR, PARTITION_FACTOR = 31, 7


class Bucket(NamedTuple):
    """One of the buckets of a log partition."""

    ordinal: int
    of: int

    @property
    def name(self) -> str:
        """Return its name in file names; empty for the only bucket of a log."""
        return f"{self.ordinal}of{self.of}" if self.of > 1 else ""


WHOLE_LOG = Bucket(0, 1)


def number(rows: int, rows_per_bucket: int) -> int:
    """Return the number of buckets for this many rows: a power of two."""
    count = 1
    while count < MOST and rows > count * rows_per_bucket:
        count *= 2
    return count


def group_buckets(groups: pa.Array, count: int) -> Ints:
    """Return the bucket of each group id; rows without one are in the first bucket."""
    return _hashes(groups) % count


def commit_buckets(groups: pa.Array, topics: pa.Array, partitions: pa.Array, count: int) -> Ints:
    """Return the bucket of each key of a commit."""
    hashes = _hashes(groups) + TOPIC_FACTOR * _hashes(topics) + PARTITION_FACTOR * ints(partitions)
    return hashes % count


def _hashes(column: pa.Array) -> Ints:
    """Return the CRC-32 of each text; 0 for null."""
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    texts = encoded.dictionary.to_pylist()
    hashes = np.array([*(zlib.crc32(text.encode()) for text in texts), 0], np.int64)
    found: Ints = hashes[ints(encoded.indices, null=len(texts))]
    return found
