"""One share partition on this node: who has which records, the log they come from, the keeper of its state.

What the core decides counts at once, and whoever asked is answered when it is written (`share_states`). A
partition is read from the coordinator's log when it is first asked for; until then fetches wait. A write that
tells that another state has taken its place (`GONE`) ends it: it is made anew when it is asked for again.

There is one timer for all locks: it is set for the first one that ends, and set again when it has rung.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
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

A_RECORD = 1024
"""Bytes that a fetch reads first for each record that it may have; then twice as many, and so on."""
MOST_AT_FIRST = 64 * 1024

SHARE_GROUPS, DEAD_LETTERS = 1, 2
"""The levels of `share.version` from which on there are share groups, and their dead letter queues."""

GONE = frozenset(
    (
        Errors.FENCED_STATE_EPOCH,
        Errors.FENCED_LEADER_EPOCH,
        Errors.GROUP_ID_NOT_FOUND,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_LEADER_OR_FOLLOWER,
    )
)
"""What a keeper answers who has another state by now, or none."""

Told = tuple[Errors, str | None]
FINE: Told = (Errors.NONE, None)


MEANS = {
    Errors.NONE: Errors.NONE,
    Errors.NOT_COORDINATOR: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.COORDINATOR_NOT_AVAILABLE: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.COORDINATOR_LOAD_IN_PROGRESS: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.FENCED_LEADER_EPOCH: Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.FENCED_STATE_EPOCH: Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.GROUP_ID_NOT_FOUND: Errors.GROUP_ID_NOT_FOUND,
    Errors.UNKNOWN_TOPIC_OR_PARTITION: Errors.UNKNOWN_TOPIC_OR_PARTITION,
}
"""What members hear where the keeper says this; of everything else UNKNOWN_SERVER_ERROR, as from Kafka."""


def told(answer: Answer | StateAnswer) -> Told:
    """A keeper's answer in the words that a member hears."""
    return MEANS.get(answer.error, Errors.UNKNOWN_SERVER_ERROR), answer.message


class Waiting(Protocol):
    """A fetch that wants to know when there may be records for it."""

    def look(self) -> None: ...


class SharePartitionServer:
    """One share partition. `failed` is what fetches are told once it cannot be served; None while it can."""

    __slots__ = (
        "_alarm", "_began_s", "_dead_letters", "_drop", "_node", "_rings_ms", "_share_coordinators",
        "_terms_of", "core", "failed", "key", "loaded", "partition", "topic", "waiting", "was_loaded",
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
        self._terms_of: object = None
        self.core = SharePartition(key, Terms())
        self.loaded = self.was_loaded = False
        self.failed: Told | None = None
        self.waiting: dict[Waiting, None] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._rings_ms = 0
        self._began_s = 0.0
        self._take_terms()

    def __repr__(self) -> str:
        return f"<{self.key}: {'loaded' if self.loaded else self.failed or 'loading'}>"

    # --- its life ---

    def load(self) -> None:
        """Ask the keeper; fetches wait meanwhile."""
        self._began_s = self._node.loop.time()
        asked = self._share_coordinators.submit(Read(self.key, self.partition.leader_epoch))
        asked.listen(self._load)

    def _load(self, answer: StateAnswer) -> None:
        if self.failed is not None:
            return
        if answer.error:
            self.fail(told(answer))
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
        self.wake()

    def _first_offset(self) -> int:
        """Where a group begins that has not read this partition: `share.auto.offset.reset`."""
        partition, reset = (
            self.partition,
            self._node.settings.group_configs.of(self.key.group_id)["share.auto.offset.reset"],
        )
        if reset == "earliest":
            return partition.start_offset
        if reset != "latest":
            ago_ms = duration_ms(reset.partition(":")[2]) or 0
            found = partition.at_timestamp(self._node.environment.wall_clock_ms() - ago_ms)
            if found is not None:
                return found[1]
        return partition.high_watermark

    def fail(self, why: Told) -> None:
        """Serve no more; whoever waits hears why."""
        if self.failed is None:
            self.failed = why
            self.loaded = False
            self._drop(self)
            if self._alarm is not None:
                self._alarm.cancel()
            self.wake()

    def wake(self) -> None:
        """Let the fetches that wait look again, in the order in which they came."""
        for waiting in list(self.waiting):
            waiting.look()

    def _take_terms(self) -> None:
        group_configs = self._node.settings.group_configs
        if self._terms_of is not group_configs:
            self._terms_of = group_configs
            self.core.terms = terms(self._node.settings, self._node.catalogue, self.key.group_id)

    def forget_terms(self) -> None:
        """What records are delivered by may be something else now."""
        self._terms_of = None

    # --- reading ---

    @property
    def can_acquire(self) -> bool:
        return self.loaded and self.core.can_acquire

    def upto(self) -> int:
        """Where the records end that the group may see."""
        end = self.partition.high_watermark
        return self.partition.log.last_stable_offset(end) if self.core.terms.read_committed else end

    def acquire(
        self, member_id: str, mode: AcquireMode, max_records: int, batch_size: int, max_bytes: int
    ) -> tuple[list[Acquired], list[bytes | memoryview]]:
        """Give a member what it may have, with the batches that hold it. Raises `LogError` or `CodecError`;
        then it was given nothing.

        What was read and is for nobody (markers, aborted records) is passed over, and more is read."""
        self._take_terms()
        acquired: list[Acquired] = []
        found: list[bytes | memoryview] = []
        count, left, size = 0, max_bytes, min(max_records * A_RECORD, MOST_AT_FIRST)
        while count < max_records and left > 0 and self.can_acquire:
            offset = self.core.next_fetch_offset
            try:
                data = self._read(offset, min(size, left), first=not found)
                read = list(batches(data))
            except (LogError, CodecError):
                if found:
                    break  # What it was given before is the member's. Its next fetch is told.
                raise
            if not read:
                break
            more = self._acquire(member_id, offset, read, mode, max_records - count, batch_size)
            if more:
                count += sum(last - first + 1 for first, last, _ in more)
                kept = _holding(data, read, more[0].first_offset, more[-1].last_offset)
                found.append(kept)
                acquired += more
                left -= len(kept)
                if self.core.next_fetch_offset < read[-1][0].next_offset:
                    break  # What is left of it is for another fetch, as records in their last attempts are.
            elif self.core.next_fetch_offset == offset:
                break
            size *= 2
        self._set_alarm()
        return acquired, found

    def size_ahead(self, enough: int) -> int:
        """Bytes that could be read for the group now; no more are counted than are enough."""
        offset = self.core.next_fetch_offset
        try:
            return len(self.partition.log.read(offset, enough, upto=self.upto()))
        except LogError:
            return enough

    def _read(self, offset: int, max_bytes: int, *, first: bool) -> bytes:
        log = self.partition.log
        try:
            return log.read(offset, max_bytes, upto=self.upto(), min_one=first)
        except OffsetOutOfRange:
            # The log's start has moved: the group begins there, and the member asks again.
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
            gone = partition_log.aborted_transactions(offset, read[-1][0].next_offset)
            aborted = [(a.producer_id, a.first_offset) for a in gone]
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

    def acknowledge(self, member_id: str, acks: list[Acknowledged]) -> Deferred[Told]:
        """Take what a member says; resolved when it is written."""
        answer: Deferred[Told] = Deferred()
        if not self.loaded:
            answer.resolve(self.failed or (Errors.UNKNOWN_TOPIC_OR_PARTITION, None))
            return answer
        self._take_terms()
        try:
            change = self.core.acknowledge(member_id, acks, self._now_ms())
        except DeliveryError as refused:
            answer.resolve((refused.error, refused.message))
            return answer
        self._set_alarm()
        if change is None:
            answer.resolve(FINE)
        else:
            self._write(change, answer)
        return answer

    def release(self, member_id: str) -> None:
        """The member is gone, or has closed its session: others may have what it held."""
        if self.loaded:
            self._write_behind(self.core.release(member_id))
            self.wake()

    # --- writing ---

    def _write_behind(self, change: Change | None) -> None:
        """Write what nobody waits for."""
        if change is not None:
            self._write(change, None)

    def _write(self, change: Change, waiter: Deferred[Told] | None) -> None:
        if not change.batches and change.start_offset < 0:
            self._written(change, waiter, Answer())
            return
        core = self.core
        request = Write(
            self.key, core.state_epoch, core.leader_epoch, change.start_offset,
            change.delivery_complete_count, change.batches,
        )  # fmt: skip
        self._share_coordinators.submit(request).listen(lambda answer: self._written(change, waiter, answer))

    def _written(self, change: Change, waiter: Deferred[Told] | None, answer: Answer) -> None:
        follow = self.core.finished(change, answer.error)
        if answer.error in GONE:
            self.fail(told(answer))
        elif self.failed is None:
            if not answer.error and change.dead_letters:
                self._dead_letters.send(self, change.dead_letters)
            self._write_behind(follow)
        if waiter is not None:
            waiter.resolve(told(answer))
        self.wake()

    def archived(self, letter: DeadLetter) -> None:
        """The copies of a dead letter are made, or cannot be: the records are done."""
        if self.failed is None:
            self._write_behind(self.core.archived(letter))

    # --- locks ---

    def _now_ms(self) -> int:
        """Rounded: a timer that rings when it should is not a moment early."""
        return round(self._node.loop.time() * 1000)

    def _set_alarm(self) -> None:
        ends = self.core.lock_end_ms
        if ends is None or (self._alarm is not None and self._rings_ms <= ends):
            return
        if self._alarm is not None:
            self._alarm.cancel()  # Locks are shorter by now than they were.
        self._rings_ms = ends
        self._alarm = self._node.loop.call_at(ends / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if not self.loaded:
            return
        self._write_behind(self.core.expire(self._now_ms()))
        self._set_alarm()
        self.wake()


def terms(settings: BrokerSettings, catalogue: ClusterCatalogue, group_id: str) -> Terms:
    """What a group's settings say of how its records are delivered."""
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


def _holding(
    data: bytes, read: list[tuple[BatchHeader, memoryview]], first: int, last: int
) -> bytes | memoryview:
    """The batches from the one with the first offset to the one with the last."""
    begin, end, at = 0, len(data), 0
    for header, view in read:
        if header.last_offset < first:
            begin = at + len(view)
        if header.base_offset > last:
            end = at
            break
        at += len(view)
    return data if begin == 0 and end == len(data) else memoryview(data)[begin:end]
