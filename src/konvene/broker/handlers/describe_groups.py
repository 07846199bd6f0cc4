"""DescribeGroups: describe classic groups, each by its own coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.describe_heartbeats import with_extension
from konvene.broker.handlers.group_permissions import permits_group
from konvene.errors import Errors
from konvene.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from konvene.security.resources import Operation, group

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    heartbeat_purgatory: HeartbeatPurgatory,
    groups: GroupCoordinators,
    request: DescribeGroupsRequest,
    context: RequestContext,
) -> DescribeGroupsResponse:
    denied: list[DescribedGroup] = []
    described: list[DescribedGroup] = []
    for group_id in request.groups:
        if not permits_group(authorization, context, Operation.DESCRIBE, group_id):
            denied.append(DescribedGroup(group_id=group_id, error_code=Errors.GROUP_AUTHORIZATION_FAILED))
            continue
        coordinator = groups.of(group_id)
        result = (
            await coordinator.submit(DescribeGroupsRequest(groups=(group_id,)), context)
            if coordinator is not None
            else Errors.NOT_COORDINATOR
        )
        if isinstance(result, Errors):
            described.append(DescribedGroup(group_id=group_id, error_code=result))
            continue
        assert isinstance(result, DescribeGroupsResponse)
        described += result.groups
    if request.include_authorized_operations:
        described = [
            g.replace(authorized_operations=authorization.operations(context, group(g.group_id)))
            if g.error_code == Errors.NONE
            else g
            for g in described
        ]
    return DescribeGroupsResponse(
        groups=(*denied, *with_extension(settings, heartbeat_purgatory, groups, request, described))
    )
