"""A client without a group: it commits and fetches under a group's name, as tools and simple consumers do.

It has a name of its own for that, and now and then takes one under which others are members: then its commit
is refused, unless the group is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.shard.image import Topic
from konvene.sim.process import Process

if TYPE_CHECKING:
    from konvene.sim.world import World

EVERY_MS = 10_000
OWN_GROUP = "simple"
FIRST_VERSION_WITH_TOPIC_IDS = 10


class SimpleClient(Process):
    """See the top of this file. Of a group that is not its own it commits nothing but the beginning."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name)
        self.groups = (OWN_GROUP, OWN_GROUP, group)

    def start(self) -> None:
        super().start()
        self._tick()

    def _tick(self) -> None:
        random = self.world.random
        self.later(random.randint(1, EVERY_MS), self._tick)
        topic = random.choice(list(self.world.topics.by_name.values()))
        version = random.choice([8, 9, 10])
        if random.random() < 0.5:
            self._commit(topic, version)
        else:
            self._fetch(topic, version)

    def _commit(self, topic: Topic, version: int) -> None:
        random = self.world.random
        group = random.choice(self.groups)
        told = tuple(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=random.randint(0, 1_000) if group == OWN_GROUP else 0,
                committed_leader_epoch=random.choice([-1, 3]),
                committed_metadata=random.choice(["", None, "größe"]),
            )
            for index in sorted(random.sample(range(topic.partitions + 1), random.randint(1, 2)))
        )
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        named = OffsetCommitRequestTopic(name="" if by_id else topic.name, partitions=told)
        if by_id:
            named = named.replace(topic_id=topic.id)
        self.ask(OffsetCommitRequest(group_id=group, topics=(named,)), version, lambda answer: None)

    def _fetch(self, topic: Topic, version: int) -> None:
        indexes = tuple(range(topic.partitions + 1))
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            named = OffsetFetchRequestTopics(topic_id=topic.id, partition_indexes=indexes)
        else:
            named = OffsetFetchRequestTopics(name=topic.name, partition_indexes=indexes)
        groups = tuple(
            OffsetFetchRequestGroup(group_id=group, topics=(named,)) for group in dict.fromkeys(self.groups)
        )
        self.ask(OffsetFetchRequest(groups=groups), version, lambda answer: None)
