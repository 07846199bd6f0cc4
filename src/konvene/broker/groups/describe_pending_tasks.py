"""Adds rebalance details of streams groups to StreamsGroupDescribe responses, as a tagged field.

The field has the tasks that members have to revoke, the limits of warm-up tasks, the members that report no
task offsets, and the cost of the target assignment by tags and racks. Only responses to requests that contain
the tag have the field.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from konvene.broker.groups.tagged_fields import add_tagged_field
from konvene.groups.streams.assignors import read_configs
from konvene.groups.streams.current_assignment import Epochs, OwnedTasks
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.racks import group_cost
from konvene.messages.streams_extensions import (
    STREAMS_EXTENSION,
    PendingTaskRevocations,
    PlacementCost,
    StreamsExtension,
)
from konvene.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest, TaskIds

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.groups.assignors.tasks.contract import Tasks


def with_streams_extension(
    settings: BrokerSettings,
    groups: GroupCoordinators,
    request: StreamsGroupDescribeRequest,
    described: list[DescribedGroup],
) -> list[DescribedGroup]:
    """Add the rebalance details to groups described without error, if the request has the tag."""
    return add_tagged_field(
        STREAMS_EXTENSION, request, described, lambda group_id: _extension(settings, groups, group_id)
    )


def _extension(settings: BrokerSettings, groups: GroupCoordinators, group_id: str) -> StreamsExtension:
    group = groups.find(group_id)
    if not isinstance(group, StreamsGroup):
        return StreamsExtension()
    pending = ((m.member_id, m.current.pending_revocation) for m in group.members.values())
    config = settings.group_configs.of(group_id)
    return StreamsExtension(
        members=tuple(_pending_revocations(member_id, tasks) for member_id, tasks in pending if tasks),
        acceptable_recovery_lag=config["streams.acceptable.recovery.lag"],
        num_warmup_replicas=config["streams.num.warmup.replicas"],
        not_reporting=tuple(name for name in group.members if reports_no_offsets(group, name)),
        placement=_placement(group),
    )


def _placement(group: StreamsGroup) -> tuple[PlacementCost, ...]:
    cost = group_cost(group)
    if cost is None:
        return ()
    tags = read_configs(group.assignment_configs).rack_aware_assignment_tags
    return (PlacementCost(rack_aware_assignment_tags=tags, **asdict(cost)),)


def reports_no_offsets(group: StreamsGroup, member_id: str) -> bool:
    """Return True if the member's heartbeats have no task offsets; False also before its first one."""
    reported = group.reported.get(member_id)
    return reported is not None and not reported.reports


def _pending_revocations(member_id: str, tasks: OwnedTasks) -> PendingTaskRevocations:
    return PendingTaskRevocations(
        member_id=member_id,
        pending_active=_task_ids(tasks.active),
        pending_standby=_task_ids(tasks.standby),
        pending_warmup=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Tasks | Epochs) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=name, partitions=tuple(sorted(tasks[name]))) for name in sorted(tasks)
    )
