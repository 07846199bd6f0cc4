"""How the log of share state is kept short: cold snapshots, tombstones of deleted topics, and the cut.

All records before the oldest snapshot that still counts are superfluous. What is cut off is told as an
effect, for the shell does it when everything that made it superfluous is durable.

What could be too much for one batch of the log is done in portions, one after another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from konvene.shard.contract import NOTHING, Arm, Context, Effect, Outcome
from konvene.share_state.requests import SharePartitionKey, TopicsDeleted
from konvene.share_state.state import At, SharePartitionState, snapshot, tombstone

if TYPE_CHECKING:
    from konvene.share_state.shard import ShareStateShard

COLD = ("cold",)
PRUNE = ("prune",)
ORPHANS = ("orphans",)

CUT = "cut"
"""The effect whose subject is an offset: the records before it can go."""

PORTION_BYTES = 256 * 1024
"""About how many bytes of records an outcome has at most; a batch may be larger than that."""
RECORD_BYTES, BATCH_BYTES = 100, 20

NO_OFFSET = -1


class Snapshots:
    """Where the last snapshot of each share partition is."""

    __slots__ = ("_deleted_at", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[SharePartitionKey, int] = {}
        self._deleted_at = NO_OFFSET
        """Where the last record is, if that is a tombstone: what is before it can go, it itself cannot."""

    def note(self, key: SharePartitionKey, at: At) -> None:
        """A snapshot was written, or a tombstone."""
        self._deleted_at = NO_OFFSET
        if at.record.value is not None:
            self._offsets[key] = at.offset
            return
        self._offsets.pop(key, None)
        self._deleted_at = at.offset

    def superfluous_before(self) -> int:
        """Before this offset there is nothing that counts; 0 where everything does."""
        first = min(self._offsets.values(), default=self._deleted_at)
        if self._deleted_at != NO_OFFSET:
            first = min(first, self._deleted_at)
        return max(first, 0)


def begin(shard: ShareStateShard, context: Context) -> Outcome:
    """After loading. Topics may have been deleted when nobody could write that here."""
    timers = (_again(COLD, context), _again(PRUNE, context))
    if _orphans(shard, context):
        return Outcome(timers=(*timers, Arm(ORPHANS, 0)))
    return Outcome(timers=timers)


def prune(shard: ShareStateShard, context: Context) -> Outcome:
    """Let go of what is superfluous."""
    before = shard.snapshots.superfluous_before()
    effects = (Effect(CUT, before),) if before else ()
    return Outcome(timers=(_again(PRUNE, context),), effects=effects)


def snapshot_cold(shard: ShareStateShard, context: Context) -> Outcome:
    """Write those anew that were written long ago, unless all were written for that reason the last time."""
    timers = (_again(COLD, context),)
    if all(state.create_timestamp != state.write_timestamp for state in shard.states.values()):
        return Outcome(timers=timers)
    interval_ms = context.config["share.coordinator.cold.partition.snapshot.interval.ms"]
    old = [
        key for key, state in shard.states.items() if context.now_ms - state.write_timestamp >= interval_ms
    ]
    portion = _portion(shard, old)
    if len(portion) < len(old):
        timers = (Arm(COLD, 0),)
    records = tuple(
        snapshot(key, _cold(shard.states[key], context.now_ms), context.end_offset + index)
        for index, key in enumerate(portion)
    )
    return Outcome(records=records, timers=timers)


def _cold(state: SharePartitionState, now_ms: int) -> SharePartitionState:
    return state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms)


def topics_deleted(shard: ShareStateShard, news: TopicsDeleted, context: Context) -> Outcome:
    """Forget what was about them."""
    return _forget(shard, [key for key in shard.states if key.topic_id in news.topic_ids], context)


def forget_orphans(shard: ShareStateShard, context: Context) -> Outcome:
    """Forget what is about topics that are not there."""
    return _forget(shard, _orphans(shard, context), context)


def _orphans(shard: ShareStateShard, context: Context) -> list[SharePartitionKey]:
    return [key for key in shard.states if key.topic_id not in context.topics.by_id]


def _forget(shard: ShareStateShard, gone: list[SharePartitionKey], context: Context) -> Outcome:
    if not gone:
        return NOTHING
    portion = _portion(shard, gone)
    records = tuple(tombstone(key, context.end_offset + index) for index, key in enumerate(portion))
    return Outcome(records=records, timers=(Arm(ORPHANS, 0),) if len(portion) < len(gone) else ())


def _portion(shard: ShareStateShard, keys: Iterable[SharePartitionKey]) -> list[SharePartitionKey]:
    """The first of them, as many as an outcome may have; at least one."""
    portion: list[SharePartitionKey] = []
    size = 0
    for key in keys:
        size += RECORD_BYTES + len(key.group_id) * 3 + BATCH_BYTES * len(shard.states[key].batches)
        if portion and size > PORTION_BYTES:
            break
        portion.append(key)
    return portion


def _again(key: tuple[str], context: Context) -> Arm:
    return Arm(key, context.config[EVERY[key]])


EVERY = {
    COLD: "share.coordinator.cold.partition.snapshot.interval.ms",
    PRUNE: "share.coordinator.state.topic.prune.interval.ms",
}
