"""How groups are listed, described and deleted: what the APIs, the CLI and pages show of them."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.errors import Errors
from konvene.groups.classic import log
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.groups.offsets.committed import OffsetCommitted, Offsets, forget
from konvene.messages.delete_groups import DeletableGroupResult
from konvene.messages.describe_groups import DescribedGroup, DescribedGroupMember
from konvene.messages.list_groups import ListedGroup
from konvene.records.coordinator import Record

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6
CLASSIC = "classic"


def listed(
    groups: Mapping[str, ClassicGroup], states: tuple[str, ...], types: tuple[str, ...]
) -> tuple[ListedGroup, ...]:
    """The groups in the given states and of the given types; all of them where none is given."""
    wanted_states = {s.lower() for s in states}
    wanted_types = {t.lower() for t in types}
    if wanted_types and CLASSIC not in wanted_types:
        return ()
    return tuple(
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state,
            group_type=CLASSIC,
        )
        for group in groups.values()
        if not wanted_states or group.state.lower() in wanted_states
    )


def described(group_id: str, group: ClassicGroup | None, version: int) -> DescribedGroup:
    """A group as DescribeGroups tells it. What is not there is Dead."""
    if group is None:
        if version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
            return DescribedGroup(group_id=group_id, group_state=State.DEAD)
        return DescribedGroup(
            group_id=group_id,
            group_state=State.DEAD,
            error_code=Errors.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} not found.",
        )
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=tuple(_member(m, group.protocol if stable else None) for m in group.members.values()),
    )


def _member(member: Member, protocol: str | None) -> DescribedGroupMember:
    """Metadata is told of stable groups only; the assignment is the last one that was handed out."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol else b"",
        member_assignment=member.assignment,
    )


def deleted(
    group_id: str, group: ClassicGroup | None, offsets: Offsets
) -> tuple[DeletableGroupResult, tuple[OffsetCommitted | Record, ...]]:
    """Whether a group may be deleted, and the tombstones of its offsets and of itself."""
    if group is None:
        return DeletableGroupResult(group_id=group_id, error_code=Errors.GROUP_ID_NOT_FOUND), ()
    if group.state is not State.EMPTY:
        return DeletableGroupResult(group_id=group_id, error_code=Errors.NON_EMPTY_GROUP), ()
    return DeletableGroupResult(group_id=group_id), (*forget(group_id, offsets), log.tombstone(group_id))
