"""Dead letter queues of share groups (KIP-1191): what was given up is copied to a topic, then it is archived.

A copy says in its headers where the record came from and why it was given up; it has the record's key and
value only where the group wants that. A copy that cannot be made is logged and counted, and the record is
archived all the same: a queue that is set up wrong does not stop a group.
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
"""Bytes of one batch of source records that are unpacked to be copied; of a larger one only headers go."""
OVERHEAD_BYTES = 100
"""Bytes that a copy takes beside the key and value, about."""


class DeadLetterTopicUnusable(Exception):
    """The group's dead letter topic cannot be used."""


class DeadLetters:
    """The copies that are being made."""

    def __init__(self, node: NodeServices) -> None:
        self._node = node
        self._sending: dict[asyncio.Task[None], None] = {}
        self.written: Counter[str] = Counter()
        """Records that were copied, by group."""
        self.batches: Counter[str] = Counter()
        """Batches that were to be written, by group."""
        self.failed: Counter[str] = Counter()
        """Of those, how many were not."""

    def __repr__(self) -> str:
        return f"<dead letters: {self.written.total()} copied, {len(self._sending)} under way>"

    def send(self, served: SharePartitionServer, letters: Iterable[DeadLetter]) -> None:
        """Copy them, and tell the share partition of each when that is done."""
        sending = self._node.loop.create_task(self._send(served, tuple(letters)))
        self._sending[sending] = None
        sending.add_done_callback(self._sending.pop)

    async def _send(self, served: SharePartitionServer, letters: tuple[DeadLetter, ...]) -> None:
        for letter in letters:
            self.batches[served.key.group_id] += 1
            try:
                queue = await self._queue(served)
                self._copy(queue, served, letter)
                if queue.syncs:
                    await queue.sync()
            except (DeadLetterTopicUnusable, Refused, LogError, CodecError) as error:
                self.failed[served.key.group_id] += 1
                log.error("%s: offsets %d to %d are archived without a copy in a dead letter topic: %s",
                          served.key, letter.first_offset, letter.last_offset, error)  # fmt: skip
            served.dead_letter_done(letter)

    async def _queue(self, served: SharePartitionServer) -> Partition:
        """The partition that the copies go to. Raises `DeadLetterTopicUnusable`."""
        node, group_id = self._node, served.key.group_id
        name: str = node.settings.group_configs.of(group_id)["errors.deadletterqueue.topic.name"]
        if not name or name.startswith("__"):
            raise DeadLetterTopicUnusable(f"the group's errors.deadletterqueue.topic.name is {name!r}")
        prefix: str = node.settings.config["errors.deadletterqueue.topic.name.prefix"]
        if prefix and not name.startswith(prefix):
            raise DeadLetterTopicUnusable(f"the topic {name!r} does not start with {prefix!r}")
        if name not in node.catalogue.topics.by_name:
            if not node.settings.config["errors.deadletterqueue.auto.create.topics.enable"]:
                raise DeadLetterTopicUnusable(f"there is no topic {name!r}, and the broker may not create it")
            await self._create(name)
        elif not self._is_for_dead_letters(name):
            raise DeadLetterTopicUnusable(f"the topic {name!r} does not have {ENABLE_CONFIG}")
        topic = node.catalogue.topics.by_name.get(name)
        index = served.key.partition % topic.partitions if topic is not None else 0
        queue = node.partitions.get(name, index)
        if queue is None:
            raise DeadLetterTopicUnusable(f"{name}-{index} is not there")
        return queue

    def _is_for_dead_letters(self, topic: str) -> bool:
        told = self._node.catalogue.settings_of(ResourceType.TOPIC, topic)
        return bool(topic_values(self._node.settings.config, told)["errors.deadletterqueue.group.enable"])

    async def _create(self, name: str) -> None:
        configs = (
            CreatableTopicConfig(name=ENABLE_CONFIG, value="true"),
            CreatableTopicConfig(name="message.timestamp.type", value="CreateTime"),
        )
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, configs=configs)
        context = RequestContext(api_version=7, fresh_ids=self._node.environment.fresh_ids(1))
        await self._node.catalogue.submit(CreateTopicsRequest(topics=(topic,)), context)

    def _copy(self, queue: Partition, served: SharePartitionServer, letter: DeadLetter) -> None:
        """Write the copies, in as many batches as the topic's `max.message.bytes` asks for."""
        most = queue.max_message_bytes
        batch: list[Record] = []
        size = 0
        for copy in self._copies(served, letter):
            more = len(copy.key or b"") + len(copy.value or b"") + OVERHEAD_BYTES
            more += sum(len(name) + len(value or b"") for name, value in copy.headers)
            if batch and size + more > most:
                self._write(queue, served, batch)
                batch, size = [], 0
            batch.append(copy._replace(offset=len(batch)))
            size += more
        self._write(queue, served, batch)

    def _write(self, queue: Partition, served: SharePartitionServer, batch: list[Record]) -> None:
        queue.produce(build(batch))
        self.written[served.key.group_id] += len(batch)

    def _copies(self, served: SharePartitionServer, letter: DeadLetter) -> Iterator[Record]:
        """One for each offset, as it is to be written; the offset is the source's."""
        now_ms = self._node.environment.wall_clock_ms()
        wanted = self._node.settings.group_configs.of(served.key.group_id)
        source = (
            self._source(served.partition, letter)
            if wanted["errors.deadletterqueue.copy.record.enable"]
            else {}
        )
        for offset in range(letter.first_offset, letter.last_offset + 1):
            record = source.get(offset)
            key, value = (record.key, record.value) if record is not None else (None, None)
            yield Record(offset, now_ms, key, value, _headers(served, letter, offset))

    def _source(self, partition: Partition, letter: DeadLetter) -> dict[int, Record]:
        """The records that are still there, by offset."""
        start = max(letter.first_offset, partition.start_offset)
        found: dict[int, Record] = {}
        if start > letter.last_offset:
            return found
        for header, view in partition.log.batches_from(start, letter.last_offset + 1):
            if header.is_control:
                continue
            try:
                for record in records(view, header, limit=MAX_COPIED_BATCH_BYTES):
                    found[record.offset] = record
            except CodecError as error:
                log.warning("%r: the batch at %d is not copied: %s", partition, header.base_offset, error)
        return found

    async def close(self) -> None:
        for sending in self._sending:
            sending.cancel()


def _headers(
    served: SharePartitionServer, letter: DeadLetter, offset: int
) -> tuple[tuple[str, bytes | None], ...]:
    """Kafka's headers of a dead letter, all of them text."""
    told = {
        "__dlq.errors.topic": served.topic,
        "__dlq.errors.partition": str(served.key.partition),
        "__dlq.errors.offset": str(offset),
        "__dlq.errors.group": served.key.group_id,
        "__dlq.errors.delivery.count": str(letter.delivery_count),
        "__dlq.errors.message": letter.cause,
    }
    return tuple((name, text.encode()) for name, text in told.items())
