"""Members of share groups that act at random, on the coordinator itself: its log, and the rebalances that it
reported. The rebalances inferred from the log have to equal the reported ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

from tests.groups.history.logs import Batch, Entry

from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.share.work import (
    INITIALIZE_STATE,
    DeletedTopics,
    OffsetsToAlter,
    StateInitialized,
    StateToInitialize,
)
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.records.audit import RebalanceValue
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.ports import ExplainedRebalance
from konvene.shard.contract import Effect
from konvene.shard.image import Topic, Topics
from konvene.sim.event_queue import EventQueue
from konvene.sim.group_runtime import GroupRuntime
from konvene.sim.runtime import SimulatedPorts

OFTEN_ENOUGH_MS = 5_000
NAMES = ("a", "b", "c")


@dataclass(slots=True)
class Walker:
    """One member and the state that it knows."""

    name: str
    group: str
    topics: tuple[str, ...]
    epoch: int = 0


class ShareWalk:
    """Some groups with their members, and the coordinator's log."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        interval_ms = self.random.choice(("0", "1000"))
        config, _ = BrokerConfig.load(overrides=[("group.share.assignment.interval.ms", interval_ms)])
        self.event_queue = EventQueue()
        self.explained: list[ExplainedRebalance] = []
        self.pending: list[StateToInitialize] = []
        self.sizes = {"a": 2, "b": 3}
        self.made = 0
        self.topics = Topics(())
        self._update_topics()
        self.runtime = GroupRuntime(
            self.event_queue,
            SimulatedPorts(
                config=lambda: config,
                topics=lambda: self.topics,
                on_rebalance=self.explained.append,
                perform=self._perform,
            ),
        )
        self.runtime.load()
        self.walkers: list[Walker] = []
        self.count = 0

    # --- results ---

    @property
    def reported(self) -> list[tuple[str, RebalanceValue]]:
        return [(each.rebalance.group_id, each.rebalance.value) for each in self.explained]

    @property
    def batches(self) -> list[Any]:
        return self.runtime.log.batches

    @property
    def first(self) -> list[int]:
        """Return the first offset of each batch, and the end offset."""
        return [0, *accumulate(batch.size for batch in self.batches)]

    @property
    def log(self) -> list[Batch]:
        return [
            Batch(
                base,
                base + batch.size - 1,
                tuple(
                    Entry(offset, batch.timestamp_ms, record.key, record)
                    for offset, record in enumerate(batch.records, base)
                ),
            )
            for batch, base in zip(self.batches, self.first, strict=False)
        ]

    def walk(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(STEPS)(self)
            self.event_queue.run_until(self.event_queue.now_ms + self.random.choice((0, 7, 900)))

    # --- what members do ---

    def _ask(self, name: str, request: Any, version: int = 1) -> Any:
        responses: list[Any] = []
        self.runtime.ask(
            request, RequestContext(version, f"client {name}", "/127.0.0.1", ("",)), responses.append
        )
        self.runtime.audit()
        return responses[0] if responses else None

    def _heartbeat_with(self, walker: Walker, epoch: int, **more: Any) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=walker.group, member_id=walker.name, member_epoch=epoch, **more
        )
        response = self._ask(walker.name, request)
        if epoch >= 0:
            walker.epoch = response.member_epoch if response.error_code == Errors.NONE else 0

    def _beat(self, walker: Walker) -> None:
        if walker.epoch <= 0:
            self._heartbeat_with(walker, 0, subscribed_topic_names=walker.topics)
        else:
            self._heartbeat_with(walker, walker.epoch)

    def _any(self) -> Walker | None:
        return self.random.choice(self.walkers) if self.walkers else None

    def _some(self) -> tuple[str, ...]:
        return tuple(sorted(self.random.sample(NAMES, self.random.choice((1, 1, 2)))))

    def join(self) -> None:
        if len(self.walkers) == 6:
            return
        self.count += 1
        walker = Walker(f"w{self.count}", self.random.choice(("g0", "g1")), self._some())
        self.walkers.append(walker)
        self._beat(walker)

    def beat(self) -> None:
        """Let every member heartbeat in turn."""
        for walker in self.walkers:
            self._beat(walker)

    def leave(self) -> None:
        if walker := self._any():
            self._heartbeat_with(walker, -1)
            self.walkers.remove(walker)

    def die(self) -> None:
        """Stop a member without leaving; the others heartbeat until its session expires."""
        if walker := self._any():
            self.walkers.remove(walker)
            for _ in range(10):
                self.event_queue.run_until(self.event_queue.now_ms + OFTEN_ENOUGH_MS)
                self.beat()

    def change_subscription(self) -> None:
        if (walker := self._any()) and walker.epoch > 0:
            walker.topics = self._some()
            self._heartbeat_with(walker, walker.epoch, subscribed_topic_names=walker.topics)

    def change_rack(self) -> None:
        """Change a member's rack, which bumps no epoch."""
        if (walker := self._any()) and walker.epoch > 0:
            self._heartbeat_with(walker, walker.epoch, rack_id=self.random.choice(("x", "y")))

    # --- topics and administrators ---

    def _update_topics(self) -> None:
        known = [Topic(name, Uuid(name.encode().ljust(16, b"-")), size) for name, size in self.sizes.items()]
        self.topics = Topics(known, self.topics.version + 1)

    def grow(self) -> None:
        if self.sizes:
            self.sizes[self.random.choice(sorted(self.sizes))] += 1
            self._update_topics()

    def make(self) -> None:
        self.sizes.setdefault(self.random.choice(NAMES), 2)
        self._update_topics()

    def delete(self) -> None:
        name = self.random.choice(NAMES)
        if name in self.sizes:
            topic_id = self.topics.by_name[name].id
            del self.sizes[name]
            self._update_topics()
            self.runtime.inform(DeletedTopics(frozenset({topic_id})))

    def complete_initialization(self) -> None:
        """Let the share coordinator respond, sometimes with a failure."""
        pending, self.pending = self.pending, []
        for initialization in pending:
            keys = tuple(request.key for request in initialization.requests)
            if self.random.random() < 0.8:
                self.runtime.inform(StateInitialized(initialization.group_id, keys))
            else:
                self.runtime.inform(StateInitialized(initialization.group_id, (), keys))

    def alter(self) -> None:
        """Alter a group's offsets, which is refused if it has members."""
        topic = AlterShareGroupOffsetsRequestTopic(
            topic_name=self.random.choice(NAMES),
            partitions=(AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0),),
        )
        request = AlterShareGroupOffsetsRequest(group_id=self.random.choice(("g0", "g1")), topics=(topic,))
        response = self._ask("admin", request, 0)
        if isinstance(response, OffsetsToAlter) and response.requests:
            self.pending.append(StateToInitialize(request.group_id, response.requests))

    def remove(self) -> None:
        """Delete a group, if it is empty."""
        self._ask("admin", DeleteGroupsRequest(groups_names=(self.random.choice(("g0", "g1")),)), 2)

    def _perform(self, effect: Effect) -> None:
        if effect.verb == INITIALIZE_STATE:
            self.pending.append(effect.subject)


STEPS = (
    ShareWalk.join, ShareWalk.join, ShareWalk.join, ShareWalk.beat, ShareWalk.beat, ShareWalk.beat,
    ShareWalk.beat, ShareWalk.complete_initialization, ShareWalk.complete_initialization,
    ShareWalk.complete_initialization, ShareWalk.leave, ShareWalk.leave,
    ShareWalk.die, ShareWalk.change_subscription, ShareWalk.change_rack, ShareWalk.grow, ShareWalk.make,
    ShareWalk.delete, ShareWalk.alter, ShareWalk.remove,
)  # fmt: skip
"""The possible events, as often as they are likely."""
