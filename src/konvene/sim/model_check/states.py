"""A coordinator's small value made real, and read back.

What is left out is what the next decision does not depend on: times (the clock stands still), what is counted
of members (an invariant counts again), what is only told (of causes it is kept that there are some).
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.client.consumer.protocol import CONSUMER
from konvene.codec.schema import Struct
from konvene.groups.classic.group import ClassicGroup, Member, RebalanceTrace
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
    GHOST,
    GROUP,
    JOIN,
    METADATA,
    NO_WAITER,
    NOBODY,
    NOW_MS,
    PROTOCOL,
    REBALANCE_MS,
    SEATS_GHOST,
    SESSION_MS,
    SYNC,
    TOPIC,
    Coordinator,
    Group,
    Seat,
    Stored,
    bits,
    bits_of,
    instance_name,
    instance_number,
    member_name,
    member_number,
    real_request,
    topics,
)

STORY = RebalanceTrace(NOW_MS, (Cause(kind=causes.UNKNOWN, at_ms=NOW_MS),))
"""That there are causes, whichever."""


# --- a coordinator's value, made real --------------------------------------------------------------


def stored_records(coordinator: Coordinator) -> Iterable[Record]:
    """The last record of the group, if there is one."""
    stored = coordinator.stored
    if not stored:
        return
    names = {member: member_name(member, instance) for member, instance, _ in stored.seats}
    members = tuple(
        MemberMetadata(
            member_id=names[member],
            group_instance_id=instance_name(instance),
            client_id=CLIENT_ID,
            client_host=CLIENT_HOST,
            rebalance_timeout=REBALANCE_MS,
            session_timeout=SESSION_MS,
            subscription=METADATA if stored.has_protocol else b"",
            assignment=bits(given),
        )
        for member, instance, given in stored.seats
    )
    value = GroupMetadataValue(
        protocol_type=CONSUMER if stored.has_type else "",
        generation=stored.generation,
        protocol=PROTOCOL if stored.has_protocol else None,
        leader=names.get(stored.leader),
        current_state_timestamp=NOW_MS,
        members=members,
    )
    yield Record(GroupMetadataKey(group=GROUP), value)


def offset_records(coordinator: Coordinator) -> Iterable[OffsetCommitted]:
    """The last record of each partition."""
    for partition, offset in enumerate(coordinator.offsets):
        if offset >= 0:
            topic_id = topics(1).by_name[TOPIC].id
            yield OffsetCommitted(GROUP, TOPIC, partition, Committed(offset, -1, "", NOW_MS, -1, topic_id))


def live_group(group: Group) -> ClassicGroup:
    """The group as the core has it, waiting room included."""
    live = ClassicGroup(GROUP, GroupState(group.state), NOW_MS, group.generation)
    for at, seat in enumerate(group.seats):
        live.put(_live_member(at, seat))
    names = {seat.member: member_name(*seat[:2]) for seat in group.seats}
    live.protocol_type = CONSUMER if group.has_type else None
    live.protocol = PROTOCOL if group.has_protocol else None
    live.leader = names.get(group.leader)
    live.pending_joins = {member_name(member, 0) for member in group.handed_out}
    live.pending_syncs = {names.get(member) or member_name(member, 0) for member in group.to_sync}
    if group.first:
        live.was_empty = True
        added, live.initial_delay_ms, live.initial_remaining_ms = group.first
        live.member_added = bool(added)
    live.trace = STORY if group.has_story else None
    live.subscribed = topics_of_generation(live)
    return live


def _live_member(at: int, seat: Seat) -> Member:
    return Member(
        member_name(seat.member, seat.instance),
        instance_name(seat.instance),
        CLIENT_ID,
        CLIENT_HOST,
        REBALANCE_MS,
        SESSION_MS,
        CONSUMER,
        ((PROTOCOL, METADATA),),
        bits(seat.given),
        join_waiter=_number(at, seat.joins),
        sync_waiter=_number(at, seat.syncs),
        joined_ms=NOW_MS,
        is_new=bool(seat.is_new),
    )


def _number(at: int, waiter: int) -> int | None:
    """The number of a waiter; those whom nobody hears have one each, by the seat."""
    if waiter == NOBODY:
        return SEATS_GHOST + at
    return None if waiter == NO_WAITER else waiter


def waiting(coordinator: Coordinator, partitions: int) -> Iterable[tuple[int, Struct]]:
    """Who waits, and what about."""
    for at, seat in enumerate(coordinator.group.seats if coordinator.group else ()):
        for waiter, asked in ((seat.joins, (JOIN, 0, 0)), (seat.syncs, (SYNC, 0, 0, 0, ()))):
            number = _number(at, waiter)
            if number is not None:
                yield number, real_request(asked, partitions)


# --- and read back ---------------------------------------------------------------------------------


def small_group(live: ClassicGroup) -> Group:
    """What of a group its next decisions depend on. Counts follow from members, and an invariant counts."""
    first = live.was_empty and live.state is GroupState.PREPARING_REBALANCE
    seats = tuple(
        Seat(
            member_number(m.member_id),
            instance_number(m.instance_id),
            bits_of(m.assignment),
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
        seats=seats,
        handed_out=tuple(sorted(map(member_number, live.pending_joins))),
        to_sync=tuple(sorted(map(member_number, live.pending_syncs))),
        first=(int(live.member_added), live.initial_delay_ms, live.initial_remaining_ms) if first else (),
        has_story=int(live.trace is not None),
        has_protocol=int(live.protocol is not None),
        has_type=int(live.protocol_type is not None),
    )


def _waiter(waiter: int | None) -> int:
    if waiter is None:
        return NO_WAITER
    return NOBODY if waiter >= GHOST else waiter


def small_stored(told: ClassicGroup) -> Stored:
    """What of a group is in the log."""
    return Stored(
        told.generation,
        member_number(told.leader),
        int(told.protocol is not None),
        int(told.protocol_type is not None),
        tuple(
            (member_number(m.member_id), instance_number(m.instance_id), bits_of(m.assignment))
            for m in told.members.values()
        ),
    )
