"""Which batches belong to aborted transactions, and which markers have nothing left to mark.

As Kafka's `CleanedTransactionMetadata`: it is shown every batch of a transaction and every marker, in the
order of the log. A batch of an aborted transaction may go at once. Its marker stays as long as a batch of
it was seen in this cleaning, for somebody may just be reading it; so does a commit's. What of the index of
aborted transactions still holds is collected for the new segment.

One thing is safer than Kafka: an aborted transaction ends at its marker's offset even if no marker is found
there, so it never takes a later transaction of the same producer with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.codec.batches import ControlType
from konvene.log.producers import AbortedTransaction


class Transactions:
    """What is open where a cleaning has got to."""

    __slots__ = ("_aborted", "_coming", "_committed", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction], start: int) -> None:
        """`aborted`: of the log; those that ended before `start` are left out."""
        coming = [gone for gone in aborted if gone.last_offset >= start]
        coming.sort(key=lambda gone: gone.first_offset, reverse=True)
        self._coming = coming
        #: By producer: the transaction, and whether a batch of it was seen.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions of which a batch was seen, since `take_kept`."""

    def __repr__(self) -> str:
        return f"Transactions({len(self._aborted)} aborted and {len(self._committed)} committed ones open)"

    def on_batch(self, producer_id: int, last_offset: int) -> bool:
        """A batch of a transaction: whether that one was aborted."""
        self._begin_up_to(last_offset)
        found = self._aborted.get(producer_id)
        if found is not None:
            if last_offset <= found[0].last_offset:
                self._aborted[producer_id] = (found[0], True)
                return True
            del self._aborted[producer_id]
        self._committed.add(producer_id)
        return False

    def on_marker(self, producer_id: int, last_offset: int, kind: ControlType | None) -> bool:
        """A control batch, None where it is empty: whether nothing is left that needs it."""
        self._begin_up_to(last_offset)
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

    def take_kept(self) -> list[AbortedTransaction]:
        """What is in the index of the segment that is being finished."""
        kept, self.kept = self.kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            begun = self._coming.pop()
            found = self._aborted.get(begun.producer_id)
            if found is None or found[0].last_offset < begun.first_offset:
                self._aborted[begun.producer_id] = (begun, False)
