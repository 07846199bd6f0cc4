"""InitProducerId: a fresh id for an idempotent producer, whatever id it had before.

Transactions have no coordinator here: a request with a transactional id is answered
COORDINATOR_NOT_AVAILABLE, as FindCoordinator answers for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.errors import Errors
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call


def handle(broker: Broker, request: InitProducerIdRequest, call: Call) -> Any:
    if request.transactional_id is not None:
        error = Errors.COORDINATOR_NOT_AVAILABLE if request.transactional_id else Errors.INVALID_REQUEST
        return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    return _fresh(broker)


async def _fresh(broker: Broker) -> InitProducerIdResponse:
    producer_id = await broker.next_producer_id()
    if producer_id is None:
        return InitProducerIdResponse(error_code=Errors.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
