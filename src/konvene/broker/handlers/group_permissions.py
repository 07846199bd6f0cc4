"""Permission checks that several handlers of groups, offsets and transactions share.

Without an authorizer each check is one attribute access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from konvene.security.resources import Operation, group, transactional_id

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.codec.uuid import Uuid
    from konvene.runtime.coordinator import RequestContext
    from konvene.shard.image import Topics

T = TypeVar("T")


def permits_group(
    authorization: Authorization, context: RequestContext, operation: Operation, group_id: str
) -> bool:
    """Return True if the client may perform the operation on the group."""
    return authorization.authorizer is None or authorization.permits(context, operation, group(group_id))


def permits_topics(authorization: Authorization, context: RequestContext, names: Iterable[str]) -> bool:
    """Return True if the client may describe all of the topics."""
    if authorization.authorizer is None:
        return True
    requested = set(names)
    permitted = authorization.permitted_topics(context, Operation.DESCRIBE, sorted(requested))
    return len(permitted) == len(requested)


def permits_transaction(authorization: Authorization, context: RequestContext, name: str) -> bool:
    """Return True if the client may write to the transactional id."""
    return authorization.authorizer is None or authorization.permits(
        context, Operation.WRITE, transactional_id(name)
    )


def split_by_permission(
    authorization: Authorization,
    context: RequestContext,
    operation: Operation,
    requested: Sequence[T],
    name_of: Callable[[T], str | None],
) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return the items of a request on whose topic the client may perform the operation, and the others.

    `name_of` returns the name of an item's topic. If it is None, because no topic has the requested id, the
    item counts as permitted: it has an error of its own."""
    if authorization.authorizer is None:
        return tuple(requested), ()
    names = [name_of(item) for item in requested]
    permitted = authorization.permitted_topics(context, operation, (n for n in names if n is not None))
    allowed = [name is None or name in permitted for name in names]
    return (
        tuple(item for item, is_allowed in zip(requested, allowed, strict=True) if is_allowed),
        tuple(item for item, is_allowed in zip(requested, allowed, strict=True) if not is_allowed),
    )


def requested_name(topics: Topics, name: str, topic_id: Uuid, *, by_id: bool) -> str | None:
    """Return the name of a requested topic; None if it is requested by an id that no topic has."""
    if not by_id:
        return name
    found = topics.by_id.get(topic_id)
    return None if found is None else found.name
