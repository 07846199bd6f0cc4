"""The base class of hostile clients of consumer and streams groups: invented ids and offset requests.

Such a client knows the member ids, instance ids and epochs of all members, as an eavesdropper would. It
speaks the classic protocol as well, which such groups reject.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from konvene.sim.members.hostile.classic import INTERVAL_MS, HostileClassic
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World


class HostileModern(HostileClassic):
    """A hostile client of a consumer or streams group. A subclass sends the heartbeats."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name, group)
        self.epoch = 0

    def _tick(self) -> None:
        self.schedule(self.world.random.randint(1, INTERVAL_MS), self._tick)
        self._act()

    def _act(self) -> None:
        """Send one arbitrary request."""
        raise NotImplementedError

    def _modern_group(self) -> ConsumerGroup | StreamsGroup:
        """Return the group that this client attacks, or an empty one if it does not exist."""
        raise NotImplementedError

    # --- invented values ---

    def _any_member_id(self) -> str:
        random = self.world.random
        if random.random() < 0.3:
            return super()._any_member_id()
        members: Iterable[str] = self._modern_group().members
        return random.choice([self.assigned_id or self.name, self.name, *members])

    def _any_instance_id(self) -> str | None:
        instances = self._modern_group().instances
        return self.world.random.choice([None, None, None, self.name, "", *instances])

    def _any_generation(self) -> int:
        group, random = self._modern_group(), self.world.random
        epochs = [group.epoch, self.epoch, *(m.current.epoch for m in group.members.values())]
        return random.choice(epochs) + random.choice([0, 0, 0, 1, -1, -1_000, 2_000_000_000 - group.epoch])

    # --- actions ---

    def _handle_heartbeat(self, answer: Answer) -> None:
        if not isinstance(answer, ConsumerGroupHeartbeatResponse | StreamsGroupHeartbeatResponse):
            return
        if not answer.error_code:
            self.assigned_id, self.epoch = answer.member_id or self.name, answer.member_epoch

    def commit_anywhere(self) -> None:
        """Commit an arbitrary offset as an arbitrary member."""
        random = self.world.random
        partition = OffsetCommitRequestPartition(
            partition_index=random.choice([0, 1, 5, 99]), committed_offset=random.choice([0, 7])
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._any_generation(),
            member_id=self._any_member_id(),
            group_instance_id=self._any_instance_id(),
            topics=(
                OffsetCommitRequestTopic(name=random.choice(["orders", "extra"]), partitions=(partition,)),
            ),
        )
        self.send(request, random.choice([8, 9]), lambda answer: None)

    def fetch(self) -> None:
        """Fetch the group's offsets as an arbitrary member."""
        group = OffsetFetchRequestGroup(
            group_id=self.group, member_id=self._any_member_id(), member_epoch=self._any_generation()
        )
        self.send(OffsetFetchRequest(groups=(group,)), 9, lambda answer: None)
