"""The effects of a transaction coordinator, which the broker carries out, and the events that report them.

When a transaction ends, its Prepare record is in the log. The broker writes a marker to each of its
partitions, and reports when all are durable; only then is the transaction complete. After a crash in between,
`TransactionShard.load` requests the markers of every prepared transaction again.
"""

from __future__ import annotations

from typing import NamedTuple

WRITE_MARKERS = "write-markers"
"""Effect: write the markers of a transaction. Subject: `MarkersToWrite`."""

FETCH_PRODUCER_ID = "fetch-producer-id"
"""Effect: allocate a producer id for a timed-out transaction without epochs. Subject: the transactional
id."""


class MarkersToWrite(NamedTuple):
    """An ended transaction with the partitions that need a marker, of which there may be none."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int
    """The client's transaction version; from 2 on `producer_epoch` is the producer's next epoch."""
    partitions: tuple[tuple[str, int], ...]
    """Sorted (topic, partition) pairs."""


class MarkersWritten(NamedTuple):
    """Event: all markers of an ended transaction are durable, or their partitions were deleted."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class ProducerIdFetched(NamedTuple):
    """Event: an unused producer id was allocated for a transaction that timed out."""

    transactional_id: str
    producer_id: int
