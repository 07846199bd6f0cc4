"""The group coordinator's shard: what one partition of `__consumer_offsets` is the log of.

Requests, timers and records are rows of three tables; each row is a plain function of its own file. Only
`replay` changes the state. A record type of a protocol that is not served here is counted and passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.codec.schema import Struct
from konvene.groups import views
from konvene.groups.classic import expiry, log
from konvene.groups.classic.group import ClassicGroup, GroupIs
from konvene.groups.classic.heartbeat import heartbeat, same_again
from konvene.groups.classic.join import join
from konvene.groups.classic.leave import leave
from konvene.groups.classic.step import Step, session_key
from konvene.groups.classic.sync import sync
from konvene.groups.offsets.commit import commit
from konvene.groups.offsets.committed import OffsetCommitted, Offsets, OffsetsCommitted, replay, replay_many
from konvene.groups.offsets.delete import delete
from konvene.groups.offsets.deleted_topics import topics_deleted
from konvene.groups.offsets.expiry import armed, retention
from konvene.groups.offsets.fetch import fetch
from konvene.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from konvene.messages.delete_topics import DeleteTopicsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.leave_group import LeaveGroupRequest
from konvene.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from konvene.messages.offset_commit import OffsetCommitRequest
from konvene.messages.offset_delete import OffsetDeleteRequest
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from konvene.messages.sync_group import SyncGroupRequest
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.coordinator import Record
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Reply


class GroupShard:
    """The groups and offsets of one partition."""

    __slots__ = ("groups", "offsets", "passed_over")

    def __init__(self) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, Offsets] = {}
        self.passed_over = 0
        """Records of a kind that is not served here."""

    def __repr__(self) -> str:
        return f"<group shard: {len(self.groups)} groups, {len(self.offsets)} with offsets>"

    def handle(self, request: Struct, context: Context) -> Outcome:
        """Decide a request. Raises `GroupError`, and then nothing has changed."""
        return HANDLERS[type(request)](self, request, context)

    def expire(self, key: Any, context: Context) -> Outcome:
        """Decide what follows from a timer that ran out."""
        kind, *rest = key
        return TIMERS[kind](self, *rest, context)

    def replay(self, record: Any) -> None:
        """Take a record, durable or soft, into the state."""
        kind = type(record)
        if kind is Record:
            kind = type(record.key)
        apply = REPLAYS.get(kind)
        if apply is None:
            self.passed_over += 1
        else:
            apply(self, record)

    def same_again(self, request: Struct) -> tuple[object, tuple[Arm | Disarm, ...]] | None:
        """Heartbeats of classic groups; see `shard.contract`."""
        return same_again(self.groups, request) if isinstance(request, HeartbeatRequest) else None

    def holds(self, value: object) -> bool:
        """Any change to a group makes a new value of it, so the same value is the same group."""
        return isinstance(value, ClassicGroup) and self.groups.get(value.group_id) is value

    def load(self, context: Context) -> Outcome:
        """After a restart each member has its session timeout to be heard of."""
        timers: list[Any] = [armed(context)]
        soft: list[Any] = []
        for group in self.groups.values():
            for member in group.members.values():
                timers.append(Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms))
            if len(group.members) > context.config["group.max.size"]:
                # The limit shrank: the group rebalances, and the last to come back find no room.
                step = Step(group, context)
                step.cause(causes.GROUP_TOO_LARGE, None)
                step.start_rebalance()
                moved = step.outcome()
                timers += moved.timers
                soft += moved.soft_records
        return Outcome(timers=tuple(timers), soft_records=tuple(soft))


# --- requests ------------------------------------------------------------------------------------


def _offset_fetch(shard: GroupShard, request: OffsetFetchRequest, context: Context) -> Outcome:
    groups = tuple(fetch(shard.offsets, g, context.api_version, context.topics) for g in request.groups)
    return Outcome((Reply(context.waiter, OffsetFetchResponse(groups=groups)),))


def _list(shard: GroupShard, request: ListGroupsRequest, context: Context) -> Outcome:
    found = views.listed(shard.groups, request.states_filter, request.types_filter)
    return Outcome((Reply(context.waiter, ListGroupsResponse(groups=found)),))


def _describe(shard: GroupShard, request: DescribeGroupsRequest, context: Context) -> Outcome:
    found = tuple(views.described(g, shard.groups.get(g), context.api_version) for g in request.groups)
    return Outcome((Reply(context.waiter, DescribeGroupsResponse(groups=found)),))


def _delete(shard: GroupShard, request: DeleteGroupsRequest, context: Context) -> Outcome:
    results = []
    records: list[OffsetCommitted | Record] = []
    timers: list[Disarm] = []
    for group_id in dict.fromkeys(request.groups_names):
        group = shard.groups.get(group_id)
        result, tombstones = views.deleted(group_id, group, shard.offsets.get(group_id, {}))
        results.append(result)
        records += tombstones
        if group is not None and tombstones:
            timers += (Disarm(session_key(group_id, member)) for member in sorted(group.pending_joins))
    reply = Reply(context.waiter, DeleteGroupsResponse(results=tuple(results)))
    return Outcome((reply,), tuple(records), timers=tuple(timers))


HANDLERS: dict[type[Struct], Callable[[GroupShard, Any, Context], Outcome]] = {
    JoinGroupRequest: lambda shard, request, context: join(shard.groups, request, context),
    SyncGroupRequest: lambda shard, request, context: sync(shard.groups, request, context),
    HeartbeatRequest: lambda shard, request, context: heartbeat(shard.groups, request, context),
    LeaveGroupRequest: lambda shard, request, context: leave(shard.groups, request, context),
    OffsetCommitRequest: lambda shard, request, context: commit(shard.groups, request, context),
    OffsetFetchRequest: _offset_fetch,
    OffsetDeleteRequest: lambda shard, request, context: delete(
        shard.groups, shard.offsets, request, context
    ),
    DeleteTopicsRequest: lambda shard, request, context: topics_deleted(shard.offsets, request, context),
    ListGroupsRequest: _list,
    DescribeGroupsRequest: _describe,
    DeleteGroupsRequest: _delete,
}

TIMERS: dict[str, Callable[..., Outcome]] = {
    "session": lambda shard, group, member, context: expiry.session_expired(
        shard.groups, group, member, context
    ),
    "join": lambda shard, group, context: expiry.join_timed_out(shard.groups, group, context),
    "sync": lambda shard, group, context: expiry.sync_timed_out(shard.groups, group, context),
    "retention": lambda shard, context: retention(shard.groups, shard.offsets, context),
}


# --- records -------------------------------------------------------------------------------------


def _group_metadata(shard: GroupShard, record: Record) -> None:
    key, value = record
    assert isinstance(key, GroupMetadataKey)
    if isinstance(value, GroupMetadataValue):
        shard.groups[key.group] = log.from_record(key.group, value)
    else:
        shard.groups.pop(key.group, None)


def _group_is(shard: GroupShard, record: GroupIs) -> None:
    shard.groups[record.group.group_id] = record.group


def _offset_committed(shard: GroupShard, record: OffsetCommitted) -> None:
    if record.committed is not None and record.group not in shard.groups:
        # Offsets without a group: a so-called simple one, which later records may replace.
        shard.groups[record.group] = ClassicGroup(record.group)
    replay(shard.offsets, record)


def _offsets_committed(shard: GroupShard, record: OffsetsCommitted) -> None:
    if record.group not in shard.groups:
        shard.groups[record.group] = ClassicGroup(record.group)
    replay_many(shard.offsets, record)


REPLAYS: dict[type, Callable[[GroupShard, Any], None]] = {
    GroupIs: _group_is,
    GroupMetadataKey: _group_metadata,
    OffsetCommitted: _offset_committed,
    OffsetsCommitted: _offsets_committed,
}
