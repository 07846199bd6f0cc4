"""Rebalances and ownership of all groups of a cluster, reduced from coordinators' records as they arrive.

The records are reduced as by the pipeline (`konvene.pipeline.reduce`), so the page explains a rebalance in
the same sentences as `konvene explain`. Rows are kept in memory, the newest of each group, up to the limits
below; rows of what is still open are computed when they are read.

An audit row follows the records that it explains within milliseconds, and is needed when they are reduced. So
batches are held back until `release` is called with a time by which their audit rows have arrived.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from konvene.codec.batches import Record
from konvene.codec.errors import CodecError
from konvene.codec.hashes import group_partition
from konvene.pipeline.answers.rebalance import Rebalance, Selection
from konvene.pipeline.reduce import COLUMNS, PartitionReducer
from konvene.pipeline.reduce.diagnosis import AuditRow, cause_row
from konvene.pipeline.reduce.epochs import AnyGroup
from konvene.pipeline.reduce.ownership import Row as ReducedRow
from konvene.pipeline.row import Row
from konvene.records.audit import RebalanceKey, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, GROUP_RECORDS, decode_record

__all__ = ["HOLD_MS", "RebalanceHistory", "key_of"]

HOLD_MS = 300
"""How long a batch waits for the audit rows that explain it."""
MAX_REBALANCES = 500
MAX_MEMBER_ROWS = 20_000
MAX_INTERVALS = 20_000
"""Rows kept of each group: rebalances; members of rebalances; ended intervals of ownership and gaps."""
_OFFSET_COMMITS = (0, 1)
"""Types of records that are about committed offsets, not about groups."""
_TABLES = {"rebalance_member": MAX_MEMBER_ROWS, "ownership": MAX_INTERVALS, "unavailability": MAX_INTERVALS}


def key_of(rebalance: Rebalance) -> str:
    """Return the key of a rebalance in URLs: log partition, base offset and epoch."""
    return f"{rebalance.log_partition}-{rebalance.base_offset}-{rebalance.to_epoch}"


class _Batch(NamedTuple):
    """A batch of a partition of `__consumer_offsets` that is held back."""

    due_ms: int
    base_offset: int
    last_offset: int
    records: Sequence[Record]


@dataclass(slots=True)
class _GroupRows:
    """The rows of one group that do not change any more."""

    rebalances: deque[Rebalance] = field(default_factory=lambda: deque(maxlen=MAX_REBALANCES))
    others: dict[str, deque[ReducedRow]] = field(
        default_factory=lambda: {name: deque(maxlen=most) for name, most in _TABLES.items()}
    )
    log_partition: int = -1
    """The partition of `__consumer_offsets` with the group's records."""
    version: int = 0


class RebalanceHistory:
    """The rebalances of a cluster's groups, as far as its logs reach back; passed records in log order.

    It has the methods `rows` and `select` of the gold tables, so `konvene.pipeline.answers.trace` works on
    it."""

    def __init__(self, cluster: str) -> None:
        self.has_audit = False
        """Whether the cluster has an audit topic, so that batches wait for its rows."""
        self.undecoded = 0
        """Number of audit records that could not be decoded."""
        self._cluster = cluster
        self._names: dict[str, str] = {}
        self._partitions = 0
        self._reducers: dict[int, PartitionReducer] = {}
        self._positions: dict[int, tuple[int, int]] = {}
        self._held: dict[int, deque[_Batch]] = defaultdict(deque)
        self._audit: dict[int, list[AuditRow]] = defaultdict(list)
        self._groups: dict[str, _GroupRows] = {}
        self._versions = 0

    def __repr__(self) -> str:
        return f"<rebalances of {len(self._groups)} groups>"

    # --- input ---

    def learn_topics(self, names: Mapping[str, str], partitions: int) -> None:
        """Set the topic names by id, and the number of partitions of `__consumer_offsets`."""
        self._partitions = partitions
        if names == self._names:
            return
        self._names = dict(names)
        for partition, reducer in self._reducers.items():
            reducer.learn((), self._names, *self._positions.get(partition, (-1, -1)))

    def add_audit(self, log_partition: int, records: Iterable[Record]) -> None:
        """Add records of `__konvene_audit`, whose partition is `log_partition`."""
        for record in records:
            row = self._audit_row(log_partition, record)
            if row is None:
                continue
            partition = row["partition"]
            if partition < 0 and self._partitions > 0:
                partition = group_partition(row["group_id"], self._partitions)
            reducer = self._reducers.get(partition)
            if reducer is None:
                self._audit[partition].append(row)
            else:
                reducer.learn((row,), self._names, *self._positions.get(partition, (-1, -1)))

    def _audit_row(self, log_partition: int, record: Record) -> AuditRow | None:
        try:
            decoded = decode_record(record.key or b"", record.value, AUDIT_RECORDS)
        except CodecError:
            self.undecoded += 1
            return None
        if decoded is None or not isinstance(decoded.key, RebalanceKey):
            return None
        value = decoded.value
        if not isinstance(value, RebalanceValue):
            return None
        return {
            "cluster": self._cluster, "audit_partition": log_partition, "audit_offset": record.offset,
            "timestamp_ms": record.timestamp, "group_id": decoded.key.group, "group_type": value.group_type,
            "epoch": value.epoch, "state": value.state, "started_ms": value.started_ms,
            "joined_ms": value.joined_ms, "ended_ms": value.ended_ms, "partition": value.partition,
            "base_offset": value.base_offset, "last_offset": value.last_offset, "inferred": value.inferred,
            "protocol": value.protocol, "leader": value.leader,
            "causes": [cause_row(cause) for cause in value.causes],
            "causes_left_out": value.causes_left_out,
            "members": [
                {"member_id": m.member_id, "instance_id": m.instance_id, "client_id": m.client_id,
                 "client_host": m.client_host, "joined_ms": m.joined_ms}
                for m in value.members
            ],
            "members_left_out": value.members_left_out, "moved": list(value.moved),
        }  # fmt: skip

    def hold(
        self, partition: int, base_offset: int, last_offset: int, records: Sequence[Record], now_ms: int
    ) -> None:
        """Add a batch of a partition of `__consumer_offsets`, to be reduced by `release`."""
        due_ms = now_ms + HOLD_MS if self.has_audit else now_ms
        self._held[partition].append(_Batch(due_ms, base_offset, last_offset, records))

    def release(self, now_ms: int | None) -> int | None:
        """Reduce the batches that are due at `now_ms` (None: all); return when the next one is due, if
        any."""
        next_ms: int | None = None
        for partition, held in self._held.items():
            while held and (now_ms is None or held[0].due_ms <= now_ms):
                self._reduce(partition, held.popleft())
            if held:
                next_ms = held[0].due_ms if next_ms is None else min(next_ms, held[0].due_ms)
        return next_ms

    def _reduce(self, partition: int, batch: _Batch) -> None:
        reducer = self._reducers.get(partition)
        if reducer is None:
            audit = self._audit.pop(partition, [])
            reducer = PartitionReducer(self._cluster, partition, audit, self._names)
            self._reducers[partition] = reducer
        reducer.batch(batch.base_offset, batch.last_offset, len(batch.records))
        touched: set[str] = set()
        last_ms = self._positions.get(partition, (-1, -1))[1]
        for record in batch.records:
            key = record.key
            if key is None or len(key) < 2 or int.from_bytes(key[:2], "big") in _OFFSET_COMMITS:
                continue
            reducer.take(record.offset, record.timestamp, key, record.value)
            last_ms = max(last_ms, record.timestamp)
            group_id = _group_id(key)
            if group_id is not None:
                touched.add(group_id)
        self._positions[partition] = (batch.last_offset, last_ms)
        if touched:
            self._keep(partition, reducer, sorted(touched))

    def _keep(self, partition: int, reducer: PartitionReducer, touched: Iterable[str]) -> None:
        """Keep the rows that a batch has added, all of them about groups in `touched`."""
        for group_id in touched:
            rows = self._groups.setdefault(group_id, _GroupRows())
            self._versions += 1
            rows.version, rows.log_partition = self._versions, partition
        for table, drained in reducer.drain().items():
            for row in drained:
                rows = self._groups.setdefault(str(row[1]), _GroupRows())
                if table == "rebalance":
                    rows.rebalances.append(_rebalance(row))
                else:
                    rows.others[table].append(row)

    # --- output ---

    @property
    def version(self) -> int:
        """A number that changes whenever any group does."""
        return self._versions

    @property
    def group_ids(self) -> list[str]:
        return sorted(self._groups)

    def version_of(self, group_id: str) -> int:
        """Return a number that changes whenever the group does; 0 for an unknown group."""
        rows = self._groups.get(group_id)
        return 0 if rows is None else rows.version

    def group(self, group_id: str) -> AnyGroup | None:
        """Return the group's state as of the last record, without committed offsets."""
        reducer = self._reducer_of(group_id)
        return None if reducer is None else reducer.group(group_id)

    def rebalances_of(self, group_id: str) -> list[Rebalance]:
        """Return the rebalances of a group, newest first; the first one may be in progress."""
        rows = self._groups.get(group_id)
        ended = [] if rows is None else list(rows.rebalances)
        found = [*ended, *map(_rebalance, self._open(group_id, "rebalance"))]
        found.sort(key=lambda r: (r.at_ms, r.to_epoch, r.base_offset), reverse=True)
        return found

    def last_of(self, group_id: str) -> Rebalance | None:
        """Return the newest rebalance of a group."""
        rows = self._groups.get(group_id)
        is_open = self._open(group_id, "rebalance")
        if is_open:
            return _rebalance(is_open[-1])
        return rows.rebalances[-1] if rows is not None and rows.rebalances else None

    def times_of(self, group_id: str) -> list[int]:
        """Return the times in ms at which the group's rebalances began."""
        rows = self._groups.get(group_id)
        return [] if rows is None else [r.at_ms for r in rows.rebalances]

    def select(self, wanted: Selection) -> list[Rebalance]:
        """Return the selected rebalances, newest first."""
        groups = wanted.groups or tuple(self.group_ids)
        return [r for group_id in groups for r in self.rebalances_of(group_id) if wanted.includes(r)]

    def rows(self, table: str, groups: Sequence[str] = (), columns: Sequence[str] | None = None) -> list[Row]:
        """Return the rows of a table of these groups (empty: all groups), with what is open at the end.

        `columns` is ignored: rows have all columns."""
        found = []
        for group_id in groups or self.group_ids:
            rows = self._groups.get(group_id)
            ended = [] if rows is None else list(rows.others.get(table, ()))
            names = COLUMNS[table]
            found += [dict(zip(names, row, strict=True)) for row in (*ended, *self._open(group_id, table))]
        return found

    def _open(self, group_id: str, table: str) -> list[ReducedRow]:
        reducer = self._reducer_of(group_id)
        return [] if reducer is None else reducer.open_rows(group_id)[table]

    def _reducer_of(self, group_id: str) -> PartitionReducer | None:
        rows = self._groups.get(group_id)
        return None if rows is None else self._reducers.get(rows.log_partition)


def _rebalance(row: ReducedRow) -> Rebalance:
    return Rebalance.from_row(dict(zip(COLUMNS["rebalance"], row, strict=True)))


def _group_id(key: bytes) -> str | None:
    """Return the group id of a record's key; None for a key that cannot be decoded."""
    kind = GROUP_RECORDS.get(int.from_bytes(key[:2], "big"))
    if kind is None:
        return None
    length = int.from_bytes(key[2:4], "big", signed=True)
    try:
        return key[4 : 4 + length].decode() if 0 <= length <= len(key) - 4 else None
    except UnicodeDecodeError:
        return None
