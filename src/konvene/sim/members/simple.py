"""A client that commits and fetches offsets of a group without being a member, as Kafka's tools do.

It has a group of its own for that, and sometimes uses one that has members: then its commit is rejected
unless the group is empty. Some of its requests have old versions with a retention time for the offset.
Sometimes it sends a JoinGroup and does not follow up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.client.consumer.protocol import CONSUMER
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from konvene.sim.world.process import Process

if TYPE_CHECKING:
    from konvene.sim.world.world import World

INTERVAL_MS = 10_000
OWN_GROUP, LEFT_GROUP = "simple", "left"
"""The group for which it commits, and the one to which it sends JoinGroups that it does not follow up."""
FIRST_WITH_INSTANCES = 7
FIRST_WITH_TOPIC_IDS = 10
LAST_WITH_RETENTION_TIME = 4
"""Last version of OffsetCommit with `retention_time_ms`."""


class SimpleClient(Process):
    """A client that commits and fetches offsets as a tool does. In a group that is not its own it commits
    offset 0 only."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name)
        self.groups = (OWN_GROUP, OWN_GROUP, group)

    def start(self) -> None:
        super().start()
        self._tick()

    def _tick(self) -> None:
        random = self.world.random
        self.schedule(random.randint(1, INTERVAL_MS), self._tick)
        topic = random.choice(list(self.world.topics.by_name.values()))
        choice = random.random()
        if choice < 0.1:
            self._join_without_return()
        elif choice < 0.55:
            self._commit(topic, random.choice([LAST_WITH_RETENTION_TIME, 8, 9, 10]))
        else:
            self._fetch(topic, random.choice([8, 9, 10]))

    def _join_without_return(self) -> None:
        """Send a JoinGroup and ignore the MEMBER_ID_REQUIRED response."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=LEFT_GROUP,
            session_timeout_ms=self.world.random.choice([6_000, 45_000]),
            rebalance_timeout_ms=60_000,
            protocol_type=CONSUMER,
            protocols=(protocol,),
        )
        self.send(request, 9, lambda answer: None)

    def _commit(self, topic: Topic, version: int) -> None:
        random = self.world.random
        group = random.choice(self.groups)
        partitions = tuple(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=random.randint(0, 1_000) if group == OWN_GROUP else 0,
                committed_leader_epoch=random.choice([-1, 3]) if version > LAST_WITH_RETENTION_TIME else -1,
                committed_metadata=random.choice(["", None, "größe"]),
            )
            for index in sorted(random.sample(range(topic.partitions + 1), random.randint(1, 2)))
        )
        by_id = version >= FIRST_WITH_TOPIC_IDS
        topic_partitions = OffsetCommitRequestTopic(name="" if by_id else topic.name, partitions=partitions)
        if by_id:
            topic_partitions = topic_partitions.replace(topic_id=topic.id)
        request = OffsetCommitRequest(group_id=group, topics=(topic_partitions,))
        if version >= FIRST_WITH_INSTANCES:
            request = request.replace(group_instance_id=random.choice([None, None, self.name]))
        elif version == LAST_WITH_RETENTION_TIME:
            request = request.replace(retention_time_ms=random.choice([-1, 20_000, 200_000]))
        self.send(request, version, lambda answer: None)

    def _fetch(self, topic: Topic, version: int) -> None:
        indexes = tuple(range(topic.partitions + 1))
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_partitions = OffsetFetchRequestTopics(topic_id=topic.id, partition_indexes=indexes)
        else:
            topic_partitions = OffsetFetchRequestTopics(name=topic.name, partition_indexes=indexes)
        groups = tuple(
            OffsetFetchRequestGroup(group_id=group, topics=(topic_partitions,))
            for group in dict.fromkeys(self.groups)
        )
        self.send(OffsetFetchRequest(groups=groups), version, lambda answer: None)
