"""Base class of members whose heartbeats are built by a state machine of `konvene.client`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.sim.members.member import Member

if TYPE_CHECKING:
    from konvene.client.share.membership import ShareMembership
    from konvene.client.streams.membership import StreamsMembership
    from konvene.sim.event_queue import Entry


class MachineMember(Member):
    """A member that sends a state machine's heartbeats when they are due; subclasses make the messages."""

    machine: ShareMembership | StreamsMembership | None
    """The membership; None before the first start and after a death."""
    _heartbeat_timer: Entry | None

    @property
    def epoch(self) -> int:
        return -1 if self.machine is None else self.machine.epoch

    @property
    def member_id(self) -> str:
        return "" if self.machine is None else self.machine.member_id

    def _schedule_heartbeat(self) -> None:
        """Set the heartbeat timer to the time when the state machine's next heartbeat is due."""
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        due_ms = self.machine.due_ms if self.machine is not None else None
        wait_ms = None if due_ms is None else max(0, due_ms - self.world.event_queue.now_ms)
        self._heartbeat_timer = None if wait_ms is None else self.schedule(wait_ms, self._send_heartbeat)

    def _send_heartbeat(self) -> None:
        """Send the heartbeat if it is due."""
        raise NotImplementedError
