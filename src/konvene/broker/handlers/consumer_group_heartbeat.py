"""ConsumerGroupHeartbeat: the group's coordinator decides, and words its refusals itself.

What is decided here is who may ask at all: the protocol has to be on, and a client that may not see one of
the topics that it names is told so, as by Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import ask, consumer_groups_are_on
from konvene.broker.net.authorizer import Authorizer, allow_all, denied
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer
    from konvene.runtime.environment import Environment

CONSUMER_GROUP_HEARTBEAT = 68


def handle(
    environment: Environment,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> Answer[ConsumerGroupHeartbeatResponse]:
    if not consumer_groups_are_on(settings, catalogue):
        return _refused(Errors.UNSUPPORTED_VERSION)
    if authorize is not allow_all:
        for resource in denied(catalogue.topics, CONSUMER_GROUP_HEARTBEAT, request, context, authorize):
            return _refused(resource.authorization_failed)
    if not request.member_id:
        context = context._replace(fresh_ids=environment.fresh_ids(1))
    if request.member_epoch >= 0:
        groups.heartbeat_received(
            request.group_id, request.member_id or context.fresh_ids[0], context.connection
        )
    return ask(groups, request.group_id, request, context, _refused)


def _refused(error: Errors) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error)
