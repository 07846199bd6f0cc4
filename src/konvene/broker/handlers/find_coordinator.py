"""FindCoordinator: it is this node, once the topic of that kind of coordinator is there.

Whoever asks first has the topic made. A share coordinator is asked for by the name of a share partition, and
for what cannot be one nothing is made.
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

REFUSALS = (Errors.COORDINATOR_NOT_AVAILABLE, Errors.INVALID_REQUEST)

JAVA_BLANKS = "".join(map(chr, range(33)))
_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_NUMBER = re.compile(r"([+-]?)0*(\d{1,10})")
"""As Java reads a number: any digits that Unicode has."""


def handle(
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    transactions: TransactionCoordinators,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> Answer[FindCoordinatorResponse]:
    kind = _kind(groups, share_coordinators, transactions, request.key_type, context)
    if (
        kind is None
        or kind.ready
        or not any(_can_be(request.key_type, key) for key in _keys(request, context))
    ):
        return _answer(catalogue, groups, share_coordinators, transactions, request, context)
    return _make_ready(catalogue, groups, share_coordinators, transactions, kind, request, context)


async def _make_ready(
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    transactions: TransactionCoordinators,
    kind: Coordinators,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    await kind.make_ready()
    return _answer(catalogue, groups, share_coordinators, transactions, request, context)


def _kind(
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    transactions: TransactionCoordinators,
    key_type: int,
    context: RequestContext,
) -> Coordinators | None:
    """The coordinators that are asked for; None where there is no such kind."""
    if key_type == GROUP:
        return groups
    if key_type == TRANSACTION:
        return transactions
    if key_type == SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE:
        return share_coordinators
    return None


def _keys(request: FindCoordinatorRequest, context: RequestContext) -> tuple[str, ...]:
    return request.coordinator_keys if context.api_version >= FIRST_VERSION_WITH_KEYS else (request.key,)


def _can_be(key_type: int, key: str) -> bool:
    """Whether it can be a key of that kind."""
    return key_type != SHARE or is_share_key(key)


def is_share_key(key: str) -> bool:
    """Whether it names a share partition: a group, the id of a topic, a number. The group may have colons."""
    parts = key.split(":")
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) < 3 or not ":".join(parts[:-2]).strip(JAVA_BLANKS):
        return False
    number = _NUMBER.fullmatch(parts[-1])
    if number is None or not _ID.fullmatch(parts[-2]):
        return False
    return -(1 << 31) <= int("".join(number.groups())) < 1 << 31


def _answer(
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    transactions: TransactionCoordinators,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    host, port = catalogue.advertised
    kind = _kind(groups, share_coordinators, transactions, request.key_type, context)
    if context.api_version >= FIRST_VERSION_WITH_KEYS:
        # Of what goes wrong only a kind that is none is put into words.
        why = MESSAGES[Errors.INVALID_REQUEST] if request.key_type not in (GROUP, TRANSACTION, SHARE) else ""
        found = {
            error: Coordinator(node_id=-1, port=-1, error_code=error, error_message=why) for error in REFUSALS
        }
        found[Errors.NONE] = Coordinator(node_id=catalogue.node_id, host=host, port=port)
        return FindCoordinatorResponse(
            coordinators=tuple(
                found[_error(kind, request.key_type, key)].replace(key=key)
                for key in request.coordinator_keys
            )
        )
    error = _error(kind, request.key_type, request.key)
    if error is Errors.NONE:
        return FindCoordinatorResponse(
            error_message=error.name, node_id=catalogue.node_id, host=host, port=port
        )
    return FindCoordinatorResponse(error_code=error, error_message=MESSAGES[error], node_id=-1, port=-1)


def _error(kind: Coordinators | None, key_type: int, key: str) -> Errors:
    if kind is None or not _can_be(key_type, key):
        return Errors.INVALID_REQUEST
    return Errors.NONE if kind.ready else Errors.COORDINATOR_NOT_AVAILABLE
