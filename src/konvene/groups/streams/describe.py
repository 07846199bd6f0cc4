"""StreamsGroupDescribe: return the members, assignments and topology of streams groups."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment, TaskOffsets, Tasks
from konvene.groups.modern.group import get_or_throw_group
from konvene.groups.streams.assignors import assignor_of
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology import descriptions
from konvene.groups.streams.topology.configure import describe as described_topology
from konvene.groups.streams.topology.descriptions import NOT_REQUESTED
from konvene.groups.streams.topology.expressions import current_matches, expand_expressions
from konvene.groups.streams.topology.topology import Topology
from konvene.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
    TaskOffset,
)
from konvene.messages.streams_group_describe import Member as DescribedMember
from konvene.messages.streams_group_describe import Topology as DescribedTopology
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError

Groups = Mapping[str, object]


def describe(groups: Groups, request: StreamsGroupDescribeRequest, context: Context) -> Outcome:
    """Return the descriptions of the requested groups; those that are no streams groups have an error."""
    with_description = request.include_topology_description
    described = tuple(
        _described(groups, group_id, context, with_description=with_description)
        for group_id in request.group_ids
    )
    return Outcome((Reply(context.waiter, StreamsGroupDescribeResponse(groups=described)),))


def _described(groups: Groups, group_id: str, context: Context, *, with_description: bool) -> DescribedGroup:
    """Return the description of a group; if it is no streams group, one with an error."""
    try:
        group = get_or_throw_group(groups, group_id, StreamsGroup)
    except GroupError as refused:
        return DescribedGroup(
            group_id=group_id, error_code=Errors.GROUP_ID_NOT_FOUND, error_message=refused.message
        )
    topology = group.topology
    description, status = (
        descriptions.current_description(group) if with_description else (None, NOT_REQUESTED)
    )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if topology is None else _topology(group, topology, context),
        members=tuple(_member(group, member) for member in group.members.values()),
        topology_description=description,
        topology_description_status=status,
        assignor_name=assignor_of(
            context.group_configs.of(group_id), context, topology, map(group.reported.get, group.members)
        ).name,
    )


def _topology(group: StreamsGroup, topology: Topology, context: Context) -> DescribedTopology:
    """Return the topology, with the topics that its expressions match as far as they are resolved."""
    matches = current_matches(topology, group.soft.resolved, context.topics)
    return described_topology(expand_expressions(topology, matches or {}), group.soft.configured)


def _member(group: StreamsGroup, member: Member) -> DescribedMember:
    endpoint = member.user_endpoint
    reported = group.reported_by(member.member_id)
    return DescribedMember(
        member_id=member.member_id,
        member_epoch=member.current.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=tuple(KeyValue(key=key, value=value) for key, value in member.client_tags),
        task_offsets=_offsets(reported.offsets),
        task_end_offsets=_offsets(reported.end_offsets),
        assignment=_assignment(member.current.assigned.tasks),
        target_assignment=_assignment(group.target_of(member.member_id)),
        is_classic=member.classic is not None,
    )


def _assignment(tasks: MemberAssignment) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Tasks) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=name, partitions=tuple(sorted(tasks[name]))) for name in sorted(tasks)
    )


def _offsets(offsets: TaskOffsets) -> tuple[TaskOffset, ...]:
    return tuple(
        TaskOffset(subtopology_id=name, partition=partition, offset=offsets[name][partition])
        for name in sorted(offsets)
        for partition in sorted(offsets[name])
    )
