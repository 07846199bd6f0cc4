"""Describes consumer, share and streams groups, each by its own coordinator.

The client has to be authorized to describe the group and all topics in its description. A `DescribeSpec`
holds what is specific to one group type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from konvene.broker.handlers.group_permissions import permits_group
from konvene.errors import Errors
from konvene.security.resources import Operation, group

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
    from konvene.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
    from konvene.messages.share_group_describe import DescribedGroup as ShareGroup
    from konvene.messages.share_group_describe import ShareGroupDescribeRequest
    from konvene.messages.streams_group_describe import DescribedGroup as StreamsGroup
    from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
    from konvene.runtime.coordinator import RequestContext

    DescribeRequest = ConsumerGroupDescribeRequest | ShareGroupDescribeRequest | StreamsGroupDescribeRequest

G = TypeVar("G", "ConsumerGroup", "ShareGroup", "StreamsGroup")


class DescribeSpec(NamedTuple, Generic[G]):
    """The properties of one group type's describe API: response class, topics and error message."""

    group: type[G]
    """Class of a described group in the response."""
    topics: Callable[[G], list[str]]
    """Returns the names of all topics in a described group."""
    denied_message: str
    """Error message if the client may not describe one of the topics."""


def disabled_groups(spec: DescribeSpec[G], request: DescribeRequest) -> tuple[G, ...]:
    """Return an UNSUPPORTED_VERSION error for each requested group, because the group type is disabled."""
    return tuple(_error(spec, group_id, Errors.UNSUPPORTED_VERSION) for group_id in request.group_ids)


async def describe_groups(
    spec: DescribeSpec[G],
    authorization: Authorization,
    groups: GroupCoordinators,
    request: DescribeRequest,
    context: RequestContext,
) -> list[G]:
    """Return the description of each requested group, or its error; as in Kafka, denied groups come first."""
    denied: list[G] = []
    described: list[G] = []
    for group_id in request.group_ids:
        if not permits_group(authorization, context, Operation.DESCRIBE, group_id):
            denied.append(_error(spec, group_id, Errors.GROUP_AUTHORIZATION_FAILED))
            continue
        result = await _describe(spec, groups, request, group_id, context)
        if request.include_authorized_operations and result.error_code == Errors.NONE:
            operations = authorization.operations(context, group(group_id))
            result = result.replace(authorized_operations=operations)
        described.append(result)
    if authorization.is_enabled:
        described = [_hide_topics(spec, authorization, context, result) for result in described]
    return denied + described


async def _describe(
    spec: DescribeSpec[G],
    groups: GroupCoordinators,
    request: DescribeRequest,
    group_id: str,
    context: RequestContext,
) -> G:
    if not group_id:
        return _error(spec, group_id, Errors.INVALID_GROUP_ID)
    coordinator = groups.of(group_id)
    if coordinator is None:
        return _error(spec, group_id, Errors.NOT_COORDINATOR)
    response = await coordinator.submit(request.replace(group_ids=(group_id,)), context)
    if isinstance(response, Errors):
        return _error(spec, group_id, response)
    described: G = response.groups[0]
    return described


def _hide_topics(
    spec: DescribeSpec[G], authorization: Authorization, context: RequestContext, described: G
) -> G:
    """Return the described group, or an error if the client may not describe one of its topics."""
    topics = spec.topics(described)
    if len(authorization.permitted_topics(context, Operation.DESCRIBE, topics)) == len(topics):
        return described
    return _error(spec, described.group_id, Errors.TOPIC_AUTHORIZATION_FAILED, spec.denied_message)


def _error(spec: DescribeSpec[G], group_id: str, error: Errors, message: str | None = None) -> G:
    return spec.group(group_id=group_id, error_code=error, error_message=message)
