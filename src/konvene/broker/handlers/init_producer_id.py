"""InitProducerId: allocate a producer id.

A producer without a transactional id always gets a new id. With one, its coordinator decides: it aborts the
transaction that an older instance of the producer left open, and fences that instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_transaction
from konvene.broker.handlers.transaction_requests import submit_with_producer_id
from konvene.codec.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from konvene.errors import Errors
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from konvene.security.resources import Operation, ResourceType, transactional_id

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.producer_ids import ProducerIds
    from konvene.broker.transactions.coordinators import TransactionCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    authorization: Authorization,
    producer_ids: ProducerIds,
    transactions: TransactionCoordinators,
    request: InitProducerIdRequest,
    context: RequestContext,
) -> Answer[InitProducerIdResponse]:
    if authorization.is_enabled:
        denied = _denied(authorization, request, context)
        if denied is not Errors.NONE:
            return _error_response(denied)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _error_response(Errors.INVALID_REQUEST)
    if request.transactional_id is None:
        return _allocate(producer_ids)
    return submit_with_producer_id(transactions, request.transactional_id, request, context, _error_response)


def _denied(authorization: Authorization, request: InitProducerIdRequest, context: RequestContext) -> Errors:
    """Return the error of a client that may not initialize this producer id, else NONE.

    An idempotent producer may if it may write to any topic."""
    name = request.transactional_id
    if name is None:
        if authorization.permits_cluster(
            context, Operation.IDEMPOTENT_WRITE, logs_denied=False
        ) or authorization.permits_any(context, Operation.WRITE, ResourceType.TOPIC):
            return Errors.NONE
        return Errors.CLUSTER_AUTHORIZATION_FAILED
    if permits_transaction(authorization, context, name) and (
        not request.enable2_pc
        or authorization.permits(context, Operation.TWO_PHASE_COMMIT, transactional_id(name))
    ):
        return Errors.NONE
    return Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def _allocate(producer_ids: ProducerIds) -> InitProducerIdResponse:
    producer_id = await producer_ids.next_id()
    if producer_id is None:
        return _error_response(Errors.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error_response(error: Errors) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)
