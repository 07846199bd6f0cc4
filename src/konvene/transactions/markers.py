"""What a transaction coordinator asks of the shell, and what it hears back.

A transaction that is to end has its `Prepare` record in the log. The shell writes a marker into every
partition of it, and says so when all of them are durable; only then the transaction is complete.
Whoever dies in between is asked again: `TransactionShard.load` asks for every transaction so prepared.
"""

from __future__ import annotations

from typing import NamedTuple

WRITE_MARKERS = "write-markers"
"""Effect: write the markers of a transaction. Subject: `Markers`."""

FETCH_PRODUCER_ID = "fetch-producer-id"
"""Effect: a transaction timed out whose producer has no epochs left. Subject: the transactional id."""


class Markers(NamedTuple):
    """The end of a transaction, for each of its partitions; there may be none of them."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int
    """From 2 on the epoch is the producer's next one."""
    partitions: tuple[tuple[str, int], ...]
    """Topic and partition, sorted."""


class MarkersWritten(NamedTuple):
    """News: all markers of this end are in the logs, durable, or their partitions are gone."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class ProducerIdFetched(NamedTuple):
    """News: a producer id that nobody has, for a transaction that timed out."""

    transactional_id: str
    producer_id: int
