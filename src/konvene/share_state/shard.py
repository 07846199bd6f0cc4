"""The share coordinator's shard: the state behind one partition of `__share_group_state`.

Tables map the type of each request and the key of each timer to a function. A request concerns one share
partition; a rejection is an answer with an error and Kafka's message. Only `replay` changes the state.

This log is not compacted: records superseded by a snapshot or tombstone are deleted at its start. The oldest
snapshot therefore retains everything behind it; snapshots of idle share partitions are rewritten from time to
time (`pruning.snapshot_cold`), and the state of deleted topics is removed with the topic or at load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.codec.schema import Struct
from konvene.records.coordinator import Record
from konvene.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from konvene.shard.contract import Arm, Context, Disarm, Outcome, TimerKey
from konvene.share_state import pruning, requests, transitions
from konvene.share_state.requests import SharePartitionKey
from konvene.share_state.state import PositionedRecord, SharePartitionState, after_snapshot, after_update

UPDATES_PER_SNAPSHOT = 500


class ShareStateShard:
    """The states of all share partitions whose records are in one partition of the log."""

    __slots__ = ("ignored_records", "snapshots", "states", "updates_per_snapshot")

    def __init__(self, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.states: dict[SharePartitionKey, SharePartitionState] = {}
        self.snapshots = pruning.SnapshotOffsets()
        self.ignored_records = 0
        """Number of replayed records of an unknown type or without content."""

    def __repr__(self) -> str:
        return f"<share state shard: {len(self.states)} share partitions>"

    def handle(self, request: requests.Request, context: Context) -> Outcome:
        """Return the records and the answer of a request or notification; a rejection is an answer too."""
        return HANDLERS[type(request)](self, request, context)

    def expire(self, key: TimerKey, context: Context) -> Outcome:
        """Return the outcome of an expired timer: pruning, or snapshots."""
        return TIMERS[key](self, context)

    def replay(self, record: Record | PositionedRecord) -> None:
        """Apply a record to the state. Snapshots and tombstones are `PositionedRecord`s, with an offset."""
        if type(record) is PositionedRecord:
            self.snapshots.note(_key(record.record), record)
            record = record.record
        apply = REPLAYS.get(type(record.key))
        if apply is None:
            self.ignored_records += 1
        else:
            apply(self, _key(record), record.value)

    def load(self, context: Context) -> Outcome:
        """Arm the timers of pruning."""
        return pruning.begin(self, context)

    def cacheable(self, request: Struct, context: Context) -> tuple[object, tuple[Arm | Disarm, ...]] | None:
        """Return None: no request is repeated often enough to cache."""
        return None

    def is_current(self, value: object) -> bool:
        return False


HANDLERS: dict[type, Callable[[ShareStateShard, Any, Context], Outcome]] = {
    requests.Write: transitions.write,
    requests.Read: transitions.read,
    requests.ReadSummary: transitions.read_summary,
    requests.Initialize: transitions.initialize,
    requests.Delete: transitions.delete,
    requests.TopicsDeleted: pruning.topics_deleted,
}

TIMERS: dict[TimerKey, Callable[[ShareStateShard, Context], Outcome]] = {
    pruning.SNAPSHOT_COLD: pruning.snapshot_cold,
    pruning.PRUNE: pruning.prune,
    pruning.ORPHANS: pruning.delete_orphans,
}


# --- records -------------------------------------------------------------------------------------


def _key(record: Record) -> SharePartitionKey:
    key: Any = record.key
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


def _snapshot(shard: ShareStateShard, key: SharePartitionKey, value: ShareSnapshotValue | None) -> None:
    if value is None:
        shard.states.pop(key, None)
    else:
        shard.states[key] = after_snapshot(shard.states.get(key), value, shard.updates_per_snapshot)


def _update(shard: ShareStateShard, key: SharePartitionKey, value: ShareUpdateValue | None) -> None:
    if value is None:
        shard.ignored_records += 1
    else:
        shard.states[key] = after_update(shard.states.get(key), value)


REPLAYS: dict[type, Callable[[ShareStateShard, SharePartitionKey, Any], None]] = {
    ShareSnapshotKey: _snapshot,
    ShareUpdateKey: _update,
}
