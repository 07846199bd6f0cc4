"""ConsumerGroupHeartbeat: admit the heartbeat of a consumer group member and submit it to the coordinator.

A heartbeat is admitted if the consumer protocol is enabled and the client is authorized for the group and for
every topic that the request names, as in Kafka. The coordinator builds all other error responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group, permits_topics
from konvene.broker.handlers.group_requests import consumer_groups_enabled, submit_to_group_coordinator
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer
    from konvene.runtime.environment import Environment


def handle(
    environment: Environment,
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
) -> Answer[ConsumerGroupHeartbeatResponse]:
    if not consumer_groups_enabled(settings, catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if authorization.is_enabled:
        if not permits_group(authorization, context, Operation.READ, request.group_id):
            return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
        if not permits_topics(authorization, context, request.subscribed_topic_names or ()):
            return _error_response(Errors.TOPIC_AUTHORIZATION_FAILED)
    if not request.member_id:
        context = context._replace(fresh_ids=environment.fresh_ids(1))
    if request.member_epoch >= 0:
        groups.heartbeat_received(
            request.group_id, request.member_id or context.fresh_ids[0], context.connection
        )
    return submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)


def _error_response(error: Errors) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error)
