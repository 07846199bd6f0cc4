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


def handle(broker: Broker, request: FindCoordinatorRequest, call: Call) -> Any:
    if request.key_type == GROUP and not broker.groups.ready:
        return _make_ready(broker, request, call)
    return _answer(broker, request, call)


async def _make_ready(broker: Broker, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    await broker.groups.make_ready()
    return _answer(broker, request, call)


def _answer(broker: Broker, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    host, port = broker.advertised
    if call.api_version >= FIRST_VERSION_WITH_KEYS:
        found = []
        for key in request.coordinator_keys:
            error, why = _check(broker, request.key_type, key, call)
            if error is Errors.NONE:
                found.append(
                    Coordinator(key=key, node_id=broker.node_id, host=host, port=port, error_message=None)
                )
            else:
                found.append(Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=why))
        return FindCoordinatorResponse(coordinators=tuple(found))
    error, why = _check(broker, request.key_type, request.key, call)
    if error is Errors.NONE:
        return FindCoordinatorResponse(error_message=error.name, node_id=broker.node_id, host=host, port=port)
    return FindCoordinatorResponse(error_code=error, error_message=why, node_id=-1, port=-1)


def _check(broker: Broker, key_type: int, key: str, call: Call) -> tuple[Errors, str | None]:
    if key_type == GROUP:
        if broker.groups.ready:
            return Errors.NONE, None
        return Errors.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."
    if key_type == TRANSACTION or (key_type == SHARE and call.api_version >= FIRST_VERSION_WITH_SHARE):
        return Errors.COORDINATOR_NOT_AVAILABLE, "There is no coordinator of this kind on this broker."
    return Errors.INVALID_REQUEST, f"Unknown coordinator key type {key_type}."
