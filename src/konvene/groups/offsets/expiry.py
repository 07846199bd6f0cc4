"""Expiry of offsets that are too old, and of groups without members and offsets (KIP-211).

All groups are checked every `offsets.retention.check.interval.ms`. An offset expires
`offsets.retention.minutes` after

    group                          time
    no protocol type               its commit: no member committed it
    Empty                          the group became empty, or its commit if that time is not known
    Stable, of type consumer       its commit, if no member subscribes to the topic
    a consumer or streams group    the same, in any state
    any other                      never

An offset that was committed with its own retention time (versions 2 to 4) uses that instead. No offset
expires while an open transaction has a pending commit of its partition, which the tombstone would delete as
well. A group that is empty and has no offsets, committed or pending, is deleted; share groups never are.

A batch has at most `MAX_BATCH_BYTES` of tombstones; the next batch follows after `NEXT_BATCH_MS`.
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

EXPIRY_KEY = ("retention",)
"""The key of the timer for the next check of all groups of the shard."""

MAX_BATCH_BYTES = 256 * 1024
"""Maximum size of the names in the tombstones of one batch."""

NEXT_BATCH_MS = 10
"""Delay of the next batch if more has expired than fits one."""

_TOMBSTONE_BYTES = 32
"""Estimated size of a tombstone without its names."""


def next_check(context: Context) -> Arm:
    """Return the timer of the next check, one check interval from now."""
    return Arm(EXPIRY_KEY, context.config["offsets.retention.check.interval.ms"])


def expire_offsets(
    groups: Mapping[str, Group], offsets: Mapping[str, Offsets], pending: Pending, context: Context
) -> Outcome:
    """Record the tombstones of expired offsets and groups, and start the timer of the next check."""
    retention_ms = context.config["offsets.retention.minutes"] * 60_000
    records: list[OffsetCommitted | Record] = []
    timers: list[Arm | Disarm] = []
    bytes_left = MAX_BATCH_BYTES
    for group in groups.values():
        row = group_type_of(group)
        if not row.keeps_offsets:
            continue  # It has no offsets here, and is only deleted on request.
        known, pending_offsets = offsets.get(group.group_id, {}), pending.of(group.group_id)
        for record in _expired(group, known, pending_offsets, context.now_ms, retention_ms):
            topic = record.topic if isinstance(record, OffsetCommitted) else ""
            bytes_left -= _TOMBSTONE_BYTES + len(group.group_id.encode()) + len(topic.encode())
            if bytes_left < 0 and records:
                return Outcome(records=tuple(records), timers=(*timers, Arm(EXPIRY_KEY, NEXT_BATCH_MS)))
            records.append(record)
            if not isinstance(record, OffsetCommitted):
                timers += row.running_timers(group)
    return Outcome(records=tuple(records), timers=(*timers, next_check(context)))


def _expired(
    group: Group, offsets: Offsets, pending: PendingOffsets, now_ms: int, retention_ms: int
) -> Iterator[OffsetCommitted | Record]:
    """Yield the tombstones of the group's expired offsets, then of the group if nothing is left of it."""
    row = group_type_of(group)
    all_expired = not offsets or _may_expire(group)
    empty_ms = _empty_since_ms(group)
    for topic, partitions in offsets.items() if all_expired else ():
        if row.subscribes_to(group, topic):
            all_expired = False
            continue
        pending_offsets = pending.get(topic, ())
        for partition, committed in partitions.items():
            expires_ms = committed.expire_ms
            if expires_ms == -1:
                expires_ms = (committed.commit_ms if empty_ms == -1 else empty_ms) + retention_ms
            if now_ms >= expires_ms and partition not in pending_offsets:
                yield OffsetCommitted(group.group_id, topic, partition, None)
            else:
                all_expired = False
    if all_expired and not pending and row.is_empty(group):
        yield from row.tombstones(group)


def _empty_since_ms(group: Group) -> int:
    """Return when a classic group became empty, after which its offsets expire.

    -1 if offsets of the group expire after their own commit instead."""
    if not isinstance(group, ClassicGroup) or group.is_simple or group.state is not State.EMPTY:
        return -1
    return group.state_timestamp_ms


def _may_expire(group: Group) -> bool:
    if not isinstance(group, ClassicGroup):
        return True
    if group.is_simple or group.state is State.EMPTY:
        return True
    return group.state is State.STABLE and group.protocol_type == CONSUMER
