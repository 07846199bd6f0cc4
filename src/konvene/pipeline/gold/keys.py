"""Keys of commits (group, topic, partition) as numbers, many rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.arrays import Ints, ints

__all__ = ["Key", "Keys"]

_NONE: Ints = np.zeros(0, np.int64)
_LOW = 0xFFFF_FFFF


class Key(NamedTuple):
    group_id: str
    topic: str
    partition: int


class Keys:
    """A numbering of commit keys (group, topic, partition)."""

    def __init__(self) -> None:
        self._groups, self._topics = _Texts(), _Texts()
        self._pairs, self._keys = _Numbering(), _Numbering()
        self._pair = self._partition = _NONE
        """The pair and the partition of each key."""
        self._group = self._topic = _NONE
        """The group and the topic of each pair."""

    def __repr__(self) -> str:
        return f"<{len(self)} keys>"

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def all(self) -> list[Key]:
        """Return all keys, by number."""
        groups, topics, partitions = self.columns(np.arange(len(self)))
        return [Key(*key) for key in zip(groups.to_pylist(), topics.to_pylist(), partitions, strict=True)]

    def of(self, rows: pa.Table) -> Ints:
        """Return the number of each row's key; a new key gets the next number."""
        groups, topics = self._groups.of(rows.column("group")), self._topics.of(rows.column("topic"))
        pairs, new = self._pairs.of(groups << 32 | topics)
        self._group = np.concatenate([self._group, new >> 32])
        self._topic = np.concatenate([self._topic, new & _LOW])
        keys, new = self._keys.of(pairs << 32 | ints(rows.column("partition")) & _LOW)
        self._pair = np.concatenate([self._pair, new >> 32])
        self._partition = np.concatenate([self._partition, (new & _LOW).astype(np.int32).astype(np.int64)])
        return keys

    def columns(self, key: Ints) -> tuple[pa.Array, pa.Array, Ints]:
        """Return the groups, topics and partitions of keys."""
        pair = self._pair[key]
        groups, topics = self._groups.texts(self._group[pair]), self._topics.texts(self._topic[pair])
        return groups, topics, self._partition[key]

    def in_order(self, key: Ints, minute: Ints) -> Ints:
        """Return the indices that sort rows by minute, then by group, topic and partition of their key."""
        pair = self._pair[key]
        group, topic = self._groups.ranks()[self._group[pair]], self._topics.ranks()[self._topic[pair]]
        order: Ints = np.lexsort((self._partition[key], topic, group, minute))
        return order

    def by_partition(self, key: Ints) -> Iterator[tuple[str, int, Ints]]:
        """Yield each topic and partition of these keys, with the indices of its rows."""
        if not len(key):
            return
        topic, partition = self._topic[self._pair[key]], self._partition[key]
        order = np.lexsort((partition, topic))
        topic, partition = topic[order], partition[order]
        heads = np.flatnonzero(np.r_[True, (topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1])])
        names = self._topics.texts(topic[heads]).to_pylist()
        for name, at, end in zip(names, heads.tolist(), [*heads[1:].tolist(), len(key)], strict=True):
            yield name, int(partition[at]), order[at:end]


class _Texts:
    """A numbering of texts, in order of first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._column = pa.array([], pa.string())

    def __repr__(self) -> str:
        return f"<{len(self._numbers)} texts>"

    def of(self, column: pa.ChunkedArray) -> Ints:
        encoded = pc.dictionary_encode(column.combine_chunks())
        numbers = self._numbers
        found = [numbers.setdefault(text, len(numbers)) for text in encoded.dictionary.to_pylist()]
        codes: Ints = np.array(found, np.int64)[ints(encoded.indices)]
        return codes

    def texts(self, numbers: Ints) -> pa.Array:
        if len(self._column) < len(self._numbers):
            self._column = pa.array(list(self._numbers), pa.string())
        return self._column.take(pa.array(numbers))

    def ranks(self) -> Ints:
        """Return the rank of each text by its number."""
        ranks = np.empty(len(self._numbers), np.int64)
        ranks[[self._numbers[text] for text in sorted(self._numbers)]] = np.arange(len(ranks))
        return ranks


class _Numbering:
    """A numbering of integers: each new one gets the next number."""

    def __init__(self) -> None:
        self._values = self._numbers = _NONE
        """The known integers in ascending order, and their numbers."""

    def __repr__(self) -> str:
        return f"<{len(self)} integers>"

    def __len__(self) -> int:
        return len(self._values)

    def of(self, values: Ints) -> tuple[Ints, Ints]:
        """Return the number of each value, and the values that are new, by number."""
        distinct, inverse = np.unique(values, return_inverse=True)
        at = np.searchsorted(self._values, distinct)
        known = np.zeros(len(distinct), np.bool_)
        inside = at < len(self._values)
        known[inside] = self._values[at[inside]] == distinct[inside]
        new = distinct[~known]
        numbers = np.empty(len(distinct), np.int64)
        numbers[known] = self._numbers[at[known]]
        numbers[~known] = np.arange(len(self), len(self) + len(new))
        self._numbers = np.insert(self._numbers, at[~known], numbers[~known])
        self._values = np.insert(self._values, at[~known], new)
        found: Ints = numbers[inverse]
        return found, new
