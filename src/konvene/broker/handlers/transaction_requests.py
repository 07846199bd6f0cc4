"""How the transaction APIs ask the coordinator of an id, and turn its refusal into their response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.errors import Errors
from konvene.runtime.deferred import then

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.codec.schema import Struct
    from konvene.runtime.coordinator import Call


def ask(
    broker: Broker, transactional_id: str, request: Struct, call: Call, refused: Callable[[Errors], Struct]
) -> Any:
    """The coordinator's response, or what `refused` makes of its error.

    Where the decision needs a producer id that nobody has, one is fetched first."""
    if not transactional_id:
        return refused(Errors.INVALID_REQUEST)
    coordinator = broker.transactions.of(transactional_id)
    if coordinator is None:
        return refused(Errors.NOT_COORDINATOR)
    shard = broker.transactions.shard_of(transactional_id)
    if shard is not None and shard.needs_producer_id(request, call.api_version):
        return _with_fresh_id(broker, transactional_id, request, call, refused)
    return then(coordinator.submit(request, call), _or(refused))


async def _with_fresh_id(
    broker: Broker, transactional_id: str, request: Struct, call: Call, refused: Callable[[Errors], Struct]
) -> Any:
    producer_id = await broker.next_producer_id()
    coordinator = broker.transactions.of(transactional_id)
    if producer_id is None or coordinator is None:
        return refused(Errors.COORDINATOR_NOT_AVAILABLE)
    return _or(refused)(await coordinator.submit(request, call._replace(fresh_producer_id=producer_id)))


def _or(refused: Callable[[Errors], Struct]) -> Callable[[Any], Any]:
    return lambda value: refused(value) if isinstance(value, Errors) else value
