"""OffsetFetch: return the committed offsets of one group, or since version 8 of several.

Coordinators receive the form with several groups; older requests and their responses are converted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_ERROR = 2


def handle(
    groups: GroupCoordinators, request: OffsetFetchRequest, context: RequestContext
) -> Answer[OffsetFetchResponse]:
    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        if len(request.groups) == 1:
            return _fetch(groups, request.groups[0], request.require_stable, context)
        return _fetch_all(groups, request, context)
    topics = None
    if request.topics is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes)
            for t in request.topics
        )
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    return then(_fetch(groups, group, request.require_stable, context), _single_group_response)


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
    groups: GroupCoordinators, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    fetched: list[OffsetFetchResponseGroup] = []
    for group in request.groups:
        response = await value_of(_fetch(groups, group, request.require_stable, context))
        fetched += response.groups
    return OffsetFetchResponse(groups=tuple(fetched))


def _error_response(group: OffsetFetchRequestGroup, error: Errors, version: int) -> OffsetFetchResponse:
    """Return a response with an error of the group; below version 2 on each partition, else on the group."""
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    if version < FIRST_VERSION_WITH_ERROR:
        topics = tuple(
            OffsetFetchResponseTopics(
                name=t.name,
                partitions=tuple(
                    OffsetFetchResponsePartitions(
                        partition_index=p, committed_offset=-1, metadata="", error_code=error
                    )
                    for p in t.partition_indexes
                ),
            )
            for t in group.topics or ()
        )
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
