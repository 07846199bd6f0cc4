"""A member that heartbeats: the clock, the connection and the caller's patience around a `Machine`.

What it says and when is decided by the machine, which is pure. Heartbeats are a task of their own, so that a
caller who works long stays a member. What they bring waits until the caller comes by: `ensure` gives up,
takes over and tells of what was lost, so that things change hands only while the caller is not working on a
record. What there is to give up and take over is for the kinds to say: `consumer_member`, `streams_member`.

Not here: max.poll.interval.ms, beyond being the rebalance timeout that the coordinator is told.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from konvene.client.errors import ClientError, KafkaError, RequestTimedOut, UnsupportedVersion
from konvene.client.membership.state_machine import Machine, State
from konvene.client.net.cluster import COORDINATOR_MOVED, Cluster
from konvene.client.net.connection import Connection
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME

__all__ = ["HeartbeatMember"]

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

M = TypeVar("M", bound=Machine[Any])


class HeartbeatMember(ABC, Generic[M]):
    """One member of one group of a coordinator that assigns."""

    api: str
    """The name of its heartbeat."""
    lacking: str
    """What is said where the cluster does not speak it."""

    def __init__(self, cluster: Cluster, membership: M) -> None:
        self.cluster = cluster
        self.membership = membership
        self._heartbeats: asyncio.Task[None] | None = None
        self._stirred = asyncio.Event()
        self._news = asyncio.Event()

    # what the kinds say

    async def _prepare(self) -> None:
        """Before the first heartbeat: nothing, unless a kind has something to ask."""
        return

    @abstractmethod
    async def _reconcile(self) -> None:
        """Go from what is held to what was assigned."""

    @abstractmethod
    async def _lose(self) -> None:
        """Let go of all, which is another's by now."""

    @abstractmethod
    async def _give_back(self) -> None:
        """Let go of all, to leave."""

    # where it stands

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
    def rejoin(self) -> bool:
        """Whether `ensure` has something to do that is new. What it took over has to be told first."""
        m = self.membership
        if m.state is State.RECONCILING:
            return m.turn != m.held_turn
        return m.state in (State.JOINING, State.LOST, State.FAILED)

    # staying

    async def ensure(self) -> None:
        """Be a member, and hold what the group gave: joins, gives up, takes over.

        Raises `ClientError` for what time cannot mend, such as UNSUPPORTED_ASSIGNOR."""
        m = self.membership
        if self._heartbeats is None:
            if m.state is State.LEFT:
                raise ClientError(f"this member of group {self.group_id} has left")
            await self._prepare()
            self._heartbeats = asyncio.ensure_future(self._keep_alive())
            self._heartbeats.add_done_callback(lambda _: self._tell())
        patience = self.cluster.patience(m.rebalance_timeout_ms)
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
            if not connection.speaks(self._key):
                raise UnsupportedVersion(self.lacking)
            version = connection.version_of(self._key)
            answer = await connection.send(m.request(self._now_ms(), version), version)
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

    @property
    def _key(self) -> int:
        return BY_NAME[self.api].key

    # leaving

    async def leave(self, reason: str = "") -> None:
        """Give everything up and leave; a static member says that it will be back.

        There is no place for a `reason` in this protocol: it is taken because classic members have one."""
        m = self.membership
        if m.state is State.LEFT:
            return
        await self._give_back()
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
        goodbye = self.membership.request(self._now_ms(), 0)

        def speak(connection: Connection) -> tuple[Struct, int]:
            return goodbye, connection.version_of(self._key)

        answer = await self.cluster.ask_coordinator(
            self.group_id, speak, lambda a: a.error_code, timeout_ms=_LEAVING_MS,
            answer_timeout_ms=_LEAVING_MS, lane=self,
        )  # fmt: skip
        if answer.error_code and answer.error_code not in _GONE_ANYWAY:
            raise KafkaError(answer.error_code, answer.error_message, about=f"leaving group {self.group_id}")
