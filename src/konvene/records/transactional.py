"""Values for transactional records of a coordinator's log, which shards replay.

In the log a record belongs to a transaction through its batch, and a marker, which is no record, ends the
transaction. Shards replay values, so both are values here. A producer has at most one open transaction in a
partition, identified by its producer id.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class InTransaction(NamedTuple):
    """A record that takes effect when its producer's transaction is committed."""

    producer_id: int
    record: Any


class TransactionEnded(NamedTuple):
    """A marker: the producer's records since its last one take effect, or never will."""

    producer_id: int
    committed: bool
