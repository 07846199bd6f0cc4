"""The types of groups, one entry each: how a group of each type is decided, loaded, replayed and deleted.

The shard, the views and the offsets of all groups look up the entry of a group's class in `TYPES` and know no
type by name. A further type is a package like `groups.consumer` and one more entry here.

Requests of the classic protocol may name a group of any type: `join`, `sync`, `heartbeat` and `leave` are the
type's handlers of them. Requests that only one type has are in its `handlers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from konvene.errors import Errors
from konvene.groups.classic import expiry as classic_expiry
from konvene.groups.classic import heartbeat as classic_heartbeat
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.decision import rejected_join, session_key
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import State as ClassicGroupState
from konvene.groups.classic.join import join as classic_join
from konvene.groups.classic.leave import leave as classic_leave
from konvene.groups.classic.subscriptions import CONSUMER as CONSUMER_PROTOCOL
from konvene.groups.classic.sync import sync as classic_sync
from konvene.groups.consumer import classic_members as consumer_classic_members
from konvene.groups.consumer import heartbeat as consumer_heartbeat
from konvene.groups.consumer import leave as consumer_leave
from konvene.groups.consumer import log as consumer_log
from konvene.groups.consumer.describe import describe as describe_consumer_groups
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.subscriptions import regexes_resolved as consumer_regexes_resolved
from konvene.groups.consumer.targets import assignment_computed as consumer_assignment_computed
from konvene.groups.modern.commits import check_fetcher
from konvene.groups.modern.group import find_group
from konvene.groups.modern.leave import disconnected
from konvene.groups.share import leave as share_leave
from konvene.groups.share import log as share_log
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.handlers import HANDLERS as SHARE_HANDLERS
from konvene.groups.share.heartbeat import cacheable as share_cacheable
from konvene.groups.share.targets import assignment_computed as share_assignment_computed
from konvene.groups.streams import heartbeat as streams_heartbeat
from konvene.groups.streams import leave as streams_leave
from konvene.groups.streams import log as streams_log
from konvene.groups.streams.classic import members as streams_classic_members
from konvene.groups.streams.decision import delay_key, refresh_key
from konvene.groups.streams.describe import describe as describe_streams_groups
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.targets import assignment_computed as streams_assignment_computed
from konvene.groups.streams.topology import descriptions
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated, record_creation_failure
from konvene.groups.streams.topology.resolution import apply_resolution as streams_regexes_resolved
from konvene.groups.streams.topology.resolution import refresh_expressions
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from konvene.records.coordinator import Record
from konvene.shard.contract import NOTHING, Arm, Context, Disarm, Outcome, Reply

Group = ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup
Groups = dict[str, Group]
G = TypeVar("G", bound=Group)

Decide = Callable[[G, Any, Context], Outcome]
"""A function that decides a request or an event about the group that it names."""

OnMemberTimer = Callable[[G, str, Context], Outcome]
"""A function that decides what follows when a timer of the member with this id expires."""

Cacheable = Callable[[G, Any, Context], tuple[object, tuple[Arm | Disarm, ...]] | None]
"""A function that returns what the response to a repeated heartbeat depends on, and the timers that it arms.

It returns None if each such heartbeat has to be decided."""


def _ignore(group: object, event: object, context: Context) -> Outcome:
    return NOTHING


def _no_timers(group: object) -> Iterable[Disarm]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupType(Generic[G]):
    """The behaviour of one type of group: its functions, and tables of its request and timer handlers."""

    name: str
    """Kafka's name of the type, as ListGroups returns it."""
    group_class: type[G]
    protocol_type: Callable[[G], str]
    """What ListGroups returns as the protocol type; empty where it is unknown."""
    is_empty: Callable[[G], bool]
    may_delete: Callable[[G], bool]
    """Whether DeleteGroups may delete the group."""
    subscribes_to: Callable[[G, str], bool]
    """Whether a member subscribes to the topic, so that its offsets are kept; also True if that is
    unknown."""
    tombstones: Callable[[G], list[Record]]
    """Return the records that delete the group, without its committed offsets."""
    running_timers: Callable[[G], Iterable[Disarm]] = _no_timers
    """Return the timers that may run for a group without members; they are stopped when it is deleted."""
    load: Callable[[G, Context], Outcome]
    """Start the timers of a group that was loaded from the log, and apply changed configs."""

    join: Decide[G]
    sync: Decide[G]
    heartbeat: Decide[G]
    leave: Decide[G]
    becomes_classic: bool = False
    """Whether a classic member that joins an empty group of this type replaces it by a classic group."""

    keeps_offsets: bool = True
    """Whether OffsetCommit, OffsetDelete and retention apply to the group."""
    check_fetcher: Callable[[G, str | None, int], None] = lambda group, member_id, epoch: None
    """Check that a member may fetch offsets; parameters: group, member id, epoch. Raises `GroupError`."""

    member_timers: Mapping[str, OnMemberTimer[G]]
    """Handlers of the timers of members, by name."""
    group_timers: Mapping[str, Callable[[G, Context], Outcome]] = field(default_factory=dict)
    """Handlers of the timers of groups, by name."""
    disconnected: OnMemberTimer[G] = _ignore
    assignment_computed: Decide[G] = _ignore
    regexes_resolved: Decide[G] = _ignore

    handlers: Mapping[type, Callable[[Groups, Any, Context], Outcome]] = field(default_factory=dict)
    """Handlers of requests and events that only this type has, by their class; each finds its groups
    itself."""
    cacheable: Mapping[type, Cacheable[G]]
    """Heartbeats with cacheable responses, by class of the request."""
    replays: Mapping[type, Callable[[Groups, Any, Any], None]] = field(default_factory=dict)
    """Functions that apply records, by class of their key."""


# --- classic ---------------------------------------------------------------------------------------


def _classic_subscribes_to(group: ClassicGroup, topic: str) -> bool:
    if group.protocol_type != CONSUMER_PROTOCOL or group.state is ClassicGroupState.EMPTY:
        return False
    return group.subscribed is None or topic in group.subscribed


def _is_empty(group: ClassicGroup) -> bool:
    return group.state is ClassicGroupState.EMPTY


CLASSIC: Final = GroupType(
    name="classic",
    group_class=ClassicGroup,
    protocol_type=lambda group: group.protocol_type or "",
    is_empty=_is_empty,
    may_delete=_is_empty,
    subscribes_to=_classic_subscribes_to,
    tombstones=lambda group: [classic_log.tombstone(group.group_id)],
    running_timers=lambda group: [
        Disarm(session_key(group.group_id, member)) for member in sorted(group.pending_joins)
    ],
    load=classic_expiry.load,
    join=classic_join,
    sync=classic_sync,
    heartbeat=classic_heartbeat.heartbeat,
    leave=classic_leave,
    member_timers={"session": classic_expiry.session_expired},
    group_timers={"join": classic_expiry.join_timed_out, "sync": classic_expiry.sync_timed_out},
    cacheable={HeartbeatRequest: classic_heartbeat.cacheable},
)


# --- consumer --------------------------------------------------------------------------------------

CONSUMER: Final = GroupType(
    name=ConsumerGroup.group_type,
    group_class=ConsumerGroup,
    protocol_type=lambda group: CONSUMER_PROTOCOL,
    is_empty=lambda group: group.is_empty,
    may_delete=lambda group: group.is_empty,
    subscribes_to=lambda group, topic: topic in group.subscribers or topic in group.topics,
    tombstones=consumer_log.group_tombstones,
    load=consumer_leave.load,
    join=consumer_classic_members.join,
    sync=consumer_classic_members.sync,
    heartbeat=consumer_classic_members.heartbeat,
    leave=consumer_classic_members.leave,
    becomes_classic=True,
    check_fetcher=check_fetcher,
    member_timers=consumer_leave.TIMERS.by_name(),
    disconnected=disconnected,
    assignment_computed=consumer_assignment_computed,
    regexes_resolved=consumer_regexes_resolved,
    handlers={
        ConsumerGroupHeartbeatRequest: consumer_heartbeat.heartbeat,
        ConsumerGroupDescribeRequest: describe_consumer_groups,
    },
    cacheable={ConsumerGroupHeartbeatRequest: consumer_heartbeat.cacheable},
    replays=consumer_log.RECORDS.replays,
)


# --- streams ---------------------------------------------------------------------------------------


def _with_classic_members(decide: Decide[StreamsGroup], otherwise: Decide[Any]) -> Decide[StreamsGroup]:
    """Return a handler that applies `decide` to a streams group that has members of the classic protocol.

    To any other streams group it applies `otherwise`, with None in place of the group: such a request of the
    classic protocol is answered as if the group did not exist."""

    def decide_request(group: StreamsGroup, request: Any, context: Context) -> Outcome:
        if group.classic_members:
            return decide(group, request, context)
        return otherwise(None, request, context)

    return decide_request


STREAMS: Final = GroupType(
    name=StreamsGroup.group_type,
    group_class=StreamsGroup,
    protocol_type=lambda group: StreamsGroup.group_type,
    is_empty=lambda group: group.is_empty,
    may_delete=lambda group: group.is_empty,
    subscribes_to=lambda group, topic: group.reads(topic),
    tombstones=streams_log.group_tombstones,
    running_timers=lambda group: (Disarm(delay_key(group.group_id)), Disarm(refresh_key(group.group_id))),
    load=streams_leave.load,
    join=streams_classic_members.join,
    sync=_with_classic_members(streams_classic_members.sync, classic_sync),
    heartbeat=_with_classic_members(streams_classic_members.heartbeat, classic_heartbeat.heartbeat),
    leave=_with_classic_members(streams_classic_members.leave, classic_leave),
    becomes_classic=True,
    check_fetcher=check_fetcher,
    member_timers=streams_leave.TIMERS.by_name(),
    group_timers={"initial-delay": streams_leave.initial_delay_ended, "expressions": refresh_expressions},
    disconnected=disconnected,
    assignment_computed=streams_assignment_computed,
    regexes_resolved=streams_regexes_resolved,
    handlers={
        StreamsGroupHeartbeatRequest: streams_heartbeat.heartbeat,
        StreamsGroupDescribeRequest: describe_streams_groups,
        StreamsGroupTopologyDescriptionUpdateRequest: descriptions.update,
        TopicsNotCreated: lambda groups, event, context: record_creation_failure(
            find_group(groups, event.group_id, StreamsGroup), event, context
        ),
    },
    cacheable={
        HeartbeatRequest: streams_classic_members.cacheable,
        StreamsGroupHeartbeatRequest: streams_heartbeat.cacheable,
    },
    replays=streams_log.RECORDS.replays,
)


# --- share -----------------------------------------------------------------------------------------


def _reject_join(group: ShareGroup, request: JoinGroupRequest, context: Context) -> Outcome:
    return Outcome((Reply(context.waiter, rejected_join(Errors.INCONSISTENT_GROUP_PROTOCOL, "")),))


SHARE: Final = GroupType(
    name=ShareGroup.group_type,
    group_class=ShareGroup,
    protocol_type=lambda group: ShareGroup.group_type,
    is_empty=lambda group: group.is_empty,
    may_delete=lambda group: group.may_delete,
    subscribes_to=lambda group, topic: topic in group.subscribers,
    tombstones=share_log.group_tombstones,
    load=share_leave.load,
    join=_reject_join,
    sync=lambda group, request, context: classic_sync(None, request, context),
    heartbeat=lambda group, request, context: classic_heartbeat.heartbeat(None, request, context),
    leave=lambda group, request, context: classic_leave(None, request, context),
    keeps_offsets=False,
    member_timers={"session": share_leave.TIMERS.session_expired},
    disconnected=disconnected,
    assignment_computed=share_assignment_computed,
    handlers=SHARE_HANDLERS,
    cacheable={ShareGroupHeartbeatRequest: share_cacheable},
    replays=share_log.RECORDS.replays,
)


# --- the table -------------------------------------------------------------------------------------

TYPES: Final[dict[type, GroupType[Any]]] = {
    row.group_class: row for row in (CLASSIC, CONSUMER, STREAMS, SHARE)
}
"""The type of a group, by the group's class."""


def group_type_of(group: Group) -> GroupType[Any]:
    """Return the entry in `TYPES` for the class of this group."""
    return TYPES[type(group)]


def is_empty(group: Group) -> bool:
    """Return whether the group has no members; a classic group must be in state Empty."""
    return TYPES[type(group)].is_empty(group)
