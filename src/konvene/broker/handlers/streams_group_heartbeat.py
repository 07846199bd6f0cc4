"""StreamsGroupHeartbeat: the group's coordinator decides, and words its refusals itself.

What is decided here is who may ask at all: the protocol has to be on, a topology may not name topics of the
broker's own or what is no name of a topic, and a client that may not see one of its topics is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import ask, streams_groups_are_on
from konvene.broker.net.authorizer import Authorizer, Operation, Resource, ResourceType, allow_all
from konvene.errors import Errors
from konvene.groups.streams.validate import check_names, named_topics
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from konvene.shard.errors import GroupError

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
    request: StreamsGroupHeartbeatRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> Answer[StreamsGroupHeartbeatResponse]:
    if not streams_groups_are_on(settings, catalogue):
        return _refused(Errors.UNSUPPORTED_VERSION)
    if not authorize(context, Operation.READ, Resource(ResourceType.GROUP, request.group_id)):
        return _refused(Errors.GROUP_AUTHORIZATION_FAILED)
    if request.topology is not None:
        try:
            check_names(request)
        except GroupError as refused:
            return _refused(refused.error, refused.message)
        for topic in named_topics(request) if authorize is not allow_all else ():
            if not authorize(context, Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic)):
                return _refused(Errors.TOPIC_AUTHORIZATION_FAILED)
    if request.member_epoch >= 0:
        groups.heartbeat_received(request.group_id, request.member_id, context.connection)
    return ask(groups, request.group_id, request, context, _refused)


def _refused(error: Errors, why: str | None = None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error, error_message=why)
