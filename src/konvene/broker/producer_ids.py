"""Allocates producer ids, in blocks that the catalogue hands out; Kafka's `ProducerIdManager`."""

from __future__ import annotations

from konvene.broker.catalogue import ClusterCatalogue
from konvene.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from konvene.runtime.coordinator import RequestContext


class ProducerIds:
    """An allocator of producer ids: returns those of its block, then requests the next block."""

    def __init__(self, catalogue: ClusterCatalogue) -> None:
        self._catalogue = catalogue
        self._block = iter(range(0))

    def __repr__(self) -> str:
        return f"<producer ids of {self._catalogue!r}>"

    async def next_id(self) -> int | None:
        """Return a producer id that was never used, or None while the catalogue cannot be written."""
        for producer_id in self._block:
            return producer_id
        request = AllocateProducerIdsRequest(broker_id=self._catalogue.node_id, broker_epoch=0)
        response = await self._catalogue.submit(request, RequestContext())
        if not isinstance(response, AllocateProducerIdsResponse):
            return None
        first = response.producer_id_start
        self._block = iter(range(first, first + response.producer_id_len))
        return next(self._block)
