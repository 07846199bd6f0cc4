"""FindCoordinator: return this node, once the internal topic of the requested coordinators exists.

The first request creates the topic. The key of a share coordinator names a share partition; an invalid key
creates nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from konvene.errors import MESSAGES, Errors
from konvene.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.coordinators import Coordinators
    from konvene.runtime.deferred import Answer

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_VERSION_WITH_KEYS = 4
FIRST_VERSION_WITH_SHARE = 6

KEY_ERRORS = (Errors.COORDINATOR_NOT_AVAILABLE, Errors.INVALID_REQUEST)

JAVA_WHITESPACE = "".join(map(chr, range(33)))
"""Characters that Java's `String.trim` removes."""
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_NUMBER = re.compile(r"([+-]?)0*(\d{1,10})")
"""An integer as Java parses it: with any Unicode digits."""


def handle(
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    transactions: TransactionCoordinators,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> Answer[FindCoordinatorResponse]:
    coordinators = _coordinators(groups, share_coordinators, transactions, request.key_type, context)
    if (
        coordinators is None
        or coordinators.ready
        or not any(_is_valid_key(request.key_type, key) for key in _keys(request, context))
    ):
        return _response(catalogue, coordinators, request, context)
    return _create_and_respond(catalogue, coordinators, request, context)


async def _create_and_respond(
    catalogue: ClusterCatalogue,
    coordinators: Coordinators,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    await coordinators.make_ready()
    return _response(catalogue, coordinators, request, context)


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
    context: RequestContext,
) -> FindCoordinatorResponse:
    host, port = catalogue.advertised_to(context.session.listener)
    if context.api_version >= FIRST_VERSION_WITH_KEYS:
        # Kafka sends an error message only for an unknown key type.
        is_known_type = request.key_type in (GROUP, TRANSACTION, SHARE)
        message = "" if is_known_type else MESSAGES[Errors.INVALID_REQUEST]
        results = {
            error: Coordinator(node_id=-1, port=-1, error_code=error, error_message=message)
            for error in KEY_ERRORS
        }
        results[Errors.NONE] = Coordinator(node_id=catalogue.node_id, host=host, port=port)
        return FindCoordinatorResponse(
            coordinators=tuple(
                results[_error(coordinators, request.key_type, key)].replace(key=key)
                for key in request.coordinator_keys
            )
        )
    error = _error(coordinators, request.key_type, request.key)
    if error is Errors.NONE:
        return FindCoordinatorResponse(
            error_message=error.name, node_id=catalogue.node_id, host=host, port=port
        )
    return FindCoordinatorResponse(error_code=error, error_message=MESSAGES[error], node_id=-1, port=-1)


def _error(coordinators: Coordinators | None, key_type: int, key: str) -> Errors:
    if coordinators is None or not _is_valid_key(key_type, key):
        return Errors.INVALID_REQUEST
    return Errors.NONE if coordinators.ready else Errors.COORDINATOR_NOT_AVAILABLE
