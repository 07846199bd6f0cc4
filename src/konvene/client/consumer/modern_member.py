"""A member of a consumer group (KIP-848): it joins, heartbeats, reconciles and leaves.

What it says and when is decided by `membership`, which is pure; the clock and the connection are in
`heartbeat_member`. Here is what a reader does with an assignment: topic ids become names, and partitions
change hands in the order give up, take over, acknowledge, while the caller is in `ensure`.

It has the face of the classic `Member`, so that a consumer can have either.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from konvene.client.consumer.classic_member import Callback, MemberSettings
from konvene.client.consumer.membership import NO_CONSUMER_PROTOCOL, Membership, State, Topics, Units
from konvene.client.errors import Misconfigured
from konvene.client.membership.heartbeat_member import HeartbeatMember
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.uuid import Uuid

__all__ = ["ConsumerMember"]


class ConsumerMember(HeartbeatMember[Membership]):
    """One member of one consumer group, which reads `topics`, and those that `regex` (RE2) matches.

    Of `settings` the session and the heartbeats count for nothing: both are the group's to say."""

    api = "ConsumerGroupHeartbeat"
    lacking = NO_CONSUMER_PROTOCOL

    def __init__(
        self, cluster: Cluster, group_id: str, topics: Iterable[str] = (), *, regex: str | None = None,
        assignor: str | None = None, settings: MemberSettings | None = None,
        on_assigned: Callback | None = None, on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings or MemberSettings()
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost
        times = cluster.settings
        membership = Membership(
            group_id, self.settings.member_id or str(Uuid(uuid.uuid4().bytes)), _topics(topics, regex),
            instance_id=self.settings.group_instance_id, rack_id=self.settings.client_rack, assignor=assignor,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms, retry_backoff_ms=times.retry_backoff_ms,
            retry_backoff_max_ms=times.retry_backoff_max_ms, unreleased_ms=times.default_api_timeout_ms,
        )  # fmt: skip
        super().__init__(cluster, membership)
        self.assignment: tuple[TopicPartition, ...] = ()
        """What the caller holds: it changes only within `ensure` and `leave`."""
        self._owned: dict[TopicPartition, Uuid] = {}
        self._names: dict[Uuid, str] = {}

    def __repr__(self) -> str:
        m = self.membership
        return (
            f"<ConsumerMember {m.member_id} of {m.group_id}: {m.state.value}, epoch {m.epoch}, "
            f"{len(self._owned)} partitions>"
        )

    @property
    def topics(self) -> tuple[str, ...]:
        return self.membership.topics.names

    def subscribe(self, topics: Iterable[str] = (), *, regex: str | None = None) -> None:
        """Read other topics from now on."""
        self.membership.subscribe(_topics(topics, regex))
        self._stirred.set()

    async def _prepare(self) -> None:
        await self.cluster.refresh(self.topics)

    # reconciling

    async def _reconcile(self) -> None:
        """Go from what is held to what was assigned, in the order give up, take over, acknowledge.

        Topics whose name is not known yet wait for the next call."""
        m = self.membership
        while m.state is State.RECONCILING:
            life, turn = m.life, m.turn
            found = await self._resolve(m.target)
            if (m.held_turn, m.held) == (turn, frozenset((t, tp.partition) for tp, t in found.items())):
                return
            gone = tuple(sorted(tp for tp, topic_id in self._owned.items() if found.get(tp) != topic_id))
            # A partition that goes and comes is of a topic that was made anew: the old one is no more.
            await self._let_go(tuple(tp for tp in gone if tp in found), self.on_lost)
            await self._let_go(tuple(tp for tp in gone if tp not in found), self.on_revoked)
            if m.life != life or m.state not in (State.RECONCILING, State.ACKNOWLEDGING):
                return
            if m.turn != turn:
                continue  # There is another target by now: what was granted by this one may be another's.
            new = tuple(sorted(tp for tp in found if tp not in self._owned))
            self._hold(found)
            if self.on_assigned is not None:
                await self.on_assigned(new)
            m.took(life, turn, frozenset((topic_id, tp.partition) for tp, topic_id in found.items()))
            self._stirred.set()

    async def _resolve(self, units: Units) -> dict[TopicPartition, Uuid]:
        """The units whose topics' names are known, after asking once for those that are not."""
        ids = {topic_id for topic_id, _ in units}
        for is_asked in (False, True):
            if is_asked:
                await self.cluster.refresh()
            names = self.cluster.metadata.names
            self._names |= {each: names[each] for each in ids if each in names}
            if ids <= self._names.keys():
                break
        self._names = {each: name for each, name in self._names.items() if each in ids}
        return {TopicPartition(self._names[t], p): t for t, p in sorted(units) if t in self._names}

    async def _let_go(self, partitions: tuple[TopicPartition, ...], callback: Callback | None) -> None:
        """The caller hears of it while it still has the partitions, so that it can commit."""
        if not partitions:
            return
        if callback is not None:
            await callback(partitions)
        gone = set(partitions)
        self._hold({tp: topic_id for tp, topic_id in self._owned.items() if tp not in gone})

    def _hold(self, owned: dict[TopicPartition, Uuid]) -> None:
        self._owned, self.assignment = owned, tuple(sorted(owned))

    async def _lose(self) -> None:
        await self._let_go(self.assignment, self.on_lost)

    async def _give_back(self) -> None:
        await self._let_go(self.assignment, self.on_revoked if self.epoch > 0 else self.on_lost)


def _topics(names: Iterable[str], regex: str | None) -> Topics:
    found = Topics(tuple(sorted(set(names))), regex or None)
    if found == Topics():
        raise Misconfigured("a member subscribes to topics, or to a regular expression")
    return found
