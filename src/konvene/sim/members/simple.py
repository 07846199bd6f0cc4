"""A client without a group: it commits and fetches under a group's name, as tools and simple consumers do.

It has a name of its own for that, and now and then takes one under which others are members: then its commit
is refused, unless the group is empty. Some of its requests are of the kind that old clients send, who say how
long an offset is to be kept. And now and then it asks to be let into a group and thinks better of it.
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

EVERY_MS = 10_000
OWN_GROUP, LEFT_GROUP = "simple", "left"
"""Where it commits; where it asks to be let in and does not come back."""
FIRST_WITH_INSTANCES = 7
FIRST_WITH_TOPIC_IDS = 10
SAYS_HOW_LONG = 4
"""The last version that says how long an offset is to be kept."""


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
        self.schedule(random.randint(1, EVERY_MS), self._tick)
        topic = random.choice(list(self.world.topics.by_name.values()))
        what = random.random()
        if what < 0.1:
            self._ask_to_be_let_in()
        elif what < 0.55:
            self._commit(topic, random.choice([SAYS_HOW_LONG, 8, 9, 10]))
        else:
            self._fetch(topic, random.choice([8, 9, 10]))

    def _ask_to_be_let_in(self) -> None:
        """It is told a member id to come back with, and does not."""
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
        told = tuple(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=random.randint(0, 1_000) if group == OWN_GROUP else 0,
                committed_leader_epoch=random.choice([-1, 3]) if version > SAYS_HOW_LONG else -1,
                committed_metadata=random.choice(["", None, "größe"]),
            )
            for index in sorted(random.sample(range(topic.partitions + 1), random.randint(1, 2)))
        )
        by_id = version >= FIRST_WITH_TOPIC_IDS
        named = OffsetCommitRequestTopic(name="" if by_id else topic.name, partitions=told)
        if by_id:
            named = named.replace(topic_id=topic.id)
        request = OffsetCommitRequest(group_id=group, topics=(named,))
        if version >= FIRST_WITH_INSTANCES:
            request = request.replace(group_instance_id=random.choice([None, None, self.name]))
        elif version == SAYS_HOW_LONG:
            request = request.replace(retention_time_ms=random.choice([-1, 20_000, 200_000]))
        self.send(request, version, lambda answer: None)

    def _fetch(self, topic: Topic, version: int) -> None:
        indexes = tuple(range(topic.partitions + 1))
        if version >= FIRST_WITH_TOPIC_IDS:
            named = OffsetFetchRequestTopics(topic_id=topic.id, partition_indexes=indexes)
        else:
            named = OffsetFetchRequestTopics(name=topic.name, partition_indexes=indexes)
        groups = tuple(
            OffsetFetchRequestGroup(group_id=group, topics=(named,)) for group in dict.fromkeys(self.groups)
        )
        self.send(OffsetFetchRequest(groups=groups), version, lambda answer: None)
