"""StreamsGroupTopologyDescriptionUpdate: submit a member's topology description to the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import streams_groups_enabled, submit_to_group_coordinator
from konvene.errors import Errors
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
    context: RequestContext,
) -> Answer[StreamsGroupTopologyDescriptionUpdateResponse]:
    if not streams_groups_enabled(settings, catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    return submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)


def _error_response(error: Errors) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error)
