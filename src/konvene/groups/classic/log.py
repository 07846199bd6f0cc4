"""The record of a classic group: GroupMetadata (version 3, as Kafka 4.4 writes it).

It is written when the group is created or converted, when it becomes stable or empty, and when a static
member rejoins under a new member id; a tombstone is written when the group is deleted. Of each member's
protocols it has only the selected one, so after a restart members support no other until they rejoin.
"""

from __future__ import annotations

from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.groups.classic.subscriptions import STREAM, topics_of_generation
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.coordinator import Record

REBALANCE_DUE_MS = -2
"""The state timestamp of a group that has to rebalance when it is loaded: no member would start it."""


def to_record(group: ClassicGroup) -> Record:
    """Return the record of the group."""
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
    """Return the group that a record describes, in state Stable if it has members, else Empty."""
    group = ClassicGroup(
        group_id,
        State.STABLE if value.members else State.EMPTY,
        value.current_state_timestamp,
        value.generation,
        protocol=value.protocol,
    )
    for m in value.members:
        # Version 0 has no rebalance timeout: it is the session timeout, as in Kafka.
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
    # Only groups that were streams groups accept earlier epochs: Kafka accepts none after a downgrade.
    group.accepts_earlier_epochs = (
        value.current_state_timestamp == REBALANCE_DUE_MS and value.protocol == STREAM
    )
    group.protocol_type = value.protocol_type or None
    group.leader = value.leader
    group.subscribed = topics_of_generation(group)
    return group
