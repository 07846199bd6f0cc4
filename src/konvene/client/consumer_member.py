"""A member of a consumer group (KIP-848): it joins, heartbeats, reconciles and leaves.

What it says and when is decided by `membership`, which is pure; here are the clock, the connection and the
caller's callbacks. Heartbeats are a task of their own, so that a caller who works long stays a member. What
they bring waits until the caller comes by: `ensure` gives up partitions, takes over others and tells of what
was lost, so that partitions change hands only while the caller is not working on a record.

It has the face of the classic `Member`, so that a consumer can have either. Not here either:
max.poll.interval.ms, beyond being the rebalance timeout that the coordinator is told.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable

from konvene.client.cluster import COORDINATOR_MOVED, Cluster, TopicPartition
from konvene.client.connection import Connection
from konvene.client.errors import (
    ClientError,
    KafkaError,
    Misconfigured,
    RequestTimedOut,
    UnsupportedVersion,
)
from konvene.client.member import Callback, MemberSettings
from konvene.client.membership import NO_CONSUMER_PROTOCOL, Membership, State, Topics, Units
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

__all__ = ["ConsumerMember"]

_KEY = BY_NAME["ConsumerGroupHeartbeat"].key
_LEAVING_MS = 5_000

_GONE_ANYWAY = frozenset(
    {
        Errors.UNKNOWN_MEMBER_ID,
        Errors.FENCED_MEMBER_EPOCH,
        Errors.GROUP_ID_NOT_FOUND,
        Errors.FENCED_INSTANCE_ID,
    }
)
"""Answers to a leaving heartbeat of a member that is not there any more."""


class ConsumerMember:
    """One member of one consumer group, which reads `topics`, and those that `regex` (RE2) matches.

    Of `settings` the session and the heartbeats count for nothing: both are the group's to say."""

    def __init__(
        self, cluster: Cluster, group_id: str, topics: Iterable[str] = (), *, regex: str | None = None,
        assignor: str | None = None, settings: MemberSettings | None = None,
        on_assigned: Callback | None = None, on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.settings = settings or MemberSettings()
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost
        times = cluster.settings
        self.membership = Membership(
            group_id, self.settings.member_id or str(Uuid(uuid.uuid4().bytes)), _topics(topics, regex),
            instance_id=self.settings.group_instance_id, rack_id=self.settings.client_rack, assignor=assignor,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms, retry_backoff_ms=times.retry_backoff_ms,
            retry_backoff_max_ms=times.retry_backoff_max_ms, unreleased_ms=times.default_api_timeout_ms,
        )  # fmt: skip
        self.assignment: tuple[TopicPartition, ...] = ()
        """What the caller holds: it changes only within `ensure` and `leave`."""
        self._owned: dict[TopicPartition, Uuid] = {}
        self._names: dict[Uuid, str] = {}
        self._heartbeats: asyncio.Task[None] | None = None
        self._stirred = asyncio.Event()
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        m = self.membership
        return (
            f"<ConsumerMember {m.member_id} of {m.group_id}: {m.state.value}, epoch {m.epoch}, "
            f"{len(self._owned)} partitions>"
        )

    @property
    def group_id(self) -> str:
        return self.membership.group_id

    @property
    def member_id(self) -> str:
        return self.membership.member_id

    @property
    def epoch(self) -> int:
        """The member epoch; 0 while it is not in the group."""
        return self.membership.epoch

    @property
    def state(self) -> State:
        return self.membership.state

    @property
    def topics(self) -> tuple[str, ...]:
        return self.membership.topics.names

    @property
    def rejoin(self) -> bool:
        """Whether `ensure` has something to do that is new."""
        m = self.membership
        return m.state in (State.JOINING, State.LOST, State.FAILED) or m.turn != m.held_turn

    def subscribe(self, topics: Iterable[str] = (), *, regex: str | None = None) -> None:
        """Read other topics from now on."""
        self.membership.subscribe(_topics(topics, regex))
        self._stirred.set()

    # staying

    async def ensure(self) -> None:
        """Be a member, and hold what the group gave: joins, gives up, takes over.

        Raises `ClientError` for what time cannot mend, such as UNSUPPORTED_ASSIGNOR."""
        m = self.membership
        if self._heartbeats is None:
            if m.state is State.LEFT:
                raise ClientError(f"this member of group {self.group_id} has left")
            await self.cluster.refresh(m.topics.names)
            self._heartbeats = asyncio.ensure_future(self._keep_alive())
            self._heartbeats.add_done_callback(lambda _: self._tell())
        patience = self.cluster.patience(self.settings.rebalance_timeout_ms)
        while True:
            await self._tell_errors()
            if m.state is State.LOST:
                await self._lose()
                m.released(self._now_ms())
                self._stirred.set()
            elif m.state is not State.JOINING:
                break
            elif not patience.left_ms:
                raise m.error or RequestTimedOut(f"group {self.group_id} did not answer the member")
            await self.hear(patience.left_ms)
        await self._reconcile()

    async def idle(self, timeout_ms: int) -> None:
        """Wait until `ensure` has something to do, or the time is over."""
        patience = self.cluster.patience(timeout_ms)
        while not self.rejoin and patience.left_ms:
            await self.hear(patience.left_ms)

    async def hear(self, timeout_ms: int) -> bool:
        """Wait for the coordinator's next answer, or error; False where none came in this time."""
        news = self._news
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await news.wait()
        except TimeoutError:
            return False
        return True

    async def _keep_alive(self) -> None:
        """Every heartbeat, when it is due."""
        m = self.membership
        while m.state not in (State.FAILED, State.LEFT):
            self._stirred.clear()
            due_ms = m.due_ms
            wait_ms = None if due_ms is None else due_ms - self._now_ms()
            if wait_ms is not None and wait_ms <= 0:
                await self._heartbeat()
                self._tell()
                continue
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await self._stirred.wait()
            except TimeoutError:
                continue

    async def _heartbeat(self) -> None:
        """One heartbeat; whatever comes of it is for the machine to judge."""
        m = self.membership
        try:
            connection = await self.cluster.coordinator(self.group_id, lane=self)
            if not connection.speaks(_KEY):
                raise UnsupportedVersion(NO_CONSUMER_PROTOCOL)
            version = connection.version_of(_KEY)
            answer: ConsumerGroupHeartbeatResponse = await connection.send(
                m.request(self._now_ms(), version), version
            )
        except ClientError as error:
            self.cluster.forget_coordinator(self.group_id)
            m.failed(error, self._now_ms())
            return
        if answer.error_code in COORDINATOR_MOVED - {Errors.COORDINATOR_LOAD_IN_PROGRESS}:
            self.cluster.forget_coordinator(self.group_id)
        m.answered(answer, self._now_ms())

    def _tell(self) -> None:
        """Wake all who wait to hear something."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _tell_errors(self) -> None:
        m = self.membership
        if m.state is State.FAILED:
            assert m.error is not None
            await self._lose()
            raise m.error
        if m.complaint is not None:
            complaint, m.complaint = m.complaint, None
            raise complaint
        if self._heartbeats is not None and self._heartbeats.done():
            self._heartbeats.result()  # It ends by itself for a mistake of ours only: let that be seen.

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

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

    # leaving

    async def leave(self, reason: str = "") -> None:
        """Give everything up and leave; a static member says that it will be back.

        There is no place for a `reason` in this protocol: it is taken because classic members have one."""
        m = self.membership
        if m.state is State.LEFT:
            return
        await self._let_go(self.assignment, self.on_revoked if m.epoch > 0 else self.on_lost)
        m.leave(self._now_ms())
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        try:
            if m.state is State.LEAVING:
                await self._say_goodbye()
        finally:
            self.cluster.release(self)

    async def _say_goodbye(self) -> None:
        """Behind a heartbeat that may still be under way, on the same connection."""
        goodbye = self.membership.request(self._now_ms())

        def speak(connection: Connection) -> tuple[Struct, int]:
            return goodbye, connection.version_of(_KEY)

        answer: ConsumerGroupHeartbeatResponse = await self.cluster.ask_coordinator(
            self.group_id, speak, lambda a: a.error_code, timeout_ms=_LEAVING_MS,
            answer_timeout_ms=_LEAVING_MS, lane=self,
        )  # fmt: skip
        if answer.error_code and answer.error_code not in _GONE_ANYWAY:
            raise KafkaError(answer.error_code, answer.error_message, about=f"leaving group {self.group_id}")


def _topics(names: Iterable[str], regex: str | None) -> Topics:
    found = Topics(tuple(sorted(set(names))), regex or None)
    if found == Topics():
        raise Misconfigured("a member subscribes to topics, or to a regular expression")
    return found
