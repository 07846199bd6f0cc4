"""Submits requests to the coordinator of a transactional id, and maps its errors to responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from konvene.errors import Errors
from konvene.runtime.deferred import Answer, Deferred, then

if TYPE_CHECKING:
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.codec.schema import Struct
    from konvene.messages.end_txn import EndTxnRequest
    from konvene.messages.init_producer_id import InitProducerIdRequest
    from konvene.runtime.coordinator import RequestContext

R = TypeVar("R", bound="Struct")


def submit_to_transaction_coordinator(
    transactions: TransactionCoordinators,
    transactional_id: str,
    request: Struct,
    context: RequestContext,
    error_response: Callable[[Errors], R],
) -> R | Deferred[R]:
    """Submit a request; return the coordinator's response, or `error_response` of the error it returns.

    For requests that need no new producer id; `submit_with_producer_id` is for the others."""
    if not transactional_id:
        return error_response(Errors.INVALID_REQUEST)
    coordinator = transactions.of(transactional_id)
    if coordinator is None:
        return error_response(Errors.NOT_COORDINATOR)
    return then(coordinator.submit(request, context), _or_error(error_response))


def submit_with_producer_id(
    transactions: TransactionCoordinators,
    transactional_id: str,
    request: InitProducerIdRequest | EndTxnRequest,
    context: RequestContext,
    error_response: Callable[[Errors], R],
) -> Answer[R]:
    """Submit a request whose decision may need a new producer id; if it does, allocate one first.

    Return the coordinator's response, or `error_response` of the error it returns."""
    shard = transactions.shard_of(transactional_id) if transactional_id else None
    if shard is not None and shard.needs_producer_id(request, context.api_version):
        return _allocate_and_submit(transactions, transactional_id, request, context, error_response)
    return submit_to_transaction_coordinator(transactions, transactional_id, request, context, error_response)


async def _allocate_and_submit(
    transactions: TransactionCoordinators,
    transactional_id: str,
    request: Struct,
    context: RequestContext,
    error_response: Callable[[Errors], R],
) -> R:
    producer_id = await transactions.next_producer_id()
    coordinator = transactions.of(transactional_id)
    if producer_id is None or coordinator is None:
        return error_response(Errors.COORDINATOR_NOT_AVAILABLE)
    with_id = context._replace(fresh_producer_id=producer_id)
    return _or_error(error_response)(await coordinator.submit(request, with_id))


def _or_error(error_response: Callable[[Errors], R]) -> Callable[[R | Errors], R]:
    return lambda value: error_response(value) if isinstance(value, Errors) else value
