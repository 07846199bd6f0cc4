"""DeleteShareGroupOffsets: an empty share group forgets topics, whole.

Topics that the client may not read are told so first; the group's coordinator decides about the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import share_groups_are_on
from konvene.broker.net.authorizer import Authorizer, Operation, Resource, ResourceType, allow_all
from konvene.errors import MESSAGES, Errors
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.shares.background_work import ShareStateWork
    from konvene.runtime.coordinator import RequestContext

HIDDEN = Errors.TOPIC_AUTHORIZATION_FAILED


async def handle(
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_state_work: ShareStateWork,
    request: DeleteShareGroupOffsetsRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> DeleteShareGroupOffsetsResponse:
    if not share_groups_are_on(catalogue):
        return _refused(Errors.UNSUPPORTED_VERSION)
    if not authorize(context, Operation.DELETE, Resource(ResourceType.GROUP, request.group_id)):
        return _refused(Errors.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id.strip():
        return _refused(Errors.INVALID_GROUP_ID)
    coordinator = groups.of(request.group_id)
    if coordinator is None:
        return _refused(Errors.NOT_COORDINATOR)
    hidden = {
        topic.topic_name: None
        for topic in request.topics
        if not authorize(context, Operation.READ, Resource(ResourceType.TOPIC, topic.topic_name))
    }
    seen = request.replace(topics=tuple(t for t in request.topics if t.topic_name not in hidden))
    answer = await share_state_work.delete_offsets(coordinator, seen, context)
    if isinstance(answer, Errors):
        return _refused(answer)
    if not hidden or answer.error_code:
        return answer
    told = tuple(
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=HIDDEN, error_message=MESSAGES[HIDDEN]
        )
        for name in hidden
    )
    return answer.replace(responses=(*told, *answer.responses))


def _refused(error: Errors) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=MESSAGES.get(error))
