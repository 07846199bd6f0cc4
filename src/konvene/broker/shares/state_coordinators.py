"""The share coordinators of this broker: one for each partition of `__share_group_state`.

Who asks is in this process: deliveries and group coordinators call `submit`, and requests from the wire end
up there as well. The answer is there when what it says is durable, as durable as `konvene.log.fsync.internal`
makes all that coordinators write: a kill never takes back what was answered, and with the setting a power
cut does not either.

A coordinator that is not ready will be soon: it reads its log, or its topic is being made. Whoever comes
meanwhile waits here, behind those who came before about the same share partition, for as long as Kafka waits
for a write. A write that was lost with the coordinator's state is asked again: to be told twice what became
of a record changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

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
"""When a request is asked again whose coordinator was not ready."""

MAX_CACHED_INDEXES = 20_000
"""Of so many share partitions it is remembered which coordinator has them. Those that strangers name are not
among them."""

NOT_READY = frozenset(
    (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR)
)

ERROR_ANSWERS: dict[type, type[Any]] = {
    Initialize: Answer,
    Read: StateAnswer,
    Write: Answer,
    Delete: Answer,
    ReadSummary: SummaryAnswer,
}

Request = Initialize | Read | Write | Delete | ReadSummary


def _encode(record: PositionedRecord | Record) -> Pair:
    return encode_record(
        record.record if isinstance(record, PositionedRecord) else record, SHARE_STATE_RECORDS
    )


def _read(batch: memoryview, header: BatchHeader) -> Iterator[tuple[int, int, Any]]:
    for entry in () if header.is_control else records(batch, header):
        record = decode_record(entry.key or b"", entry.value, SHARE_STATE_RECORDS)
        if record is not None:
            kept = PositionedRecord(entry.offset, record) if type(record.key) is ShareSnapshotKey else record
            yield entry.offset, entry.timestamp, kept


SHARE_STATE_SERDE = RecordSerde(_encode, _read)


class PendingRequest:
    """A request and who waits for its answer. Its coordinator may be unready until the deadline."""

    __slots__ = ("answer", "began_s", "deadline", "request")

    def __init__(self, request: Request, began_s: float) -> None:
        self.request = request
        self.answer: Deferred[Any] = Deferred()
        self.began_s = began_s
        self.deadline: float | None = None

    def __repr__(self) -> str:
        return f"<{type(self.request).__name__} of {self.request.key}>"


class ShareCoordinators(Coordinators):
    """Which coordinator has which share partition, and who waits for one."""

    def __init__(self, node: NodeServices) -> None:
        super().__init__(SHARE_STATE_TOPIC, node.loop, node.topic_creator)
        self._node = node
        self._indexes: dict[SharePartitionKey, int] = {}
        self._waiting: dict[SharePartitionKey, deque[PendingRequest]] = {}
        self._again: asyncio.TimerHandle | None = None
        self._closed = False

    def shard_of(self, key: SharePartitionKey) -> ShareStateShard | None:
        """The state of an active coordinator."""
        coordinator = self._of(key) if self._coordinators else None
        if coordinator is None or coordinator.state != "active":
            return None
        assert isinstance(coordinator.core, ShareStateShard)
        return coordinator.core

    def submit(self, request: Request) -> Deferred[Any]:
        """What the coordinator of its share partition answers: a value of `share_state.requests`."""
        meter = self._node.meter
        asked = PendingRequest(request, 0.0 if meter is None else meter.now_s)
        if self._coordinators and request.key not in self._waiting:
            self._ask(asked)
        else:
            self._wait(asked)
        return asked.answer

    def submit_without_retry(self, request: Request) -> Deferred[Any]:
        """The same for somebody who asks again by himself: the answer, or what is the matter (`Errors`)."""
        coordinator = self.of(str(request.key))
        if coordinator is None:
            answer: Deferred[Any] = Deferred()
            answer.resolve(Errors.NOT_COORDINATOR)
            return answer
        return coordinator.submit(request, BROKER)

    def topic_deleted(self, topic_id: Uuid) -> None:
        """Let all coordinators forget what they know of a topic that is gone."""
        for coordinator in self.all():
            coordinator.inform(TopicsDeleted(frozenset((topic_id,))))

    # --- asking ---

    def _of(self, key: SharePartitionKey) -> Coordinator | None:
        index = self._indexes.get(key)
        if index is None:
            if len(self._indexes) >= MAX_CACHED_INDEXES:
                self._indexes.clear()
            index = self._indexes[key] = self.index_of(str(key))
        return self._coordinators[index]

    def _ask(self, asked: PendingRequest) -> None:
        coordinator = self._of(asked.request.key)
        if coordinator is None or coordinator.state == "failed":
            # Its log is damaged, or the disk is gone: that does not change by waiting.
            self._tell(asked, Errors.COORDINATOR_NOT_AVAILABLE)
        else:
            coordinator.submit(asked.request, BROKER).listen(partial(self._answered, asked))

    def _answered(self, asked: PendingRequest, told: Any) -> None:
        if not isinstance(told, Errors):
            meter = self._node.meter
            if meter is not None and type(asked.request) is Write:
                meter.share_write_s.add(meter.now_s - asked.began_s)
            asked.answer.resolve(told)
        elif told not in NOT_READY:
            self._tell(asked, told)
        elif asked.deadline is not None and asked.deadline <= self._node.loop.time():
            self._tell(asked, Errors.COORDINATOR_NOT_AVAILABLE if told is Errors.NOT_COORDINATOR else told)
        else:
            self._wait(asked)

    def _tell(self, asked: PendingRequest, error: Errors) -> None:
        asked.answer.resolve(ERROR_ANSWERS[type(asked.request)](error, MESSAGES.get(error)))

    # --- waiting ---

    def _wait(self, asked: PendingRequest) -> None:
        loop = self._node.loop
        if self._closed:
            self._tell(asked, Errors.COORDINATOR_NOT_AVAILABLE)
            return
        if asked.deadline is None:
            within_ms = self._node.settings.config["share.coordinator.write.timeout.ms"]
            asked.deadline = loop.time() + within_ms / 1000
        self._waiting.setdefault(asked.request.key, deque()).append(asked)
        if not self._coordinators and (self._making is None or self._making.done()):
            self._making = loop.create_task(self._make_ready())
            self._making.add_done_callback(self._made)
        if self._again is None:
            self._again = loop.call_later(RETRY_S, self._look)

    def _made(self, making: asyncio.Task[None]) -> None:
        """If nothing came of it, it is tried again when somebody looks the next time."""
        if making.cancelled():
            return
        error = making.exception()
        if error is not None:
            log.error("%s could not be made: %r", SHARE_STATE_TOPIC, error)
        elif self._coordinators:
            self._look()

    def _look(self) -> None:
        """Ask again for all who wait, in the order in which they came."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        waiting, self._waiting = self._waiting, {}
        for those in waiting.values():
            for asked in those:
                if self._coordinators:
                    self._ask(asked)
                elif asked.deadline is not None and asked.deadline <= self._node.loop.time():
                    self._tell(asked, Errors.COORDINATOR_NOT_AVAILABLE)
                else:
                    self._wait(asked)

    # --- coordinators ---

    def _coordinator(self, index: int) -> Coordinator | None:
        """None where the partition's log is damaged."""
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
        assert effect.verb == DELETE_RECORDS
        partition = self._node.partitions.get(SHARE_STATE_TOPIC, index)
        if partition is None or effect.subject <= partition.log.start_offset:
            return
        try:
            partition.log.delete_records_before(effect.subject)
        except LogError as error:
            log.error("%r could not be cut at offset %d: %s", partition, effect.subject, error)
            return
        if self._node.meter is not None:
            self._node.meter.share_cut_at[index] = effect.subject

    async def close(self) -> None:
        """Serve no more; who waits is told that there is no coordinator."""
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        if self._making is not None:
            self._making.cancel()
        waiting, self._waiting = self._waiting, {}
        for those in waiting.values():
            for asked in those:
                self._tell(asked, Errors.COORDINATOR_NOT_AVAILABLE)
        await super().close()
