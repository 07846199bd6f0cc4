"""How the transaction APIs ask the coordinator of an id, and turn its refusal into their response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from konvene.errors import Errors
from konvene.runtime.deferred import Answer, then

if TYPE_CHECKING:
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.codec.schema import Struct
    from konvene.runtime.coordinator import RequestContext

R = TypeVar("R", bound="Struct")


def ask(
    transactions: TransactionCoordinators,
    transactional_id: str,
    request: Struct,
    context: RequestContext,
    refused: Callable[[Errors], R],
) -> Answer[R]:
    """The coordinator's response, or what `refused` makes of its error.

    Where the decision needs a producer id that nobody has, one is fetched first."""
    if not transactional_id:
        return refused(Errors.INVALID_REQUEST)
    coordinator = transactions.of(transactional_id)
    if coordinator is None:
        return refused(Errors.NOT_COORDINATOR)
    shard = transactions.shard_of(transactional_id)
    if shard is not None and shard.needs_producer_id(request, context.api_version):
        return _with_fresh_id(transactions, transactional_id, request, context, refused)
    return then(coordinator.submit(request, context), _or(refused))


async def _with_fresh_id(
    transactions: TransactionCoordinators,
    transactional_id: str,
    request: Struct,
    context: RequestContext,
    refused: Callable[[Errors], R],
) -> R:
    producer_id = await transactions.next_producer_id()
    coordinator = transactions.of(transactional_id)
    if producer_id is None or coordinator is None:
        return refused(Errors.COORDINATOR_NOT_AVAILABLE)
    return _or(refused)(await coordinator.submit(request, context._replace(fresh_producer_id=producer_id)))


def _or(refused: Callable[[Errors], R]) -> Callable[[R | Errors], R]:
    return lambda value: refused(value) if isinstance(value, Errors) else value
