"""The share coordinators of this broker: one for each partition of `__share_group_state`.

Share partitions and group coordinators of this node call `submit`; handlers of network requests call
`submit_without_retry`. An answer is given once the state is durable, as `konvene.log.fsync.internal` defines
it for all coordinators: a kill never undoes an answered write, and with the setting a power failure does not
either.

A coordinator may not be ready: it is reading its log, or its topic is being created. Meanwhile requests to
`submit` wait here, in order for each share partition, for as long as Kafka waits for a write. A write that
was lost because the coordinator reloaded its log is submitted again: writing the same state twice changes
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from konvene.codec.batches import BatchHeader, records
from konvene.codec.uuid import Uuid
from konvene.errors import MESSAGES, Errors
from konvene.internal_topics import SHARE_STATE_TOPIC
from konvene.log.errors import LogError
from konvene.records.coordinator import SHARE_STATE_RECORDS, Record, decode_record, encode_record
from konvene.records.share_state import ShareSnapshotKey
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.runtime.coordinators import Coordinators
from konvene.runtime.deferred import Deferred
from konvene.runtime.ports import Pair, RecordSerde
from konvene.shard.contract import Effect
from konvene.share_state.pruning import DELETE_RECORDS
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    Read,
    ReadSummary,
    SharePartitionKey,
    StateAnswer,
    SummaryAnswer,
    TopicsDeleted,
    Write,
)
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import PositionedRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from konvene.broker.node_services import NodeServices

log = logging.getLogger("konvene.share_states")

BROKER = RequestContext(client_id="broker")

RETRY_S = 0.05
"""Delay before a request is submitted again whose coordinator was not ready, in seconds."""

MAX_CACHED_INDEXES = 20_000
"""Number of share partitions whose coordinator index is cached. Keys from network requests are not cached."""

NOT_READY = frozenset(
    (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR)
)
"""Errors of a coordinator after which a request waits and is submitted again."""

AnyAnswer = Answer | StateAnswer | SummaryAnswer

ERROR_ANSWERS: dict[type, type[AnyAnswer]] = {
    Initialize: Answer,
    Read: StateAnswer,
    Write: Answer,
    Delete: Answer,
    ReadSummary: SummaryAnswer,
}
"""The class of the answer to each request; it can be made of an error and its message."""

Request = Initialize | Read | Write | Delete | ReadSummary


def _encode(record: PositionedRecord | Record) -> Pair:
    return encode_record(
        record.record if isinstance(record, PositionedRecord) else record, SHARE_STATE_RECORDS
    )


def _read(batch: memoryview, header: BatchHeader) -> Iterator[tuple[int, int, PositionedRecord | Record]]:
    for entry in () if header.is_control else records(batch, header):
        record = decode_record(entry.key or b"", entry.value, SHARE_STATE_RECORDS)
        if record is not None:
            is_snapshot = type(record.key) is ShareSnapshotKey
            yield (
                entry.offset,
                entry.timestamp,
                PositionedRecord(entry.offset, record) if is_snapshot else record,
            )


SHARE_STATE_SERDE = RecordSerde(_encode, _read)


class PendingRequest:
    """A request and its future answer.

    `deadline_s` is set when the request first waits for its coordinator: the time at which it fails."""

    __slots__ = ("answer", "began_s", "deadline_s", "request")

    def __init__(self, request: Request, began_s: float) -> None:
        self.request = request
        self.answer: Deferred[Any] = Deferred()
        self.began_s = began_s
        self.deadline_s: float | None = None

    def __repr__(self) -> str:
        return f"<{type(self.request).__name__} of {self.request.key}>"

    def reject(self, error: Errors) -> None:
        """Resolve the answer with an error and its message, in the type of the request's answer."""
        self.answer.resolve(ERROR_ANSWERS[type(self.request)](error, MESSAGES.get(error)))


class ShareCoordinators(Coordinators):
    """The share coordinators, and the requests that wait for one to be ready."""

    def __init__(self, node: NodeServices) -> None:
        super().__init__(SHARE_STATE_TOPIC, node.loop, node.topic_creator)
        self._node = node
        self._indexes: dict[SharePartitionKey, int] = {}
        self._waiting: dict[SharePartitionKey, deque[PendingRequest]] = {}
        self._retry_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def shard_of(self, key: SharePartitionKey) -> ShareStateShard | None:
        """Return the shard of a share partition's coordinator, if it is active."""
        coordinator = self._of(key) if self._coordinators else None
        if coordinator is None or coordinator.state != "active":
            return None
        assert isinstance(coordinator.core, ShareStateShard)
        return coordinator.core

    @overload
    def submit(self, request: Read) -> Deferred[StateAnswer]: ...
    @overload
    def submit(self, request: ReadSummary) -> Deferred[SummaryAnswer]: ...
    @overload
    def submit(self, request: Initialize | Write | Delete) -> Deferred[Answer]: ...
    def submit(self, request: Request) -> Deferred[Any]:
        """Submit a request; return a deferred of its answer, of a type in `share_state.requests`.

        It is retried while the coordinator is not ready, up to `share.coordinator.write.timeout.ms`."""
        meter = self._node.meter
        pending = PendingRequest(request, 0.0 if meter is None else meter.now_s)
        if self._coordinators and request.key not in self._waiting:
            self._submit(pending)
        else:
            self._wait(pending)
        return pending.answer

    def submit_without_retry(self, request: Request) -> Deferred[AnyAnswer | Errors]:
        """Submit a request once, for clients that retry; return a deferred of its answer, or of `Errors`."""
        coordinator = self.of(str(request.key))
        if coordinator is None:
            answer: Deferred[AnyAnswer | Errors] = Deferred()
            answer.resolve(Errors.NOT_COORDINATOR)
            return answer
        return coordinator.submit(request, BROKER)

    def topic_deleted(self, topic_id: Uuid) -> None:
        """Delete the state of a deleted topic's share partitions in all coordinators."""
        for coordinator in self.all():
            coordinator.inform(TopicsDeleted(frozenset((topic_id,))))

    # --- submitting ---

    def _of(self, key: SharePartitionKey) -> Coordinator | None:
        index = self._indexes.get(key)
        if index is None:
            if len(self._indexes) >= MAX_CACHED_INDEXES:
                self._indexes.clear()
            index = self._indexes[key] = self.index_of(str(key))
        return self._coordinators[index]

    def _submit(self, pending: PendingRequest) -> None:
        coordinator = self._of(pending.request.key)
        if coordinator is None or coordinator.state == "failed":
            # Its log is damaged or its disk failed: waiting does not help.
            pending.reject(Errors.COORDINATOR_NOT_AVAILABLE)
        else:
            coordinator.submit(pending.request, BROKER).listen(partial(self._on_answer, pending))

    def _on_answer(self, pending: PendingRequest, answer: object) -> None:
        """Resolve a request with its answer; if its coordinator was not ready, queue it again."""
        if not isinstance(answer, Errors):
            meter = self._node.meter
            if meter is not None and type(pending.request) is Write:
                meter.share_write_s.add(meter.now_s - pending.began_s)
            pending.answer.resolve(answer)
        elif answer not in NOT_READY:
            pending.reject(answer)
        elif pending.deadline_s is not None and pending.deadline_s <= self._node.loop.time():
            is_moved = answer is Errors.NOT_COORDINATOR
            pending.reject(Errors.COORDINATOR_NOT_AVAILABLE if is_moved else answer)
        else:
            self._wait(pending)

    # --- waiting ---

    def _wait(self, pending: PendingRequest) -> None:
        """Queue a request until its coordinator is ready; create the topic if it does not exist."""
        loop = self._node.loop
        if self._closed:
            pending.reject(Errors.COORDINATOR_NOT_AVAILABLE)
            return
        if pending.deadline_s is None:
            timeout_ms = self._node.settings.config["share.coordinator.write.timeout.ms"]
            pending.deadline_s = loop.time() + timeout_ms / 1000
        self._waiting.setdefault(pending.request.key, deque()).append(pending)
        if not self._coordinators and (self._making is None or self._making.done()):
            self._making = loop.create_task(self._make_ready())
            self._making.add_done_callback(self._made)
        if self._retry_timer is None:
            self._retry_timer = loop.call_later(RETRY_S, self._retry_waiting)

    def _made(self, making: asyncio.Task[None]) -> None:
        """Submit the waiting requests if the topic was created; otherwise the next retry tries again."""
        if making.cancelled():
            return
        error = making.exception()
        if error is not None:
            log.error("cannot create the topic %s: %r", SHARE_STATE_TOPIC, error)
        elif self._coordinators:
            self._retry_waiting()

    def _retry_waiting(self) -> None:
        """Submit the waiting requests again, in the order in which they arrived."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        waiting, self._waiting = self._waiting, {}
        for queue in waiting.values():
            for pending in queue:
                if self._coordinators:
                    self._submit(pending)
                elif pending.deadline_s is not None and pending.deadline_s <= self._node.loop.time():
                    pending.reject(Errors.COORDINATOR_NOT_AVAILABLE)
                else:
                    self._wait(pending)

    # --- coordinators ---

    def _coordinator(self, index: int) -> Coordinator | None:
        """Return a coordinator for partition `index`, or None if its log is damaged."""
        node = self._node
        partition = node.partitions.get(SHARE_STATE_TOPIC, index)
        if partition is None:
            return None
        return Coordinator(
            f"{SHARE_STATE_TOPIC}-{index}",
            self._make_shard,
            SHARE_STATE_SERDE,
            replace(
                node.coordinator_ports(partition, self.wrap_journal),
                perform=lambda effect: self._perform(index, effect),
            ),
        )

    def _make_shard(self) -> ShareStateShard:
        updates = self._node.settings.config["share.coordinator.snapshot.update.records.per.snapshot"]
        meter = self._node.meter
        return ShareStateShard(updates) if meter is None else meter.make_share_states(updates)

    def _perform(self, index: int, effect: Effect) -> None:
        """Delete the records of the log that newer snapshots have replaced, as the effect requests."""
        assert effect.verb == DELETE_RECORDS
        partition = self._node.partitions.get(SHARE_STATE_TOPIC, index)
        if partition is None or effect.subject <= partition.log.start_offset:
            return
        try:
            partition.log.delete_records_before(effect.subject)
        except LogError as error:
            log.error("%r: cannot delete the records before offset %d: %s", partition, effect.subject, error)
            return
        if self._node.meter is not None:
            self._node.meter.share_cut_at[index] = effect.subject

    async def close(self) -> None:
        """Stop the share coordinators; reject waiting requests with COORDINATOR_NOT_AVAILABLE."""
        self._closed = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self._making is not None:
            self._making.cancel()
        waiting, self._waiting = self._waiting, {}
        for queue in waiting.values():
            for pending in queue:
                pending.reject(Errors.COORDINATOR_NOT_AVAILABLE)
        await super().close()
