"""From the records of a `__consumer_offsets` partition to rows of four tables. Pure.

    rebalance          a row for each generation and each epoch
    rebalance_member   what it changed for each of its members
    ownership          the owners of each unit over time
    unavailability     when a unit that had an owner had none

The records are replayed once: `groups.history` reads them as a broker's shard does, and finds the records
that bump an epoch and those with which all members have converged, the causes, and the places where
compaction removed records that this needs. The code here compares a group before a record and after it, and
makes rows of the difference.

Where the log has lost its past, rebalances and gaps in progress are reported as missing, and so are the
epochs up to the next known one; then reduction continues. Owners keep their units, but when such an interval
ended is not certain: it is missing as well.

Memory: a group's state, the ownership of its units, and rows until they are drained; nothing for deleted
groups; and audit rows until they are used.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.groups.history import History
from konvene.groups.history.completeness import Completeness, KnownCompleteness
from konvene.pipeline.reduce import classic, epochs
from konvene.pipeline.reduce.columns import COLUMNS
from konvene.pipeline.reduce.diagnosis import Audit, AuditRow
from konvene.pipeline.reduce.ownership import Ownership, Row
from konvene.pipeline.reduce.position import NOT_KNOWN, LogPartition, Position
from konvene.pipeline.reduce.track import GroupTracker, Put
from konvene.pipeline.reduce.units import Names
from konvene.pipeline.reduce.unpickler import unpickled
from konvene.records import classic as classic_records
from konvene.records import consumer, share, streams
from konvene.records.audit import RebalanceValue
from konvene.records.classic import GroupMetadataValue
from konvene.records.coordinator import GROUP_RECORDS, Record, RecordType, value_version

__all__ = ["REDUCED_TYPES", "TABLES", "PartitionReducer"]

MAX_CACHED_KEYS = 20_000
"""Number of decoded keys that are cached."""
TABLES = tuple(COLUMNS)

_EPOCHS = (
    consumer.ConsumerGroupMetadataKey, share.ShareGroupMetadataKey, streams.StreamsGroupMetadataKey
)  # fmt: skip
_MEMBERS = (
    consumer.ConsumerGroupMemberMetadataKey, share.ShareGroupMemberMetadataKey,
    streams.StreamsGroupMemberMetadataKey,
)  # fmt: skip
_TARGETS = (
    consumer.ConsumerGroupTargetAssignmentMetadataKey, share.ShareGroupTargetAssignmentMetadataKey,
    streams.StreamsGroupTargetAssignmentMetadataKey,
)  # fmt: skip
_CURRENTS = (
    consumer.ConsumerGroupCurrentMemberAssignmentKey, share.ShareGroupCurrentMemberAssignmentKey,
    streams.StreamsGroupCurrentMemberAssignmentKey,
)  # fmt: skip
_CLASSIC, _EPOCH, _TARGET, _TARGET_MEMBER, _OTHER, _MEMBER, _CURRENT = range(7)
_KINDS: dict[type, int] = {
    classic_records.GroupMetadataKey: _CLASSIC,
    **dict.fromkeys(_EPOCHS, _EPOCH),
    **dict.fromkeys(_MEMBERS, _MEMBER),
    **dict.fromkeys(_TARGETS, _TARGET),
    **dict.fromkeys(_CURRENTS, _CURRENT),
    consumer.ConsumerGroupTargetAssignmentMemberKey: _TARGET_MEMBER,
    consumer.ConsumerGroupRegularExpressionKey: _OTHER,
    share.ShareGroupTargetAssignmentMemberKey: _TARGET_MEMBER,
    share.ShareGroupStatePartitionMetadataKey: _OTHER,
    streams.StreamsGroupTargetAssignmentMemberKey: _TARGET_MEMBER,
    streams.StreamsGroupTopologyKey: _OTHER,
}
_TYPES: dict[type, str] = {
    key: key.__module__.rpartition(".")[2] for key in _KINDS if key is not classic_records.GroupMetadataKey
}
REDUCED_TYPES = {code: kind for code, kind in GROUP_RECORDS.items() if kind.key in _KINDS}
"""Record types of the groups that are reduced, by the number in the key."""
_K = TypeVar("_K")
_V = TypeVar("_V")


class PartitionReducer:
    """Reducer of one partition: takes records in log order, and returns rows of tables from `drain`.

    `audit`: rows of `audit_event` about this partition. `names`: topic names by id in Kafka's text form. With
    `some_groups` it is passed the records of some groups only, and the caller finds out where records of the
    log are missing: `gap`, `restore`. A reducer may be pickled between any two records."""

    def __init__(
        self,
        cluster: str,
        log_partition: int,
        audit: Iterable[AuditRow] = (),
        names: Mapping[str, str] | None = None,
        *,
        some_groups: bool = False,
    ) -> None:
        self.unread = 0
        """Number of records that could not be decoded: of a newer version, or corrupt."""
        self._log = LogPartition(cluster, log_partition)
        self._completeness = KnownCompleteness() if some_groups else Completeness()
        self._history = History(log_partition, units=True, completeness=self._completeness)
        self._audit = Audit(audit)
        self._names = Names(names or {})
        self._tracks: dict[str, GroupTracker] = {}
        self._keys: dict[bytes, tuple[RecordType, Struct]] = {}
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._begins = -1
        self._batch = 0
        self._is_whole = True
        self._stretch = 0
        """How often the log became incomplete."""
        self._era = 0
        """How often it became complete again."""
        self._ended: set[str] = set()

    def __repr__(self) -> str:
        return f"<reducer of partition {self._log.partition}: {len(self._tracks)} groups>"

    def __reduce__(self) -> tuple[Callable[[bytes], PartitionReducer], tuple[bytes]]:
        """Pickle the reducer. Empty tasks are read-only mappings, which pickle does not support by itself."""
        packed = io.BytesIO()
        pickler = pickle.Pickler(packed, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = copyreg.dispatch_table | {MappingProxyType: _reduce_mapping_proxy}
        pickler.dump(self.__dict__ | {"_keys": {}})
        return _restored, (packed.getvalue(),)

    def learn(self, audit: Iterable[AuditRow], names: Mapping[str, str], offset: int, ms: int) -> bool:
        """Add audit rows and topic names that became known after the log was read up to this offset and time.

        `audit` are rows that follow the known ones, `names` all names. Returns False if the rows reduced so
        far would have been different: the log then has to be reduced again by a new reducer."""
        rows = [row for row in audit if not row["inferred"]]
        self._audit.add(rows)
        late = any(
            row["base_offset"] <= offset if row["base_offset"] >= 0 else row["ended_ms"] <= ms for row in rows
        )
        return self._names.learn(names) and not late

    # --- input ---

    def batch(self, base_offset: int, last_offset: int, count: int) -> None:
        """Begin a batch of the log, of which `count` records are left after compaction."""
        self._history.batch(base_offset, last_offset, count)
        self._detect_batch()

    def gap(self) -> None:
        """Mark the history as incomplete, because records are missing here or could not be read."""
        self._history.gap()
        self._update_completeness()

    def restore(self) -> None:
        """Mark the history as complete from here on."""
        self._completeness.restore()
        self._update_completeness()

    def restore_with_next(self) -> None:
        """Mark the history as complete from the next record on, whose key was read before."""
        if isinstance(self._completeness, KnownCompleteness):
            self._completeness.restore_with_next_key()

    def take(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record. One that cannot be decoded is counted, and treated as a gap."""
        record = None
        try:
            known = None if key is None else self._keys.get(key) or self._read_key(key)
            if known is not None:
                kind, decoded = known
                if value is None:
                    record = Record(decoded, None)
                else:
                    record = Record(decoded, decode(kind.value, value_version(kind, value), value, 2))
        except CodecError:
            self.unread += 1
            self.gap()
        self.take_record(offset, timestamp_ms, record)

    def _read_key(self, key: bytes) -> tuple[RecordType, Struct] | None:
        """Decode a key and cache it, since most keys recur; return None if its type is not reduced."""
        kind = REDUCED_TYPES.get(int.from_bytes(key[:2], "big")) if len(key) >= 2 else None
        if kind is None:
            return None
        if len(self._keys) >= MAX_CACHED_KEYS:
            self._keys.clear()
        known = self._keys[bytes(key)] = kind, decode(kind.key, 0, key, 2)
        return known

    def take_record(self, offset: int, timestamp_ms: int, record: Record | None) -> None:
        """Apply a decoded record; None for records that are not about groups."""
        kind = -1 if record is None else _KINDS.get(type(record.key), -1)
        if record is None or kind < 0:
            self._history.take(offset, timestamp_ms, None)
            self._detect_batch()
            return
        key: Any = record.key
        if kind == _CLASSIC:
            self._take_classic(offset, timestamp_ms, record, key.group)
            return
        group_id: str = key.group_id
        history = self._history
        history.reach(offset, timestamp_ms)
        if history.begins != self._begins:
            self._detect_batch()
        if kind == _TARGET_MEMBER:  # It changes the group but yields no row.
            history.take(offset, timestamp_ms, record)
            self._update_completeness()
            return
        before = history.group(group_id)
        if before is None and record.value is None and group_id not in self._tracks:
            history.take(offset, timestamp_ms, record)
            self._update_completeness()
            return
        track = self._track(group_id, before)
        member_id: str = key.member_id if kind >= _MEMBER else ""
        group = None if isinstance(before, GroupMetadataValue) else before
        member = group.members.get(member_id) if member_id and group is not None else None
        change = history.take(offset, timestamp_ms, record)
        if not self._is_whole:
            self._update_completeness()
            track.era = self._era
        at = Position(timestamp_ms, offset, self._stretch, self._is_whole)
        has_type = track.group_type == _TYPES[type(key)]
        if record.value is not None:
            if not has_type or before is None:
                self._set_group_type(track, _TYPES[type(key)], at)
                after, member = history.group(group_id), member if has_type else None
                group = None if isinstance(after, GroupMetadataValue) else after
        elif not (has_type and group is not None):
            return
        elif kind == _EPOCH:
            if history.group(group_id) is None:
                track.source_topics = epochs.source_topics_of(before)
                epochs.end_group(track, at, self._put)
                self._ended.add(group_id)
            return
        assert group is not None, "a record with a value leaves a group of its type"
        self._apply(
            kind, track, group, member, member_id, record, None if change is None else change.value, at
        )

    def _apply(
        self, kind: int, track: GroupTracker, group: epochs.Group, member: epochs.Member | None,
        member_id: str, record: Record, row: RebalanceValue | None, at: Position,
    ) -> None:  # fmt: skip
        """Apply a record of a consumer, share or streams group, given the member before it."""
        if kind == _CURRENT:
            after = group.members.get(member_id)
            is_tombstone = record.value is None
            epochs.apply_current(track, group, member, after, is_tombstone, self._names, at, self._put)
            if row is not None:
                epochs.apply_convergence(track, row, self._audit, member_id, at, self._put)
        elif kind == _MEMBER:
            epochs.apply_member(track, member, group.members.get(member_id), self._names, at, self._put)
        elif kind == _EPOCH:
            epochs.apply_epoch(track, group, row, self._audit, at, self._put)
        elif kind == _TARGET:
            epochs.apply_target(track, group, at)

    def _take_classic(self, offset: int, timestamp_ms: int, record: Record, group_id: str) -> None:
        history = self._history
        history.reach(offset, timestamp_ms)
        self._detect_batch()
        before = history.group(group_id)
        if before is None and record.value is None and group_id not in self._tracks:
            history.take(offset, timestamp_ms, record)
            self._update_completeness()
            return
        track = self._track(group_id, before)
        change = history.take(offset, timestamp_ms, record)
        self._update_completeness()
        track.era = self._era
        at = Position(timestamp_ms, offset, self._stretch, self._is_whole)
        if record.value is not None:
            self._set_group_type(track, "classic", at)
        elif track.group_type != "classic":
            return
        else:
            self._ended.add(group_id)
        value = record.value if isinstance(record.value, GroupMetadataValue) else None
        row = None if change is None else change.value
        classic.apply_generation(track, before, value, row, self._audit, at, self._put)

    def finish(self) -> None:
        """Emit rows for rebalances, intervals and gaps that are open at the end of the log. More records may
        follow."""
        for group_id in sorted(self._tracks):
            self._finish(group_id, self._put)

    def open_rows(self, group_id: str) -> dict[str, list[Row]]:
        """Return the rows, by table, that `finish` emits for one group, without changing any state."""
        rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        if group_id in self._tracks:
            self._finish(group_id, lambda table, row: rows[table].append(row))
        return rows

    def _finish(self, group_id: str, put: Put) -> None:
        track = self._tracks[group_id]
        if group_id in self._ended and self._history.group(group_id) is None:  # As if a batch followed.
            for row in track.left_open.rows():
                put("rebalance", row)
        else:
            track.finish(self._stretch, put)

    def drain(self) -> dict[str, list[Row]]:
        """Return the rows emitted since the last call, by table, in the order of the table's columns."""
        rows, self._rows = self._rows, {name: [] for name in TABLES}
        return rows

    def group(self, group_id: str) -> epochs.AnyGroup | None:
        """Return the group as of the last record."""
        return self._history.group(group_id)

    # --- groups ---

    def _put(self, table: str, row: Row) -> None:
        self._rows[table].append(row)

    def _track(self, group_id: str, group: epochs.AnyGroup | None) -> GroupTracker:
        """Return the group's tracker, created or reset if necessary; `group` is the group before the
        record."""
        track = self._tracks.get(group_id)
        if track is None:
            track = self._tracks[group_id] = GroupTracker(group_id, self._log, Ownership(group_id))
        if track.batch != self._batch:
            track.begin_batch(self._batch)
            if not self._is_whole or track.era != self._era:
                epoch = NOT_KNOWN
                if group is not None and not isinstance(group, GroupMetadataValue):
                    epoch = group.epoch
                is_new = group is None and self._is_whole
                track.reset(is_settled=epochs.is_settled(group), is_new=is_new, epoch=epoch)
            elif not track.is_settled and epochs.is_settled(group):
                track.is_settled = True
                gaps = track.ownership.gaps
                track.ownership.leave_gaps_open(list(gaps), track.epoch, track.present)
            track.era = self._era
        return track

    def _set_group_type(self, track: GroupTracker, group_type: str, at: Position) -> None:
        if track.group_type not in ("", group_type):  # Compaction removed the end of its former type.
            epochs.end_group(track, at, self._put)
        track.group_type = group_type

    def _detect_batch(self) -> None:
        """If the record begins a new batch, count it and drop the trackers of groups that ended before it."""
        if self._history.begins == self._begins:
            return
        self._begins = self._history.begins
        self._batch += 1
        if self._ended:
            for group_id in sorted(self._ended):
                if self._history.group(group_id) is None:
                    track = self._tracks.pop(group_id, None)
                    if track is not None:
                        track.drop_gaps(self._put)
            self._ended.clear()
        self._update_completeness()

    def _update_completeness(self) -> None:
        is_whole = self._history.complete
        if self._is_whole and not is_whole:
            self._stretch += 1
            for group_id in sorted(self._tracks):
                self._tracks[group_id].lose_history(self._put)
        self._era += is_whole and not self._is_whole
        self._is_whole = is_whole


def _frozen(mapping: dict[_K, _V]) -> Mapping[_K, _V]:
    return MappingProxyType(mapping)


def _reduce_mapping_proxy(
    mapping: Mapping[_K, _V],
) -> tuple[Callable[[dict[_K, _V]], Mapping[_K, _V]], tuple[dict[_K, _V]]]:
    return _frozen, (dict(mapping),)


def _restored(packed: bytes) -> PartitionReducer:
    reducer = PartitionReducer.__new__(PartitionReducer)
    reducer.__dict__.update(unpickled(packed))
    return reducer
