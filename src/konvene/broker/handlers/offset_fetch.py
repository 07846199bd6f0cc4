"""OffsetFetch: return the committed offsets of one group, or since version 8 of several.

Coordinators receive the form with several groups; older requests and their responses are converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group, requested_name, split_by_permission
from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.errors import Errors
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from konvene.runtime.deferred import Answer, Deferred, then, value_of
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: OffsetFetchRequest,
    context: RequestContext,
) -> Answer[OffsetFetchResponse]:
    def fetch(group: OffsetFetchRequestGroup) -> OffsetFetchResponse | Deferred[OffsetFetchResponse]:
        if authorization.is_enabled:
            return _fetch_permitted(authorization, catalogue, groups, group, request.require_stable, context)
        return _fetch(groups, group, request.require_stable, context)

    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        if len(request.groups) == 1:
            return fetch(request.groups[0])
        return _fetch_all(fetch, request.groups)
    topics = None
    if request.topics is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes)
            for t in request.topics
        )
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    return then(fetch(group), _single_group_response)


def _fetch_permitted(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    context: RequestContext,
) -> OffsetFetchResponse | Deferred[OffsetFetchResponse]:
    """Fetch the offsets of the topics that the client may describe.

    A requested topic that it may not describe has an error; in a response with all topics it is left out."""
    if not permits_group(authorization, context, Operation.DESCRIBE, group.group_id):
        return _error_response(group, Errors.GROUP_AUTHORIZATION_FAILED, context.api_version)
    if group.topics is None:

        def hide_denied(response: OffsetFetchResponse) -> OffsetFetchResponse:
            fetched = response.groups[0]
            visible, _ = split_by_permission(
                authorization, context, Operation.DESCRIBE, fetched.topics, lambda topic: topic.name
            )
            return response.replace(groups=(fetched.replace(topics=visible),))

        return then(_fetch(groups, group, require_stable, context), hide_denied)
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    permitted, denied = split_by_permission(
        authorization,
        context,
        Operation.DESCRIBE,
        group.topics,
        lambda topic: requested_name(catalogue.topics, topic.name, topic.topic_id, by_id=by_id),
    )
    if not denied:
        return _fetch(groups, group, require_stable, context)
    rejected = tuple(_topic_error(topic, Errors.TOPIC_AUTHORIZATION_FAILED) for topic in denied)

    def add_rejected(response: OffsetFetchResponse) -> OffsetFetchResponse:
        fetched = response.groups[0]
        if fetched.error_code:
            return response
        return response.replace(groups=(fetched.replace(topics=fetched.topics + rejected),))

    return then(_fetch(groups, group.replace(topics=permitted), require_stable, context), add_rejected)


def _fetch(
    groups: GroupCoordinators, group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
) -> OffsetFetchResponse | Deferred[OffsetFetchResponse]:
    request = OffsetFetchRequest(groups=(group,), require_stable=require_stable)
    return submit_to_group_coordinator(
        groups,
        group.group_id,
        request,
        context,
        lambda error: _error_response(group, error, context.api_version),
    )


async def _fetch_all(
    fetch: Callable[[OffsetFetchRequestGroup], Answer[OffsetFetchResponse]],
    groups: tuple[OffsetFetchRequestGroup, ...],
) -> OffsetFetchResponse:
    fetched: list[OffsetFetchResponseGroup] = []
    for group in groups:
        fetched += (await value_of(fetch(group))).groups
    return OffsetFetchResponse(groups=tuple(fetched))


def _topic_error(topic: OffsetFetchRequestTopics, error: Errors) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetFetchResponsePartitions(
                partition_index=p, committed_offset=-1, metadata="", error_code=error
            )
            for p in topic.partition_indexes
        ),
    )


def _error_response(group: OffsetFetchRequestGroup, error: Errors, version: int) -> OffsetFetchResponse:
    """Return a response with an error of the group; below version 2 on each partition, else on the group."""
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    if version < FIRST_VERSION_WITH_ERROR:
        topics = tuple(_topic_error(topic, error) for topic in group.topics or ())
    result = OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=error)
    return OffsetFetchResponse(groups=(result,))


def _single_group_response(response: OffsetFetchResponse) -> OffsetFetchResponse:
    """Convert a response with one group to the form of versions below 8."""
    group = response.groups[0]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=t.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in t.partitions
                ),
            )
            for t in group.topics
        ),
    )
