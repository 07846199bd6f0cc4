"""AlterShareGroupOffsets: where an empty share group begins to read.

Topics that the client may not read, or that are not there, are told so first; the group's coordinator decides
about the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import share_groups_are_on
from konvene.broker.handlers.share_group_limit import NO_ROOM, has_room
from konvene.broker.net.authorizer import Authorizer, Operation, Resource, ResourceType, allow_all
from konvene.errors import MESSAGES, Errors
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.background_work import ShareStateWork
    from konvene.runtime.coordinator import RequestContext


async def handle(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_state_work: ShareStateWork,
    request: AlterShareGroupOffsetsRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> AlterShareGroupOffsetsResponse:
    if not share_groups_are_on(catalogue):
        return _refused(Errors.UNSUPPORTED_VERSION)
    if not authorize(context, Operation.READ, Resource(ResourceType.GROUP, request.group_id)):
        return _refused(Errors.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refused(Errors.INVALID_GROUP_ID)
    hidden = {
        topic.topic_name
        for topic in request.topics
        if not authorize(context, Operation.READ, Resource(ResourceType.TOPIC, topic.topic_name))
    }
    coordinator = groups.of(request.group_id)
    if coordinator is None:
        return _refused(Errors.NOT_COORDINATOR)
    if not has_room(settings, groups, request.group_id):
        return _refused(Errors.GROUP_MAX_SIZE_REACHED, NO_ROOM)
    seen = request.replace(topics=tuple(t for t in request.topics if t.topic_name not in hidden))
    answer = await share_state_work.alter(coordinator, seen, context)
    if isinstance(answer, Errors):
        return _refused(answer)
    if not hidden or answer.error_code:
        return answer
    return answer.replace(responses=(*_hidden(catalogue, request, hidden), *answer.responses))


def _hidden(
    catalogue: ClusterCatalogue, request: AlterShareGroupOffsetsRequest, hidden: set[str]
) -> list[AlterShareGroupOffsetsResponseTopic]:
    known = catalogue.topics.by_name
    answers = []
    for topic in request.topics:
        if topic.topic_name not in hidden:
            continue
        told = AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            partitions=tuple(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=p.partition_index,
                    error_code=Errors.TOPIC_AUTHORIZATION_FAILED,
                    error_message=MESSAGES[Errors.TOPIC_AUTHORIZATION_FAILED],
                )
                for p in topic.partitions
            ),
        )
        if topic.topic_name in known:
            told = told.replace(topic_id=known[topic.topic_name].id)
        answers.append(told)
    return answers


def _refused(error: Errors, why: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=why or MESSAGES.get(error))
