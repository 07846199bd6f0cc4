"""The group coordinator's shard: the groups and offsets of one partition of `__consumer_offsets`.

Requests, timers and records are dispatched by three tables (`HANDLERS`, `TIMERS`, `REPLAYS`), which combine
what each type of group provides (`group_type`). Each handler is a plain function; only replay changes the
state. Records of unknown types are counted and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from konvene.codec.schema import Struct
from konvene.groups import views
from konvene.groups.classic import log
from konvene.groups.classic.group import ClassicGroup, ClassicGroupSnapshot
from konvene.groups.classic.heartbeat import heartbeat
from konvene.groups.classic.join import join
from konvene.groups.classic.leave import leave
from konvene.groups.classic.sync import sync
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved
from konvene.groups.group_type import TYPES, Decide, Group, group_type_of
from konvene.groups.modern.group import CachedHeartbeat, ModernGroup, find_group
from konvene.groups.modern.leave import Disconnected
from konvene.groups.modern.rebalance_trace import SoftStateRecord, apply_soft_state
from konvene.groups.offsets.commit import commit
from konvene.groups.offsets.committed import OffsetCommitted, Offsets, OffsetsCommitted, replay, replay_many
from konvene.groups.offsets.delete import delete
from konvene.groups.offsets.deleted_topics import topics_deleted
from konvene.groups.offsets.expiry import expire_offsets, next_check
from konvene.groups.offsets.fetch import fetch
from konvene.groups.offsets.pending import NOTHING_PENDING, Pending
from konvene.groups.offsets.transactional import commit_in_transaction, end_transaction
from konvene.groups.share import initialize as share_partitions
from konvene.groups.streams.classic.changelog_ends import EndsFound, apply_ends
from konvene.groups.streams.group import StreamsGroup
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
from konvene.messages.txn_offset_commit import TxnOffsetCommitRequest
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.coordinator import Record
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.shard.contract import NOTHING, Arm, Context, Disarm, Ending, Outcome, Reply, TimerKey


class GroupShard:
    """The groups and offsets of one partition of `__consumer_offsets`; implements `shard.contract.Core`."""

    __slots__ = ("groups", "ignored_records", "offsets", "pending")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, Offsets] = {}
        self.pending = Pending()
        self.ignored_records = 0
        """How many records of unknown types were skipped."""

    def __repr__(self) -> str:
        members = sum(len(group.members) for group in self.groups.values())
        offsets = sum(len(partitions) for topics in self.offsets.values() for partitions in topics.values())
        return f"<group shard: {len(self.groups)} groups with {members} members, {offsets} offsets>"

    @property
    def members(self) -> int:
        """Return the number of members of all groups except classic ones."""
        return sum(len(group.members) for group in self.groups.values() if isinstance(group, ModernGroup))

    def handle(self, request: Struct, context: Context) -> Outcome:
        """Return the outcome of a request or an event. Raises `GroupError`, and then nothing has changed."""
        return HANDLERS[type(request)](self, request, context)

    def expire(self, key: TimerKey, context: Context) -> Outcome:
        """Return the outcome of an expired timer.

        `key`: the timer's name in `TIMERS`, then the ids of its group and member, if any."""
        name, *rest = key
        return TIMERS[name](self, *rest, context)

    def replay(self, record: object) -> None:
        """Apply a record, durable or soft, to the state."""
        apply = REPLAYS.get(type(record.key) if type(record) is Record else type(record))
        if apply is None:
            self.ignored_records += 1
        else:
            apply(self, record)

    def cacheable(self, request: Struct, context: Context) -> tuple[object, tuple[Arm | Disarm, ...]] | None:
        """Return the state on which a repeated heartbeat's response depends, and the timers that it arms.

        None if each repetition has to be decided anew (see `Core`)."""
        by_class = CACHEABLE.get(type(request))
        if by_class is None:
            return None
        group = self.groups.get(request.group_id)  # type: ignore[attr-defined]
        decide = by_class.get(type(group))
        return None if decide is None else decide(group, request, context)

    def is_current(self, value: object) -> bool:
        """Return whether the state on which a cached response depends is unchanged.

        `value`: from `cacheable`. Every change of a classic group replaces the group object."""
        if isinstance(value, CachedHeartbeat):
            return value.is_current(self.groups)
        return isinstance(value, ClassicGroup) and self.groups.get(value.group_id) is value

    def load(self, context: Context) -> Outcome:
        """Return the timers to start once the log is read, and the soft state of the groups."""
        groups = self.groups.values()
        timers: list[Arm | Disarm] = [next_check(context), *share_partitions.cleanup_timer(groups)]
        soft: list[object] = []
        for group in groups:
            loaded = group_type_of(group).load(group, context)
            timers += loaded.timers
            soft += loaded.soft_records
        return Outcome(timers=tuple(timers), soft_records=tuple(soft))


# --- requests ------------------------------------------------------------------------------------

Handler = Callable[[GroupShard, Any, Context], Outcome]


def _join(shard: GroupShard, request: JoinGroupRequest, context: Context) -> Outcome:
    group = shard.groups.get(request.group_id)
    if group is None:
        return join(None, request, context)
    row = group_type_of(group)
    if not (row.becomes_classic and row.is_empty(group)):
        return row.join(group, request, context)
    joined = join(None, request, context)
    return joined._replace(
        records=(*row.tombstones(group), *joined.records),
        timers=(*row.running_timers(group), *joined.timers),
    )


def _by_type(decisions: Mapping[type, Decide[Any]], without_group: Decide[Any]) -> Handler:
    """Return a handler that selects the decision by the class of the group that the request names.

    `without_group`: the decision if there is no such group."""
    by_class = {**decisions, type(None): without_group}

    def decide(shard: GroupShard, request: Any, context: Context) -> Outcome:
        group = shard.groups.get(request.group_id)
        return by_class[type(group)](group, request, context)

    return decide


def _ignore(group: None, event: object, context: Context) -> Outcome:
    return NOTHING


def _disconnected(shard: GroupShard, event: Disconnected, context: Context) -> Outcome:
    group = shard.groups.get(event.group_id)
    return NOTHING if group is None else group_type_of(group).disconnected(group, event.member_id, context)


def _offset_fetch(shard: GroupShard, request: OffsetFetchRequest, context: Context) -> Outcome:
    for requested in request.groups:
        group = shard.groups.get(requested.group_id)
        if group is not None:
            group_type_of(group).check_fetcher(group, requested.member_id, requested.member_epoch)
    pending = shard.pending if request.require_stable else NOTHING_PENDING
    groups = tuple(
        fetch(shard.offsets, pending, g, context.api_version, context.topics) for g in request.groups
    )
    return Outcome((Reply(context.waiter, OffsetFetchResponse(groups=groups)),))


def _list(shard: GroupShard, request: ListGroupsRequest, context: Context) -> Outcome:
    listed = views.listed(shard.groups, request.states_filter, request.types_filter)
    return Outcome((Reply(context.waiter, ListGroupsResponse(groups=listed)),))


def _describe(shard: GroupShard, request: DescribeGroupsRequest, context: Context) -> Outcome:
    described = tuple(views.described(g, shard.groups.get(g), context.api_version) for g in request.groups)
    return Outcome((Reply(context.waiter, DescribeGroupsResponse(groups=described)),))


def _delete(shard: GroupShard, request: DeleteGroupsRequest, context: Context) -> Outcome:
    results = []
    records: list[OffsetCommitted | Record] = []
    timers: list[Disarm] = []
    for group_id in dict.fromkeys(request.groups_names):
        group = shard.groups.get(group_id)
        result, tombstones = views.deleted(
            group_id, group, shard.offsets.get(group_id, {}), shard.pending.of(group_id)
        )
        results.append(result)
        records += tombstones
        if group is not None and tombstones:
            timers += group_type_of(group).running_timers(group)
    reply = Reply(context.waiter, DeleteGroupsResponse(results=tuple(results)))
    return Outcome((reply,), tuple(records), timers=tuple(timers))


def _of_type(decide: Callable[[Any, Any, Context], Outcome]) -> Handler:
    """Return a handler that passes all groups to `decide`, which itself selects those of its own type."""
    return lambda shard, request, context: decide(shard.groups, request, context)


HANDLERS: dict[type, Handler] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: _by_type({group: row.sync for group, row in TYPES.items()}, sync),
    HeartbeatRequest: _by_type({group: row.heartbeat for group, row in TYPES.items()}, heartbeat),
    LeaveGroupRequest: _by_type({group: row.leave for group, row in TYPES.items()}, leave),
    AssignmentComputed: _by_type({group: row.assignment_computed for group, row in TYPES.items()}, _ignore),
    RegexesResolved: _by_type({group: row.regexes_resolved for group, row in TYPES.items()}, _ignore),
    Disconnected: _disconnected,
    EndsFound: lambda shard, event, context: apply_ends(
        find_group(shard.groups, event.group_id, StreamsGroup),
        event,
        shard.offsets.get(event.group_id, {}),
        context,
    ),
    OffsetCommitRequest: lambda shard, request, context: commit(shard.groups, request, context),
    TxnOffsetCommitRequest: lambda shard, request, context: commit_in_transaction(
        shard.groups, request, context
    ),
    Ending: lambda shard, ending, context: end_transaction(ending, context),
    OffsetFetchRequest: _offset_fetch,
    OffsetDeleteRequest: lambda shard, request, context: delete(
        shard.groups, shard.offsets, shard.pending, request, context
    ),
    DeleteTopicsRequest: lambda shard, request, context: topics_deleted(
        shard.offsets, shard.pending, request, context
    ),
    ListGroupsRequest: _list,
    DescribeGroupsRequest: _describe,
    DeleteGroupsRequest: _delete,
    **{request: _of_type(decide) for row in TYPES.values() for request, decide in row.handlers.items()},
}

CACHEABLE: dict[
    type, dict[type, Callable[[Any, Any, Context], tuple[object, tuple[Arm | Disarm, ...]] | None]]
] = {
    request: {group: row.cacheable[request] for group, row in TYPES.items() if request in row.cacheable}
    for request in dict.fromkeys(request for row in TYPES.values() for request in row.cacheable)
}
"""The functions that make heartbeats cacheable, by the class of the request, then of the group."""


# --- timers --------------------------------------------------------------------------------------


def _member_timer(name: str) -> Callable[[GroupShard, str, str, Context], Outcome]:
    by_class = {group: row.member_timers[name] for group, row in TYPES.items() if name in row.member_timers}

    def decide(shard: GroupShard, group_id: str, member_id: str, context: Context) -> Outcome:
        group = shard.groups.get(group_id)
        ended = by_class.get(type(group))
        return NOTHING if ended is None else ended(group, member_id, context)

    return decide


def _group_timer(name: str) -> Callable[[GroupShard, str, Context], Outcome]:
    by_class = {group: row.group_timers[name] for group, row in TYPES.items() if name in row.group_timers}

    def decide(shard: GroupShard, group_id: str, context: Context) -> Outcome:
        group = shard.groups.get(group_id)
        ended = by_class.get(type(group))
        return NOTHING if ended is None else ended(group, context)

    return decide


TIMERS: dict[str, Callable[..., Outcome]] = {
    **{name: _member_timer(name) for row in TYPES.values() for name in row.member_timers},
    **{name: _group_timer(name) for row in TYPES.values() for name in row.group_timers},
    "share-state": lambda shard, context: share_partitions.clean_up(shard.groups.values(), context),
    "retention": lambda shard, context: expire_offsets(shard.groups, shard.offsets, shard.pending, context),
}
"""The handlers of expired timers, by the first item of the timer's key."""


# --- records -------------------------------------------------------------------------------------


def group_of(record: object) -> str:
    """Return the id of the group that a record changes; empty for committed offsets, which change none."""
    if type(record) is Record:
        key = record.key
        group_id: str = key.group if type(key) is GroupMetadataKey else getattr(key, "group_id", "")
        return group_id
    if type(record) is ClassicGroupSnapshot:
        return record.group.group_id
    return record.group_id if type(record) is SoftStateRecord else ""


def _group_metadata(shard: GroupShard, record: Record) -> None:
    key, value = record
    assert isinstance(key, GroupMetadataKey)
    if isinstance(value, GroupMetadataValue):
        shard.groups[key.group] = log.from_record(key.group, value)
    elif isinstance(shard.groups.get(key.group), ClassicGroup):
        del shard.groups[key.group]


def _soft_state(shard: GroupShard, record: SoftStateRecord) -> None:
    group = shard.groups.get(record.group_id)
    if isinstance(group, ModernGroup):
        apply_soft_state(group, record)


def _classic_group_snapshot(shard: GroupShard, record: ClassicGroupSnapshot) -> None:
    shard.groups[record.group.group_id] = record.group


def _offset_committed(shard: GroupShard, record: OffsetCommitted) -> None:
    if record.committed is not None and record.group not in shard.groups:
        # Offsets without a group make a simple group, which later records may replace.
        shard.groups[record.group] = ClassicGroup(record.group)
    replay(shard.offsets, record)
    if shard.pending.by_group:
        shard.pending.supersede(record)


def _offsets_committed(shard: GroupShard, record: OffsetsCommitted) -> None:
    if record.group not in shard.groups:
        shard.groups[record.group] = ClassicGroup(record.group)
    replay_many(shard.offsets, record)
    if shard.pending.by_group:
        shard.pending.supersede(record)


def _in_transaction(shard: GroupShard, event: InTransaction) -> None:
    """Hold an offset commit until its transaction ends; any other record is applied at once, as in Kafka."""
    producer_id, record = event
    if not isinstance(record, OffsetCommitted | OffsetsCommitted) or record.committed is None:
        shard.replay(record)
        return
    if record.group not in shard.groups:
        shard.groups[record.group] = ClassicGroup(record.group)
    shard.pending.add(producer_id, record)


def _transaction_ended(shard: GroupShard, event: TransactionEnded) -> None:
    for record in shard.pending.end(event.producer_id, event.committed):
        if record.group not in shard.groups:
            shard.groups[record.group] = ClassicGroup(record.group)
        replay(shard.offsets, record)


def _of_key(apply: Callable[[Any, Any, Any], None]) -> Callable[[GroupShard, Record], None]:
    """Return a function that passes a record's key and value to the replay function of one type of group."""
    return lambda shard, record: apply(shard.groups, record.key, record.value)


REPLAYS: dict[type, Callable[[GroupShard, Any], None]] = {
    ClassicGroupSnapshot: _classic_group_snapshot,
    GroupMetadataKey: _group_metadata,
    OffsetCommitted: _offset_committed,
    OffsetsCommitted: _offsets_committed,
    SoftStateRecord: _soft_state,
    InTransaction: _in_transaction,
    TransactionEnded: _transaction_ended,
    **{key: _of_key(apply) for row in TYPES.values() for key, apply in row.replays.items()},
}
