"""Records of a coordinator's log that belong to transactions, as values that shards replay.

In the log a batch's header has its producer id and a control record ends the transaction; here a record is
wrapped with its producer id, and the end of a transaction is a value of its own. A producer has at most one
open transaction in a partition, so the producer id identifies it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class InTransaction(NamedTuple):
    """A record that takes effect when its producer's transaction is committed."""

    producer_id: int
    record: Any


class TransactionEnded(NamedTuple):
    """The commit or abort marker of the transaction of a producer."""

    producer_id: int
    committed: bool
