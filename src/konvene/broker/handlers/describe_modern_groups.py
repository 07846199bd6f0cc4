"""How groups of the newer protocols are described: each by its own coordinator.

A group is not shown to who may not see it, nor to who may not see a topic of it. What is particular to a kind
of group is a `Kind`: its messages, its topics, and Kafka's words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.broker.handlers.authorized_operations import GROUP_OPERATIONS
from konvene.broker.net.authorizer import Authorizer, Operation, Resource, ResourceType, allow_all
from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext


class Kind(NamedTuple):
    """One kind of group."""

    response: type[Any]
    group: type[Any]
    topics: Callable[[Any], list[str]]
    """Of a described group, all that are named in it."""
    hidden: str
    """To who may not see one of them."""


def disabled(kind: Kind, request: Any) -> Any:
    """Return the response for a cluster in which groups of this kind are switched off."""
    groups = [_error(kind, group_id, Errors.UNSUPPORTED_VERSION) for group_id in request.group_ids]
    return kind.response(groups=tuple(groups))


async def described_groups(
    kind: Kind, groups: GroupCoordinators, request: Any, context: RequestContext, authorize: Authorizer
) -> list[Any]:
    """Describe each requested group by its own coordinator."""
    described = [
        await _described(kind, groups, request, group_id, context, authorize)
        for group_id in request.group_ids
    ]
    if request.include_authorized_operations:
        described = [
            g.replace(authorized_operations=GROUP_OPERATIONS) if g.error_code == Errors.NONE else g
            for g in described
        ]
    return described


async def _described(
    kind: Kind,
    groups: GroupCoordinators,
    request: Any,
    group_id: str,
    context: RequestContext,
    authorize: Authorizer,
) -> Any:
    if not authorize(context, Operation.DESCRIBE, Resource(ResourceType.GROUP, group_id)):
        return _error(kind, group_id, Errors.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _error(kind, group_id, Errors.INVALID_GROUP_ID)
    coordinator = groups.of(group_id)
    if coordinator is None:
        return _error(kind, group_id, Errors.NOT_COORDINATOR)
    answer = await coordinator.submit(request.replace(group_ids=(group_id,)), context)
    if isinstance(answer, Errors):
        return _error(kind, group_id, answer)
    (group,) = answer.groups
    for topic in kind.topics(group) if authorize is not allow_all else ():
        if not authorize(context, Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic)):
            return _error(kind, group_id, Errors.TOPIC_AUTHORIZATION_FAILED, kind.hidden)
    return group


def _error(kind: Kind, group_id: str, error: Errors, why: str | None = None) -> Any:
    return kind.group(group_id=group_id, error_code=error, error_message=why)
