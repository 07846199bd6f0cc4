"""StreamsGroupTopologyDescriptionUpdate: the group's coordinator decides, and words its refusals itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import ask, streams_groups_are_on
from konvene.broker.net.authorizer import Authorizer, Operation, Resource, ResourceType, allow_all
from konvene.errors import Errors
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> Answer[StreamsGroupTopologyDescriptionUpdateResponse]:
    if not streams_groups_are_on(settings, catalogue):
        return _refused(Errors.UNSUPPORTED_VERSION)
    if not authorize(context, Operation.READ, Resource(ResourceType.GROUP, request.group_id)):
        return _refused(Errors.GROUP_AUTHORIZATION_FAILED)
    return ask(groups, request.group_id, request, context, _refused)


def _refused(error: Errors) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error)
