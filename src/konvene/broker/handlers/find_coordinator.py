"""FindCoordinator: return this node, once the internal topic of the requested coordinators exists.

The first request creates the topic. The key of a share coordinator names a share partition; an invalid key
creates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.errors import MESSAGES, Errors
from konvene.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from konvene.security.resources import Operation, Resource, group, transactional_id

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.coordinators import Coordinators
    from konvene.runtime.deferred import Answer

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_VERSION_WITH_KEYS = 4
FIRST_VERSION_WITH_SHARE = 6

RESOURCES: dict[int, Callable[[str], Resource]] = {GROUP: group, TRANSACTION: transactional_id}
"""The resource that a key names, which the client has to be permitted to describe, by key type."""

JAVA_WHITESPACE = "".join(map(chr, range(33)))
"""Characters that Java's `String.trim` removes."""
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_NUMBER = re.compile(r"([+-]?)0*(\d{1,10})")
"""An integer as Java parses it: with any Unicode digits."""


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    transactions: TransactionCoordinators,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> Answer[FindCoordinatorResponse]:
    coordinators = _coordinators(groups, share_coordinators, transactions, request.key_type, context)
    keys = _keys(request, context)
    if (
        coordinators is not None
        and request.key_type == SHARE
        and not authorization.permits_cluster(context, Operation.CLUSTER_ACTION)
    ):
        return _rejected(keys, Errors.CLUSTER_AUTHORIZATION_FAILED, context)
    denied = _denied_keys(authorization, request.key_type, keys, context)
    if (
        coordinators is None
        or coordinators.ready
        or not any(_is_valid_key(request.key_type, key) for key in keys if key not in denied)
    ):
        return _response(catalogue, coordinators, request, denied, context)
    return _create_and_respond(catalogue, coordinators, request, denied, context)


async def _create_and_respond(
    catalogue: ClusterCatalogue,
    coordinators: Coordinators,
    request: FindCoordinatorRequest,
    denied: frozenset[str],
    context: RequestContext,
) -> FindCoordinatorResponse:
    await coordinators.make_ready()
    return _response(catalogue, coordinators, request, denied, context)


def _denied_keys(
    authorization: Authorization, key_type: int, keys: tuple[str, ...], context: RequestContext
) -> frozenset[str]:
    """Return the keys whose group or transactional id the client may not describe."""
    resource_of = RESOURCES.get(key_type)
    if resource_of is None or not authorization.is_enabled:
        return frozenset()
    return frozenset(
        key for key in keys if not authorization.permits(context, Operation.DESCRIBE, resource_of(key))
    )


def _rejected(keys: tuple[str, ...], error: Errors, context: RequestContext) -> FindCoordinatorResponse:
    """Return the response to a request that is rejected as a whole."""
    message = MESSAGES[error]
    if context.api_version < FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, port=-1)
    rejected = Coordinator(node_id=-1, port=-1, error_code=error, error_message=message)
    return FindCoordinatorResponse(coordinators=tuple(rejected.replace(key=key) for key in keys))


def _coordinators(
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    transactions: TransactionCoordinators,
    key_type: int,
    context: RequestContext,
) -> Coordinators | None:
    """Return the coordinators of a key type; None if the type is unknown."""
    if key_type == GROUP:
        return groups
    if key_type == TRANSACTION:
        return transactions
    if key_type == SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE:
        return share_coordinators
    return None


def _keys(request: FindCoordinatorRequest, context: RequestContext) -> tuple[str, ...]:
    return request.coordinator_keys if context.api_version >= FIRST_VERSION_WITH_KEYS else (request.key,)


def _is_valid_key(key_type: int, key: str) -> bool:
    return key_type != SHARE or is_share_key(key)


def is_share_key(key: str) -> bool:
    """Return True if a key names a share partition: `group:topic-id:partition`. The group may have colons."""
    parts = key.split(":")
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) < 3 or not ":".join(parts[:-2]).strip(JAVA_WHITESPACE):
        return False
    number = _NUMBER.fullmatch(parts[-1])
    if number is None or not _TOPIC_ID.fullmatch(parts[-2]):
        return False
    return -(1 << 31) <= int("".join(number.groups())) < 1 << 31


def _response(
    catalogue: ClusterCatalogue,
    coordinators: Coordinators | None,
    request: FindCoordinatorRequest,
    denied: frozenset[str],
    context: RequestContext,
) -> FindCoordinatorResponse:
    keys, key_type = _keys(request, context), request.key_type
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return _rejected(keys, Errors.INVALID_REQUEST, context)
    host, port = catalogue.advertised_to(context.session.listener)
    if context.api_version < FIRST_VERSION_WITH_KEYS:
        error = _error(coordinators, key_type, request.key, denied)
        if error is not Errors.NONE:
            return _rejected(keys, error, context)
        return FindCoordinatorResponse(
            error_message=error.name, node_id=catalogue.node_id, host=host, port=port
        )
    results = {Errors.NONE: Coordinator(node_id=catalogue.node_id, host=host, port=port)}
    found: list[Coordinator] = []
    for key in keys:
        error = _error(coordinators, key_type, key, denied)
        if error not in results:
            results[error] = Coordinator(node_id=-1, port=-1, error_code=error)
        found.append(results[error].replace(key=key))
    return FindCoordinatorResponse(coordinators=tuple(found))


def _error(coordinators: Coordinators | None, key_type: int, key: str, denied: frozenset[str]) -> Errors:
    if key in denied:
        return RESOURCES[key_type](key).authorization_failed
    if coordinators is None or not _is_valid_key(key_type, key):
        return Errors.INVALID_REQUEST
    return Errors.NONE if coordinators.ready else Errors.COORDINATOR_NOT_AVAILABLE
