"""A member of a streams group (KIP-1071): it joins with a topology, heartbeats, runs tasks and leaves.

What it says and when is decided by `streams_membership`, which is pure; the clock and the connection are in
`heartbeat_member`. Here tasks change hands while the caller is in `ensure`: first it gives up (a task that
only changes its role is given up in the old one), then it is told all that it has now, as Java's client
tells its listener; what it gave up is confirmed by its next heartbeat. The caller runs the tasks, and says
with `report` how far they have come.

This is the protocol alone. It creates no topics (the coordinator does), and runs and restores nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from konvene.client.membership.heartbeat_member import HeartbeatMember
from konvene.client.membership.state_machine import State
from konvene.client.net.cluster import Cluster
from konvene.client.streams.membership import (
    NO_STREAMS_PROTOCOL,
    EndpointPartitions,
    Offsets,
    Status,
    StreamsMembership,
)
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import Assignment, Topology
from konvene.codec.uuid import Uuid

__all__ = ["StreamsMember"]

TasksCallback = Callable[[Assignment], Awaitable[None]]


class StreamsMember(HeartbeatMember[StreamsMembership]):
    """One member of the streams group `group_id`, which is the application's id.

    `on_assigned` hears all that it has from now on, `on_revoked` and `on_lost` what it has no more. The
    topology's epoch is that of the settings, if they have one."""

    api = "StreamsGroupHeartbeat"
    lacking = NO_STREAMS_PROTOCOL

    def __init__(
        self, cluster: Cluster, group_id: str, topology: Topology, *,
        settings: StreamsMemberSettings | None = None, on_assigned: TasksCallback | None = None,
        on_revoked: TasksCallback | None = None, on_lost: TasksCallback | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings or StreamsMemberSettings()
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost
        s, times = self.settings, cluster.settings
        membership = StreamsMembership(
            group_id, s.member_id or str(Uuid(uuid.uuid4().bytes)),
            topology._replace(epoch=s.topology_epoch or topology.epoch),
            process_id=s.process_id or str(uuid.uuid4()), instance_id=s.group_instance_id,
            rack_id=s.client_rack, endpoint=s.application_server, tags=s.client_tags,
            rebalance_timeout_ms=s.rebalance_timeout_ms, retry_backoff_ms=times.retry_backoff_ms,
            retry_backoff_max_ms=times.retry_backoff_max_ms, unreleased_ms=times.default_api_timeout_ms,
        )  # fmt: skip
        super().__init__(cluster, membership)
        self.assignment = Assignment()
        """What the caller has: it changes only within `ensure` and `leave`."""

    def __repr__(self) -> str:
        m = self.membership
        return (
            f"<StreamsMember {m.member_id} of {m.group_id}: {m.state.value}, epoch {m.epoch}, "
            f"has {self.assignment}>"
        )

    # what it knows

    @property
    def statuses(self) -> tuple[Status, ...]:
        """What the coordinator had to tell with its last answer."""
        return self.membership.statuses

    @property
    def is_ready(self) -> bool:
        """Whether the group can run: its topics are there, and its members were waited for."""
        return self.membership.is_ready

    @property
    def shutdown_requested(self) -> bool:
        """Whether some member wants all of the application to shut down."""
        return self.membership.shutdown_requested

    @property
    def endpoints(self) -> dict[tuple[str, int], EndpointPartitions]:
        """Which partitions' state is to be asked for where."""
        return self.membership.endpoints

    # what it says

    def report(self, offsets: Offsets, end_offsets: Offsets) -> None:
        """How far its tasks have come, and how far there is to go; dormant ones on its disk too. Who reports
        before it joins, if only that there is nothing, is given copies to warm up before their tasks."""
        self.membership.report(offsets, end_offsets)

    def request_shutdown(self) -> None:
        """Have all members of the application shut down."""
        self.membership.request_shutdown()
        self._stirred.set()

    # reconciling

    async def _reconcile(self) -> None:
        m = self.membership
        while m.state is State.RECONCILING:
            life, turn, target = m.life, m.turn, m.target
            await self._let_go(self.assignment - target, self.on_revoked)
            if m.life != life or m.state not in (State.RECONCILING, State.ACKNOWLEDGING):
                return
            if m.turn != turn:
                continue  # There is another target by now: what was granted by this one may be another's.
            if self.assignment != target:
                self.assignment = target
                if self.on_assigned is not None:
                    await self.on_assigned(target)
            m.took(life, turn, target)
            self._stirred.set()

    async def _let_go(self, gone: Assignment, callback: TasksCallback | None) -> None:
        """The caller hears of it while it still has the tasks, so that it can commit."""
        if not gone:
            return
        if callback is not None:
            await callback(gone)
        self.assignment = self.assignment - gone

    async def _lose(self) -> None:
        await self._let_go(self.assignment, self.on_lost)

    async def _give_back(self) -> None:
        await self._let_go(self.assignment, self.on_revoked if self.epoch > 0 else self.on_lost)
