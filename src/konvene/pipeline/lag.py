"""Lag, minute by minute: what groups had committed, beside how far the logs had grown then.

A row is a minute in which a group committed an offset of a partition. What it tells of the commits is what
the records say. What it tells of the log's end rests on the headers of batches (`log_end`), stretch by
stretch:

- the end is that of the last stretch which is over by the end of the minute. If the next one has begun by
  then, or none is known, the end may be further: `inferred`. If the next one begins later, it is `observed`.
- before the first stretch that is left, the end is 0 if the log begins at 0; otherwise nobody can tell any
  more: `missing`.
- the oldest record that is not committed is at least as old as the newest one of the stretch that it is in.
  No offset is guessed between two ends. A stretch of more than a minute makes it `inferred`.

The time of a stretch is what producers said. It never runs backwards here: a stretch is over when all before
it are. A commit whose time lies before the minute of the commit before it counts in that minute, so clocks
that disagree make no second row of a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from konvene.pipeline.commits import Bools, Effects, Ints, Key, effects, grown, ints, order_of, running_max
from konvene.pipeline.tables import TABLES

__all__ = ["Ends", "lag_rows"]

MINUTE_MS = 60_000
_ROWS = 32_768
"""So many rows make a batch."""
_NONE = -(2**62)
_OBSERVED, _INFERRED, _MISSING = 0, 1, 2
_EVIDENCE = pa.array(["observed", "inferred", "missing"], pa.string())


class _Rows(NamedTuple):
    """Rows of the table before the logs' ends are known; `advanced` is `_NONE` where there is none."""

    key: Ints
    minute: Ints
    offset: Ints
    ms: Ints
    commits: Ints
    advanced: Ints


def lag_rows(
    commits: Iterable[pa.RecordBatch],
    log_end: Iterable[pa.RecordBatch] | Ends = (),
    transactional: Iterable[pa.RecordBatch] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of `lag` of one log partition, in the order in which their minutes were over.

    `commits` and `transactional` are those of `konvene.pipeline.commits.effects`; `log_end` are batches of
    that table, sorted in any way.
    """
    ends = log_end if isinstance(log_end, Ends) else Ends(log_end)
    minutes = _Minutes()
    held: list[_Rows] = []
    some: Effects | None = None
    for some in effects(commits, transactional):
        held.append(minutes.take(some))
        if sum(len(rows.key) for rows in held) >= _ROWS:
            yield _batch(some, held, ends)
            held = []
    if some is not None:
        held.append(minutes.finish(some.keys.all))
        if any(len(rows.key) for rows in held):
            yield _batch(some, held, ends)


@dataclass(eq=False)
class _Minutes:
    """The last minute of each key, which is still open, and the row before it."""

    minute: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    offset: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    ms: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    commits: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    life: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """How many tombstones there were before the open minute's last commit."""
    before: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """The offset of the row before; `_NONE` where there is none of the same life."""
    before_life: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    lives: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """How many tombstones there were by now."""

    def take(self, some: Effects) -> _Rows:
        """The rows that are over by these effects."""
        self._grow(len(some.keys.all))
        by_key = order_of(some.key, len(some.keys.all))
        key = some.key[by_key]
        life = self._lives(key, some.tombstone[by_key])
        commit = np.flatnonzero(~some.tombstone[by_key])
        by_key, key, life = by_key[commit], key[commit], life[commit]
        if not len(key):
            return _Rows(*([np.zeros(0, np.int64)] * len(_Rows._fields)))
        minute = some.ms[by_key] // MINUTE_MS
        minute = np.maximum(minute, running_max(key, minute, self.minute[key]))
        return self._close(key, minute, some.offset[by_key], some.ms[by_key], life, by_key)

    def _lives(self, key: Ints, tombstone: Bools) -> Ints:
        """Of rows sorted by key: how many tombstones their keys had before."""
        dead = np.cumsum(tombstone)
        heads = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.zeros(0, np.int64)
        lengths = np.diff(np.r_[heads, len(key)])
        base: Ints = np.repeat((dead - tombstone)[heads], lengths)
        life: Ints = self.lives[key] + dead - base
        last = heads + lengths - 1
        self.lives[key[last]] = life[last]
        return life

    def _close(self, key: Ints, minute: Ints, offset: Ints, ms: Ints, life: Ints, came: Ints) -> _Rows:
        """Cut commits, sorted by key, into minutes; the last one of each key stays open."""
        keys = key[np.flatnonzero(np.r_[True, key[1:] != key[:-1]])]
        opened = keys[self.commits[keys] > 0]
        merged = np.argsort(np.r_[opened, key], kind="stable")
        key = np.r_[opened, key][merged]
        minute = np.r_[self.minute[opened], minute][merged]
        weight = np.r_[self.commits[opened], np.ones(len(offset), np.int64)][merged]
        first = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]) | (minute[1:] != minute[:-1])])
        last = np.r_[first[1:], len(key)] - 1
        came = np.r_[np.full(len(opened), -1), came][merged][first]
        rows_key, commits = key[last], np.add.reduceat(weight, first)
        rows_offset = np.r_[self.offset[opened], offset][merged][last]
        rows_ms = np.r_[self.ms[opened], ms][merged][last]
        rows_life = np.r_[self.life[opened], life][merged][last]
        heads = np.r_[True, rows_key[1:] != rows_key[:-1]]
        before = np.where(heads, self.before[rows_key], np.r_[_NONE, rows_offset[:-1]])
        before_life = np.where(heads, self.before_life[rows_key], np.r_[_NONE, rows_life[:-1]])
        known = (before != _NONE) & (before_life == rows_life)
        advanced = np.where(known, rows_offset - before, _NONE)
        rows = _Rows(rows_key, minute[last], rows_offset, rows_ms, commits, advanced)
        stays = np.r_[rows_key[1:] != rows_key[:-1], True]
        self._open(
            rows_key[stays], [c[stays] for c in (minute[last], rows_offset, rows_ms, commits, rows_life)]
        )
        self.before[rows_key[stays]], self.before_life[rows_key[stays]] = before[stays], before_life[stays]
        over = np.flatnonzero(~stays)
        order = over[np.argsort(came[over + 1], kind="stable")]
        return _Rows(*(column[order] for column in rows))

    def _open(self, key: Ints, columns: list[Ints]) -> None:
        for mine, column in zip(
            (self.minute, self.offset, self.ms, self.commits, self.life), columns, strict=True
        ):
            mine[key] = column

    def finish(self, names: list[Key]) -> _Rows:
        """The minutes that are still open, by minute and key."""
        opened = [number for number in range(len(names)) if self.commits[number]]
        opened.sort(key=lambda number: (int(self.minute[number]), names[number]))
        key = np.array(opened, np.int64)
        before = self.before[key]
        known = (before != _NONE) & (self.before_life[key] == self.life[key])
        advanced = np.where(known, self.offset[key] - before, _NONE)
        return _Rows(key, self.minute[key], self.offset[key], self.ms[key], self.commits[key], advanced)

    def _grow(self, length: int) -> None:
        for name in ("offset", "ms", "commits", "life", "before_life", "lives"):
            setattr(self, name, grown(getattr(self, name), length, 0))
        self.minute, self.before = grown(self.minute, length, -1), grown(self.before, length, _NONE)


class _Stretches(NamedTuple):
    """The stretches of a partition's log, sorted by offset; `over_ms` never falls."""

    base: Ints
    end: Ints
    first_ms: Ints
    last_ms: Ints
    over_ms: Ints


class Ends:
    """How far the logs of partitions had grown, and when."""

    def __init__(self, batches: Iterable[pa.RecordBatch] = ()) -> None:
        parts: dict[tuple[str, int], list[Ints]] = {}
        for batch in batches:
            keys = list(zip(batch["topic"].to_pylist(), batch["partition"].to_pylist(), strict=True))
            names = ("base_offset", "log_end_offset", "first_timestamp_ms", "timestamp_ms")
            columns = np.stack([ints(batch[name]) for name in names])
            heads = [at for at in range(len(keys)) if at == 0 or keys[at] != keys[at - 1]]
            for at, end in zip(heads, [*heads[1:], len(keys)], strict=True):
                parts.setdefault(keys[at], []).append(columns[:, at:end])
        self._partitions = {key: _stretches(np.concatenate(found, axis=1)) for key, found in parts.items()}

    def __repr__(self) -> str:
        return f"<log ends of {len(self._partitions)} partitions>"

    def of(self, topic: str, partition: int) -> _Stretches | None:
        return self._partitions.get((topic, partition))


def _stretches(columns: Ints) -> _Stretches:
    base, end, first_ms, last_ms = list(columns[:, np.argsort(columns[0], kind="stable")])
    return _Stretches(base, end, first_ms, last_ms, np.maximum.accumulate(last_ms))


class _Behind(NamedTuple):
    """Of rows of one partition: the end, the lag and its age, `_NONE` where not known; and the evidence."""

    end: Ints
    lag: Ints
    age_ms: Ints
    evidence: Ints


def _behind(log: _Stretches, minute: Ints, committed: Ints) -> _Behind:
    at_ms = (minute + 1) * MINUTE_MS
    last = np.searchsorted(log.over_ms, at_ms, "left") - 1
    end, evidence = _end(log, last, at_ms)
    lag = np.where(end == _NONE, _NONE, np.maximum(end - committed, 0))
    holds = np.searchsorted(log.base, committed, "right") - 1
    holds = np.where((holds >= 0) & (committed >= log.end[holds]), holds + 1, holds)
    held = (lag > 0) & (holds >= 0) & (holds < len(log.base))
    inside = np.clip(holds, 0, len(log.base) - 1)
    age = np.where(held, np.maximum(at_ms - log.last_ms[inside], 0), np.where(lag == 0, 0, _NONE))
    wide = held & (log.last_ms[inside] - log.first_ms[inside] > MINUTE_MS) & (evidence == _OBSERVED)
    return _Behind(end, lag, age, np.where(wide, _INFERRED, evidence))


def _end(log: _Stretches, last: Ints, at_ms: Ints) -> tuple[Ints, Ints]:
    """The ends that are known by these times, given the last stretches that are over; and the evidence."""
    following = np.minimum(last + 1, len(log.base) - 1)
    open_end = (last + 1 == len(log.base)) | (log.first_ms[following] < at_ms)
    end = np.where(last >= 0, log.end[np.maximum(last, 0)], log.base[0])
    lost = (last < 0) & ~open_end & (log.base[0] > 0)
    evidence = np.where(lost, _MISSING, np.where(open_end, _INFERRED, _OBSERVED))
    return np.where(lost, _NONE, end), evidence


def _batch(some: Effects, held: list[_Rows], ends: Ends) -> pa.RecordBatch:
    rows = _Rows(*(np.concatenate([getattr(part, name) for part in held]) for name in _Rows._fields))
    behind = _joined(rows, some.keys.all, ends)
    names = [some.keys.all[key] for key in rows.key.tolist()]
    groups, topics, partitions = zip(*names, strict=True)
    columns: list[Any] = [
        [some.cluster] * len(names), groups, topics, partitions, rows.minute * MINUTE_MS, rows.offset,
        rows.ms, rows.commits, _known(rows.advanced), _known(behind.end), _known(behind.lag),
        _known(behind.age_ms),
        _EVIDENCE.take(pa.array(behind.evidence)),
    ]  # fmt: skip
    schema = TABLES["lag"].schema
    arrays = [
        column.cast(kind.type) if isinstance(column, pa.Array) else pa.array(column, kind.type)
        for column, kind in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined(rows: _Rows, names: list[Key], ends: Ends) -> _Behind:
    """Beside each row how far its partition's log had grown."""
    count = len(rows.key)
    found = _Behind(*(np.full(count, fill) for fill in (_NONE, _NONE, _NONE, _OBSERVED)))
    by_key = np.argsort(rows.key, kind="stable")
    key = rows.key[by_key]
    heads = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    for at, end in zip(heads.tolist(), [*heads[1:].tolist(), count], strict=True):
        name = names[int(key[at])]
        log = ends.of(name.topic, name.partition)
        if log is not None:
            where = by_key[at:end]
            for column, values in zip(
                found, _behind(log, rows.minute[where], rows.offset[where]), strict=True
            ):
                column[where] = values
    return found


def _known(values: Ints) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == _NONE)
