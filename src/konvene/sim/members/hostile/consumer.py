"""A hostile or buggy client of consumer groups: it sends arbitrary heartbeats, also in the name of other
members.

It reports partitions that it was never assigned. Sometimes it joins as a correct client does, and misbehaves
as a member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.group import ConsumerGroup
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from konvene.sim.members.hostile.classic import ACTIONS as CLASSIC_ACTIONS
from konvene.sim.members.hostile.modern import HostileModern

if TYPE_CHECKING:
    pass

EXPRESSIONS = ("orders.*", ".*", "(", "[a-", "", "x" * 300)
NAMES: tuple[tuple[str, ...] | None, ...] = (
    ("orders",), ("orders", "extra"), ("nowhere",), (), ("", "orders", "orders"), None,
)  # fmt: skip


class HostileConsumer(HostileModern):
    """A hostile client of consumer groups."""

    def _act(self) -> None:
        self.world.random.choice(ACTIONS)(self)

    def _modern_group(self) -> ConsumerGroup:
        found = self.world.runtime.core.groups.get(self.group)
        return found if isinstance(found, ConsumerGroup) else ConsumerGroup(self.group)

    # --- invented values ---

    def _claims(self) -> tuple[TopicPartitions, ...] | None:
        """Draw the partitions that it claims to own: none, those of some member, or nonexistent ones."""
        random, group = self.world.random, self._modern_group()
        claims: list[tuple[TopicPartitions, ...] | None] = [None, None, (), ()]
        for topic, owners in group.owners.items():
            some = random.sample(sorted(owners), random.randint(1, len(owners)))
            claims.append((TopicPartitions(topic_id=topic, partitions=tuple(some)),))
        nowhere = Uuid(b"nowhere".ljust(16, b"-"))
        claims.append((TopicPartitions(topic_id=nowhere, partitions=(0, 0, -1)),))
        return random.choice(claims)

    # --- actions ---

    def heartbeat_at_random(self) -> None:
        """Send an arbitrary heartbeat as an arbitrary member."""
        random = self.world.random
        request = ConsumerGroupHeartbeatRequest(
            group_id=random.choice([self.group, self.group, self.group, "gone"]),
            member_id=self._any_member_id(),
            member_epoch=random.choice([0, 0, -1, -2, -3, *[self._any_generation()] * 5]),
            instance_id=self._any_instance_id(),
            rack_id=random.choice([None, "r1"]),
            rebalance_timeout_ms=random.choice([-1, 1_000, 60_000]),
            subscribed_topic_names=random.choice(NAMES),
            subscribed_topic_regex=random.choice([None, None, *EXPRESSIONS]),
            server_assignor=random.choice([None, None, None, "uniform", "range", "sticky"]),
            topic_partitions=self._claims(),
        )
        version = random.choice([1, 1, 0])
        if not version:
            request = request.replace(subscribed_topic_regex=None)  # Version 0 has no such field.
        self.send(request, version, self._handle_heartbeat)

    def join_properly(self) -> None:
        """Join the group as a correct client does."""
        random = self.world.random
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=0,
            rebalance_timeout_ms=random.choice([1_000, 10_000]),
            subscribed_topic_names=random.choice(NAMES[:3]),
            topic_partitions=(),
        )
        self.send(request, 1, self._handle_heartbeat)

    def heartbeat_with_claims(self) -> None:
        """Send a heartbeat at its own epoch that claims arbitrary partitions."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.assigned_id or self.name,
            member_epoch=self.epoch,
            topic_partitions=self._claims(),
        )
        self.send(request, 1, self._handle_heartbeat)


ACTIONS: tuple[Callable[[HostileConsumer], None], ...] = (
    *[HostileConsumer.heartbeat_at_random] * 6,
    HostileConsumer.join_properly,
    *[HostileConsumer.heartbeat_with_claims] * 3,
    HostileConsumer.commit_anywhere,
    HostileConsumer.fetch,
    *CLASSIC_ACTIONS[-4:],
)
