"""Pruning of `__share_group_state`: cold snapshots, tombstones of deleted topics, deletion of old records.

All records before the oldest current snapshot are superseded. Their deletion is an effect, which the runtime
carries out when everything that superseded them is durable.

Work that might exceed one batch of the log is done in portions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from konvene.shard.contract import NOTHING, Arm, Context, Effect, Outcome
from konvene.share_state.requests import SharePartitionKey, TopicsDeleted
from konvene.share_state.state import PositionedRecord, SharePartitionState, snapshot, tombstone

if TYPE_CHECKING:
    from konvene.share_state.shard import ShareStateShard

SNAPSHOT_COLD = ("cold",)
PRUNE = ("prune",)
ORPHANS = ("orphans",)

DELETE_RECORDS = "cut"
"""Effect: delete the records before an offset. Subject: the offset."""

PORTION_BYTES = 256 * 1024
"""Approximate maximum size of the records of one outcome, in bytes; below the limit of a batch."""
RECORD_BYTES, BATCH_BYTES = 100, 20

NO_OFFSET = -1


class SnapshotOffsets:
    """An index of each share partition's last snapshot offset, from which follows what can be deleted."""

    __slots__ = ("_deleted_at", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[SharePartitionKey, int] = {}
        self._deleted_at = NO_OFFSET
        """Offset of the last record if that is a tombstone, else -1: it supersedes what is before it."""

    def note(self, key: SharePartitionKey, at: PositionedRecord) -> None:
        """Update the index by a record: a snapshot, or a tombstone, which removes its share partition."""
        self._deleted_at = NO_OFFSET
        if at.record.value is not None:
            self._offsets[key] = at.offset
            return
        self._offsets.pop(key, None)
        self._deleted_at = at.offset

    def superseded_before(self) -> int:
        """Return the offset before which all records are superseded; 0 if none are."""
        first = min(self._offsets.values(), default=self._deleted_at)
        if self._deleted_at != NO_OFFSET:
            first = min(first, self._deleted_at)
        return max(first, 0)


def begin(shard: ShareStateShard, context: Context) -> Outcome:
    """Arm the timers of pruning after a load.

    The timer that deletes orphans (share partitions whose topic no longer exists) is armed only if there are
    any."""
    timers = (_rearm(SNAPSHOT_COLD, context), _rearm(PRUNE, context))
    if _orphans(shard, context):
        return Outcome(timers=(*timers, Arm(ORPHANS, 0)))
    return Outcome(timers=timers)


def prune(shard: ShareStateShard, context: Context) -> Outcome:
    """Request the deletion of all superseded records (effect `DELETE_RECORDS`)."""
    before = shard.snapshots.superseded_before()
    effects = (Effect(DELETE_RECORDS, before),) if before else ()
    return Outcome(timers=(_rearm(PRUNE, context),), effects=effects)


def snapshot_cold(shard: ShareStateShard, context: Context) -> Outcome:
    """Write new snapshots of cold share partitions: those whose last snapshot is older than the interval.

    Nothing is written if all of the present snapshots were already written by this function."""
    timers = (_rearm(SNAPSHOT_COLD, context),)
    if all(state.create_timestamp != state.write_timestamp for state in shard.states.values()):
        return Outcome(timers=timers)
    interval_ms = context.config["share.coordinator.cold.partition.snapshot.interval.ms"]
    old = [
        key for key, state in shard.states.items() if context.now_ms - state.write_timestamp >= interval_ms
    ]
    portion = _portion(shard, old)
    if len(portion) < len(old):
        timers = (Arm(SNAPSHOT_COLD, 0),)
    records = tuple(
        snapshot(key, _rewritten(shard.states[key], context.now_ms), context.end_offset + index)
        for index, key in enumerate(portion)
    )
    return Outcome(records=records, timers=timers)


def _rewritten(state: SharePartitionState, now_ms: int) -> SharePartitionState:
    return state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms)


def topics_deleted(shard: ShareStateShard, deleted: TopicsDeleted, context: Context) -> Outcome:
    """Write tombstones for the share partitions of deleted topics."""
    return _delete(shard, [key for key in shard.states if key.topic_id in deleted.topic_ids], context)


def delete_orphans(shard: ShareStateShard, context: Context) -> Outcome:
    """Write tombstones for share partitions whose topic does not exist."""
    return _delete(shard, _orphans(shard, context), context)


def _orphans(shard: ShareStateShard, context: Context) -> list[SharePartitionKey]:
    return [key for key in shard.states if key.topic_id not in context.topics.by_id]


def _delete(shard: ShareStateShard, keys: list[SharePartitionKey], context: Context) -> Outcome:
    if not keys:
        return NOTHING
    portion = _portion(shard, keys)
    records = tuple(tombstone(key, context.end_offset + index) for index, key in enumerate(portion))
    return Outcome(records=records, timers=(Arm(ORPHANS, 0),) if len(portion) < len(keys) else ())


def _portion(shard: ShareStateShard, keys: Iterable[SharePartitionKey]) -> list[SharePartitionKey]:
    """Return the first of `keys`: as many as one outcome can write, at least one."""
    portion: list[SharePartitionKey] = []
    size = 0
    for key in keys:
        size += RECORD_BYTES + len(key.group_id) * 3 + BATCH_BYTES * len(shard.states[key].batches)
        if portion and size > PORTION_BYTES:
            break
        portion.append(key)
    return portion


def _rearm(key: tuple[str], context: Context) -> Arm:
    return Arm(key, context.config[INTERVAL_CONFIGS[key]])


INTERVAL_CONFIGS = {
    SNAPSHOT_COLD: "share.coordinator.cold.partition.snapshot.interval.ms",
    PRUNE: "share.coordinator.state.topic.prune.interval.ms",
}
