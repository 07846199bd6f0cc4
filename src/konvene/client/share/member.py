"""A member of a share group (KIP-932): joins, heartbeats, receives partitions and leaves.

`ShareMembership` decides what the heartbeats carry; `HeartbeatMember` sends them. Other members have the same
partitions at the same time, so that an assignment is applied without callbacks: `assignment` is what the
caller may fetch from, and changes within `ensure`. Records of a partition that is no longer assigned can
still be acknowledged."""

from __future__ import annotations

from collections.abc import Iterable

from konvene.client.membership.heartbeat_member import HeartbeatMember, membership_settings, new_member_id
from konvene.client.membership.state_machine import MemberState
from konvene.client.membership.topic_partitions import Partitions, TopicNames
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.share.membership import NO_SHARE_PROTOCOL, ShareMembership
from konvene.codec.uuid import Uuid

__all__ = ["ShareMember"]


class ShareMember(HeartbeatMember[ShareMembership]):
    """A member of the share group `group_id`, subscribed to `topics`."""

    api = "ShareGroupHeartbeat"
    unsupported_message = NO_SHARE_PROTOCOL

    def __init__(
        self, cluster: Cluster, group_id: str, topics: Iterable[str], *, member_id: str | None = None,
        client_rack: str | None = None,
    ) -> None:  # fmt: skip
        client = cluster.settings
        membership = ShareMembership(
            group_id, member_id or new_member_id(), topics,
            membership_settings(
                client, rack_id=client_rack, rebalance_timeout_ms=client.default_api_timeout_ms
            ),
        )  # fmt: skip
        super().__init__(cluster, membership)
        self.partitions: dict[TopicPartition, tuple[Uuid, int]] = {}
        """The partitions that it may fetch from, by name and by topic id."""
        self.times_fenced = 0
        """How many times it was fenced; records that it fetched before that are no longer its own."""
        self._topic_names = TopicNames(cluster)

    def __repr__(self) -> str:
        m = self.membership
        return (
            f"<ShareMember {m.member_id} of {m.group_id}: {m.state.value}, epoch {m.epoch}, "
            f"{len(self.partitions)} partitions>"
        )

    @property
    def topics(self) -> tuple[str, ...]:
        return self.membership.topics

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return tuple(self.partitions)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription. Raises `Misconfigured` if there is no topic."""
        self.membership.subscribe(topics)
        self._wakeup.set()

    # reconciliation

    async def _reconcile(self) -> None:
        m = self.membership
        while m.state is MemberState.RECONCILING:
            incarnation, version, target = m.incarnation, m.target_version, m.target
            resolved = await self._resolve(target)
            if m.incarnation != incarnation or m.target_version != version:
                continue  # A newer target has arrived.
            owned = frozenset(resolved.values())
            if (m.owned_version, m.owned) == (version, owned):
                return  # A partition whose topic name is unknown waits for the next call.
            if m.confirm_owned(incarnation, version, owned):
                self.partitions = resolved

    async def _resolve(self, partitions: Partitions) -> dict[TopicPartition, tuple[Uuid, int]]:
        """Return those partitions whose topic names are known, by name, each with its topic id and number."""
        names = await self._topic_names.resolve(partitions)
        named = {TopicPartition(names[t], p): (t, p) for t, p in partitions if t in names}
        return dict(sorted(named.items()))

    async def _release_fenced(self) -> None:
        self.partitions = {}
        self.times_fenced += 1

    async def _release_all(self) -> None:
        self.partitions = {}
