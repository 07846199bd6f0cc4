"""The group coordinators of this broker: one for each partition of `__consumer_offsets`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from konvene.broker.groups.assignors import load_assignors, offered_task_assignors
from konvene.broker.groups.background_work import GroupWork
from konvene.broker.groups.internal_topic_warnings import InternalTopicWarnings
from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.codec.uuid import Uuid
from konvene.groups.classic.decision import session_key
from konvene.groups.group_type import Group
from konvene.groups.heartbeat_intervals import RESPONSIVE, heartbeat_interval_ms
from konvene.groups.modern.leave import Disconnected
from konvene.groups.shard import GroupShard
from konvene.groups.share.work import DeletedTopics
from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.runtime.coordinators import Coordinators
from konvene.shard.contract import Effect, Outcome

if TYPE_CHECKING:
    from konvene.broker.groups.audit import Audit
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
    from konvene.broker.net.response_cache import ResponseCache
    from konvene.broker.node_services import NodeServices
    from konvene.broker.shares.background_work import ShareStateWork

LONG_INTERVAL_MS = 1_000_000
"""A configured interval longer than any, so that only the number of members limits the advised one."""


class GroupCoordinators(Coordinators):
    """Creates the group coordinators, starts and stops them, and informs them of events outside their log."""

    def __init__(
        self,
        node: NodeServices,
        audit: Audit,
        heartbeat_purgatory: HeartbeatPurgatory,
        response_cache: ResponseCache,
        share_state_work: ShareStateWork,
    ) -> None:
        super().__init__(OFFSETS_TOPIC, node.loop, node.topic_creator)
        config = node.settings.static_config
        self.assignors = load_assignors(config["group.consumer.assignors"])
        self.task_assignors = offered_task_assignors(config)
        self._node = node
        self._audit = audit
        self._heartbeat_purgatory = heartbeat_purgatory
        self._response_cache = response_cache
        self._work = GroupWork(node, share_state_work)
        self.internal_topic_warnings = InternalTopicWarnings(node)
        self._loaded: asyncio.Task[None] | None = None
        """Completes when all coordinators have read their logs."""
        self.members = 0
        """Members of all groups, counted every second while the heartbeat policy is responsive."""
        self._counting: asyncio.TimerHandle | None = None
        self._connection_of: dict[tuple[str, str], object] = {}
        self._members_of: dict[object, dict[tuple[str, str], None]] = {}

    async def _make_ready(self) -> None:
        await self._node.topic_creator.create_internal(OFFSETS_TOPIC)
        if self._node.settings.config["konvene.audit.enable"]:
            await self._node.topic_creator.create_internal(AUDIT_TOPIC)
        self.start()

    async def resume(self) -> None:
        """Start the coordinators if the offsets topic exists.

        If the audit is enabled and its topic is missing, as in Kafka's data directories, create it."""
        topics = self._node.catalogue.topics.by_name
        audit_enabled = self._node.settings.config["konvene.audit.enable"]
        if OFFSETS_TOPIC in topics and AUDIT_TOPIC not in topics and audit_enabled:
            await self._node.topic_creator.create_internal(AUDIT_TOPIC)
            self._audit.is_new = True
        self.start()

    def start(self) -> None:
        before = self.ready
        super().start()
        if self.ready and not before:
            self._count()
            self._loaded = self._node.loop.create_task(self._when_loaded())

    async def loaded(self) -> None:
        """Wait until all coordinators have read their logs and the audit has released its histories."""
        if self._loaded is not None:
            await self._loaded

    async def _when_loaded(self) -> None:
        await super().loaded()
        self._audit.loaded()

    def _coordinator(self, index: int) -> Coordinator | None:
        """Return a coordinator for partition `index`, or None if its log is damaged."""
        node = self._node
        partition = node.partitions.get(OFFSETS_TOPIC, index)
        if partition is None:
            return None
        return Coordinator(
            f"{OFFSETS_TOPIC}-{index}",
            GroupShard if node.meter is None else node.meter.make_shard,
            GROUP_SERDE,
            replace(
                node.coordinator_ports(partition, self.wrap_journal),
                group_configs=lambda: node.settings.group_configs,
                assignors=self.assignors,
                task_assignors=self.task_assignors,
                perform=lambda effect: self._perform(index, effect),
                on_rebalance=lambda explained: self._audit.record(index, explained),
                observe_batch=lambda header: self._audit.observe(index, header),
                member_count=lambda: self.members,
                on_outcome=self._on_outcome,
                on_stop=self._heartbeat_purgatory.release_all,
            ),
        )

    def find(self, group_id: str) -> Group | None:
        """Return a group, or None if it does not exist or its coordinator is unavailable."""
        coordinator = self.of(group_id)
        shard = coordinator.core if coordinator is not None else None
        return shard.groups.get(group_id) if isinstance(shard, GroupShard) else None

    def _on_outcome(self, outcome: Outcome) -> None:
        self._heartbeat_purgatory.observe(outcome)
        if outcome.soft_records:
            self.internal_topic_warnings.observe(outcome)

    def _perform(self, index: int, effect: Effect) -> None:
        coordinator = self._coordinators[index]
        assert coordinator is not None
        self._work.perform(coordinator, effect)

    # --- members and their connections ---

    def _count(self) -> None:
        """Count the members of all groups every second, if the heartbeat policy is "responsive".

        The advised heartbeat interval depends on their number."""
        config = self._node.settings.config
        if config["konvene.heartbeat.policy"] == RESPONSIVE:
            interval_ms = heartbeat_interval_ms(LONG_INTERVAL_MS, config, self.members, waits=False)
            shards = (coordinator.core for coordinator in self.all())
            self.members = sum(shard.members for shard in shards if isinstance(shard, GroupShard))
            if heartbeat_interval_ms(LONG_INTERVAL_MS, config, self.members, waits=False) != interval_ms:
                self._response_cache.invalidate()
        self._counting = self._node.loop.call_later(1, self._count)

    def heartbeat_received(self, group_id: str, member_id: str, connection: object) -> None:
        """Record the connection of a member's heartbeat, if `konvene.session.disconnect.grace.ms` is set."""
        if self._node.settings.config["konvene.session.disconnect.grace.ms"]:
            self._connection_of[group_id, member_id] = connection
            self._members_of.setdefault(connection, {})[group_id, member_id] = None

    def is_disconnected(self, group_id: str, member_id: str) -> bool:
        """Return whether the connection of the member's last heartbeat was lost, or is not known.

        Always False if `konvene.session.disconnect.grace.ms` is not set."""
        grace_ms: int = self._node.settings.config["konvene.session.disconnect.grace.ms"]
        return grace_ms > 0 and (group_id, member_id) not in self._connection_of

    def session_left_ms(self, group_id: str, member_id: str) -> int | None:
        """Return the time until the member's session expires; None if its session timer is not armed."""
        coordinator = self.of(group_id)
        deadline = (
            None if coordinator is None else coordinator.deadlines.get(session_key(group_id, member_id))
        )
        return None if deadline is None else round((deadline - self._node.loop.time()) * 1000)

    def disconnected(self, connection: object) -> None:
        """Shorten the sessions of the members whose last heartbeat arrived on this lost connection."""
        for group_id, member_id in self._members_of.pop(connection, ()):
            if self._connection_of.get((group_id, member_id)) is connection:
                del self._connection_of[group_id, member_id]
                coordinator = self.of(group_id)
                if coordinator is not None:
                    coordinator.inform(Disconnected(group_id, member_id))

    def topic_deleted(self, name: str, topic_id: Uuid) -> None:
        """Delete the offsets of a deleted topic in all groups, and its partitions in share groups."""
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name, topic_id=topic_id),))
        for coordinator in self.all():
            coordinator.submit(request, RequestContext(client_id="broker"))
            coordinator.inform(DeletedTopics(frozenset((topic_id,))))

    async def close(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
        await super().close()
        await self._work.close()
