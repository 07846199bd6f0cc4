"""From the records of a partition of `__consumer_offsets` to rows of four tables. Pure.

    rebalance          a row for each generation and each epoch
    rebalance_member   what it was for each of its members
    ownership          who had what, from when to when
    unavailability     when nobody had what somebody had before

There is one replay: `groups.history` reads the records as a broker's shard does, and says which record raises
an epoch, with which all members have followed, why, and where a cleaner has taken what would be needed to
tell. What is here looks at a group before a record and after it, and makes rows of the difference.

Where the log has lost its past: rebalances and gaps that were under way are told as missing, and so is the
stretch of epochs up to the next one that is known; then all goes on. What somebody had before is theirs
still, but when it came to an end is not sure: such an interval is missing as well.

Memory: a group's state, what its members have, and rows until they are drained; of groups that are gone,
nothing; and the audit's rows until they are used.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.groups.history import History
from konvene.pipeline.gold.unpickler import unpacked
from konvene.pipeline.reduce import classic, epochs
from konvene.pipeline.reduce.ownership import Holdings
from konvene.pipeline.reduce.position import NOT_KNOWN, At, Place
from konvene.pipeline.reduce.track import Track
from konvene.pipeline.reduce.units import Names
from konvene.pipeline.reduce.why import Audit
from konvene.records import classic as classic_records
from konvene.records import consumer, share, streams
from konvene.records.audit import RebalanceValue
from konvene.records.classic import GroupMetadataValue
from konvene.records.coordinator import GROUP_RECORDS, Record, RecordType, value_version

__all__ = ["TABLES", "PartitionReducer"]

MOST_KEYS = 20_000
"""Keys that are kept decoded."""
TABLES = ("rebalance", "rebalance_member", "ownership", "unavailability")

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
_CLASSIC, _EPOCH, _TARGET, _WANTED, _OTHER, _MEMBER, _CURRENT = range(7)
_KINDS: dict[type, int] = {
    classic_records.GroupMetadataKey: _CLASSIC,
    **dict.fromkeys(_EPOCHS, _EPOCH),
    **dict.fromkeys(_MEMBERS, _MEMBER),
    **dict.fromkeys(_TARGETS, _TARGET),
    **dict.fromkeys(_CURRENTS, _CURRENT),
    consumer.ConsumerGroupTargetAssignmentMemberKey: _WANTED,
    consumer.ConsumerGroupRegularExpressionKey: _OTHER,
    share.ShareGroupTargetAssignmentMemberKey: _WANTED,
    share.ShareGroupStatePartitionMetadataKey: _OTHER,
    streams.StreamsGroupTargetAssignmentMemberKey: _WANTED,
    streams.StreamsGroupTopologyKey: _OTHER,
}
_TYPES: dict[type, str] = {
    key: key.__module__.rpartition(".")[2] for key in _KINDS if key is not classic_records.GroupMetadataKey
}
_READ = {code: kind for code, kind in GROUP_RECORDS.items() if kind.key in _KINDS}
"""Records that say something of a group that is reduced."""


class PartitionReducer:
    """Reduces one partition, record by record in the order of the log. May be pickled at any point.

    `audit`: rows of `audit_event` about this partition. `names`: topics by id in Kafka's text form."""

    def __init__(
        self,
        cluster: str,
        log_partition: int,
        audit: Iterable[Mapping[str, Any]] = (),
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.unread = 0
        """Records that could not be read: of a newer version, or broken."""
        self._place = Place(cluster, log_partition)
        self._history = History(log_partition, units=True)
        self._audit = Audit(audit)
        self._names = Names(names or {})
        self._tracks: dict[str, Track] = {}
        self._keys: dict[bytes, Struct] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self._begins = -1
        self._batch = 0
        self._is_whole = True
        self._stretch = 0
        """How often sight of the log was lost,"""
        self._era = 0
        """and found again."""
        self._ended: set[str] = set()

    def __repr__(self) -> str:
        return f"<reducer of partition {self._place.partition}: {len(self._tracks)} groups>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Empty tasks are mappings that cannot be changed, which pickle does not know by itself."""
        packed = io.BytesIO()
        pickler = pickle.Pickler(packed, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = copyreg.dispatch_table | {MappingProxyType: _thawed}
        pickler.dump(self.__dict__ | {"_keys": {}})
        return _unpacked, (packed.getvalue(),)

    def learn(
        self, audit: Iterable[Mapping[str, Any]], names: Mapping[str, str], offset: int, ms: int
    ) -> bool:
        """Hear what was not known when the log was read up to this offset and time.

        `audit` are rows behind those that are known, `names` all names. False if what was reduced by now
        would have been told otherwise with this: the log has to be reduced anew then, by another reducer."""
        rows = [row for row in audit if not row["inferred"]]
        self._audit.add(rows)
        late = any(
            row["base_offset"] <= offset if row["base_offset"] >= 0 else row["ended_ms"] <= ms for row in rows
        )
        return self._names.learn(names) and not late

    # --- what is fed ---

    def batch(self, base_offset: int, last_offset: int, count: int) -> None:
        """The records up to `last_offset` are one batch, of which so many are left."""
        self._history.batch(base_offset, last_offset, count)
        self._see_batch()

    def gap(self) -> None:
        """Something is missing here, or could not be read."""
        self._history.gap()
        self._see_whether_whole()

    def take(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        """A record. What cannot be read is counted, and taken for a gap."""
        record = None
        kind = None if key is None or len(key) < 2 else _READ.get(int.from_bytes(key[:2], "big"))
        if kind is not None and key is not None:
            try:
                named = self._keys.get(key) or self._read_key(kind, key)
                version = None if value is None else value_version(kind, value)
                record = Record(
                    named, None if version is None else decode(kind.value, version, value or b"", 2)
                )
            except CodecError:
                self.unread += 1
                self.gap()
        self.take_record(offset, timestamp_ms, record)

    def _read_key(self, kind: RecordType, key: bytes) -> Struct:
        """A key. The last ones are kept, for most come again."""
        if len(self._keys) >= MOST_KEYS:
            self._keys.clear()
        decoded = self._keys[bytes(key)] = decode(kind.key, 0, key, 2)
        return decoded

    def take_record(self, offset: int, timestamp_ms: int, record: Record | None) -> None:
        """The same, decoded; None where it says nothing of groups."""
        kind = -1 if record is None else _KINDS.get(type(record.key), -1)
        if record is None or kind < 0:
            self._history.take(offset, timestamp_ms, None)
            self._see_batch()
            return
        key: Any = record.key
        if kind == _CLASSIC:
            self._take_classic(offset, timestamp_ms, record, key.group)
            return
        group_id: str = key.group_id
        history = self._history
        history.reach(offset, timestamp_ms)
        if history.begins != self._begins:
            self._see_batch()
        if kind == _WANTED:  # The group keeps it, and no row follows from it.
            history.take(offset, timestamp_ms, record)
            self._see_whether_whole()
            return
        before: Any = history.group(group_id)
        if before is None and record.value is None and group_id not in self._tracks:
            history.take(offset, timestamp_ms, record)
            self._see_whether_whole()
            return
        track = self._track(group_id, before)
        member_id: str = key.member_id if kind >= _MEMBER else ""
        is_epoch_group = before is not None and type(before) is not GroupMetadataValue
        member = before.members.get(member_id) if member_id and is_epoch_group else None
        told = history.take(offset, timestamp_ms, record)
        if not self._is_whole:
            self._see_whether_whole()
            track.era = self._era
        at = At(timestamp_ms, offset, self._stretch, self._is_whole)
        group, is_of_type = before, track.group_type == _TYPES[type(key)]
        if record.value is not None:
            if not is_of_type or before is None:
                self._is_of_type(track, _TYPES[type(key)], at)
                group, member = history.group(group_id), member if is_of_type else None
        elif not (is_of_type and is_epoch_group):
            return
        elif kind == _EPOCH:
            if history.group(group_id) is None:
                track.reads = epochs.reads_of(before)
                epochs.group_ended(track, at, self._put)
                self._ended.add(group_id)
            return
        self._tell(kind, track, group, member, member_id, record, None if told is None else told.story, at)

    def _tell(
        self, kind: int, track: Track, group: Any, member: Any, member_id: str, record: Record,
        row: RebalanceValue | None, at: At,
    ) -> None:  # fmt: skip
        """A group that assigns, and its member as it was before, behind a record."""
        if kind == _CURRENT:
            after = group.members.get(member_id)
            is_gone = record.value is None
            epochs.take_current(track, group, member, after, is_gone, self._names, at, self._put)
            if row is not None:
                epochs.converged(track, row, self._audit, member_id, at, self._put)
        elif kind == _MEMBER:
            epochs.take_member(track, member, group.members.get(member_id), self._names, at, self._put)
        elif kind == _EPOCH:
            epochs.take_epoch(track, group, row, self._audit, at, self._put)
        elif kind == _TARGET:
            epochs.take_target(track, group, at)

    def _take_classic(self, offset: int, timestamp_ms: int, record: Record, group_id: str) -> None:
        history = self._history
        history.reach(offset, timestamp_ms)
        self._see_batch()
        before: Any = history.group(group_id)
        if before is None and record.value is None and group_id not in self._tracks:
            history.take(offset, timestamp_ms, record)
            self._see_whether_whole()
            return
        track = self._track(group_id, before)
        told = history.take(offset, timestamp_ms, record)
        self._see_whether_whole()
        track.era = self._era
        at = At(timestamp_ms, offset, self._stretch, self._is_whole)
        if record.value is not None:
            self._is_of_type(track, "classic", at)
        elif track.group_type != "classic":
            return
        else:
            self._ended.add(group_id)
        value: Any = record.value
        row = None if told is None else told.story
        classic.take_generation(track, before, value, row, self._audit, at, self._put)

    def finish(self) -> None:
        """The log ends here: rows of what is not over. What was fed may be gone on with nevertheless."""
        for group_id in sorted(self._tracks):
            self._tracks[group_id].finish(self._stretch, self._put)

    def drain(self) -> dict[str, list[tuple[Any, ...]]]:
        """Rows by table since the last time, in the order of the tables' columns."""
        rows, self._rows = self._rows, {name: [] for name in TABLES}
        return rows

    def group(self, group_id: str) -> Any:
        """The group as the last record left it."""
        return self._history.group(group_id)

    # --- what follows ---

    def _put(self, table: str, row: tuple[Any, ...]) -> None:
        self._rows[table].append(row)

    def _track(self, group_id: str, group: Any) -> Track:
        """The group's track; `group`: as it is before the record."""
        track = self._tracks.get(group_id)
        if track is None:
            track = self._tracks[group_id] = Track(group_id, self._place, Holdings(group_id))
        if track.batch != self._batch:
            track.begin_batch(self._batch)
            if not self._is_whole or track.era != self._era:
                epoch = group.epoch if hasattr(group, "behind") else NOT_KNOWN
                is_new = group is None and self._is_whole
                track.begin_anew(is_sure=epochs.is_quiet(group), is_new=is_new, epoch=epoch)
            elif not track.is_sure and epochs.is_quiet(group):
                track.is_sure = True
                track.holdings.at_rest()
            track.era = self._era
        return track

    def _is_of_type(self, track: Track, group_type: str, at: At) -> None:
        if track.group_type not in ("", group_type):  # Compaction took the end of what it was.
            epochs.group_ended(track, at, self._put)
        track.group_type = group_type

    def _see_batch(self) -> None:
        """Whether another batch has begun."""
        if self._history.begins == self._begins:
            return
        self._begins = self._history.begins
        self._batch += 1
        for group_id in sorted(self._ended):
            if self._history.group(group_id) is None:
                self._tracks.pop(group_id, None)
        self._ended.clear()
        self._see_whether_whole()

    def _see_whether_whole(self) -> None:
        is_whole = self._history.whole
        if self._is_whole and not is_whole:
            self._stretch += 1
            for group_id in sorted(self._tracks):
                self._tracks[group_id].lose_sight(self._put)
        self._era += is_whole and not self._is_whole
        self._is_whole = is_whole


def _as_it_was(mapping: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(mapping)


def _thawed(mapping: Mapping[Any, Any]) -> tuple[Any, ...]:
    return _as_it_was, (dict(mapping),)


def _unpacked(packed: bytes) -> PartitionReducer:
    reducer = PartitionReducer.__new__(PartitionReducer)
    reducer.__dict__.update(unpacked(packed))
    return reducer
