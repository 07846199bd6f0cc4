"""Serves one share partition: its delivery state, the log that it reads, the coordinator that stores it.

A decision of the core (`SharePartition`) takes effect at once, in memory; the request is answered when the
state is written (KIP-932, `state_coordinators`). A share partition is loaded from the share coordinator on
first use, and fetches wait meanwhile. A write that is rejected because another state has replaced this one
(`STALE_STATE_ERRORS`) closes the share partition; the next fetch loads it anew.

All acquisition locks share one timer: it is set for the lock that expires first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from konvene.broker.storage.partitions import Partition
from konvene.cluster.features import SHARE_VERSION
from konvene.codec.batches import BatchHeader, batches
from konvene.codec.errors import CodecError
from konvene.configs.setting import duration_ms
from konvene.delivery.contract import (
    Acknowledged,
    Acquired,
    AcquireMode,
    Change,
    DeadLetter,
    DeliveryError,
    Terms,
)
from konvene.delivery.partition import SharePartition
from konvene.errors import Errors
from konvene.log.errors import LogError, OffsetOutOfRange
from konvene.runtime.deferred import Deferred
from konvene.share_state.requests import Answer, Read, SharePartitionKey, StateAnswer, Write

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.node_services import NodeServices
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.dead_letters import DeadLetters
    from konvene.broker.shares.state_coordinators import ShareCoordinators

log = logging.getLogger("konvene.sharing")

BYTES_PER_RECORD = 1024
"""A fetch first reads this many bytes for each record that it may acquire, then twice as many, and so on."""
MAX_FIRST_READ_BYTES = 64 * 1024

SHARE_GROUPS, DEAD_LETTERS = 1, 2
"""The levels of `share.version` that enable share groups and their dead letter queues."""

STALE_STATE_ERRORS = frozenset(
    (
        Errors.FENCED_STATE_EPOCH,
        Errors.FENCED_LEADER_EPOCH,
        Errors.GROUP_ID_NOT_FOUND,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_LEADER_OR_FOLLOWER,
    )
)
"""Errors of the share coordinator if it has a newer state of the share partition, or none."""

PartitionResult = tuple[Errors, str | None]
"""Error and message of one share partition in a response."""
SUCCESS: PartitionResult = (Errors.NONE, None)


CLIENT_ERRORS = {
    Errors.NONE: Errors.NONE,
    Errors.NOT_COORDINATOR: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.COORDINATOR_NOT_AVAILABLE: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.COORDINATOR_LOAD_IN_PROGRESS: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.FENCED_LEADER_EPOCH: Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.FENCED_STATE_EPOCH: Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.GROUP_ID_NOT_FOUND: Errors.GROUP_ID_NOT_FOUND,
    Errors.UNKNOWN_TOPIC_OR_PARTITION: Errors.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Errors of the share coordinator and those that members receive; as in Kafka, others are
UNKNOWN_SERVER_ERROR."""


def client_result(answer: Answer | StateAnswer) -> PartitionResult:
    """Translate an answer of the share coordinator into the error and message that a member receives."""
    return CLIENT_ERRORS.get(answer.error, Errors.UNKNOWN_SERVER_ERROR), answer.message


class DelayedFetch(Protocol):
    """A ShareFetch request that waits for records of a share partition."""

    def try_complete(self) -> None:
        """Complete the fetch if there are enough records now."""


class SharePartitionServer:
    """Acquires and acknowledges records of one share partition, and has its state written.

    `failed` is None while it is open; afterwards it is the error that fetches receive."""

    __slots__ = (
        "_began_s", "_dead_letters", "_drop", "_node", "_read_request", "_share_coordinators",
        "_terms_source", "_timer", "_timer_ms", "core", "failed", "key", "loaded", "partition", "topic",
        "waiting", "was_loaded",
    )  # fmt: skip

    def __init__(
        self,
        node: NodeServices,
        share_coordinators: ShareCoordinators,
        dead_letters: DeadLetters,
        key: SharePartitionKey,
        partition: Partition,
        drop: Callable[[SharePartitionServer], None],
    ) -> None:
        self._node = node
        self._share_coordinators = share_coordinators
        self._dead_letters = dead_letters
        self._drop = drop
        self.key = key
        self.topic = partition.topic
        self.partition = partition
        self._terms_source: object = None
        self.core = SharePartition(key, Terms())
        self.loaded = self.was_loaded = False
        self.failed: PartitionResult | None = None
        self.waiting: dict[DelayedFetch, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._began_s = 0.0
        self._read_request: Read | None = None
        """The last request to load the state; answers to earlier ones are ignored."""
        self._update_terms()

    def __repr__(self) -> str:
        return f"<{self.key}: {'loaded' if self.loaded else self.failed or 'loading'}>"

    # --- loading and closing ---

    def load(self) -> None:
        """Start loading the state from the share coordinator; fetches wait until that is done.

        If it is being loaded already, start again: the earlier answer may be out of date."""
        self._began_s = self._node.loop.time()
        request = self._read_request = Read(self.key, self.partition.leader_epoch)
        self._share_coordinators.submit(request).listen(partial(self._load, request))

    def _load(self, request: Read, answer: StateAnswer) -> None:
        if self.failed is not None or self._read_request is not request:
            return
        if answer.error:
            self.fail(client_result(answer))
            return
        try:
            start = answer.start_offset if answer.start_offset >= 0 else self._first_offset()
            self.core.load(answer, self.partition.leader_epoch, start)
            follow = self.core.log_start_moved(self.partition.start_offset)
        except (ValueError, LogError) as error:
            log.warning("%s cannot be served: %s", self.key, error)
            self.fail((Errors.UNKNOWN_SERVER_ERROR, str(error)))
            return
        self.loaded = self.was_loaded = True
        if self._node.meter is not None:
            self._node.meter.share_partition_load_s.add(self._node.loop.time() - self._began_s)
        self._write_behind(follow)
        if self.core.dead_letters:
            self._dead_letters.send(self, self.core.dead_letters)
        self.complete_waiting()

    def _first_offset(self) -> int:
        """Return where a group without state begins to read, as `share.auto.offset.reset` determines."""
        partition = self.partition
        reset: str = self._node.settings.group_configs.of(self.key.group_id)["share.auto.offset.reset"]
        if reset == "earliest":
            return partition.start_offset
        if reset != "latest":
            ago_ms = duration_ms(reset.partition(":")[2]) or 0
            timestamp_and_offset = partition.at_timestamp(self._node.environment.wall_clock_ms() - ago_ms)
            if timestamp_and_offset is not None:
                return timestamp_and_offset[1]
        return partition.high_watermark

    def fail(self, why: PartitionResult) -> None:
        """Close the share partition; waiting fetches complete with the error `why`."""
        if self.failed is None:
            self.failed = why
            self.loaded = False
            self._drop(self)
            if self._timer is not None:
                self._timer.cancel()
            self.complete_waiting()

    def complete_waiting(self) -> None:
        """Try to complete the waiting fetches, in the order in which they arrived."""
        for waiting in list(self.waiting):
            waiting.try_complete()

    def _update_terms(self) -> None:
        group_configs = self._node.settings.group_configs
        if self._terms_source is not group_configs:
            self._terms_source = group_configs
            self.core.terms = delivery_terms(self._node.settings, self._node.catalogue, self.key.group_id)

    def invalidate_terms(self) -> None:
        """Make the next decision compute `delivery_terms` anew, because features have changed."""
        self._terms_source = None

    # --- reading ---

    @property
    def can_acquire(self) -> bool:
        return self.loaded and self.core.can_acquire

    def readable_end(self) -> int:
        """Return the end offset of the records that the group may read."""
        end = self.partition.high_watermark
        return self.partition.log.last_stable_offset(end) if self.core.terms.read_committed else end

    def acquire(
        self, member_id: str, mode: AcquireMode, max_records: int, batch_size: int, max_bytes: int
    ) -> tuple[list[Acquired], list[bytes | memoryview]]:
        """Acquire records for a member; return the acquired ranges of offsets and the batches that hold them.

        An acquired range has about `batch_size` records at most. Markers and aborted records are skipped, and
        later records acquired in their place. Raises `LogError` or `CodecError` if the first read fails."""
        self._update_terms()
        acquired: list[Acquired] = []
        data_parts: list[bytes | memoryview] = []
        count, left, size = 0, max_bytes, min(max_records * BYTES_PER_RECORD, MAX_FIRST_READ_BYTES)
        while count < max_records and left > 0 and self.can_acquire:
            offset = self.core.next_fetch_offset
            try:
                data = self._read(offset, min(size, left), first=not data_parts)
                read = list(batches(data))
            except (LogError, CodecError):
                if data_parts:
                    break  # Return what was acquired before; the next fetch gets the error.
                raise
            if not read:
                break
            more = self._acquire(member_id, offset, read, mode, max_records - count, batch_size)
            if more:
                count += sum(last - first + 1 for first, last, _ in more)
                kept = _batches_between(data, read, more[0].first_offset, more[-1].last_offset)
                data_parts.append(kept)
                acquired += more
                left -= len(kept)
                if self.core.next_fetch_offset < read[-1][0].next_offset:
                    break  # The rest is for another fetch, such as records in their last delivery attempt.
            elif self.core.next_fetch_offset == offset:
                break
            size *= 2
        self._set_timer()
        return acquired, data_parts

    def size_ahead(self, enough: int) -> int:
        """Return how many bytes can be read from the group's next fetch offset on, at most `enough`."""
        offset = self.core.next_fetch_offset
        try:
            return len(self.partition.log.read(offset, enough, upto=self.readable_end()))
        except LogError:
            return enough

    def _read(self, offset: int, max_bytes: int, *, first: bool) -> bytes:
        log = self.partition.log
        try:
            return log.read(offset, max_bytes, upto=self.readable_end(), min_one=first)
        except OffsetOutOfRange:
            # The log start has moved: the group continues there, and the member fetches again.
            if self.core.start_offset < log.start_offset:
                self._write_behind(self.core.log_start_moved(log.start_offset))
            return b""

    def _acquire(
        self,
        member_id: str,
        offset: int,
        read: list[tuple[BatchHeader, memoryview]],
        mode: AcquireMode,
        max_records: int,
        batch_size: int,
    ) -> tuple[Acquired, ...]:
        aborted: list[tuple[int, int]] = []
        partition_log = self.partition.log
        if self.core.terms.read_committed and partition_log.aborted:
            transactions = partition_log.aborted_transactions(offset, read[-1][0].next_offset)
            aborted = [(entry.producer_id, entry.first_offset) for entry in transactions]
        acquired, change = self.core.acquire(
            member_id,
            [header for header, _ in read],
            aborted,
            fetch_offset=offset,
            mode=mode,
            max_records=max_records,
            batch_size=batch_size,
            now_ms=self._now_ms(),
        )
        self._write_behind(change)
        return acquired

    # --- acknowledging ---

    def acknowledge(self, member_id: str, acks: list[Acknowledged]) -> Deferred[PartitionResult]:
        """Apply a member's acknowledgements; return a deferred of the result.

        It is resolved when the changed delivery state is written."""
        result: Deferred[PartitionResult] = Deferred()
        if not self.loaded:
            result.resolve(self.failed or (Errors.UNKNOWN_TOPIC_OR_PARTITION, None))
            return result
        self._update_terms()
        try:
            change = self.core.acknowledge(member_id, acks, self._now_ms())
        except DeliveryError as refused:
            result.resolve((refused.error, refused.message))
            return result
        self._set_timer()
        if change is None:
            result.resolve(SUCCESS)
        else:
            self._write(change, result)
        return result

    def release(self, member_id: str) -> None:
        """Make the records that a member has acquired available again; it left or closed its session."""
        if self.loaded:
            self._write_behind(self.core.release(member_id))
            self.complete_waiting()

    # --- writing ---

    def _write_behind(self, change: Change | None) -> None:
        """Start writing a change of the delivery state, if there is one; no request waits for it."""
        if change is not None:
            self._write(change, None)

    def _write(self, change: Change, waiter: Deferred[PartitionResult] | None) -> None:
        if not change.batches and change.start_offset < 0:
            self._written(change, waiter, Answer())
            return
        core = self.core
        request = Write(
            self.key, core.state_epoch, core.leader_epoch, change.start_offset,
            change.delivery_complete_count, change.batches,
        )  # fmt: skip
        self._share_coordinators.submit(request).listen(lambda answer: self._written(change, waiter, answer))

    def _written(self, change: Change, waiter: Deferred[PartitionResult] | None, answer: Answer) -> None:
        follow = self.core.finished(change, answer.error)
        if answer.error in STALE_STATE_ERRORS:
            self.fail(client_result(answer))
        elif self.failed is None:
            if not answer.error and change.dead_letters:
                self._dead_letters.send(self, change.dead_letters)
            self._write_behind(follow)
        if waiter is not None:
            waiter.resolve(client_result(answer))
        self.complete_waiting()

    def dead_letter_done(self, letter: DeadLetter) -> None:
        """Archive the records of a dead letter, once they are copied or cannot be copied."""
        if self.failed is None:
            self._write_behind(self.core.archived(letter))

    # --- locks ---

    def _now_ms(self) -> int:
        """Return the loop's time in ms, rounded to nearest: a punctual timer must not seem a moment early."""
        return round(self._node.loop.time() * 1000)

    def _set_timer(self) -> None:
        ends = self.core.lock_end_ms
        if ends is None or (self._timer is not None and self._timer_ms <= ends):
            return
        if self._timer is not None:
            self._timer.cancel()  # The lock duration has become shorter.
        self._timer_ms = ends
        self._timer = self._node.loop.call_at(ends / 1000, self._expire_locks)

    def _expire_locks(self) -> None:
        self._timer = None
        if not self.loaded:
            return
        self._write_behind(self.core.expire(self._now_ms()))
        self._set_timer()
        self.complete_waiting()


def delivery_terms(settings: BrokerSettings, catalogue: ClusterCatalogue, group_id: str) -> Terms:
    """Return the terms by which records are delivered to a group: lock duration, limits, isolation level.

    They come from the group's configs; the level of `share.version` decides on dead letters."""
    configs = settings.group_configs.of(group_id)
    return Terms(
        lock_ms=configs["share.record.lock.duration.ms"],
        delivery_count_limit=configs["share.delivery.count.limit"],
        max_record_locks=configs["share.partition.max.record.locks"],
        renew=configs["share.renew.acknowledge.enable"],
        read_committed=configs["share.isolation.level"] == "read_committed",
        dead_letters=catalogue.feature_level(SHARE_VERSION) >= DEAD_LETTERS
        and bool(configs["errors.deadletterqueue.topic.name"]),
    )


def _batches_between(
    data: bytes, read: list[tuple[BatchHeader, memoryview]], first: int, last: int
) -> bytes | memoryview:
    """Return the batches of `data` that hold the offsets `first` to `last`; `read` are all its batches."""
    begin, end, position = 0, len(data), 0
    for header, view in read:
        if header.last_offset < first:
            begin = position + len(view)
        if header.base_offset > last:
            end = position
            break
        position += len(view)
    return data if begin == 0 and end == len(data) else memoryview(data)[begin:end]
