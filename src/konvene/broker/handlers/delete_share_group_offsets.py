"""DeleteShareGroupOffsets: delete the offsets of whole topics from an empty share group.

Topics that the client may not read are rejected here and come first in the response. The group's coordinator
decides about the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import share_groups_enabled
from konvene.errors import MESSAGES, Errors
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.background_work import ShareStateWork
    from konvene.runtime.coordinator import RequestContext

TOPIC_DENIED = Errors.TOPIC_AUTHORIZATION_FAILED


async def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_state_work: ShareStateWork,
    request: DeleteShareGroupOffsetsRequest,
    context: RequestContext,
) -> DeleteShareGroupOffsetsResponse:
    if not share_groups_enabled(catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if not permits_group(authorization, context, Operation.DELETE, request.group_id):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id.strip():
        return _error_response(Errors.INVALID_GROUP_ID)
    coordinator = groups.of(request.group_id)
    if coordinator is None:
        return _error_response(Errors.NOT_COORDINATOR)
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    readable = authorization.permitted_topics(context, Operation.READ, names)
    denied = [name for name in names if name not in readable]
    permitted = request.replace(topics=tuple(t for t in request.topics if t.topic_name not in denied))
    response = await share_state_work.delete_offsets(coordinator, permitted, context)
    if isinstance(response, Errors):
        return _error_response(response)
    if not denied or response.error_code:
        return response
    denied_results = tuple(
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=TOPIC_DENIED, error_message=MESSAGES[TOPIC_DENIED]
        )
        for name in denied
    )
    return response.replace(responses=(*denied_results, *response.responses))


def _error_response(error: Errors) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=MESSAGES.get(error))
