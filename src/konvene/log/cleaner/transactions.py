"""Tracks transactions during a cleaning, as Kafka's `CleanedTransactionMetadata`.

The tracker receives every transactional batch and every marker in log order. A batch of an aborted
transaction may be removed at once. A marker, of an abort or a commit, remains if this cleaning saw a batch of
its transaction, because a consumer may be reading that batch. Entries of the transaction index that are still
needed are collected for the new segment.

Safer than Kafka in one respect: an aborted transaction ends at its marker's offset even if the marker is
missing, so it never affects a later transaction of the same producer.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.codec.batches import ControlType
from konvene.log.producers import AbortedTransaction


class CleanedTransactions:
    """A tracker of the transactions that are open at the current position of a cleaning."""

    __slots__ = ("_aborted", "_committed", "_upcoming", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction], start: int) -> None:
        """`aborted`: the log's aborted transactions; those that ended below `start` are ignored."""
        upcoming = [
            aborted_transaction for aborted_transaction in aborted if aborted_transaction.last_offset >= start
        ]
        upcoming.sort(key=lambda aborted_transaction: aborted_transaction.first_offset, reverse=True)
        self._upcoming = upcoming
        #: By producer id: the transaction, and whether a batch of it was seen.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions with batches seen since the last `pop_kept`."""

    def __repr__(self) -> str:
        return f"Transactions({len(self._aborted)} aborted and {len(self._committed)} committed ones open)"

    def on_batch(self, producer_id: int, last_offset: int) -> bool:
        """Process a transactional batch; return True if its transaction is an aborted one."""
        self._start_up_to(last_offset)
        found = self._aborted.get(producer_id)
        if found is not None:
            if last_offset <= found[0].last_offset:
                self._aborted[producer_id] = (found[0], True)
                return True
            del self._aborted[producer_id]
        self._committed.add(producer_id)
        return False

    def on_marker(self, producer_id: int, last_offset: int, kind: ControlType | None) -> bool:
        """Process a control batch (`kind` is None if it is empty); return True if it is no longer needed."""
        self._start_up_to(last_offset)
        if kind is None:
            return True
        if kind is ControlType.ABORT:
            found = self._aborted.pop(producer_id, None)
            if found is not None and found[1]:
                self.kept.append(found[0])
                return False
            return True
        if kind is ControlType.COMMIT:
            if producer_id in self._committed:
                self._committed.discard(producer_id)
                return False
            return True
        return False

    def pop_kept(self) -> list[AbortedTransaction]:
        """Return, and forget, the entries for the transaction index of the segment being finished."""
        kept, self.kept = self.kept, []
        return kept

    def _start_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1].first_offset <= offset:
            started = self._upcoming.pop()
            found = self._aborted.get(started.producer_id)
            if found is None or found[0].last_offset < started.first_offset:
                self._aborted[started.producer_id] = (started, False)
