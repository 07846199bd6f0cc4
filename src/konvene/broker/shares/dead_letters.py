"""Dead letter queues of share groups (KIP-1191): undeliverable records are copied to a topic, then archived.

The headers of a copy name the source of the record and the cause. It has the record's key and value only if
the group's configs require that. If a copy cannot be written, the failure is logged and counted, and the
record is archived nevertheless: a misconfigured queue does not stop a group.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from konvene.broker.storage.partitions import Partition, Refused
from konvene.cluster.state import ResourceType
from konvene.codec.batches import Record, build, records
from konvene.codec.errors import CodecError
from konvene.configs.effective import topic_values
from konvene.delivery.contract import DeadLetter
from konvene.log.errors import LogError
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.runtime.coordinator import RequestContext

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices
    from konvene.broker.shares.share_partition import SharePartitionServer

log = logging.getLogger("konvene.sharing")

ENABLE_CONFIG = "errors.deadletterqueue.group.enable"
MAX_COPIED_BATCH_BYTES = 16 * 1024 * 1024
"""Records of larger batches (decompressed) are copied without key and value."""
OVERHEAD_BYTES = 100
"""Estimated size of a copy without its key, value and headers."""


class DeadLetterTopicUnusable(Exception):
    """A group's dead letter topic is not configured, not permitted or not available."""


class DeadLetters:
    """Copies dead letters to the dead letter topics of their groups, and counts copies and failures."""

    def __init__(self, node: NodeServices) -> None:
        self._node = node
        self._sending: dict[asyncio.Task[None], None] = {}
        self.written: Counter[str] = Counter()
        """Number of copied records by group."""
        self.batches: Counter[str] = Counter()
        """Number of dead letters (ranges of offsets) by group."""
        self.failed: Counter[str] = Counter()
        """Number of dead letters by group that could not be copied."""

    def __repr__(self) -> str:
        return f"<dead letters: {self.written.total()} copied, {len(self._sending)} tasks>"

    def send(self, source: SharePartitionServer, letters: Iterable[DeadLetter]) -> None:
        """Start copying dead letters; `source` archives each one when it is copied or copying has failed."""
        sending = self._node.loop.create_task(self._send(source, tuple(letters)))
        self._sending[sending] = None
        sending.add_done_callback(self._sending.pop)

    async def _send(self, source: SharePartitionServer, letters: tuple[DeadLetter, ...]) -> None:
        for letter in letters:
            self.batches[source.key.group_id] += 1
            try:
                queue = await self._queue(source)
                self._copy(queue, source, letter)
                if queue.syncs:
                    await queue.sync()
            except (DeadLetterTopicUnusable, Refused, LogError, CodecError) as error:
                self.failed[source.key.group_id] += 1
                log.error("%s: offsets %d to %d are archived without a copy in a dead letter topic: %s",
                          source.key, letter.first_offset, letter.last_offset, error)  # fmt: skip
            source.dead_letter_done(letter)

    async def _queue(self, source: SharePartitionServer) -> Partition:
        """Return the partition for copies in the dead letter topic; create the topic if that is configured.

        Raises `DeadLetterTopicUnusable`."""
        node, group_id = self._node, source.key.group_id
        name: str = node.settings.group_configs.of(group_id)["errors.deadletterqueue.topic.name"]
        if not name or name.startswith("__"):
            raise DeadLetterTopicUnusable(f"the group's errors.deadletterqueue.topic.name is {name!r}")
        prefix: str = node.settings.config["errors.deadletterqueue.topic.name.prefix"]
        if prefix and not name.startswith(prefix):
            raise DeadLetterTopicUnusable(f"the topic {name!r} does not start with {prefix!r}")
        if name not in node.catalogue.topics.by_name:
            if not node.settings.config["errors.deadletterqueue.auto.create.topics.enable"]:
                raise DeadLetterTopicUnusable(
                    f"the topic {name!r} does not exist, and the broker may not create it"
                )
            await self._create(name)
        elif not self._is_for_dead_letters(name):
            raise DeadLetterTopicUnusable(f"the topic {name!r} does not have {ENABLE_CONFIG}=true")
        topic = node.catalogue.topics.by_name.get(name)
        index = source.key.partition % topic.partitions if topic is not None else 0
        queue = node.partitions.get(name, index)
        if queue is None:
            raise DeadLetterTopicUnusable(f"{name}-{index} is not available")
        return queue

    def _is_for_dead_letters(self, topic: str) -> bool:
        configs = self._node.catalogue.settings_of(ResourceType.TOPIC, topic)
        return bool(topic_values(self._node.settings.config, configs)["errors.deadletterqueue.group.enable"])

    async def _create(self, name: str) -> None:
        configs = (
            CreatableTopicConfig(name=ENABLE_CONFIG, value="true"),
            CreatableTopicConfig(name="message.timestamp.type", value="CreateTime"),
        )
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, configs=configs)
        context = RequestContext(api_version=7, fresh_ids=self._node.environment.fresh_ids(1))
        await self._node.catalogue.submit(CreateTopicsRequest(topics=(topic,)), context)

    def _copy(self, queue: Partition, source: SharePartitionServer, letter: DeadLetter) -> None:
        """Write a copy of each record of a dead letter, in batches of about `max.message.bytes` at most."""
        max_bytes = queue.max_message_bytes
        batch: list[Record] = []
        size = 0
        for copy in self._copies(source, letter):
            copy_size = len(copy.key or b"") + len(copy.value or b"") + OVERHEAD_BYTES
            copy_size += sum(len(name) + len(value or b"") for name, value in copy.headers)
            if batch and size + copy_size > max_bytes:
                self._write(queue, source, batch)
                batch, size = [], 0
            batch.append(copy._replace(offset=len(batch)))
            size += copy_size
        self._write(queue, source, batch)

    def _write(self, queue: Partition, source: SharePartitionServer, batch: list[Record]) -> None:
        queue.produce(build(batch))
        self.written[source.key.group_id] += len(batch)

    def _copies(self, source: SharePartitionServer, letter: DeadLetter) -> Iterator[Record]:
        """Yield a copy of each record of a dead letter. Its `offset` is that of the source record."""
        now_ms = self._node.environment.wall_clock_ms()
        configs = self._node.settings.group_configs.of(source.key.group_id)
        originals = (
            self._original_records(source.partition, letter)
            if configs["errors.deadletterqueue.copy.record.enable"]
            else {}
        )
        for offset in range(letter.first_offset, letter.last_offset + 1):
            record = originals.get(offset)
            key, value = (record.key, record.value) if record is not None else (None, None)
            yield Record(offset, now_ms, key, value, _headers(source, letter, offset))

    def _original_records(self, partition: Partition, letter: DeadLetter) -> dict[int, Record]:
        """Return the source records that are still in the log, by offset."""
        start = max(letter.first_offset, partition.start_offset)
        records_by_offset: dict[int, Record] = {}
        if start > letter.last_offset:
            return records_by_offset
        for header, view in partition.log.batches_from(start, letter.last_offset + 1):
            if header.is_control:
                continue
            try:
                for record in records(view, header, limit=MAX_COPIED_BATCH_BYTES):
                    records_by_offset[record.offset] = record
            except CodecError as error:
                log.warning(
                    "%r: the batch at offset %d is copied without keys and values: %s",
                    partition,
                    header.base_offset,
                    error,
                )
        return records_by_offset

    async def close(self) -> None:
        for sending in self._sending:
            sending.cancel()


def _headers(
    source: SharePartitionServer, letter: DeadLetter, offset: int
) -> tuple[tuple[str, bytes | None], ...]:
    """Return the record headers that Kafka defines for a copy; all values are text."""
    headers = {
        "__dlq.errors.topic": source.topic,
        "__dlq.errors.partition": str(source.key.partition),
        "__dlq.errors.offset": str(offset),
        "__dlq.errors.group": source.key.group_id,
        "__dlq.errors.delivery.count": str(letter.delivery_count),
        "__dlq.errors.message": letter.cause,
    }
    return tuple((name, text.encode()) for name, text in headers.items())
