"""AllocateProducerIds: producer ids in blocks, so that only one in a thousand costs a record."""

from __future__ import annotations

from konvene.cluster.state import CatalogueState
from konvene.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from konvene.records.metadata import ProducerIdsRecord
from konvene.shard.contract import Context, Outcome, Reply

BLOCK = 1000
"""Kafka's block size. The rest of a block is lost at a restart, as in Kafka."""


def allocate(state: CatalogueState, request: AllocateProducerIdsRequest, context: Context) -> Outcome:
    """Handle an AllocateProducerIds request: the next block for the broker."""
    first = state.next_producer_id
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK)
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK
    )
    return Outcome((Reply(context.waiter, response),), (record,))
