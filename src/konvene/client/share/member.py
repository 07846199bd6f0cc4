"""A member of a share group (KIP-932): it joins, heartbeats, is assigned partitions and leaves.

What it says and when is decided by `share_membership`, which is pure; the clock and the connection are in
`heartbeat_member`. Others have the same partitions at the same time, so they change hands without a word:
`assignment` is what the caller may fetch from, renewed within `ensure`. Records that it still holds of a
partition that is gone can be acknowledged all the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from konvene.client.consumer.membership import Units
from konvene.client.membership.heartbeat_member import HeartbeatMember
from konvene.client.membership.state_machine import State
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.share.membership import NO_SHARE_PROTOCOL, ShareMembership
from konvene.codec.uuid import Uuid

__all__ = ["ShareMember"]


class ShareMember(HeartbeatMember[ShareMembership]):
    """One member of one share group, which reads `topics`."""

    api = "ShareGroupHeartbeat"
    lacking = NO_SHARE_PROTOCOL

    def __init__(
        self, cluster: Cluster, group_id: str, topics: Iterable[str], *, member_id: str | None = None,
        client_rack: str | None = None,
    ) -> None:  # fmt: skip
        times = cluster.settings
        membership = ShareMembership(
            group_id, member_id or str(Uuid(uuid.uuid4().bytes)), topics, rack_id=client_rack,
            patience_ms=times.default_api_timeout_ms, retry_backoff_ms=times.retry_backoff_ms,
            retry_backoff_max_ms=times.retry_backoff_max_ms,
        )  # fmt: skip
        super().__init__(cluster, membership)
        self.units: dict[TopicPartition, tuple[Uuid, int]] = {}
        """What it may fetch from, as the protocol has it."""
        self.lives = 0
        """How often it was thrown out: whatever was fetched before is not its own any more."""
        self._names: dict[Uuid, str] = {}

    def __repr__(self) -> str:
        m = self.membership
        return (
            f"<ShareMember {m.member_id} of {m.group_id}: {m.state.value}, epoch {m.epoch}, "
            f"{len(self.units)} partitions>"
        )

    @property
    def topics(self) -> tuple[str, ...]:
        return self.membership.topics

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return tuple(self.units)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read other topics from now on."""
        self.membership.subscribe(topics)
        self._stirred.set()

    # reconciling

    async def _reconcile(self) -> None:
        m = self.membership
        while m.state is State.RECONCILING:
            life, turn, target = m.life, m.turn, m.target
            found = await self._resolve(target)
            if m.life != life or m.turn != turn:
                continue  # There is another target by now.
            if (m.held_turn, m.held) == (turn, frozenset(found.values())):
                return  # Topics whose name is not known yet wait for the next call.
            if m.took(life, turn, frozenset(found.values())):
                self.units = found

    async def _resolve(self, units: Units) -> dict[TopicPartition, tuple[Uuid, int]]:
        """The partitions whose topics' names are known, after asking once for those that are not."""
        ids = {topic_id for topic_id, _ in units}
        for is_asked in (False, True):
            if is_asked:
                await self.cluster.refresh()
            names = self.cluster.metadata.names
            self._names |= {each: names[each] for each in ids if each in names}
            if ids <= self._names.keys():
                break
        self._names = {each: name for each, name in self._names.items() if each in ids}
        named = {TopicPartition(self._names[t], p): (t, p) for t, p in units if t in self._names}
        return dict(sorted(named.items()))

    async def _lose(self) -> None:
        self.units = {}
        self.lives += 1

    async def _give_back(self) -> None:
        self.units = {}
