"""Lag, minute by minute: the offsets that groups committed, and how far the logs had grown then.

A row is a minute in which a group committed an offset of a partition. The commits are what the records
contain. The log end is derived from the headers of batches (`log_end`), stretch by stretch:

- The end is that of the last stretch that is over by the end of the minute. If the next one has begun by
  then, or none is known, the end may be further: `inferred`. If the next one begins later, it is `observed`.
- Before the first remaining stretch the end is 0 if the log begins at 0; otherwise it is unknown: `missing`.
- The oldest uncommitted record is at least as old as the newest one of its stretch. No offset is
  interpolated between two ends. A stretch of more than a minute makes it `inferred`.

The time of a stretch is the producers' timestamps. It never runs backwards here: a stretch is over when all
before it are. A commit with a time before the minute of the previous commit counts in that minute, so clocks
that disagree do not yield a second row of a minute.

Where the log was compacted, only the last commit of each key is left, and the number before it is unknown: a
row whose commits lie there, or whose minute is not after the last minute there, is `missing`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from konvene.pipeline.arrays import Bools, Ints, grown, ints, order_of, running_max
from konvene.pipeline.gold.commits import Effects, Ended, effect_ms, effects
from konvene.pipeline.gold.keys import Keys
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import DataFile

__all__ = [
    "EVIDENCE",
    "MINUTE_MS",
    "UNKNOWN",
    "Behind",
    "Compacted",
    "Ends",
    "StoredEnds",
    "Stretches",
    "behind_of",
    "compacted_ranges",
    "lag_rows",
]

MINUTE_MS = 60_000
_ROWS = 32_768
"""Rows per batch."""
UNKNOWN = -(2**62)
_OBSERVED, _INFERRED, _MISSING = 0, 1, 2
EVIDENCE = pa.array(["observed", "inferred", "missing"], pa.string())


_FIELDS = MINUTE, OFFSET, MS, COMMITS, LIFE, LOST = range(6)
"""The fields of a minute of a key: its start, the last committed offset and its time, the number of commits,
the number of tombstones before the last one, and whether some commits of the minute may be lost."""


class _Rows(NamedTuple):
    """Minutes in which a key was committed, one per element; with the log ends they become rows of `lag`.

    `fields[i]` has the i-th of `_FIELDS` for all of them."""

    key: Ints
    fields: Ints
    advanced: Ints
    """Increase of the offset since the previous row; `UNKNOWN` if there is none, or a tombstone since."""


class Compacted(NamedTuple):
    """A range of the log that lost records to compaction, and the largest timestamp of those left."""

    first: int
    last: int
    until_ms: int


def compacted_ranges(
    home: str, files: Sequence[DataFile], ranges: Sequence[tuple[int, int]]
) -> list[Compacted]:
    """Return these ranges, in ascending order, with times; `files` are those of silver's commits."""
    if not ranges:
        return []
    first, last = np.array(sorted(ranges), np.int64).T
    until_ms = np.full(len(first), -1, np.int64)
    for file in files:
        if not ((first <= file.last_offset) & (last >= file.first_offset)).any():
            continue
        for batch in read.of_files(home, [file], ("offset", "timestamp_ms", "commit_timestamp")):
            offset, ms = ints(batch["offset"]), effect_ms(batch)
            at = np.searchsorted(first, offset, "right") - 1
            inside = (at >= 0) & (offset <= last[np.maximum(at, 0)])
            np.maximum.at(until_ms, at[inside], ms[inside])
    return [Compacted(*each) for each in zip(first.tolist(), last.tolist(), until_ms.tolist(), strict=True)]


def lag_rows(
    commits: Iterable[pa.RecordBatch],
    log_end: Iterable[pa.RecordBatch] | Ends | StoredEnds = (),
    transactional: Iterable[pa.RecordBatch] = (),
    compacted: Sequence[Compacted] = (),
    watch: Callable[[Ended], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `lag` of one log partition, in the order in which their minutes ended.

    `commits`, `transactional` and `watch` are those of `konvene.pipeline.gold.commits.effects`. `log_end` has
    the growth of user topics' logs, as batches of the table of this name or as an index. `compacted` has the
    ranges of the log that lost records to compaction."""
    ends = log_end if isinstance(log_end, (Ends, StoredEnds)) else Ends(log_end)
    minutes = _Minutes(compacted)
    held: list[_Rows] = []
    some: Effects | None = None
    for some in effects(commits, transactional, watch):
        held.append(minutes.take(some))
        if sum(len(rows.key) for rows in held) >= _ROWS:
            yield _batch(some, held, ends)
            held = []
    if some is not None:
        for rows in (*held, *_pieces(minutes.finish(some.keys))):
            if len(rows.key):
                yield _batch(some, [rows], ends)


def _pieces(rows: _Rows) -> Iterator[_Rows]:
    for at in range(0, len(rows.key), _ROWS):
        piece = slice(at, at + _ROWS)
        yield _Rows(rows.key[piece], rows.fields[:, piece], rows.advanced[piece])


class _Minutes:
    """Combines commits into minutes: holds the latest minute of each key, which later commits may extend."""

    def __init__(self, compacted: Sequence[Compacted]) -> None:
        self._compacted = np.array(sorted(compacted), np.int64).reshape(-1, 3)
        self._lost_minutes = np.maximum.accumulate(self._compacted[:, 2] // MINUTE_MS)
        self._open = np.zeros((len(_FIELDS), 0), np.int64)
        self._before = np.zeros((2, 0), np.int64)
        """For each key, the committed offset of its previous row, and its number of tombstones until then."""
        self._lives = np.zeros(0, np.int64)
        """Number of tombstones of each key so far."""

    def __repr__(self) -> str:
        return f"<open minutes of {len(self._lives)} keys>"

    def take(self, some: Effects) -> _Rows:
        """Apply these effects, and return the minutes that are over."""
        self._grow(len(some.keys))
        lost = self._may_be_lost(some)
        by_key = order_of(some.key, len(some.keys))
        life = self._count_tombstones(some.key[by_key], some.tombstone[by_key])
        commit = np.flatnonzero(~some.tombstone[by_key])
        by_key, life = by_key[commit], life[commit]
        key = some.key[by_key]
        if not len(key):
            return _Rows(_NOTHING, np.zeros((len(_FIELDS), 0), np.int64), _NOTHING)
        minute = some.ms[by_key] // MINUTE_MS
        minute = np.maximum(minute, running_max(key, minute, self._open[MINUTE, key]))
        each = np.ones(len(key), np.int64)
        fields = np.stack([minute, some.offset[by_key], some.ms[by_key], each, life, lost[by_key]])
        return self._into_minutes(key, fields, by_key)

    def _may_be_lost(self, some: Effects) -> Ints:
        """Return 1 for each effect in a compacted range, and for later ones up to the last minute of the
        range, since commits beside them may be lost; otherwise 0."""
        if not len(self._compacted):
            return np.zeros(len(some.key), np.int64)
        at = np.searchsorted(self._compacted[:, 0], some.log_offset, "right") - 1
        after = at >= 0
        inside = some.log_offset <= self._compacted[np.maximum(at, 0), 1]
        same_minute = some.ms // MINUTE_MS <= self._lost_minutes[np.maximum(at, 0)]
        lost: Ints = (after & (inside | same_minute)).astype(np.int64)
        return lost

    def _count_tombstones(self, key: Ints, tombstone: Bools) -> Ints:
        """Return for each row the number of tombstones of its key so far.

        Rows are sorted by key."""
        dead = np.cumsum(tombstone)
        heads = _heads(key)
        lengths = np.diff(np.r_[heads, len(key)])
        base: Ints = np.repeat((dead - tombstone)[heads], lengths)
        life: Ints = self._lives[key] + dead - base
        last = heads + lengths - 1
        self._lives[key[last]] = life[last]
        return life

    def _into_minutes(self, key: Ints, fields: Ints, came: Ints) -> _Rows:
        """Combine commits, sorted by key, into minutes; return those that are over, in the order of the
        commits that ended them.

        `came` is the position of each commit among the effects."""
        keys = key[_heads(key)]
        opened = keys[self._open[COMMITS, keys] > 0]
        merged = np.argsort(np.r_[opened, key], kind="stable")
        key = np.r_[opened, key][merged]
        fields = np.concatenate([self._open[:, opened], fields], axis=1)[:, merged]
        came = np.r_[np.full(len(opened), -1), came][merged]
        minute = fields[MINUTE]
        first = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]) | (minute[1:] != minute[:-1])])
        last = np.r_[first[1:], len(key)] - 1
        rows = fields[:, last]
        rows[COMMITS] = np.add.reduceat(fields[COMMITS], first)
        rows[LOST] = np.maximum.reduceat(fields[LOST], first)
        key, came = key[last], came[first]
        before = self._before[:, key]
        follows = np.flatnonzero(key[1:] == key[:-1])
        before[:, follows + 1] = rows[[OFFSET, LIFE]][:, follows]
        stays = np.r_[key[1:] != key[:-1], True]
        self._open[:, key[stays]], self._before[:, key[stays]] = rows[:, stays], before[:, stays]
        over = follows[np.argsort(came[follows + 1], kind="stable")]
        return _Rows(key[over], rows[:, over], _advanced(rows[:, over], before[:, over]))

    def finish(self, keys: Keys) -> _Rows:
        """Return the last minute of each key, at the end of the log, sorted by minute and key."""
        key = np.flatnonzero(self._open[COMMITS])
        key = key[keys.in_order(key, self._open[MINUTE, key])]
        rows = self._open[:, key]
        return _Rows(key, rows, _advanced(rows, self._before[:, key]))

    def _grow(self, length: int) -> None:
        known = len(self._lives)
        if known < length:
            more = max(length, 2 * known)
            self._lives = grown(self._lives, more, 0)
            self._open = np.pad(self._open, ((0, 0), (0, more - known)))
            self._open[MINUTE, known:] = -1
            self._before = np.pad(self._before, ((0, 0), (0, more - known)), constant_values=UNKNOWN)


_NOTHING: Ints = np.zeros(0, np.int64)


def _heads(key: Ints) -> Ints:
    """Return the index of the first row of each key, in rows sorted by key."""
    heads: Ints = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else _NOTHING
    return heads


def _advanced(rows: Ints, before: Ints) -> Ints:
    offset, life = before
    known = (offset != UNKNOWN) & (life == rows[LIFE])
    advanced: Ints = np.where(known, rows[OFFSET] - offset, UNKNOWN)
    return advanced


class Stretches(NamedTuple):
    """The rows of `log_end` of one partition as columns, sorted by offset; each is a stretch of batches.

    `over_ms` is the time at which a stretch and all before it are over; it never decreases."""

    base: Ints
    end: Ints
    first_ms: Ints
    last_ms: Ints
    over_ms: Ints


class Ends:
    """Index of log ends in memory: how far the log of each partition had grown, and when."""

    def __init__(self, batches: Iterable[pa.RecordBatch] = ()) -> None:
        parts: dict[tuple[str, int], list[Ints]] = {}
        for batch in batches:
            keys = list(zip(batch["topic"].to_pylist(), batch["partition"].to_pylist(), strict=True))
            columns = np.stack([ints(batch[name]) for name in _STRETCH])
            heads = [at for at in range(len(keys)) if at == 0 or keys[at] != keys[at - 1]]
            for at, end in zip(heads, [*heads[1:], len(keys)], strict=True):
                parts.setdefault(keys[at], []).append(columns[:, at:end])
        self._partitions = {key: _stretches(found) for key, found in parts.items()}

    def __repr__(self) -> str:
        return f"<log ends of {len(self._partitions)} partitions>"

    def of(self, topic: str, partition: int) -> Stretches | None:
        return self._partitions.get((topic, partition))


class StoredEnds:
    """Index of log ends that reads files of `log_end` when a partition is requested, with a bounded LRU
    cache."""

    def __init__(self, home: str | Path, files: Iterable[DataFile], most: int = 5_000_000) -> None:
        self._home, self._most = home, most
        self._files: dict[tuple[str, int], list[DataFile]] = {}
        for file in files:
            self._files.setdefault((file.topic, file.partition), []).append(file)
        self._known: OrderedDict[tuple[str, int], Stretches] = OrderedDict()
        self._held = 0

    def __repr__(self) -> str:
        return f"<log ends of {len(self._files)} partitions, {self._held} stretches of {len(self._known)}>"

    def of(self, topic: str, partition: int) -> Stretches | None:
        key = (topic, partition)
        if key not in self._files:
            return None
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._read(self._files[key])
            self._held += len(found.base)
            while self._held > self._most and len(self._known) > 1:
                _, forgotten = self._known.popitem(last=False)
                self._held -= len(forgotten.base)
        self._known.move_to_end(key)
        return found

    def _read(self, files: Sequence[DataFile]) -> Stretches:
        batches = read.of_files(self._home, files, _STRETCH)
        return _stretches([np.stack([ints(column) for column in batch.columns]) for batch in batches])


_STRETCH = ("base_offset", "log_end_offset", "first_timestamp_ms", "timestamp_ms")


def _stretches(parts: Sequence[Ints]) -> Stretches:
    columns = np.concatenate(parts, axis=1)
    base, end, first_ms, last_ms = list(columns[:, np.argsort(columns[0], kind="stable")])
    return Stretches(base, end, first_ms, last_ms, np.maximum.accumulate(last_ms))


class Behind(NamedTuple):
    """Log end, lag, age of the lag and evidence for each row, as columns; `UNKNOWN` where a number is
    unknown."""

    end: Ints
    lag: Ints
    age_ms: Ints
    evidence: Ints


def behind_of(log: Stretches, minute: Ints, committed: Ints) -> Behind:
    """Return how far each committed offset was behind the log's end at the end of its minute."""
    at_ms = (minute + 1) * MINUTE_MS
    last = np.searchsorted(log.over_ms, at_ms, "left") - 1
    end, evidence = _end(log, last, at_ms)
    lag = np.where(end == UNKNOWN, UNKNOWN, np.maximum(end - committed, 0))
    holds = np.searchsorted(log.base, committed, "right") - 1
    holds = np.where((holds >= 0) & (committed >= log.end[holds]), holds + 1, holds)
    held = (lag > 0) & (holds >= 0) & (holds < len(log.base))
    inside = np.clip(holds, 0, len(log.base) - 1)
    age = np.where(held, np.maximum(at_ms - log.last_ms[inside], 0), np.where(lag == 0, 0, UNKNOWN))
    wide = held & (log.last_ms[inside] - log.first_ms[inside] > MINUTE_MS) & (evidence == _OBSERVED)
    return Behind(end, lag, age, np.where(wide, _INFERRED, evidence))


def _end(log: Stretches, last: Ints, at_ms: Ints) -> tuple[Ints, Ints]:
    """Return the log ends known at these times, and the evidence for them.

    `last` is the index of the last stretch that was over by then, -1 if none was."""
    following = np.minimum(last + 1, len(log.base) - 1)
    open_end = (last + 1 == len(log.base)) | (log.first_ms[following] < at_ms)
    end = np.where(last >= 0, log.end[np.maximum(last, 0)], log.base[0])
    lost = (last < 0) & ~open_end & (log.base[0] > 0)
    evidence = np.where(lost, _MISSING, np.where(open_end, _INFERRED, _OBSERVED))
    return np.where(lost, UNKNOWN, end), evidence


def _batch(some: Effects, held: list[_Rows], ends: Ends | StoredEnds) -> pa.RecordBatch:
    keys, fields, advanced = (np.concatenate(column, axis=-1) for column in zip(*held, strict=True))
    behind = _behind_of_rows(keys, fields, some.keys, ends)
    evidence = np.where(fields[LOST] > 0, _MISSING, behind.evidence)
    groups, topics, partitions = some.keys.columns(keys)
    columns: list[object] = [
        pa.repeat(some.cluster, len(keys)), groups, topics, partitions, fields[MINUTE] * MINUTE_MS,
        fields[OFFSET], fields[MS], fields[COMMITS], _known(advanced), _known(behind.end), _known(behind.lag),
        _known(behind.age_ms), EVIDENCE.take(pa.array(evidence)),
    ]  # fmt: skip
    schema = TABLES["lag"].schema
    arrays = [
        column.cast(kind.type) if isinstance(column, pa.Array) else pa.array(column, kind.type)
        for column, kind in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _behind_of_rows(keys: Ints, fields: Ints, names: Keys, ends: Ends | StoredEnds) -> Behind:
    """Return how far each row was behind the end of its partition's log."""
    count = len(keys)
    found = Behind(*(np.full(count, fill) for fill in (UNKNOWN, UNKNOWN, UNKNOWN, _OBSERVED)))
    for topic, partition, where in names.by_partition(keys):
        log = ends.of(topic, partition)
        if log is not None:
            for column, values in zip(
                found, behind_of(log, fields[MINUTE, where], fields[OFFSET, where]), strict=True
            ):
                column[where] = values
    return found


def _known(values: Ints) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == UNKNOWN)
