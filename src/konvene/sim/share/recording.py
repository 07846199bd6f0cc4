"""Share partitions of the broker that report every decision to a `DeliveryLedger`."""

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
from konvene.sim.share.ledger import DeliveryLedger


class LogBounds(Protocol):
    """The interface of a log of which a ledger reads only the start and end offset."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class RecordingPartition(SharePartition):
    """The production share partition, which also reports every decision to its ledger."""

    __slots__ = ("ledger", "log")

    def __init__(self, key: SharePartitionKey, terms: Terms, ledger: DeliveryLedger, log: LogBounds) -> None:
        super().__init__(key, terms)
        self.ledger = ledger
        self.log = log

    @property
    def _is_current(self) -> bool:
        """Whether this object was the last one to load the share partition; one that is replaced reports no
        decisions."""
        return self.ledger.owner is self

    def _report_start(self) -> None:
        if self._is_current:
            self.ledger.start_moved(self.start_offset, self.log.start_offset)

    def load(self, read: StateAnswer, leader_epoch: int, start_offset: int) -> None:
        super().load(read, leader_epoch, start_offset)
        self.ledger.terms = self.terms
        self.ledger.loaded(self, read, start_offset)
        self._report_start()

    def acquire(
        self,
        member_id: str,
        headers: Sequence[BatchHeader],
        aborted: Sequence[tuple[int, int]],
        **options: Any,
    ) -> Acquisitions:
        self.ledger.terms = self.terms
        rows, change = super().acquire(member_id, headers, aborted, **options)
        ends = self.log.start_offset, self.log.end_offset
        self._report_start()
        self.ledger.acquired(
            self,
            member_id,
            rows,
            now_ms=options["now_ms"],
            mode=options["mode"],
            max_records=options["max_records"],
            ends=ends,
            cut_from=headers[-1].last_offset - headers[0].base_offset + 1 if aborted else 0,
        )
        return rows, change

    def acknowledge(self, member_id: str, acks: Sequence[Acknowledged], now_ms: int) -> Change | None:
        self.ledger.terms = self.terms
        try:
            change = super().acknowledge(member_id, acks, now_ms)
        except DeliveryError as error:
            if self._is_current:
                self.ledger.acknowledgement_rejected(member_id, acks, error)
            raise
        self.ledger.acknowledged(self, member_id, acks, change, now_ms)
        return change

    def release(self, member_id: str) -> Change | None:
        change = super().release(member_id)
        if self._is_current:
            self.ledger.released(member_id, change)
        return change

    def expire(self, now_ms: int) -> Change | None:
        change = super().expire(now_ms)
        if self._is_current:
            self.ledger.expired(now_ms)
        return change

    def log_start_moved(self, offset: int) -> Change | None:
        change = super().log_start_moved(offset)
        self._report_start()
        return change

    def finished(self, change: Change, error: Errors) -> Change | None:
        next_change = super().finished(change, error)
        if self._is_current:
            self.ledger.finished(change, error)
        self._report_start()
        return next_change


class RecordingServer(SharePartitionServer):
    """A share partition server that also reports each response to an acknowledgement to the ledger of its
    partition."""

    __slots__ = ()

    def acknowledge(self, member_id: str, acks: list[Acknowledged]) -> Deferred[PartitionResult]:
        core, response = self.core, Deferred[PartitionResult]()
        assert isinstance(core, RecordingPartition)
        ledger, start = core.ledger, core.start_offset

        def confirm(result: PartitionResult) -> None:
            ledger.confirm(member_id, acks, start, result[0])
            response.resolve(result)

        super().acknowledge(member_id, acks).listen(confirm)
        return response


class RecordingSharePartitions(SharePartitions):
    """The share partitions of a broker, which report to ledgers.

    `ledger_of` returns the ledger of a share partition, which outlives it; `on_member_removed` is called with
    the group id and the member id of each removed member."""

    def __init__(
        self,
        node: NodeServices,
        share_coordinators: ShareCoordinators,
        ledger_of: Callable[[SharePartitionKey], DeliveryLedger],
        on_member_removed: Callable[[str, str], None] = lambda group_id, member_id: None,
    ) -> None:
        super().__init__(node, share_coordinators)
        self._ledger_of = ledger_of
        self._on_member_removed = on_member_removed

    def member_removed(self, group_id: str, member_id: str) -> None:
        super().member_removed(group_id, member_id)
        self._on_member_removed(group_id, member_id)

    def _make_server(self, key: SharePartitionKey, partition: Partition) -> SharePartitionServer:
        served = RecordingServer(
            self._node, self._share_coordinators, self.dead_letters, key, partition, self._drop
        )
        served.core = RecordingPartition(key, served.core.terms, self._ledger_of(key), partition.log)
        return served
