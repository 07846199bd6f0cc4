"""Follows the logs of a cluster's group coordinators with Fetch, as a consumer without a group does.

First the audit topic is read to its end, if the cluster has one, then `__consumer_offsets`; after that both
are followed. Outages are reported in `state` and retried. If the cluster was created anew (another cluster
id, or logs that end before what was read), reading starts again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from konvene.client.consumer.fetch import (
    EARLIEST,
    LATEST,
    LEADER_MOVED,
    FetchedBatches,
    fetch_batches,
    list_offsets,
)
from konvene.client.errors import ClientError, KafkaError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.batches import BatchHeader, Record, records
from konvene.codec.errors import CodecError
from konvene.codec.uuid import Uuid
from konvene.console.commits import CommittedOffsets
from konvene.console.rebalances import RebalanceHistory
from konvene.errors import Errors
from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC

__all__ = ["LogState", "LogTail", "wall_clock_ms"]

METADATA_S = 10.0
"""Interval between metadata requests once a log is read: the longest time until a new partition is found."""
RETRY_S = 1.0
WAIT_MS = 200
ANSWER_BYTES = 4 * 1024 * 1024
PARTITION_BYTES = 512 * 1024


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class LogState(NamedTuple):
    """How far the logs are read: `reading` up to their ends, `live`, or `unavailable`."""

    state: str = "reading"
    percent: int | None = None
    message: str | None = None


class _StartAgain(Exception):
    """The logs are not the ones that were read before."""


class LogTail:
    """The rebalances and committed offsets of a cluster, kept up to date by `run`."""

    def __init__(self, cluster: Cluster, changed: Callable[[], None]) -> None:
        """`changed` is called whenever something was read, or `state` has changed."""
        self.state = LogState()
        self.history = RebalanceHistory("")
        self.commits = CommittedOffsets()
        self._cluster = cluster
        self._changed = changed
        self._positions: dict[TopicPartition, int] = {}
        self._cluster_id: str | None = None
        """The cluster whose logs were read; `Cluster` is shared, so its metadata can be newer."""
        self._refreshed_s = self._audit_sought_s = float("-inf")

    def __repr__(self) -> str:
        return f"<tail of {self._cluster!r}, {self.state.state}>"

    async def run(self) -> None:
        """Read the logs until cancelled."""
        while True:
            try:
                await self._read_all()
            except _StartAgain:
                self._reset()
            except (ClientError, OSError) as error:
                self._set_state(LogState("unavailable", None, str(error)))
                self._refreshed_s = float("-inf")
                await asyncio.sleep(RETRY_S)

    def _reset(self) -> None:
        self.history = RebalanceHistory(self._cluster.metadata.cluster_id or "")
        self.commits = CommittedOffsets()
        self._positions.clear()
        self._refreshed_s = float("-inf")
        self._set_state(LogState())

    def _set_state(self, state: LogState) -> None:
        if state != self.state:
            self.state = state
            self._changed()

    async def _read_all(self) -> None:
        await self._refresh()
        await self._catch_up(AUDIT_TOPIC)
        await self._catch_up(OFFSETS_TOPIC)
        self.history.release(None if not self.history.has_audit else wall_clock_ms())
        self._set_state(LogState("live"))
        while True:
            await self._refresh()
            if not self._positions:
                await asyncio.sleep(RETRY_S)
                continue
            await self._round(self._positions)
            self.history.release(wall_clock_ms())

    # --- what there is to read ---

    async def _refresh(self) -> None:
        """Refresh the metadata if its interval has passed, and begin to read new partitions."""
        now_s = time.monotonic()
        interval_s = METADATA_S if self._positions else RETRY_S
        if now_s - self._refreshed_s >= interval_s:
            await self._cluster.refresh()
        elif not self.history.has_audit and now_s - self._audit_sought_s >= RETRY_S:
            self._audit_sought_s = now_s
            await self._cluster.refresh([AUDIT_TOPIC])
            return
        elif self._is_same_cluster() and self._positions.keys() >= set(self._partitions()):
            return
        if not self._is_same_cluster():
            raise _StartAgain
        self._cluster_id = self._cluster.metadata.cluster_id
        self._refreshed_s = now_s
        fresh = [tp for tp in self._partitions() if tp not in self._positions]
        if fresh:
            first = await list_offsets(self._cluster, dict.fromkeys(fresh, EARLIEST))
            self._positions |= {tp: first[tp].offset for tp in fresh}
        self._learn_topics()
        if (
            any(tp.topic == AUDIT_TOPIC for tp in fresh)
            and self.history.version
            and not self.history.has_audit
        ):
            raise _StartAgain  # The audit explains rebalances that were inferred until now.
        self.history.has_audit = any(tp.topic == AUDIT_TOPIC for tp in self._positions)

    def _is_same_cluster(self) -> bool:
        return not self._positions or self._cluster.metadata.cluster_id == self._cluster_id

    def _learn_topics(self) -> None:
        names = {str(Uuid(topic_id)): name for topic_id, name in self._cluster.metadata.names.items()}
        offsets = self._cluster.metadata.topics.get(OFFSETS_TOPIC)
        self.history.learn_topics(names, 0 if offsets is None else len(offsets.partitions))

    def _partitions(self) -> list[TopicPartition]:
        """Return the partitions of both topics that have a leader."""
        topics = self._cluster.metadata.topics
        return [
            TopicPartition(name, each.partition)
            for name in (AUDIT_TOPIC, OFFSETS_TOPIC)
            if name in topics and topics[name].error_code == 0
            for each in topics[name].partitions
            if each.leader >= 0
        ]

    # --- reading ---

    async def _catch_up(self, topic: str) -> None:
        """Read a topic up to its current ends."""
        positions = {tp: at for tp, at in self._positions.items() if tp.topic == topic}
        latest = await list_offsets(self._cluster, dict.fromkeys(positions, LATEST)) if positions else {}
        ends = {tp: at.offset for tp, at in latest.items()}
        if any(positions[tp] > end for tp, end in ends.items()):
            raise _StartAgain
        total = sum(ends[tp] - positions[tp] for tp in ends)
        while behind := {tp: self._positions[tp] for tp in ends if self._positions[tp] < ends[tp]}:
            await self._round(behind)
            left = sum(max(ends[tp] - self._positions[tp], 0) for tp in ends)
            if topic == OFFSETS_TOPIC:
                self._set_state(LogState("reading", 100 * (total - left) // max(total, 1)))

    async def _round(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch once and pass on what was returned, audit rows first."""
        fetched = await fetch_batches(
            self._cluster, dict(positions), max_wait_ms=WAIT_MS, max_bytes=ANSWER_BYTES,
            partition_max_bytes=PARTITION_BYTES, lane=self,
        )  # fmt: skip
        found = False
        for got in sorted(fetched, key=lambda got: got.partition.topic != AUDIT_TOPIC):
            if got.error_code:
                await self._handle_error(got)
            elif got.batches:
                found = True
                for header, batch in got.batches:
                    self._apply(got.partition, header, batch)
                self._positions[got.partition] = got.next_offset
                await asyncio.sleep(0)  # Let viewers be served between two partitions.
        if found:
            self._changed()

    def _apply(self, tp: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
        decoded: list[Record] = []
        with contextlib.suppress(CodecError):  # The reducer takes an empty batch for missing records.
            decoded = records(batch, header)
        if tp.topic == AUDIT_TOPIC:
            self.history.add_audit(tp.partition, decoded)
            return
        self.commits.take(tp.partition, header, decoded)
        held = header.base_offset, header.last_offset, decoded
        self.history.hold(tp.partition, *held, wall_clock_ms())

    async def _handle_error(self, got: FetchedBatches) -> None:
        """Handle an error for a partition: wait for a new leader, or continue at the start of the log.

        Raises `KafkaError` for other errors."""
        tp = got.partition
        if got.error_code in LEADER_MOVED:
            self._cluster.forget_topic(tp.topic)
            await asyncio.sleep(RETRY_S)
        elif got.error_code == Errors.OFFSET_OUT_OF_RANGE:
            first = (await list_offsets(self._cluster, {tp: EARLIEST}))[tp].offset
            if first < self._positions[tp]:
                raise _StartAgain  # The log ends before what was read.
            self._positions[tp] = first
        else:
            raise KafkaError(got.error_code, about=f"reading {tp} at offset {self._positions[tp]}")
