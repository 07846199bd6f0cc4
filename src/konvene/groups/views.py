"""ListGroups, DescribeGroups and DeleteGroups, for groups of any type."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.groups.group_type import Group, group_type_of
from konvene.groups.offsets.committed import OffsetCommitted, Offsets, tombstones
from konvene.groups.offsets.pending import PendingOffsets
from konvene.messages.delete_groups import DeletableGroupResult
from konvene.messages.describe_groups import DescribedGroup, DescribedGroupMember
from konvene.messages.list_groups import ListedGroup
from konvene.records.coordinator import Record

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6


def listed(
    groups: Mapping[str, Group], states: tuple[str, ...], types: tuple[str, ...]
) -> tuple[ListedGroup, ...]:
    """Return the groups in the given states and of the given types; an empty filter admits all."""
    wanted_states = {_normalized(s) for s in states}
    wanted_types = {t.lower() for t in types}
    return tuple(
        ListedGroup(
            group_id=group.group_id,
            protocol_type=row.protocol_type(group),
            group_state=group.state,
            group_type=row.name,
        )
        for group in groups.values()
        for row in (group_type_of(group),)
        if not wanted_states or _normalized(group.state) in wanted_states
        if not wanted_types or row.name in wanted_types
    )


def _normalized(state: str) -> str:
    """Return a state's name in lower case and without underscores, to compare it.

    Kafka 4.4 matches the state NotReady of streams groups by NOT_READY alone."""
    return state.lower().replace("_", "")


def described(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """Return the description of a classic group.

    A group that is missing or of another type is described as Dead; from version 6 on with an error."""
    if not isinstance(group, ClassicGroup):
        if version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
            return DescribedGroup(group_id=group_id, group_state=State.DEAD)
        return DescribedGroup(
            group_id=group_id,
            group_state=State.DEAD,
            error_code=Errors.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} "
            + ("not found." if group is None else "is not a classic group."),
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
    """Return the description of a member, with the assignment that was distributed last.

    `protocol`: the group's assignor, whose metadata is returned; None unless the group is Stable."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol else b"",
        member_assignment=member.assignment,
    )


def deleted(
    group_id: str, group: Group | None, offsets: Offsets, pending: PendingOffsets
) -> tuple[DeletableGroupResult, tuple[OffsetCommitted | Record, ...]]:
    """Return the result of deleting a group, and the tombstones of its offsets and of the group itself.

    There are no tombstones if the group may not be deleted. `pending`: offsets of open transactions."""
    if group is None:
        return DeletableGroupResult(group_id=group_id, error_code=Errors.GROUP_ID_NOT_FOUND), ()
    row = group_type_of(group)
    if not row.may_delete(group):
        return DeletableGroupResult(group_id=group_id, error_code=Errors.NON_EMPTY_GROUP), ()
    return DeletableGroupResult(group_id=group_id), (
        *tombstones(group_id, offsets, pending),
        *row.tombstones(group),
    )
