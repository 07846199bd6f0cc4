"""InitProducerId: allocate a producer id.

A producer without a transactional id always gets a new id. With one, its coordinator decides: it aborts the
transaction that an older instance of the producer left open, and fences that instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.transaction_requests import submit_with_producer_id
from konvene.codec.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from konvene.errors import Errors
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from konvene.broker.producer_ids import ProducerIds
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    producer_ids: ProducerIds,
    transactions: TransactionCoordinators,
    request: InitProducerIdRequest,
    context: RequestContext,
) -> Answer[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _error_response(Errors.INVALID_REQUEST)
    if request.transactional_id is None:
        return _allocate(producer_ids)
    return submit_with_producer_id(transactions, request.transactional_id, request, context, _error_response)


async def _allocate(producer_ids: ProducerIds) -> InitProducerIdResponse:
    producer_id = await producer_ids.next_id()
    if producer_id is None:
        return _error_response(Errors.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error_response(error: Errors) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)
