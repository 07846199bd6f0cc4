"""What members of a streams group have yet to give up, for who asks for it with the group's description; and
what warm-ups are measured by: how near is near enough, how many there may be, and who says nothing of any;
and what the group's target costs by tags and racks."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from konvene.codec.compile import encode
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.groups.streams.assignors import read_configs
from konvene.groups.streams.current_assignment import Epochs, Held
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


def with_streams_notes(
    settings: BrokerSettings,
    groups: GroupCoordinators,
    request: StreamsGroupDescribeRequest,
    described: list[DescribedGroup],
) -> list[DescribedGroup]:
    """The same groups; with a note on each that could be described, if the request has the tag."""
    if all(tag != STREAMS_EXTENSION for tag, _ in request.unknown_tags):
        return described
    return [
        group.replace(
            unknown_tags=((STREAMS_EXTENSION, encode(_notes(settings, groups, group.group_id), 0)),)
        )
        if group.error_code == Errors.NONE
        else group
        for group in described
    ]


def _notes(settings: BrokerSettings, groups: GroupCoordinators, group_id: str) -> StreamsExtension:
    coordinator = groups.of(group_id)
    shard = coordinator.core if coordinator is not None else None
    group = shard.groups.get(group_id) if isinstance(shard, GroupShard) else None
    if not isinstance(group, StreamsGroup):
        return StreamsExtension()
    owing = ((m.member_id, m.current.pending_revocation) for m in group.members.values())
    config = settings.group_configs.of(group_id)
    return StreamsExtension(
        members=tuple(_note(member_id, owed) for member_id, owed in owing if owed),
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
    """Whether a member is known not to say how far its tasks are. Of whom nothing is known, it may."""
    said = group.reported.get(member_id)
    return said is not None and not said.reports


def _note(member_id: str, owed: Held) -> PendingTaskRevocations:
    return PendingTaskRevocations(
        member_id=member_id,
        pending_active=_rows(owed.active),
        pending_standby=_rows(owed.standby),
        pending_warmup=_rows(owed.warmup),
    )


def _rows(tasks: Tasks | Epochs) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=name, partitions=tuple(sorted(tasks[name]))) for name in sorted(tasks)
    )
