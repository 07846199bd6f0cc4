"""A client of consumer groups that is not honest, or has a bug: it asks at random, with what it overheard.

It knows the member ids, instance ids and epochs of everybody, as somebody does who reads along, and says that
it owns what it was never given. Now and then it joins as it should be done, and is a nuisance as a member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.group import ConsumerGroup
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.sim.members.hostile.classic import ACTS as CLASSIC_ACTS
from konvene.sim.members.hostile.classic import HostileClassic
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World

EXPRESSIONS = ("orders.*", ".*", "(", "[a-", "", "x" * 300)
NAMES: tuple[tuple[str, ...] | None, ...] = (
    ("orders",), ("orders", "extra"), ("nowhere",), (), ("", "orders", "orders"), None,
)  # fmt: skip


class HostileConsumer(HostileClassic):
    """See the top of this file. It speaks the classic protocol as well, where that is no use."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name, group)
        self.epoch = 0

    def _tick(self) -> None:
        self.schedule(self.world.random.randint(1, 4_000), self._tick)
        self.world.random.choice(ACTS)(self)

    # --- what it makes up ---

    def _consumers(self) -> ConsumerGroup:
        found = self.world.runtime.core.groups.get(self.group)
        return found if isinstance(found, ConsumerGroup) else ConsumerGroup(self.group)

    def _somebody(self) -> str:
        if self.world.random.random() < 0.3:
            return super()._somebody()
        return self.world.random.choice([self.overheard or self.name, self.name, *self._consumers().members])

    def _instance(self) -> str | None:
        return self.world.random.choice([None, None, None, self.name, "", *self._consumers().instances])

    def _generation(self) -> int:
        group, random = self._consumers(), self.world.random
        epochs = [group.epoch, self.epoch, *(m.current.epoch for m in group.members.values())]
        return random.choice(epochs) + random.choice([0, 0, 0, 1, -1, -1_000, 2_000_000_000 - group.epoch])

    def _claims(self) -> tuple[TopicPartitions, ...] | None:
        """Nothing, or what somebody has, or what there is not."""
        random, group = self.world.random, self._consumers()
        claims: list[tuple[TopicPartitions, ...] | None] = [None, None, (), ()]
        for topic, owners in group.owners.items():
            some = random.sample(sorted(owners), random.randint(1, len(owners)))
            claims.append((TopicPartitions(topic_id=topic, partitions=tuple(some)),))
        nowhere = Uuid(b"nowhere".ljust(16, b"-"))
        claims.append((TopicPartitions(topic_id=nowhere, partitions=(0, 0, -1)),))
        return random.choice(claims)

    # --- what it does ---

    def beat(self) -> None:
        """As somebody, at some epoch, saying something."""
        random = self.world.random
        request = ConsumerGroupHeartbeatRequest(
            group_id=random.choice([self.group, self.group, self.group, "gone"]),
            member_id=self._somebody(),
            member_epoch=random.choice([0, 0, -1, -2, -3, *[self._generation()] * 5]),
            instance_id=self._instance(),
            rack_id=random.choice([None, "r1"]),
            rebalance_timeout_ms=random.choice([-1, 1_000, 60_000]),
            subscribed_topic_names=random.choice(NAMES),
            subscribed_topic_regex=random.choice([None, None, *EXPRESSIONS]),
            server_assignor=random.choice([None, None, None, "uniform", "range", "sticky"]),
            topic_partitions=self._claims(),
        )
        version = random.choice([1, 1, 0])
        if not version:
            request = request.replace(subscribed_topic_regex=None)  # It has no word for it.
        self.send(request, version, self._heard_beat)

    def come(self) -> None:
        """As it should be done, for once."""
        random = self.world.random
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=0,
            rebalance_timeout_ms=random.choice([1_000, 10_000]),
            subscribed_topic_names=random.choice(NAMES[:3]),
            topic_partitions=(),
        )
        self.send(request, 1, self._heard_beat)

    def stay(self) -> None:
        """At its own epoch, with whatever claims."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.overheard or self.name,
            member_epoch=self.epoch,
            topic_partitions=self._claims(),
        )
        self.send(request, 1, self._heard_beat)

    def _heard_beat(self, answer: Answer) -> None:
        if isinstance(answer, ConsumerGroupHeartbeatResponse) and not answer.error_code:
            self.overheard, self.epoch = answer.member_id or self.name, answer.member_epoch

    def commit_somewhere(self) -> None:
        random = self.world.random
        told = OffsetCommitRequestPartition(
            partition_index=random.choice([0, 1, 5, 99]), committed_offset=random.choice([0, 7])
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation(),
            member_id=self._somebody(),
            group_instance_id=self._instance(),
            topics=(OffsetCommitRequestTopic(name=random.choice(["orders", "extra"]), partitions=(told,)),),
        )
        self.send(request, random.choice([8, 9]), lambda answer: None)

    def fetch(self) -> None:
        group = OffsetFetchRequestGroup(
            group_id=self.group, member_id=self._somebody(), member_epoch=self._generation()
        )
        self.send(OffsetFetchRequest(groups=(group,)), 9, lambda answer: None)


ACTS: tuple[Callable[[HostileConsumer], None], ...] = (
    *[HostileConsumer.beat] * 6,
    HostileConsumer.come,
    *[HostileConsumer.stay] * 3,
    HostileConsumer.commit_somewhere,
    HostileConsumer.fetch,
    *CLASSIC_ACTS[-4:],
)
