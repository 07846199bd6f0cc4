"""The share coordinator's shard: what one partition of `__share_group_state` is the log of.

Requests and timers are rows of two tables. Each request is about one share partition, and its answer is a
value that says what went wrong, in Kafka's words. Only `replay` changes the state.

Nobody cleans this log by keys: what a snapshot, or a tombstone, has made superfluous is cut off at the front.
So the oldest snapshot holds everything behind it; partitions where nothing happens are written anew now and
then, that others may go (`cold`), and what a deleted topic left behind goes when the topic does, or when the
shard is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.codec.schema import Struct
from konvene.records.coordinator import Record
from konvene.records.share_state import ShareSnapshotKey, ShareUpdateKey
from konvene.shard.contract import Arm, Context, Disarm, Outcome
from konvene.share_state import pruning, requests, transitions
from konvene.share_state.requests import SharePartitionKey
from konvene.share_state.state import At, SharePartitionState, after_snapshot, after_update

UPDATES_PER_SNAPSHOT = 500


class ShareStateShard:
    """The share partitions of one partition of the log."""

    __slots__ = ("passed_over", "snapshots", "states", "updates_per_snapshot")

    def __init__(self, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.states: dict[SharePartitionKey, SharePartitionState] = {}
        self.snapshots = pruning.Snapshots()
        self.passed_over = 0
        """Records of a kind that is not known, or that say nothing."""

    def __repr__(self) -> str:
        return f"<share state shard: {len(self.states)} share partitions>"

    def handle(self, request: Any, context: Context) -> Outcome:
        """Decide a request, or news. What goes wrong is in the answer."""
        return HANDLERS[type(request)](self, request, context)

    def expire(self, key: Any, context: Context) -> Outcome:
        """Decide what follows from a timer that ran out."""
        return TIMERS[key](self, context)

    def replay(self, record: Any) -> None:
        """Take a record into the state: with its offset (`At`) where one knows it."""
        if type(record) is At:
            self.snapshots.note(SharePartitionKey(*_key(record.record)), record)
            record = record.record
        apply = REPLAYS.get(type(record.key))
        if apply is None:
            self.passed_over += 1
        else:
            apply(self, SharePartitionKey(*_key(record)), record.value)

    def load(self, context: Context) -> Outcome:
        """After a restart: go on with keeping the log short."""
        return pruning.begin(self, context)

    def cacheable(self, request: Struct, context: Context) -> tuple[object, tuple[Arm | Disarm, ...]] | None:
        """Nothing is asked again and again; see `shard.contract`."""
        return None

    def is_current(self, value: object) -> bool:
        """Nobody has a value to ask for."""
        return False


HANDLERS: dict[type, Callable[[ShareStateShard, Any, Context], Outcome]] = {
    requests.Write: transitions.write,
    requests.Read: transitions.read,
    requests.ReadSummary: transitions.read_summary,
    requests.Initialize: transitions.initialize,
    requests.Delete: transitions.delete,
    requests.TopicsDeleted: pruning.topics_deleted,
}

TIMERS: dict[tuple[str], Callable[[ShareStateShard, Context], Outcome]] = {
    pruning.COLD: pruning.snapshot_cold,
    pruning.PRUNE: pruning.prune,
    pruning.ORPHANS: pruning.forget_orphans,
}


# --- records -------------------------------------------------------------------------------------


def _key(record: Record) -> tuple[str, Any, int]:
    key: Any = record.key
    return key.group_id, key.topic_id, key.partition


def _snapshot(shard: ShareStateShard, key: SharePartitionKey, value: Any) -> None:
    if value is None:
        shard.states.pop(key, None)
    else:
        shard.states[key] = after_snapshot(shard.states.get(key), value, shard.updates_per_snapshot)


def _update(shard: ShareStateShard, key: SharePartitionKey, value: Any) -> None:
    if value is None:
        shard.passed_over += 1
    else:
        shard.states[key] = after_update(shard.states.get(key), value)


REPLAYS: dict[type, Callable[[ShareStateShard, SharePartitionKey, Any], None]] = {
    ShareSnapshotKey: _snapshot,
    ShareUpdateKey: _update,
}
