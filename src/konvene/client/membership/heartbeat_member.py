"""Runs a `MembershipMachine` against a cluster: clock, connection, heartbeat task and the caller's wait.

The machine decides what to send and when. Heartbeats run in a task of their own, so that a caller that works
for long stays a member. An assignment that they bring is applied when the caller calls `ensure`: `ensure`
releases, takes over and raises errors, so that ownership changes only while the caller processes no record.
How to release and take over is defined by the group types: `ConsumerMember`, `ShareMember`, `StreamsMember`.

max.poll.interval.ms is sent to the coordinator as the rebalance timeout; the client does not enforce it.
"""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from konvene.client.errors import ClientError, KafkaError, RequestTimedOut, UnsupportedVersion
from konvene.client.membership.state_machine import (
    HeartbeatResponse,
    MembershipMachine,
    MembershipSettings,
    MemberState,
)
from konvene.client.net.cluster import COORDINATOR_MOVED, Cluster
from konvene.client.net.connection import Connection
from konvene.client.net.settings import ClientSettings
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import BY_NAME

__all__ = ["HeartbeatMember", "membership_settings", "new_member_id"]

_LEAVE_TIMEOUT_MS = 5_000

_ALREADY_LEFT = frozenset(
    {
        Errors.UNKNOWN_MEMBER_ID,
        Errors.FENCED_MEMBER_EPOCH,
        Errors.GROUP_ID_NOT_FOUND,
        Errors.FENCED_INSTANCE_ID,
    }
)
"""Errors of a leave heartbeat that mean that the coordinator does not know the member any more."""

M = TypeVar("M", bound=MembershipMachine[Any, Any, Any])


def new_member_id() -> str:
    """Return a random member id in Kafka's base64 form of a UUID."""
    return str(Uuid(uuid.uuid4().bytes))


def membership_settings(
    client: ClientSettings, *, instance_id: str | None = None, rack_id: str | None = None,
    rebalance_timeout_ms: int,
) -> MembershipSettings:  # fmt: skip
    """Return the settings of a member, with the retry and API timeouts of its client."""
    return MembershipSettings(
        instance_id=instance_id, rack_id=rack_id, rebalance_timeout_ms=rebalance_timeout_ms,
        retry_backoff_ms=client.retry_backoff_ms, retry_backoff_max_ms=client.retry_backoff_max_ms,
        unreleased_timeout_ms=client.default_api_timeout_ms,
    )  # fmt: skip


class HeartbeatMember(ABC, Generic[M]):
    """Base class of members of consumer, share and streams groups: runs the state machine of one member."""

    api: str
    """Name of the heartbeat API, such as `ConsumerGroupHeartbeat`."""
    unsupported_message: str
    """Message of the error that is raised if the broker does not support the API."""

    def __init__(self, cluster: Cluster, membership: M) -> None:
        self.cluster = cluster
        self.membership = membership
        self._heartbeats: asyncio.Task[None] | None = None
        self._wakeup = asyncio.Event()
        self._progress = asyncio.Event()

    # group types define

    async def _prepare(self) -> None:
        """Hook that runs before the first heartbeat."""
        return

    @abstractmethod
    async def _reconcile(self) -> None:
        """Revoke and take over partitions or tasks until the member owns exactly its target."""

    @abstractmethod
    async def _release_fenced(self) -> None:
        """Drop all partitions or tasks: the member was fenced, and other members may own them by now."""

    @abstractmethod
    async def _release_all(self) -> None:
        """Revoke all partitions or tasks before the member leaves."""

    # state

    @property
    def group_id(self) -> str:
        return self.membership.group_id

    @property
    def member_id(self) -> str:
        return self.membership.member_id

    @property
    def epoch(self) -> int:
        """The member epoch; 0 while the member is not in the group."""
        return self.membership.epoch

    @property
    def state(self) -> MemberState:
        return self.membership.state

    @property
    def rejoin(self) -> bool:
        """Whether the caller must call `ensure`: to apply a new target, to join, or to get an error
        raised."""
        m = self.membership
        if m.state is MemberState.RECONCILING:
            return m.target_version != m.owned_version
        return m.state in (MemberState.JOINING, MemberState.FENCED, MemberState.FATAL)

    # heartbeats

    async def ensure(self) -> None:
        """Join if needed, then apply the current assignment: revoke, take over, acknowledge.

        Waits for the join for up to the rebalance timeout. Raises `ClientError` if the member cannot join,
        such as UNSUPPORTED_ASSIGNOR, or has failed."""
        m = self.membership
        if self._heartbeats is None:
            if m.state is MemberState.LEFT:
                raise ClientError(f"this member of group {self.group_id} has left")
            await self._prepare()
            self._heartbeats = asyncio.ensure_future(self._send_heartbeats())
            self._heartbeats.add_done_callback(lambda _: self._notify())
        patience = self.cluster.patience(m.settings.rebalance_timeout_ms)
        while True:
            await self._raise_errors()
            if m.state is MemberState.FENCED:
                await self._release_fenced()
                m.rejoin_fenced(self._now_ms())
                self._wakeup.set()
            elif m.state is not MemberState.JOINING:
                break
            elif not patience.left_ms:
                raise m.error or RequestTimedOut(f"group {self.group_id} did not answer the member")
            await self.wait_for_response(patience.left_ms)
        await self._reconcile()

    async def idle(self, timeout_ms: int) -> None:
        """Wait until `ensure` has something to do, for at most `timeout_ms`."""
        patience = self.cluster.patience(timeout_ms)
        while not self.rejoin and patience.left_ms:
            await self.wait_for_response(patience.left_ms)

    async def wait_for_response(self, timeout_ms: int) -> bool:
        """Wait until the next heartbeat has a response or has failed; return False after `timeout_ms`."""
        progress = self._progress
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await progress.wait()
        except TimeoutError:
            return False
        return True

    async def _send_heartbeats(self) -> None:
        """Send each heartbeat when it is due, until the member has failed or left."""
        m = self.membership
        while m.state not in (MemberState.FATAL, MemberState.LEFT):
            self._wakeup.clear()
            due_ms = m.due_ms
            wait_ms = None if due_ms is None else due_ms - self._now_ms()
            if wait_ms is not None and wait_ms <= 0:
                await self._heartbeat()
                self._notify()
                continue
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await self._wakeup.wait()
            except TimeoutError:
                continue

    async def _heartbeat(self) -> None:
        m = self.membership
        try:
            connection = await self.cluster.coordinator(self.group_id, lane=self)
            if not connection.speaks(self._key):
                raise UnsupportedVersion(self.unsupported_message)
            version = connection.version_of(self._key)
            response = await connection.send(m.request(self._now_ms(), version), version)
        except ClientError as error:
            self.cluster.forget_coordinator(self.group_id)
            m.handle_failure(error, self._now_ms())
            return
        if response.error_code in COORDINATOR_MOVED - {Errors.COORDINATOR_LOAD_IN_PROGRESS}:
            self.cluster.forget_coordinator(self.group_id)
        m.handle_response(response, self._now_ms())

    def _notify(self) -> None:
        """Wake all callers of `wait_for_response`."""
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    async def _raise_errors(self) -> None:
        m = self.membership
        if m.state is MemberState.FATAL:
            assert m.error is not None
            await self._release_fenced()
            raise m.error
        if m.nonfatal_error is not None:
            error, m.nonfatal_error = m.nonfatal_error, None
            raise error
        if self._heartbeats is not None and self._heartbeats.done():
            self._heartbeats.result()  # The task ends by itself only on a bug of ours: raise it.

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    @property
    def _key(self) -> int:
        return BY_NAME[self.api].key

    # leaving

    async def leave(self, reason: str = "") -> None:
        """Revoke all partitions or tasks and leave the group; a static member leaves temporarily (epoch -2).

        `reason` is ignored: these heartbeats have no field for it. Raises `KafkaError` if the coordinator
        rejects the request, unless it does not know the member any more."""
        m = self.membership
        if m.state is MemberState.LEFT:
            return
        await self._release_all()
        m.leave(self._now_ms())
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        try:
            if m.state is MemberState.LEAVING:
                await self._send_leave()
        finally:
            self.cluster.release(self)

    async def _send_leave(self) -> None:
        """Send the leave heartbeat, on the same connection as a heartbeat that may still be in flight."""
        request = self.membership.request(self._now_ms(), 0)

        def versioned(connection: Connection) -> tuple[Struct, int]:
            return request, connection.version_of(self._key)

        response: HeartbeatResponse = await self.cluster.ask_coordinator(
            self.group_id, versioned, lambda r: r.error_code, timeout_ms=_LEAVE_TIMEOUT_MS,
            answer_timeout_ms=_LEAVE_TIMEOUT_MS, lane=self,
        )  # fmt: skip
        if response.error_code and response.error_code not in _ALREADY_LEFT:
            message = response.error_message
            raise KafkaError(response.error_code, message, about=f"leaving group {self.group_id}")
