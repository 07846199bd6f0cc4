"""Conversion between a `Coordinator` value and the records and groups of the production code.

Everything is left out that the next decision does not depend on: times, because the clock stands still;
counts of members, which follow from the members; the causes of a rebalance, except that there are some.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.client.consumer.protocol import CONSUMER
from konvene.codec.schema import Struct
from konvene.groups.classic.group import ClassicGroup, RebalanceTrace
from konvene.groups.classic.group import Member as ClassicMember
from konvene.groups.classic.group import State as GroupState
from konvene.groups.classic.subscriptions import topics_of_generation
from konvene.records.audit import Cause
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.commits import Committed, OffsetCommitted
from konvene.records.coordinator import Record
from konvene.shard import causes
from konvene.sim.model_check.values import (
    CLIENT_HOST,
    CLIENT_ID,
    DISCONNECTED,
    DISCONNECTED_SENDER,
    FIRST_DISCONNECTED_WAITER,
    GROUP,
    JOIN,
    METADATA,
    NO_WAITER,
    NOW_MS,
    PROTOCOL,
    REBALANCE_MS,
    SESSION_MS,
    SYNC,
    TOPIC,
    Coordinator,
    Group,
    Member,
    StoredGroup,
    assignment_bytes,
    build_request,
    instance_name,
    instance_number,
    member_name,
    member_number,
    partition_mask,
    topics,
)

TRACE = RebalanceTrace(NOW_MS, (Cause(kind=causes.UNKNOWN, at_ms=NOW_MS),))
"""Trace of any rebalance: the model only records that there are causes."""


# --- from values to the core -----------------------------------------------------------------------


def stored_records(coordinator: Coordinator) -> Iterable[Record]:
    """Yield the last group metadata record in the coordinator's log, if there is one."""
    stored = coordinator.stored
    if not stored:
        return
    names = {member: member_name(member, instance) for member, instance, _ in stored.members}
    members = tuple(
        MemberMetadata(
            member_id=names[member],
            group_instance_id=instance_name(instance),
            client_id=CLIENT_ID,
            client_host=CLIENT_HOST,
            rebalance_timeout=REBALANCE_MS,
            session_timeout=SESSION_MS,
            subscription=METADATA if stored.has_protocol else b"",
            assignment=assignment_bytes(mask),
        )
        for member, instance, mask in stored.members
    )
    value = GroupMetadataValue(
        protocol_type=CONSUMER if stored.has_protocol_type else "",
        generation=stored.generation,
        protocol=PROTOCOL if stored.has_protocol else None,
        leader=names.get(stored.leader),
        current_state_timestamp=NOW_MS,
        members=members,
    )
    yield Record(GroupMetadataKey(group=GROUP), value)


def offset_records(coordinator: Coordinator) -> Iterable[OffsetCommitted]:
    """Yield the offset record of each partition that has a committed offset."""
    for partition, offset in enumerate(coordinator.offsets):
        if offset >= 0:
            topic_id = topics(1).by_name[TOPIC].id
            yield OffsetCommitted(GROUP, TOPIC, partition, Committed(offset, -1, "", NOW_MS, -1, topic_id))


def live_group(group: Group) -> ClassicGroup:
    """Return the group as an object of the production code, with its pending requests."""
    live = ClassicGroup(GROUP, GroupState(group.state), NOW_MS, group.generation)
    for index, member in enumerate(group.members):
        live.put(_live_member(index, member))
    names = {member.member: member_name(*member[:2]) for member in group.members}
    live.protocol_type = CONSUMER if group.has_protocol_type else None
    live.protocol = PROTOCOL if group.has_protocol else None
    live.leader = names.get(group.leader)
    live.pending_joins = {member_name(member, 0) for member in group.pending_joins}
    live.pending_syncs = {names.get(member) or member_name(member, 0) for member in group.pending_syncs}
    if group.initial_rebalance:
        live.was_empty = True
        added, live.initial_delay_ms, live.initial_remaining_ms = group.initial_rebalance
        live.member_added = bool(added)
    live.trace = TRACE if group.has_trace else None
    live.subscribed = topics_of_generation(live)
    return live


def _live_member(index: int, member: Member) -> ClassicMember:
    return ClassicMember(
        member_name(member.member, member.instance),
        instance_name(member.instance),
        CLIENT_ID,
        CLIENT_HOST,
        REBALANCE_MS,
        SESSION_MS,
        CONSUMER,
        ((PROTOCOL, METADATA),),
        assignment_bytes(member.assignment),
        join_waiter=_waiter_number(index, member.join_waiter),
        sync_waiter=_waiter_number(index, member.sync_waiter),
        joined_ms=NOW_MS,
        is_new=bool(member.is_new),
    )


def _waiter_number(index: int, waiter: int) -> int | None:
    """Return the waiter number to use in the production code; None for `NO_WAITER`. A disconnected waiter
    gets a number that depends on `index`, the position of its member."""
    if waiter == DISCONNECTED:
        return FIRST_DISCONNECTED_WAITER + index
    return None if waiter == NO_WAITER else waiter


def pending_requests(coordinator: Coordinator, partitions: int) -> Iterable[tuple[int, Struct]]:
    """Yield the waiter number of each pending request, with some request of the same API: the next decision
    does not depend on its fields."""
    for index, member in enumerate(coordinator.group.members if coordinator.group else ()):
        for waiter, request in (
            (member.join_waiter, (JOIN, 0, 0)),
            (member.sync_waiter, (SYNC, 0, 0, 0, ())),
        ):
            number = _waiter_number(index, waiter)
            if number is not None:
                yield number, build_request(request, partitions)


# --- from the core to values -----------------------------------------------------------------------


def compact_group(live: ClassicGroup) -> Group:
    """Return the compact value of a group: everything that its next decisions depend on."""
    is_initial = live.was_empty and live.state is GroupState.PREPARING_REBALANCE
    members = tuple(
        Member(
            member_number(m.member_id),
            instance_number(m.instance_id),
            partition_mask(m.assignment),
            _waiter(m.join_waiter),
            _waiter(m.sync_waiter),
            int(m.is_new),
        )
        for m in live.members.values()
    )
    return Group(
        state=str(live.state),
        generation=live.generation,
        leader=member_number(live.leader),
        members=members,
        pending_joins=tuple(sorted(map(member_number, live.pending_joins))),
        pending_syncs=tuple(sorted(map(member_number, live.pending_syncs))),
        initial_rebalance=(int(live.member_added), live.initial_delay_ms, live.initial_remaining_ms)
        if is_initial
        else (),
        has_trace=int(live.trace is not None),
        has_protocol=int(live.protocol is not None),
        has_protocol_type=int(live.protocol_type is not None),
    )


def _waiter(waiter: int | None) -> int:
    if waiter is None:
        return NO_WAITER
    return DISCONNECTED if waiter >= DISCONNECTED_SENDER else waiter


def compact_stored(replayed: ClassicGroup) -> StoredGroup:
    """Return the compact value of a group's record, from the group as it was replayed from the log."""
    return StoredGroup(
        replayed.generation,
        member_number(replayed.leader),
        int(replayed.protocol is not None),
        int(replayed.protocol_type is not None),
        tuple(
            (member_number(m.member_id), instance_number(m.instance_id), partition_mask(m.assignment))
            for m in replayed.members.values()
        ),
    )
