"""The group coordinator's shard: what one partition of `__consumer_offsets` is the log of.

Requests, timers and records are rows of three tables; each row is a plain function of its own file. Only
`replay` changes the state. A record type of a protocol that is not served here is counted and passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.groups import views
from konvene.groups.classic import expiry, log
from konvene.groups.classic import heartbeat as classic_heartbeat
from konvene.groups.classic.decision import Decision, join_refused, session_key
from konvene.groups.classic.group import ClassicGroup, ClassicGroupSnapshot
from konvene.groups.classic.join import join
from konvene.groups.classic.leave import leave
from konvene.groups.classic.sync import sync
from konvene.groups.consumer import classic_members
from konvene.groups.consumer import heartbeat as consumer_heartbeat
from konvene.groups.consumer import leave as consumer_leave
from konvene.groups.consumer import log as consumer_log
from konvene.groups.consumer.commits import check_fetcher
from konvene.groups.consumer.describe import described as consumer_group_described
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.leave import Disconnected
from konvene.groups.consumer.subscriptions import resolved
from konvene.groups.consumer.targets import computed
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved
from konvene.groups.group_type import Group, tombstones
from konvene.groups.group_type import timers as disarmed
from konvene.groups.modern.group import CachedHeartbeat
from konvene.groups.modern.rebalance_trace import SoftStateRecord, take
from konvene.groups.offsets.commit import commit
from konvene.groups.offsets.committed import OffsetCommitted, Offsets, OffsetsCommitted, replay, replay_many
from konvene.groups.offsets.delete import delete
from konvene.groups.offsets.deleted_topics import topics_deleted
from konvene.groups.offsets.expiry import armed, retention
from konvene.groups.offsets.fetch import fetch
from konvene.groups.offsets.pending import NOTHING_PENDING, Pending
from konvene.groups.offsets.transactional import commit_in_transaction, end_transaction
from konvene.groups.share import initialize as share_partitions
from konvene.groups.share import leave as share_leave
from konvene.groups.share import log as share_log
from konvene.groups.share.decision import Decision as ShareStep
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.handlers import HANDLERS as SHARE_HANDLERS
from konvene.groups.share.handlers import known as share_group
from konvene.groups.share.heartbeat import cacheable as share_again
from konvene.groups.share.targets import computed as share_computed
from konvene.groups.streams import heartbeat as streams_heartbeat
from konvene.groups.streams import leave as streams_leave
from konvene.groups.streams import log as streams_log
from konvene.groups.streams.classic import members as streams_classic
from konvene.groups.streams.classic.changelog_ends import EndsFound, apply_ends
from konvene.groups.streams.commits import check_fetcher as check_streams_fetcher
from konvene.groups.streams.decision import Decision as StreamsStep
from konvene.groups.streams.describe import described as streams_group_described
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.targets import computed as tasks_computed
from konvene.groups.streams.topology import descriptions
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated, record_creation_failure
from konvene.groups.streams.topology.resolution import apply_resolution as streams_resolved
from konvene.groups.streams.topology.resolution import refresh_expressions
from konvene.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
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
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from konvene.messages.sync_group import SyncGroupRequest
from konvene.messages.txn_offset_commit import TxnOffsetCommitRequest
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.coordinator import Record
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.shard.contract import Arm, Context, Disarm, Ending, Outcome, Reply


class GroupShard:
    """The groups and offsets of one partition."""

    __slots__ = ("groups", "offsets", "passed_over", "pending")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, Offsets] = {}
        self.pending = Pending()
        self.passed_over = 0
        """Records of a kind that is not served here."""

    def __repr__(self) -> str:
        members = sum(len(group.members) for group in self.groups.values())
        offsets = sum(len(told) for topics in self.offsets.values() for told in topics.values())
        return f"<group shard: {len(self.groups)} groups with {members} members, {offsets} offsets>"

    @property
    def members(self) -> int:
        """Those who are told by their heartbeats what they have."""
        return sum(
            len(group.members) for group in self.groups.values() if not isinstance(group, ClassicGroup)
        )

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

    def cacheable(self, request: Struct, context: Context) -> tuple[object, tuple[Arm | Disarm, ...]] | None:
        """Heartbeats of members that have what they are meant to have; see `shard.contract`."""
        again = SAME_AGAIN.get(type(request))
        return again(self, request, context) if again is not None else None

    def is_current(self, value: object) -> bool:
        """Any change to a classic group makes a new value of it, so the same value is the same group."""
        if isinstance(value, CachedHeartbeat):
            return value.holds(self.groups)
        return isinstance(value, ClassicGroup) and self.groups.get(value.group_id) is value

    def load(self, context: Context) -> Outcome:
        """After a restart each member has its session timeout to be heard of."""
        timers: list[Any] = [armed(context), *share_partitions.armed(self.groups.values())]
        soft: list[Any] = []
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                timers += consumer_leave.loaded(group, context).timers
                continue
            if isinstance(group, StreamsGroup):
                timers += streams_leave.loaded(group, context).timers
                continue
            if isinstance(group, ShareGroup):
                timers += share_leave.loaded(group, context).timers
                continue
            for member in group.members.values():
                timers.append(Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms))
            if (why := expiry.rebalance_due(group, context)) is not None:
                step = Decision(group, context)
                step.cause(why, None)
                step.start_rebalance()
                moved = step.outcome()
                timers += moved.timers
                soft += moved.soft_records
        return Outcome(timers=tuple(timers), soft_records=tuple(soft))


# --- requests ------------------------------------------------------------------------------------


def _join(shard: GroupShard, request: JoinGroupRequest, context: Context) -> Outcome:
    group = shard.groups.get(request.group_id)
    if group is None or isinstance(group, ClassicGroup):
        return join(group, request, context)
    if not group.is_empty or isinstance(group, ShareGroup):
        if isinstance(group, ConsumerGroup):
            return classic_members.join(group, request, context)
        if isinstance(group, StreamsGroup):
            return streams_classic.join(group, request, context)
        refused = join_refused(Errors.INCONSISTENT_GROUP_PROTOCOL, "")
        return Outcome((Reply(context.waiter, refused),))
    made = join(None, request, context)
    return made._replace(records=(*tombstones(group), *made.records), timers=(*disarmed(group), *made.timers))


Decide = Callable[[Any, Any, Context], Outcome]


def _by_kind(
    of_classic: Decide, of_consumer: Decide, of_streams: Decide
) -> Callable[[GroupShard, Any, Context], Outcome]:
    """A request of the classic protocol, to a group of the kind in which somebody speaks it."""

    def decide(shard: GroupShard, request: Any, context: Context) -> Outcome:
        group = shard.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return of_consumer(group, request, context)
        if isinstance(group, StreamsGroup) and group.classic_members:
            return of_streams(group, request, context)
        return of_classic(group if isinstance(group, ClassicGroup) else None, request, context)

    return decide


def _consumer_describe(shard: GroupShard, request: ConsumerGroupDescribeRequest, context: Context) -> Outcome:
    found = tuple(consumer_group_described(shard.groups, g, context) for g in request.group_ids)
    return Outcome((Reply(context.waiter, ConsumerGroupDescribeResponse(groups=found)),))


def _streams_describe(shard: GroupShard, request: StreamsGroupDescribeRequest, context: Context) -> Outcome:
    wanted = request.include_topology_description
    found = tuple(
        streams_group_described(shard.groups, g, context, with_description=wanted) for g in request.group_ids
    )
    return Outcome((Reply(context.waiter, StreamsGroupDescribeResponse(groups=found)),))


def _disconnected(shard: GroupShard, news: Disconnected, context: Context) -> Outcome:
    group = shard.groups.get(news.group_id)
    if isinstance(group, StreamsGroup):
        return streams_leave.disconnected(group, news.member_id, context)
    if isinstance(group, ShareGroup):
        return share_leave.disconnected(group, news.member_id, context)
    return consumer_leave.disconnected(_consumer_group(shard, news.group_id), news.member_id, context)


def _computed(shard: GroupShard, answer: AssignmentComputed, context: Context) -> Outcome:
    group = shard.groups.get(answer.group_id)
    if isinstance(group, StreamsGroup):
        return tasks_computed(StreamsStep(group, context), answer)
    if isinstance(group, ShareGroup):
        return share_computed(ShareStep(group, context), answer)
    return computed(_consumer_group(shard, answer.group_id), answer, context)


def _resolved(shard: GroupShard, answer: RegexesResolved, context: Context) -> Outcome:
    group = shard.groups.get(answer.group_id)
    if isinstance(group, StreamsGroup):
        return streams_resolved(group, answer, context)
    return resolved(_consumer_group(shard, answer.group_id), answer, context)


def _classic_group(shard: GroupShard, group_id: str) -> ClassicGroup | None:
    group = shard.groups.get(group_id)
    return group if isinstance(group, ClassicGroup) else None


def _consumer_group(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _streams_group(shard: GroupShard, group_id: str) -> StreamsGroup | None:
    group = shard.groups.get(group_id)
    return group if isinstance(group, StreamsGroup) else None


def _offset_fetch(shard: GroupShard, request: OffsetFetchRequest, context: Context) -> Outcome:
    for asked in request.groups:
        group = shard.groups.get(asked.group_id)
        if isinstance(group, ConsumerGroup):
            check_fetcher(group, asked.member_id, asked.member_epoch)
        elif isinstance(group, StreamsGroup):
            check_streams_fetcher(group, asked.member_id, asked.member_epoch)
    pending = shard.pending if request.require_stable else NOTHING_PENDING
    groups = tuple(
        fetch(shard.offsets, pending, g, context.api_version, context.topics) for g in request.groups
    )
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
        result, forgotten = views.deleted(
            group_id, group, shard.offsets.get(group_id, {}), shard.pending.of(group_id)
        )
        results.append(result)
        records += forgotten
        if group is not None and forgotten:
            timers += disarmed(group)
    reply = Reply(context.waiter, DeleteGroupsResponse(results=tuple(results)))
    return Outcome((reply,), tuple(records), timers=tuple(timers))


def _of_share_groups(
    decide: Callable[[Any, Any, Context], Outcome],
) -> Callable[[GroupShard, Any, Context], Outcome]:
    return lambda shard, request, context: decide(shard.groups, request, context)


HANDLERS: dict[type, Callable[[GroupShard, Any, Context], Outcome]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: _by_kind(sync, classic_members.sync, streams_classic.sync),
    HeartbeatRequest: _by_kind(
        classic_heartbeat.heartbeat, classic_members.heartbeat, streams_classic.heartbeat
    ),
    LeaveGroupRequest: _by_kind(leave, classic_members.leave, streams_classic.leave),
    ConsumerGroupHeartbeatRequest: lambda shard, request, context: consumer_heartbeat.heartbeat(
        shard.groups, request, context
    ),
    ConsumerGroupDescribeRequest: _consumer_describe,
    StreamsGroupHeartbeatRequest: lambda shard, request, context: streams_heartbeat.heartbeat(
        shard.groups, request, context
    ),
    StreamsGroupDescribeRequest: _streams_describe,
    StreamsGroupTopologyDescriptionUpdateRequest: lambda shard, request, context: descriptions.update(
        shard.groups, request, context
    ),
    TopicsNotCreated: lambda shard, news, context: record_creation_failure(
        _streams_group(shard, news.group_id), news, context
    ),
    EndsFound: lambda shard, news, context: apply_ends(
        _streams_group(shard, news.group_id), news, shard.offsets.get(news.group_id, {}), context
    ),
    Disconnected: _disconnected,
    RegexesResolved: _resolved,
    AssignmentComputed: _computed,
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
    **{request: _of_share_groups(decide) for request, decide in SHARE_HANDLERS.items()},
}

SAME_AGAIN: dict[
    type, Callable[[GroupShard, Any, Context], tuple[object, tuple[Arm | Disarm, ...]] | None]
] = {
    HeartbeatRequest: lambda shard, request, context: (
        streams_classic.cacheable(group, request, context)
        if (group := _streams_group(shard, request.group_id)) is not None
        else classic_heartbeat.cacheable(_classic_group(shard, request.group_id), request)
    ),
    ConsumerGroupHeartbeatRequest: lambda shard, request, context: consumer_heartbeat.cacheable(
        _consumer_group(shard, request.group_id), request, context
    ),
    StreamsGroupHeartbeatRequest: lambda shard, request, context: streams_heartbeat.cacheable(
        _streams_group(shard, request.group_id), request, context
    ),
    ShareGroupHeartbeatRequest: lambda shard, request, context: share_again(
        share_group(shard.groups, request.group_id), request, context
    ),
}


def _session_expired(shard: GroupShard, group_id: str, member_id: str, context: Context) -> Outcome:
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return consumer_leave.session_expired(group, member_id, context)
    if isinstance(group, StreamsGroup):
        return streams_leave.session_expired(group, member_id, context)
    if isinstance(group, ShareGroup):
        return share_leave.session_expired(group, member_id, context)
    return expiry.session_expired(_classic_group(shard, group_id), member_id, context)


def _timed_out(of_consumer: Callable[..., Outcome], of_streams: Decide) -> Callable[..., Outcome]:
    """Somebody did not do in time what was asked of a member."""

    def decide(shard: GroupShard, group_id: str, member_id: str, context: Context) -> Outcome:
        group = shard.groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return of_streams(group, member_id, context)
        return of_consumer(shard.groups, group_id, member_id, context)

    return decide


TIMERS: dict[str, Callable[..., Outcome]] = {
    "session": _session_expired,
    "revocation": _timed_out(consumer_leave.revocation_timed_out, streams_leave.revocation_timed_out),
    "initial-delay": lambda shard, group, context: streams_leave.delay_ended(
        shard.groups.get(group), context
    ),
    "expressions": lambda shard, group, context: refresh_expressions(shard.groups.get(group), context),
    "rejoin": _timed_out(consumer_leave.rejoin_timed_out, streams_leave.rejoin_timed_out),
    "resync": _timed_out(consumer_leave.resync_timed_out, streams_leave.resync_timed_out),
    "join": lambda shard, group, context: expiry.join_timed_out(_classic_group(shard, group), context),
    "sync": lambda shard, group, context: expiry.sync_timed_out(_classic_group(shard, group), context),
    "share-state": lambda shard, context: share_partitions.tidy(shard.groups.values(), context),
    "retention": lambda shard, context: retention(shard.groups, shard.offsets, shard.pending, context),
}


# --- records -------------------------------------------------------------------------------------


def group_of(record: Any) -> str:
    """The group that a record is about; empty for committed offsets, which change no group."""
    if type(record) is Record:
        key: Any = record.key
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


def _soft_is(shard: GroupShard, record: SoftStateRecord) -> None:
    group = shard.groups.get(record.group_id)
    if group is not None and not isinstance(group, ClassicGroup):
        take(group, record)


def _group_is(shard: GroupShard, record: ClassicGroupSnapshot) -> None:
    shard.groups[record.group.group_id] = record.group


def _offset_committed(shard: GroupShard, record: OffsetCommitted) -> None:
    if record.committed is not None and record.group not in shard.groups:
        # Offsets without a group: a so-called simple one, which later records may replace.
        shard.groups[record.group] = ClassicGroup(record.group)
    replay(shard.offsets, record)
    if shard.pending.by_group:
        shard.pending.overtake(record)


def _offsets_committed(shard: GroupShard, record: OffsetsCommitted) -> None:
    if record.group not in shard.groups:
        shard.groups[record.group] = ClassicGroup(record.group)
    replay_many(shard.offsets, record)
    if shard.pending.by_group:
        shard.pending.overtake(record)


def _in_transaction(shard: GroupShard, told: InTransaction) -> None:
    """Only commits are written in transactions; what else stood there would count at once, as in Kafka."""
    producer_id, record = told
    if not isinstance(record, OffsetCommitted | OffsetsCommitted) or record.committed is None:
        shard.replay(record)
        return
    if record.group not in shard.groups:
        shard.groups[record.group] = ClassicGroup(record.group)
    shard.pending.hold(producer_id, record)


def _transaction_ended(shard: GroupShard, told: TransactionEnded) -> None:
    for record in shard.pending.end(told.producer_id, told.committed):
        if record.group not in shard.groups:
            shard.groups[record.group] = ClassicGroup(record.group)
        replay(shard.offsets, record)


REPLAYS: dict[type, Callable[[GroupShard, Any], None]] = {
    ClassicGroupSnapshot: _group_is,
    GroupMetadataKey: _group_metadata,
    OffsetCommitted: _offset_committed,
    OffsetsCommitted: _offsets_committed,
    SoftStateRecord: _soft_is,
    InTransaction: _in_transaction,
    TransactionEnded: _transaction_ended,
    **dict.fromkeys(share_log.REPLAYS, lambda shard, record: share_log.replay(shard.groups, record)),
    **dict.fromkeys(streams_log.REPLAYS, lambda shard, record: streams_log.replay(shard.groups, record)),
    **dict.fromkeys(consumer_log.REPLAYS, lambda shard, record: consumer_log.replay(shard.groups, record)),
}
