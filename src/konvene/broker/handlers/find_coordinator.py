"""FindCoordinator: it is this node, once the topic of that kind of coordinator is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.errors import Errors
from konvene.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_VERSION_WITH_KEYS = 4
FIRST_VERSION_WITH_SHARE = 6

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was "
    "sent to an incompatible broker. See the broker logs for more details."
)
MESSAGES = {
    Errors.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Errors.INVALID_REQUEST: MALFORMED,
}
"""Kafka's own words for its errors."""


def handle(broker: Broker, request: FindCoordinatorRequest, call: Call) -> Any:
    if request.key_type == GROUP and not broker.groups.ready:
        return _make_ready(broker, request, call)
    if request.key_type == TRANSACTION and not broker.transactions.ready:
        return _make_ready(broker, request, call)
    return _answer(broker, request, call)


async def _make_ready(broker: Broker, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    kind = broker.groups if request.key_type == GROUP else broker.transactions
    await kind.make_ready()
    return _answer(broker, request, call)


def _answer(broker: Broker, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    host, port = broker.advertised
    error = _check(broker, request.key_type, call)
    if call.api_version >= FIRST_VERSION_WITH_KEYS:
        found = Coordinator(node_id=broker.node_id, host=host, port=port)
        if error is not Errors.NONE:
            # Of what goes wrong only a kind that is none is put into words.
            why = MALFORMED if request.key_type not in (GROUP, TRANSACTION, SHARE) else ""
            found = Coordinator(node_id=-1, port=-1, error_code=error, error_message=why)
        return FindCoordinatorResponse(
            coordinators=tuple(found.replace(key=key) for key in request.coordinator_keys)
        )
    if error is Errors.NONE:
        return FindCoordinatorResponse(error_message=error.name, node_id=broker.node_id, host=host, port=port)
    return FindCoordinatorResponse(error_code=error, error_message=MESSAGES[error], node_id=-1, port=-1)


def _check(broker: Broker, key_type: int, call: Call) -> Errors:
    if key_type in (GROUP, TRANSACTION):
        kind = broker.groups if key_type == GROUP else broker.transactions
        return Errors.NONE if kind.ready else Errors.COORDINATOR_NOT_AVAILABLE
    if key_type == SHARE and call.api_version >= FIRST_VERSION_WITH_SHARE:
        return Errors.COORDINATOR_NOT_AVAILABLE
    return Errors.INVALID_REQUEST
