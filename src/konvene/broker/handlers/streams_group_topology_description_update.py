"""StreamsGroupTopologyDescriptionUpdate: the group's coordinator decides, and words its refusals itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.group_requests import ask, streams_groups_are_on
from konvene.broker.net.authorizer import Allows, Operation, Resource, ResourceType, allows
from konvene.errors import Errors
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


def handle(
    broker: Broker,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
    call: Call,
    *,
    asked: Allows = allows,
) -> Any:
    if not streams_groups_are_on(broker):
        return _refused(Errors.UNSUPPORTED_VERSION)
    if not asked(call, Operation.READ, Resource(ResourceType.GROUP, request.group_id)):
        return _refused(Errors.GROUP_AUTHORIZATION_FAILED)
    return ask(broker, request.group_id, request, call, _refused)


def _refused(error: Errors) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error)
