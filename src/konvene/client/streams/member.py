"""A member of a streams group (KIP-1071): joins with a topology, heartbeats, reconciles its tasks and leaves.

`StreamsMembership` decides what the heartbeats carry; `HeartbeatMember` sends them. Tasks change hands while
the caller is in `ensure`: first `on_revoked` is called with the tasks to release (a task that changes its
role is released in the old role), then `on_assigned` with all tasks that the member has, as Java's client
calls its listener. The next heartbeat confirms the revocation. The caller runs the tasks and reports their
progress with `report`.

This is the protocol only. It creates no topics (the coordinator does), and runs and restores nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from konvene.client.membership.heartbeat_member import HeartbeatMember, membership_settings, new_member_id
from konvene.client.membership.state_machine import MemberState
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

__all__ = ["StreamsMember"]

TasksCallback = Callable[[Assignment], Awaitable[None]]


class StreamsMember(HeartbeatMember[StreamsMembership]):
    """A member of the streams group `group_id`, which is the application id.

    `on_assigned` is called with all tasks that the member has, `on_revoked` and `on_lost` with the tasks that
    it releases or has lost; all three run within `ensure` and `leave`. A topology epoch in `settings` takes
    precedence over the topology's own. `ensure` raises `KafkaError` if the group rejects the member, such as
    `StreamsInvalidTopology` or `StreamsTopologyFenced`."""

    api = "StreamsGroupHeartbeat"
    unsupported_message = NO_STREAMS_PROTOCOL

    def __init__(
        self, cluster: Cluster, group_id: str, topology: Topology, *,
        settings: StreamsMemberSettings | None = None, on_assigned: TasksCallback | None = None,
        on_revoked: TasksCallback | None = None, on_lost: TasksCallback | None = None,
    ) -> None:  # fmt: skip
        self.settings = s = settings or StreamsMemberSettings()
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost
        membership = StreamsMembership(
            group_id, s.member_id or new_member_id(),
            topology._replace(epoch=s.topology_epoch or topology.epoch),
            membership_settings(
                cluster.settings, instance_id=s.group_instance_id, rack_id=s.client_rack,
                rebalance_timeout_ms=s.rebalance_timeout_ms,
            ),
            process_id=s.process_id or str(uuid.uuid4()), endpoint=s.application_server, tags=s.client_tags,
        )  # fmt: skip
        super().__init__(cluster, membership)
        self.assignment = Assignment()
        """The tasks that the caller owns. They change within `ensure` and `leave` only."""

    def __repr__(self) -> str:
        m = self.membership
        return (
            f"<StreamsMember {m.member_id} of {m.group_id}: {m.state.value}, epoch {m.epoch}, "
            f"has {self.assignment}>"
        )

    @property
    def statuses(self) -> tuple[Status, ...]:
        """The statuses of the group, as of the last heartbeat response."""
        return self.membership.statuses

    @property
    def is_ready(self) -> bool:
        """Whether the group can assign tasks: its topics exist and its initial delay is over."""
        return self.membership.is_ready

    @property
    def shutdown_requested(self) -> bool:
        """Whether a member has requested the shutdown of the application."""
        return self.membership.shutdown_requested

    @property
    def endpoints(self) -> dict[tuple[str, int], EndpointPartitions]:
        """The partitions whose state can be queried, by host and port."""
        return self.membership.endpoints

    def report(self, offsets: Offsets, end_offsets: Offsets) -> None:
        """Report the progress of tasks, dormant ones on disk included, and the end offsets of their
        changelogs.

        A member that reports before it joins, even an empty mapping, first gets warm-up tasks for those that
        it would have to restore."""
        self.membership.report(offsets, end_offsets)

    def request_shutdown(self) -> None:
        """Request the shutdown of all members of the application."""
        self.membership.request_shutdown()
        self._wakeup.set()

    # reconciliation

    async def _reconcile(self) -> None:
        m = self.membership
        while m.state is MemberState.RECONCILING:
            incarnation, version, target = m.incarnation, m.target_version, m.target
            await self._release(self.assignment - target, self.on_revoked)
            if m.incarnation != incarnation or m.state not in (
                MemberState.RECONCILING,
                MemberState.ACKNOWLEDGING,
            ):
                return
            if m.target_version != version:
                continue  # A newer target has arrived: this one's tasks may be assigned to others by now.
            if self.assignment != target:
                self.assignment = target
                if self.on_assigned is not None:
                    await self.on_assigned(target)
            m.confirm_owned(incarnation, version, target)
            self._wakeup.set()

    async def _release(self, tasks: Assignment, callback: TasksCallback | None) -> None:
        """Release tasks. The callback runs while the caller still owns them, so that it can commit."""
        if not tasks:
            return
        if callback is not None:
            await callback(tasks)
        self.assignment = self.assignment - tasks

    async def _release_fenced(self) -> None:
        await self._release(self.assignment, self.on_lost)

    async def _release_all(self) -> None:
        await self._release(self.assignment, self.on_revoked if self.epoch > 0 else self.on_lost)
