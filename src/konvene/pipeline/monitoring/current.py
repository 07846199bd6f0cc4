"""The groups as they are now, from the gold tables of a follower.

A group is current if it has members, a rebalance in progress or committed offsets that were not deleted. Lag
is the last known log end less the committed offset, so it also grows while a group commits nothing. Its age
is that of the first unread record, as a lower bound: of the records of one stretch of `log_end` only the
first and the last time are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.answers.advice import Advice
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.row import Row

if TYPE_CHECKING:
    from konvene.pipeline.answers.gold import Gold

__all__ = ["Awaited", "GroupNow", "PartitionLag", "current_groups", "in_progress", "lag_now"]

GroupKey = tuple[str, str]
"""Cluster and group id."""
_PARTITION = ("cluster", "topic", "partition")
_COMMIT = ("cluster", "group_id", "topic", "partition")
_END = ("base_offset", "log_end_offset", "first_timestamp_ms", "timestamp_ms")


class PartitionLag(NamedTuple):
    """Lag of a group in a partition; `age_ms` is None if it is not known."""

    topic: str
    partition: int
    records: int
    age_ms: int | None


class Awaited(NamedTuple):
    """A member that others wait for in the rebalance in progress, and the client that it belongs to."""

    member_id: str
    client: str


@dataclass(frozen=True, slots=True)
class GroupNow:
    """A group at the time of a poll."""

    cluster: str
    group_id: str
    group_type: str
    members: int = 0
    rebalances: tuple[Rebalance, ...] = ()
    """Its rebalances, oldest first."""
    open: Rebalance | None = None
    """The rebalance in progress, if any."""
    awaited: tuple[Awaited, ...] = ()
    lags: tuple[PartitionLag, ...] = ()
    advice: tuple[Advice, ...] = field(default=())

    @property
    def key(self) -> GroupKey:
        return (self.cluster, self.group_id)

    @property
    def lag_ms(self) -> int | None:
        """Age of the oldest unread record; None if no age is known."""
        return max((each.age_ms for each in self.lags if each.age_ms is not None), default=None)


def in_progress(rebalances: Sequence[Rebalance]) -> Rebalance | None:
    """Return the last of a group's rebalances, which are sorted oldest first, if it has not ended."""
    if not rebalances:
        return None
    last = rebalances[-1]
    ended = last.converged or last.superseded_by is not None or last.state in ("Empty", "Unknown", "NotReady")
    return None if ended or last.evidence == "missing" or last.at_ms < 0 else last


def lag_now(committed: int, ends: Iterable[tuple[int, int, int, int]], now_ms: int) -> tuple[int, int] | None:
    """Return the lag in records and the age in ms of a committed offset; None if no log end is known.

    `ends` are rows of `log_end`: base offset, log end, first and last timestamp."""
    end, oldest = -1, None
    for base, after, first_ms, last_ms in ends:
        end = max(end, after)
        if after > committed:
            ms = first_ms if base >= committed else last_ms
            oldest = ms if oldest is None else min(oldest, ms)
    if end < 0:
        return None
    return max(end - committed, 0), 0 if oldest is None else max(now_ms - oldest, 0)


def current_groups(
    gold: Gold, now_ms: int, advice: Mapping[GroupKey, Sequence[Advice]] | None = None
) -> list[GroupNow]:
    """Return the current groups, by cluster and id."""
    by_group: dict[GroupKey, list[Rebalance]] = defaultdict(list)
    for r in reversed(gold.rebalances):
        by_group[r.cluster, r.group_id].append(r)
    lags = _lags(gold, now_ms, {key for key, rows in by_group.items() if rows[-1].group_type == "share"})
    found = []
    for key in sorted({*by_group, *lags}):
        rebalances = tuple(by_group.get(key, ()))
        open_one = in_progress(rebalances)
        members = rebalances[-1].members if rebalances else 0
        if not (members or open_one or lags.get(key)):
            continue
        kind = rebalances[-1].group_type if rebalances else ""
        found.append(
            GroupNow(
                *key, kind, members, rebalances, open_one, _awaited(gold, open_one),
                tuple(sorted(lags.get(key, ()))), tuple((advice or {}).get(key, ())),
            )
        )  # fmt: skip
    return found


def _awaited(gold: Gold, rebalance: Rebalance | None) -> tuple[Awaited, ...]:
    if rebalance is None:
        return ()
    rows = [
        row for row in gold.rows("rebalance_member", [rebalance.group_id])
        if (row["cluster"], row["log_partition"], row["base_offset"], row["to_epoch"])
        == (rebalance.cluster, rebalance.log_partition, rebalance.base_offset, rebalance.to_epoch)
    ]  # fmt: skip
    waited_for = {member for row in rows if row["acknowledged_ms"] is None for member in row["waited_for"]}
    names = {row["member_id"]: row["instance_id"] or row["client_id"] or row["member_id"] for row in rows}
    return tuple(Awaited(each, names.get(each, each)) for each in sorted(waited_for))


# lag ----------------------------------------------------------------------------------------------


def _lags(gold: Gold, now_ms: int, shared: set[GroupKey]) -> dict[GroupKey, list[PartitionLag]]:
    """Return the lag of each group in its partitions.

    The groups in `shared` are share groups, whose completed records only the table `lag` knows."""
    deleted = _deletions(gold)
    ends: dict[tuple[str, str, int], list[tuple[int, int, int, int]]] = defaultdict(list)
    for row in gold.matching("log_end", columns=[*_PARTITION, *_END]):
        ends[row["cluster"], row["topic"], row["partition"]].append(tuple(row[name] for name in _END))
    found: dict[GroupKey, list[PartitionLag]] = defaultdict(list)
    for row in _last_commits(gold):
        key = tuple(row[name] for name in _COMMIT)
        if deleted.get(key, -1) >= row["commit_ms"]:
            continue
        cluster, group_id, topic, partition = key
        of = found[cluster, group_id]
        lag = lag_now(row["committed_offset"], ends.get((cluster, topic, partition), ()), now_ms)
        if (cluster, group_id) in shared:
            lag = None if row["lag"] is None else (row["lag"], lag[1] if lag and row["lag"] else 0)
        if lag is not None:
            of.append(PartitionLag(topic, partition, *lag))
    return dict(found)


def _last_commits(gold: Gold) -> list[Row]:
    """Return the newest row of `lag` of each group and partition."""
    columns = [*_COMMIT, "minute_ms", "commit_ms", "committed_offset", "lag"]
    batches = list(gold.batches("lag", columns=columns))
    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in (*_COMMIT, "minute_ms")])
    table = table.take(order)
    changes = np.zeros(table.num_rows, bool)
    changes[-1] = True
    for name in _COMMIT:
        column = table.column(name).combine_chunks()
        changes[:-1] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    rows: list[Row] = table.filter(pa.array(changes)).to_pylist()
    return rows


def _deletions(gold: Gold) -> dict[tuple[object, ...], int]:
    """Return when the committed offset of a group and partition was last deleted."""
    found: dict[tuple[object, ...], int] = {}
    columns = ["cluster", "group", "topic", "partition", "timestamp_ms"]
    for row in gold.matching("offset_commit", pc.field("tombstone"), columns):
        key = tuple(row[name] for name in columns[:4])
        found[key] = max(found.get(key, -1), row["timestamp_ms"])
    return found
