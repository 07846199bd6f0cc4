"""What a coordinator's log says in and of transactions, as records that a shard replays.

In the log a record belongs to a transaction by the batch that it is in, and the transaction's end is a
marker, which is no record. Shards replay values, so both are values here. A producer has one open transaction
in a partition at most: its id says which.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class InTransaction(NamedTuple):
    """A record that counts only when the transaction of its producer is committed."""

    producer_id: int
    record: Any


class TransactionEnded(NamedTuple):
    """A marker: what this producer wrote since its last one counts from here on, or never will."""

    producer_id: int
    committed: bool
