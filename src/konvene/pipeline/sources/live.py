"""Follows the logs of a live cluster into a directory of segments, over plain Fetch.

`konvene explain host:port` and `explain follow` read that directory like a broker's own: this module only
copies bytes. It reads like a consumer without a group that commits nothing, from where the directory ends,
including uncommitted records; any Kafka broker supports that. Memory holds one response, which is bounded.

    with LiveReader("localhost:9092", "spool") as reader:
        reader.catch_up()            # up to the current ends
        while True:
            news = reader.poll()     # new batches, or nothing after a second

Of user topics it reads the log ends and keeps the header of the last batch, at most every half minute.
`read_range` fetches without a directory, for a Spark task.

It must poll often enough: records that compaction removes before they are fetched are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from konvene.client.consumer.fetch import (
    EARLIEST,
    LATEST,
    LEADER_MOVED,
    READ_UNCOMMITTED,
    FetchedBatches,
    fetch_batches,
    list_offsets,
    read_error,
)
from konvene.client.errors import BadResponse, ClientError, KafkaError
from konvene.client.net.cluster import Cluster, Connect, Metadata, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.codec.batches import BatchHeader
from konvene.errors import Errors
from konvene.pipeline.sources.spool import (
    SEGMENT_BYTES,
    SPOOLED_TOPICS,
    LogWentBack,
    Spool,
    SpoolError,
    WrongCluster,
)

if TYPE_CHECKING:
    from konvene.pipeline.sources.group_polls import GroupPoller

__all__ = [
    "SPOOLED_TOPICS", "Appended", "LiveReader", "LogWentBack", "SpoolError", "WrongCluster", "ends",
    "in_turn", "ranges", "read_range",
]  # fmt: skip

T = TypeVar("T")

METADATA_MS = 10_000
"""Interval between metadata requests: the longest time until a new topic is found."""
LOG_ENDS_MS = 30_000
ANSWER_BYTES = 16 * 1024 * 1024
PARTITION_BYTES = 1024 * 1024


class Appended(NamedTuple):
    """Batches that one call added to a partition, from `first_offset` to before `next_offset`."""

    partition: TopicPartition
    first_offset: int
    next_offset: int
    batches: int
    bytes: int


class LiveReader:
    """Copies the coordinator logs of a live cluster into a directory, which it locks."""

    def __init__(
        self, bootstrap: str, directory: str | Path, *, topics: Sequence[str] = SPOOLED_TOPICS,
        settings: ClientSettings | None = None, segment_bytes: int = SEGMENT_BYTES, log_ends: bool = True,
        connect: Connect | None = None,
    ) -> None:  # fmt: skip
        self.topics = tuple(topics)
        self.spool = Spool(directory, topics=self.topics, segment_bytes=segment_bytes)
        self._with_ends = log_ends
        self._cluster = Cluster(bootstrap, settings, connect=connect)
        self._runner = asyncio.Runner()
        self._positions: dict[TopicPartition, int] = {}
        self._last_request_s: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"LiveReader({self._cluster!r} into {str(self.spool.directory)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._runner.run(self._cluster.close())
        finally:
            self._runner.close()
            self.spool.close()

    @property
    def cluster_id(self) -> str | None:
        """The cluster id that the broker reported; None before the first call."""
        return self._cluster.metadata.cluster_id

    def catch_up(self) -> list[Appended]:
        """Read up to the current ends of the logs. Raises `ClientError` and `SpoolError`."""
        return self._runner.run(self.catch_up_async())

    def poll(self, wait_ms: int = 1000) -> list[Appended]:
        """Fetch once: return the available batches, or wait up to `wait_ms` for the first ones; may return
        none."""
        return self._runner.run(self.poll_async(wait_ms))

    def describe_groups(self, poller: GroupPoller) -> list[str]:
        """Describe the cluster's groups once, and return the poller's notes."""
        return self._runner.run(poller.poll(self._cluster))

    async def catch_up_async(self) -> list[Appended]:
        await self._refresh_metadata()
        targets = await ends(self._cluster, self._positions)
        total: dict[TopicPartition, Appended] = {}
        while any(self._positions[tp] < end for tp, end in targets.items()):
            behind = {tp: self._positions[tp] for tp, end in targets.items() if self._positions[tp] < end}
            for each in await self._round(behind, wait_ms=500):
                total[each.partition] = _sum(total.get(each.partition), each)
        return [total[tp] for tp in sorted(total)]

    async def poll_async(self, wait_ms: int = 1000) -> list[Appended]:
        await self._refresh_metadata()
        if not self._positions:
            await asyncio.sleep(wait_ms / 1000)
            return []
        return await self._round(self._positions, wait_ms)

    async def _round(self, positions: Mapping[TopicPartition, int], wait_ms: int) -> list[Appended]:
        answers = await fetch_batches(
            self._cluster, positions, max_wait_ms=wait_ms, max_bytes=ANSWER_BYTES,
            partition_max_bytes=PARTITION_BYTES,
        )  # fmt: skip
        appended = []
        for got in answers:
            if got.error_code:
                await self._refused(got)
            elif got.batches:
                for header, batch in got.batches:
                    self.spool.append(got.partition, header, batch)
                self._positions[got.partition] = got.next_offset
                appended.append(_appended(got))
        self.spool.sync()
        return sorted(appended)

    async def _refused(self, got: FetchedBatches) -> None:
        """Handle an error for a partition: wait for a new leader, or move to the log's new start.

        Raises `ClientError` for other errors."""
        tp = got.partition
        if got.error_code in LEADER_MOVED:
            self._cluster.forget_topic(tp.topic)
            await asyncio.sleep(self._cluster.settings.retry_backoff_ms / 1000)
        elif got.error_code == Errors.OFFSET_OUT_OF_RANGE:
            self._positions[tp] = (await self._begin([tp]))[tp]
        else:
            raise read_error(got, self._positions[tp])

    # what there is to read

    async def _refresh_metadata(self) -> None:
        """Refresh the metadata, and the ends of logs of user topics, if their intervals have passed."""
        if self._is_due("metadata", METADATA_MS):
            metadata = await self._cluster.refresh()
            self.spool.adopt(metadata.cluster_id)
            for topic in metadata.topics.values():
                if topic.error_code == 0:
                    self.spool.name_topic(topic.name, topic.topic_id)
            fresh = [tp for tp in _partitions(metadata, self.topics) if tp not in self._positions]
            self._positions |= await self._begin(fresh)
        if self._with_ends and self._is_due("ends", LOG_ENDS_MS):
            await self._read_ends()

    def _is_due(self, what: str, every_ms: int) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._last_request_s.get(what, -1e9) < every_ms / 1000:
            return False
        self._last_request_s[what] = now_s
        return True

    async def _begin(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets to continue from: the stored end, or the start of the log if that is later.

        In the second case a new segment begins, as the records in between are lost. Raises `LogWentBack` if a
        log ends before what is stored."""
        if not partitions:
            return {}
        first = await list_offsets(self._cluster, dict.fromkeys(partitions, EARLIEST))
        last = await ends(self._cluster, partitions)
        begun = {}
        for tp in partitions:
            here = self.spool.position(tp)
            if here is not None and here > last[tp]:
                raise LogWentBack(
                    f"{tp} ends at offset {last[tp]}, but {self.spool.directory} has it up to {here}: the "
                    "log was cut off or made anew since. Choose another directory"
                )
            if here is not None and here < first[tp].offset:
                self.spool.cut(tp)  # The offsets in between are lost.
            begun[tp] = max(first[tp].offset, here or 0)
        return begun

    async def _read_ends(self) -> None:
        """Fetch the last batch header of each user topic partition that has grown."""
        users = [
            topic.name
            for topic in self._cluster.metadata.topics.values()
            if topic.error_code == 0 and not topic.is_internal and topic.name not in self.topics
        ]
        requested = _partitions(self._cluster.metadata, users)
        try:
            last = await ends(self._cluster, requested)
        except KafkaError as error:
            if error.code not in LEADER_MOVED:
                raise
            return  # The topic is being deleted; retry next time.
        grown = {}
        for tp, end in last.items():
            here = self.spool.position(tp)
            if here is not None and end < here:
                self.spool.drop(tp)
            if end > 0 and here != end:
                grown[tp] = end - 1
        if grown:
            await self._read_last(grown)

    async def _read_last(self, positions: dict[TopicPartition, int]) -> None:
        while positions:
            answers = await fetch_batches(
                self._cluster, positions, max_wait_ms=0, max_bytes=ANSWER_BYTES,
                partition_max_bytes=PARTITION_BYTES,
            )  # fmt: skip
            answered = [got for got in answers if got.batches]
            for got in answered:
                del positions[got.partition]
                for header, batch in got.batches:
                    self.spool.append(got.partition, header, batch)
            if not answered:  # The rest was deleted, or moved: retry next time.
                break
        self.spool.sync()


async def ends(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Return the current end offset of each partition; with READ_COMMITTED that is the last stable offset."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation_level=isolation_level)
    return {tp: at.offset for tp, at in found.items()}


async def ranges(cluster: Cluster, topics: Sequence[str]) -> dict[TopicPartition, tuple[int, int]]:
    """Return start and end offset of each partition of these topics that has a leader."""
    partitions = _partitions(await cluster.refresh(), topics)
    if not partitions:
        return {}
    first = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    last = await ends(cluster, partitions)
    return {tp: (first[tp].offset, last[tp]) for tp in partitions}


async def read_range(
    cluster: Cluster, partition: TopicPartition, start: int, end: int, *,
    isolation_level: int = READ_UNCOMMITTED, fetch_bytes: int = 4 * PARTITION_BYTES,
) -> AsyncIterator[list[tuple[BatchHeader, memoryview]]]:  # fmt: skip
    """Yield the batches that have offsets from `start` to before `end`, one Fetch response at a time.

    Raises `KafkaError` OFFSET_OUT_OF_RANGE if the log does not have them any more."""
    position = start
    patience = cluster.patience()
    while position < end:
        try:
            (got,) = await fetch_batches(
                cluster, {partition: position}, partition_max_bytes=fetch_bytes,
                isolation_level=isolation_level,
            )  # fmt: skip
            if got.error_code:
                raise read_error(got, position)
        except ClientError as error:
            cluster.forget_topic(partition.topic)
            await patience.after(error)
            continue
        if got.next_offset == position:
            await patience.pause(
                BadResponse(f"{partition} has nothing at offset {position}, and should up to {end}")
            )
            continue
        patience = cluster.patience()
        inside = [(header, batch) for header, batch in got.batches if header.base_offset < end]
        if inside:
            yield inside
        position = got.next_offset


def _partitions(metadata: Metadata, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of these topics that have a leader."""
    return [
        TopicPartition(topic, each.partition)
        for topic in topics
        if topic in metadata.topics and metadata.topics[topic].error_code == 0
        for each in metadata.topics[topic].partitions
        if each.leader >= 0
    ]


def _appended(got: FetchedBatches) -> Appended:
    size = sum(header.size for header, _ in got.batches)
    return Appended(got.partition, got.batches[0][0].base_offset, got.next_offset, len(got.batches), size)


def _sum(before: Appended | None, more: Appended) -> Appended:
    if before is None:
        return more
    return before._replace(
        next_offset=more.next_offset,
        batches=before.batches + more.batches,
        bytes=before.bytes + more.bytes,
    )


def in_turn(items: AsyncIterator[T], runner: asyncio.Runner) -> Iterator[T]:
    """Yield the items of an asynchronous iterator to synchronous code, waiting for each with `runner`."""

    async def following() -> T | None:
        return await anext(items, None)

    while (item := runner.run(following())) is not None:
        yield item
