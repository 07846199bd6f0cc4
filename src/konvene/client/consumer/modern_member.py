"""A member of a consumer group (KIP-848): joins, heartbeats, reconciles its partitions and leaves.

`ConsumerMembership` decides what the heartbeats carry; `HeartbeatMember` sends them. This module applies
assignments: it resolves topic ids to names, and partitions change hands in the order revoke, take over,
acknowledge, while the caller is in `ensure`.

It has the same interface as the classic `Member`, so that a consumer works with either.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.client.consumer.classic_member import Callback, MemberSettings
from konvene.client.consumer.membership import NO_CONSUMER_PROTOCOL, ConsumerMembership, Subscription
from konvene.client.errors import Misconfigured
from konvene.client.membership.heartbeat_member import HeartbeatMember, membership_settings, new_member_id
from konvene.client.membership.state_machine import MemberState
from konvene.client.membership.topic_partitions import Partitions, TopicNames
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.uuid import Uuid

__all__ = ["ConsumerMember"]


class ConsumerMember(HeartbeatMember[ConsumerMembership]):
    """A member of the consumer group `group_id`, subscribed to `topics` and to those that `regex` matches.

    `regex` is an RE2 expression for whole topic names. `assignor` names a server-side assignor. The session
    timeout and heartbeat interval in `settings` are ignored, as the group decides both. The callbacks run
    within `ensure` and `leave`."""

    api = "ConsumerGroupHeartbeat"
    unsupported_message = NO_CONSUMER_PROTOCOL

    def __init__(
        self, cluster: Cluster, group_id: str, topics: Iterable[str] = (), *, regex: str | None = None,
        assignor: str | None = None, settings: MemberSettings | None = None,
        on_assigned: Callback | None = None, on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:  # fmt: skip
        self.settings = s = settings or MemberSettings()
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost
        membership = ConsumerMembership(
            group_id, s.member_id or new_member_id(), _subscription(topics, regex),
            membership_settings(
                cluster.settings, instance_id=s.group_instance_id, rack_id=s.client_rack,
                rebalance_timeout_ms=s.rebalance_timeout_ms,
            ),
            assignor=assignor,
        )  # fmt: skip
        super().__init__(cluster, membership)
        self.assignment: tuple[TopicPartition, ...] = ()
        """The partitions that the caller owns. They change within `ensure` and `leave` only."""
        self._owned: dict[TopicPartition, Uuid] = {}
        self._topic_names = TopicNames(cluster)

    def __repr__(self) -> str:
        m = self.membership
        return (
            f"<ConsumerMember {m.member_id} of {m.group_id}: {m.state.value}, epoch {m.epoch}, "
            f"{len(self._owned)} partitions>"
        )

    @property
    def topics(self) -> tuple[str, ...]:
        return self.membership.subscription.names

    def subscribe(self, topics: Iterable[str] = (), *, regex: str | None = None) -> None:
        """Change the subscription. Raises `Misconfigured` if there is neither a topic nor an expression."""
        self.membership.subscribe(_subscription(topics, regex))
        self._wakeup.set()

    async def _prepare(self) -> None:
        await self.cluster.refresh(self.topics)

    # reconciliation

    async def _reconcile(self) -> None:
        """Revoke, take over and acknowledge until the owned partitions are the target.

        A partition whose topic name is unknown is taken over in a later call."""
        m = self.membership
        while m.state is MemberState.RECONCILING:
            incarnation, version = m.incarnation, m.target_version
            target = await self._resolve(m.target)
            target_units = frozenset((topic_id, tp.partition) for tp, topic_id in target.items())
            if (m.owned_version, m.owned) == (version, target_units):
                return
            released = tuple(sorted(tp for tp, topic_id in self._owned.items() if target.get(tp) != topic_id))
            # Released and assigned again: its topic was deleted and recreated.
            await self._release(tuple(tp for tp in released if tp in target), self.on_lost)
            await self._release(tuple(tp for tp in released if tp not in target), self.on_revoked)
            if m.incarnation != incarnation or m.state not in (
                MemberState.RECONCILING,
                MemberState.ACKNOWLEDGING,
            ):
                return
            if m.target_version != version:
                continue  # A newer target has arrived: these partitions may be assigned to others by now.
            added = tuple(sorted(tp for tp in target if tp not in self._owned))
            self._set_owned(target)
            if self.on_assigned is not None:
                await self.on_assigned(added)
            m.confirm_owned(incarnation, version, target_units)
            self._wakeup.set()

    async def _resolve(self, partitions: Partitions) -> dict[TopicPartition, Uuid]:
        """Return those partitions whose topic names are known, with their topic ids."""
        names = await self._topic_names.resolve(partitions)
        return {TopicPartition(names[t], p): t for t, p in sorted(partitions) if t in names}

    async def _release(self, partitions: tuple[TopicPartition, ...], callback: Callback | None) -> None:
        """Release partitions. The callback runs while the caller still owns them, so that it can commit."""
        if not partitions:
            return
        if callback is not None:
            await callback(partitions)
        released = set(partitions)
        self._set_owned({tp: topic_id for tp, topic_id in self._owned.items() if tp not in released})

    def _set_owned(self, owned: dict[TopicPartition, Uuid]) -> None:
        self._owned, self.assignment = owned, tuple(sorted(owned))

    async def _release_fenced(self) -> None:
        await self._release(self.assignment, self.on_lost)

    async def _release_all(self) -> None:
        await self._release(self.assignment, self.on_revoked if self.epoch > 0 else self.on_lost)


def _subscription(topics: Iterable[str], regex: str | None) -> Subscription:
    subscription = Subscription(tuple(sorted(set(topics))), regex or None)
    if subscription == Subscription():
        raise Misconfigured("a member subscribes to topics, or to a regular expression")
    return subscription
