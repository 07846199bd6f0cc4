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
still, but when it came to an end is not sure: such an interval is missing as well. Share groups are not
reduced.

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

from konvene.codec.errors import CodecError
from konvene.groups.history import History
from konvene.pipeline.reduce import classic, epochs
from konvene.pipeline.reduce.at import NOT_KNOWN, At, Place
from konvene.pipeline.reduce.holdings import Holdings
from konvene.pipeline.reduce.track import Track
from konvene.pipeline.reduce.units import Names
from konvene.pipeline.reduce.why import Audit
from konvene.records import classic as classic_records
from konvene.records import consumer, streams
from konvene.records.coordinator import GROUP_RECORDS, Record, decode_record

__all__ = ["TABLES", "PartitionReducer"]

TABLES = ("rebalance", "rebalance_member", "ownership", "unavailability")

_EPOCHS = (consumer.ConsumerGroupMetadataKey, streams.StreamsGroupMetadataKey)
_MEMBERS = (consumer.ConsumerGroupMemberMetadataKey, streams.StreamsGroupMemberMetadataKey)
_TARGETS = (
    consumer.ConsumerGroupTargetAssignmentMetadataKey, streams.StreamsGroupTargetAssignmentMetadataKey
)  # fmt: skip
_CURRENTS = (
    consumer.ConsumerGroupCurrentMemberAssignmentKey, streams.StreamsGroupCurrentMemberAssignmentKey
)  # fmt: skip
_STREAMS = frozenset(
    (_EPOCHS[1], _MEMBERS[1], _TARGETS[1], _CURRENTS[1], streams.StreamsGroupTopologyKey,
     streams.StreamsGroupTargetAssignmentMemberKey)
)  # fmt: skip
_CLASSIC, _EPOCH, _MEMBER, _TARGET, _CURRENT, _OTHER = range(6)
_KINDS: dict[type, int] = {
    classic_records.GroupMetadataKey: _CLASSIC,
    **dict.fromkeys(_EPOCHS, _EPOCH),
    **dict.fromkeys(_MEMBERS, _MEMBER),
    **dict.fromkeys(_TARGETS, _TARGET),
    **dict.fromkeys(_CURRENTS, _CURRENT),
    consumer.ConsumerGroupTargetAssignmentMemberKey: _OTHER,
    consumer.ConsumerGroupRegularExpressionKey: _OTHER,
    streams.StreamsGroupTargetAssignmentMemberKey: _OTHER,
    streams.StreamsGroupTopologyKey: _OTHER,
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
        pickler.dump(self.__dict__)
        return _unpacked, (packed.getvalue(),)

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
        if key is not None and len(key) >= 2 and int.from_bytes(key[:2], "big") in _READ:
            try:
                record = decode_record(key, value, _READ)
            except CodecError:
                self.unread += 1
                self.gap()
        self.take_record(offset, timestamp_ms, record)

    def take_record(self, offset: int, timestamp_ms: int, record: Record | None) -> None:
        """The same, decoded; None where it says nothing of groups."""
        kind = -1 if record is None else _KINDS.get(type(record.key), -1)
        if record is None or kind < 0:
            self._history.take(offset, timestamp_ms, None)
            self._see_batch()
            return
        key: Any = record.key
        group_id: str = key.group if kind == _CLASSIC else key.group_id
        member_id: str = key.member_id if kind in (_MEMBER, _CURRENT) else ""
        self._history.reach(offset, timestamp_ms)
        self._see_batch()
        before: Any = self._history.group(group_id)
        if before is None and record.value is None and group_id not in self._tracks:
            self._history.take(offset, timestamp_ms, record)
            self._see_whether_whole()
            return
        track = self._track(group_id, before)
        member = before.members.get(member_id) if member_id and hasattr(before, "behind") else None
        told = self._history.take(offset, timestamp_ms, record)
        self._see_whether_whole()
        track.era = self._era
        at = At(timestamp_ms, offset, self._stretch, self._is_whole)
        group: Any = self._history.group(group_id)
        row = None if told is None else told.story
        if kind == _CLASSIC:
            self._take_classic(track, before, record, row, at)
            return
        if record.value is not None:
            self._is_of_type(track, "streams" if type(key) in _STREAMS else "consumer", at)
        elif kind == _EPOCH:
            if before is not None and group is None:
                epochs.group_ended(track, at, self._put)
                self._ended.add(group_id)
            return
        if group is None or not hasattr(group, "behind"):
            return
        if kind == _EPOCH:
            epochs.take_epoch(track, group, row, self._audit, at, self._put)
        elif kind == _TARGET:
            epochs.take_target(track, group, at)
        elif kind == _MEMBER:
            epochs.take_member(track, member, group.members.get(member_id), self._names, at, self._put)
        elif kind == _CURRENT:
            after = group.members.get(member_id)
            is_gone = record.value is None
            epochs.take_current(track, group, member, after, is_gone, self._names, at, self._put)
            if row is not None:
                epochs.converged(track, row, self._audit, member_id, at, self._put)

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

    def _take_classic(self, track: Track, before: Any, record: Record, row: Any, at: At) -> None:
        if record.value is not None:
            self._is_of_type(track, "classic", at)
        elif track.group_type != "classic":
            return
        else:
            self._ended.add(track.group_id)
        value: Any = record.value
        classic.take_generation(track, before, value, row, self._audit, at, self._put)

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
    reducer.__dict__.update(pickle.loads(packed))
    return reducer
