"""StreamsGroupTopologyDescriptionUpdate: submit a member's topology description to the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import streams_groups_enabled, submit_to_group_coordinator
from konvene.broker.net.authorizer import Authorizer, allow_all
from konvene.errors import Errors
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from konvene.security.resources import Operation, Resource, ResourceType

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
    if not streams_groups_enabled(settings, catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if not authorize(context, Operation.READ, Resource(ResourceType.GROUP, request.group_id)):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    return submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)


def _error_response(error: Errors) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error)
