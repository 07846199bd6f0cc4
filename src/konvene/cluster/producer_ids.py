"""AllocateProducerIds: assign producer ids in blocks, so that a record is written per thousand ids."""

from __future__ import annotations

from konvene.cluster.state import CatalogueState
from konvene.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from konvene.records.metadata import ProducerIdsRecord
from konvene.shard.contract import Context, Outcome, Reply

BLOCK = 1000
"""Kafka's block size. The rest of a block is lost at a restart, as in Kafka."""


def allocate(state: CatalogueState, request: AllocateProducerIdsRequest, context: Context) -> Outcome:
    """Reserve the next block of producer ids for the broker that sent an AllocateProducerIds request."""
    first = state.next_producer_id
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK)
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK
    )
    return Outcome((Reply(context.waiter, response),), (record,))
