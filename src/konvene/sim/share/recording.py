"""The broker's deliveries with somebody looking over their shoulder: what is decided goes into the books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from konvene.broker.node_services import NodeServices
from konvene.broker.shares.share_partition import PartitionResult, SharePartitionServer
from konvene.broker.shares.share_partitions import SharePartitions
from konvene.broker.shares.state_coordinators import ShareCoordinators
from konvene.broker.storage.partitions import Partition
from konvene.codec.batches import BatchHeader
from konvene.delivery.contract import Acknowledged, Change, DeliveryError, Terms
from konvene.delivery.partition import Acquisitions, SharePartition
from konvene.errors import Errors
from konvene.runtime.deferred import Deferred
from konvene.share_state.requests import SharePartitionKey, StateAnswer
from konvene.sim.share.ledger import Book


class Ends(Protocol):
    """As much of a log as the books ask for."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class WatchedPartition(SharePartition):
    """Tells its book of every decision."""

    __slots__ = ("book", "log")

    def __init__(self, key: SharePartitionKey, terms: Terms, book: Book, log: Ends) -> None:
        super().__init__(key, terms)
        self.book = book
        self.log = log

    @property
    def _serves(self) -> bool:
        """Whether it was not replaced: what is still written of one that was is nobody's news."""
        return self.book.owner is self

    def _moved(self) -> None:
        if self._serves:
            self.book.moved(self.start_offset, self.log.start_offset)

    def load(self, read: StateAnswer, leader_epoch: int, start_offset: int) -> None:
        super().load(read, leader_epoch, start_offset)
        self.book.terms = self.terms
        self.book.loaded(self, read, start_offset)
        self._moved()

    def acquire(
        self, member_id: str, headers: Sequence[BatchHeader], aborted: Sequence[tuple[int, int]], **how: Any
    ) -> Acquisitions:
        self.book.terms = self.terms
        got, change = super().acquire(member_id, headers, aborted, **how)
        ends = self.log.start_offset, self.log.end_offset
        self._moved()
        self.book.acquired(
            self,
            member_id,
            got,
            now_ms=how["now_ms"],
            mode=how["mode"],
            max_records=how["max_records"],
            ends=ends,
            cut_from=headers[-1].last_offset - headers[0].base_offset + 1 if aborted else 0,
        )
        return got, change

    def acknowledge(self, member_id: str, acks: Sequence[Acknowledged], now_ms: int) -> Change | None:
        self.book.terms = self.terms
        try:
            change = super().acknowledge(member_id, acks, now_ms)
        except DeliveryError as error:
            if self._serves:
                self.book.refused(member_id, acks, error)
            raise
        self.book.acknowledged(self, member_id, acks, change, now_ms)
        return change

    def release(self, member_id: str) -> Change | None:
        change = super().release(member_id)
        if self._serves:
            self.book.released(member_id, change)
        return change

    def expire(self, now_ms: int) -> Change | None:
        change = super().expire(now_ms)
        if self._serves:
            self.book.expired(now_ms)
        return change

    def log_start_moved(self, offset: int) -> Change | None:
        change = super().log_start_moved(offset)
        self._moved()
        return change

    def finished(self, change: Change, error: Errors) -> Change | None:
        follow = super().finished(change, error)
        if self._serves:
            self.book.finished(change, error)
        self._moved()
        return follow


class WatchedServed(SharePartitionServer):
    """Tells the book what members are answered."""

    __slots__ = ()

    def acknowledge(self, member_id: str, acks: list[Acknowledged]) -> Deferred[PartitionResult]:
        core, answer = self.core, Deferred[PartitionResult]()
        assert isinstance(core, WatchedPartition)
        book, start = core.book, core.start_offset

        def told(what: PartitionResult) -> None:
            book.told(member_id, acks, start, what[0])
            answer.resolve(what)

        super().acknowledge(member_id, acks).listen(told)
        return answer


class WatchedSharing(SharePartitions):
    """Makes share partitions that are watched.

    `book_of` has the book of each, which outlives it; `gone` hears which member (of a group) is gone."""

    def __init__(
        self,
        node: NodeServices,
        share_coordinators: ShareCoordinators,
        book_of: Callable[[SharePartitionKey], Book],
        gone: Callable[[str, str], None] = lambda group_id, member_id: None,
    ) -> None:
        super().__init__(node, share_coordinators)
        self._book_of = book_of
        self._gone = gone

    def member_removed(self, group_id: str, member_id: str) -> None:
        super().member_removed(group_id, member_id)
        self._gone(group_id, member_id)

    def _make_server(self, key: SharePartitionKey, partition: Partition) -> SharePartitionServer:
        served = WatchedServed(
            self._node, self._share_coordinators, self.dead_letters, key, partition, self._drop
        )
        served.core = WatchedPartition(key, served.core.terms, self._book_of(key), partition.log)
        return served
