"""A hostile or buggy client of share groups: it acknowledges records that other members acquired.

It opens and closes share sessions arbitrarily, under its own member id only; heartbeats it also sends in the
name of other members. Records that it acquires are rarely acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.codec.uuid import Uuid
from konvene.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from konvene.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.sim.world.process import Process

if TYPE_CHECKING:
    from konvene.sim.world.world import World

VERSION = 2


class HostileShare(Process):
    """A hostile client of share groups."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name)
        self.group = group
        self.epoch = 0

    def start(self) -> None:
        super().start()
        self.epoch = 0
        self.schedule(1, self._tick)

    def _tick(self) -> None:
        random = self.world.random
        self.schedule(random.randint(1, 4_000), self._tick)
        random.choice([self._fetch, self._fetch, self._acknowledge, self._acknowledge, self._beat])()

    def _any_partition(self) -> tuple[Uuid, int]:
        random = self.world.random
        topic = random.choice(list(self.world.topics.by_name.values()))
        return topic.id, random.choice([0, random.randrange(topic.partitions), topic.partitions, -1])

    def _fetch(self) -> None:
        random = self.world.random
        topic_id, index = self._any_partition()
        self.epoch = random.choice([0, self.epoch, self.epoch + 1, -1])
        request = ShareFetchRequest(
            group_id=self.group, member_id=self.name, share_session_epoch=self.epoch,
            max_wait_ms=random.choice([0, 500]), min_bytes=1, max_bytes=1_000,
            max_records=random.choice([0, 1, 5]), batch_size=5,
            share_acquire_mode=random.choice([0, 1]),
            topics=(FetchTopic(topic_id=topic_id, partitions=(FetchPartition(partition_index=index),)),),
        )  # fmt: skip
        self.send(request, VERSION, lambda answer: None)

    def _acknowledge(self) -> None:
        """Acknowledge offsets near the end of the log, which other members may have acquired."""
        random = self.world.random
        topic_id, index = self._any_partition()
        first = max(0, self.world.ends.get(("orders", 0), 0) - random.randint(0, 40))
        last = first + random.choice([0, 3, 10, -2])
        types = (random.choice([0, 1, 2, 3, 4, 5, -1]),)
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        request = ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.name,
            share_session_epoch=random.choice([self.epoch + 1, 1, -1]),
            is_renew_ack=random.choice([True, False]),
            topics=(AcknowledgeTopic(topic_id=topic_id, partitions=(
                AcknowledgePartition(partition_index=index, acknowledgement_batches=(batch,)),)),),
        )  # fmt: skip
        self.send(request, VERSION, lambda answer: None)

    def _beat(self) -> None:
        """Send a heartbeat with an invented epoch, as itself or as another member."""
        random = self.world.random
        known = getattr(self.world.runtime.core.groups.get(self.group), "members", {})
        names = [self.name, "nobody", *known]
        epoch = random.choice([1, 2, 5, 1_000, -3])
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=random.choice(names), member_epoch=epoch
        )
        self.send(request, 1, lambda answer: None)
