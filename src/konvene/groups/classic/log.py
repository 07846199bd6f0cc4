"""The record in which a classic group survives: GroupMetadata (version 3, as Kafka 4.4 writes it).

Written when the group becomes stable, when it becomes empty, when it is first heard of, and when a static
member comes back under a new member id; a tombstone when it is deleted. Of a member's protocols only the
chosen one's metadata is kept, so after a restart each member votes for that one alone until it rejoins.
"""

from __future__ import annotations

from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.groups.classic.subscriptions import STREAM, topics_of_generation
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.coordinator import Record

REBALANCE_DUE_MS = -2
"""The state's timestamp of a group with members that has yet to rebalance: nobody that is in it would ask."""


def to_record(group: ClassicGroup) -> Record:
    """The group as the log keeps it."""
    members = tuple(
        MemberMetadata(
            member_id=m.member_id,
            group_instance_id=m.instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            rebalance_timeout=m.rebalance_timeout_ms,
            session_timeout=m.session_timeout_ms,
            subscription=m.metadata(group.protocol),
            assignment=m.assignment,
        )
        for m in group.members.values()
    )
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )
    return Record(GroupMetadataKey(group=group.group_id), value)


def tombstone(group_id: str) -> Record:
    return Record(GroupMetadataKey(group=group_id), None)


def from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group as it is after a restart: stable where it has members, else empty."""
    group = ClassicGroup(
        group_id,
        State.STABLE if value.members else State.EMPTY,
        value.current_state_timestamp,
        value.generation,
        protocol=value.protocol,
    )
    for m in value.members:
        # Version 0 has no rebalance timeout of its own: the session's stands for it, as in Kafka.
        rebalance_timeout_ms = m.rebalance_timeout if m.rebalance_timeout != -1 else m.session_timeout
        member = Member(
            member_id=m.member_id,
            instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=m.session_timeout,
            protocol_type=value.protocol_type,
            protocols=((value.protocol or "", m.subscription),),
            assignment=m.assignment,
        )
        group.put(member)
    # Of consumer groups that went back, Apache Kafka hears no earlier epochs.
    group.hears_earlier = value.current_state_timestamp == REBALANCE_DUE_MS and value.protocol == STREAM
    group.protocol_type = value.protocol_type or None
    group.leader = value.leader
    group.subscribed = topics_of_generation(group)
    return group
