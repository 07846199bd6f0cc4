"""What groups no longer need: offsets that are too old, and groups with nothing left in them (KIP-211).

Every `offsets.retention.check.interval.ms` all groups are looked at. An offset expires when it is
`offsets.retention.minutes` old, where its age counts

    no protocol type               from its commit: it is nobody's member that committed it
    Empty                          from when the group became empty, if that is known
    Stable, of type consumer       from its commit, where nobody subscribes to the topic
    a consumer or streams group    the same, in any state
    otherwise                      not at all

An offset that was committed with a retention time of its own (versions 2 to 4) goes by that instead. None
expires while an open transaction has committed its partition: a tombstone would take that away as well. A
group that is empty and has no offsets left, and none pending, is deleted; but no share group.

One batch has a bound: at most `MOST_BYTES` of tombstones are written at a time, and the next ones soon after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.classic.subscriptions import CONSUMER
from konvene.groups.group_type import Group, group_type_of
from konvene.groups.offsets.committed import OffsetCommitted, Offsets
from konvene.groups.offsets.pending import Pending, PendingOffsets
from konvene.records.coordinator import Record
from konvene.shard.contract import Arm, Context, Disarm, Outcome

KEY = ("retention",)
"""The timer of the whole shard."""

MOST_BYTES = 256 * 1024
"""Of names in the tombstones of one batch."""

SOON_MS = 10
"""When the next batch follows, if there is more to let go of."""

_RECORD_BYTES = 32
"""Of a tombstone, beside its names."""


def armed(context: Context) -> Arm:
    """The timer, when all groups have just been looked at."""
    return Arm(KEY, context.config["offsets.retention.check.interval.ms"])


def retention(
    groups: Mapping[str, Group], offsets: Mapping[str, Offsets], pending: Pending, context: Context
) -> Outcome:
    """Look at all groups, and let go of what has expired."""
    retention_ms = context.config["offsets.retention.minutes"] * 60_000
    records: list[OffsetCommitted | Record] = []
    timers: list[Arm | Disarm] = []
    left = MOST_BYTES
    for group in groups.values():
        row = group_type_of(group)
        if not row.keeps_offsets:
            continue  # It keeps no offsets here, and stays until somebody deletes it.
        known, open_ = offsets.get(group.group_id, {}), pending.of(group.group_id)
        for record in _expired(group, known, open_, context.now_ms, retention_ms):
            topic = record.topic if isinstance(record, OffsetCommitted) else ""
            left -= _RECORD_BYTES + len(group.group_id.encode()) + len(topic.encode())
            if left < 0 and records:
                return Outcome(records=tuple(records), timers=(*timers, Arm(KEY, SOON_MS)))
            records.append(record)
            if not isinstance(record, OffsetCommitted):
                timers += row.running_timers(group)
    return Outcome(records=tuple(records), timers=(*timers, armed(context)))


def _expired(
    group: Group, offsets: Offsets, pending: PendingOffsets, now_ms: int, retention_ms: int
) -> Iterator[OffsetCommitted | Record]:
    """The tombstones of a group: of what has expired, then of itself if nothing is left of it."""
    row = group_type_of(group)
    everything = not offsets or _may_expire(group)
    empty_ms = _empty_since_ms(group)
    for topic, partitions in offsets.items() if everything else ():
        if row.subscribes_to(group, topic):
            everything = False
            continue
        open_ = pending.get(topic, ())
        for partition, committed in partitions.items():
            expires_ms = committed.expire_ms
            if expires_ms == -1:
                expires_ms = (committed.commit_ms if empty_ms == -1 else empty_ms) + retention_ms
            if now_ms >= expires_ms and partition not in open_:
                yield OffsetCommitted(group.group_id, topic, partition, None)
            else:
                everything = False
    if everything and not pending and row.is_empty(group):
        yield from row.tombstones(group)


def _empty_since_ms(group: Group) -> int:
    """-1 where age counts from the commit."""
    if not isinstance(group, ClassicGroup) or group.is_simple or group.state is not State.EMPTY:
        return -1
    return group.state_timestamp_ms


def _may_expire(group: Group) -> bool:
    if not isinstance(group, ClassicGroup):
        return True
    if group.is_simple or group.state is State.EMPTY:
        return True
    return group.state is State.STABLE and group.protocol_type == CONSUMER
