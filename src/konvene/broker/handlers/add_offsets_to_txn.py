"""AddOffsetsToTxn: the partition that has a group's offsets takes part in the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.transaction_requests import ask
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


def handle(broker: Broker, request: AddOffsetsToTxnRequest, call: Call) -> Any:
    return ask(broker, request.transactional_id, request, call, _refused)


def _refused(error: Errors) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)
