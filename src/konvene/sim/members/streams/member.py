"""Members of streams groups (KIP-1071), each a thread of a process, driven by the client's state machine.

`konvene.client.streams.membership` builds every heartbeat and handles every response; this module simulates
the application. It revokes first: it commits what it processed, and closes tasks, which takes time. Then it
takes over new tasks. A stateful task is restored before it runs; a standby follows its changelog. Copies on
the disk survive the process and are found again by its next life.

While a heartbeat with its tasks is pending or has failed, the member acquires nothing: the coordinator could
take the older report for a revocation. So no two members ever run the same task, which the oracle checks.

Not simulated: regular expressions (Kafka has none for streams groups yet), and rebalances as a classic member
sees them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.client.errors import ConnectionLost
from konvene.client.membership.state_machine import MembershipSettings, MemberState
from konvene.client.streams.membership import StreamsMembership
from konvene.client.streams.tasks import Assignment, Task
from konvene.errors import Errors
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from konvene.sim.event_queue import Entry
from konvene.sim.members import Kind
from konvene.sim.members.hostile.streams import HostileStreams
from konvene.sim.members.machine_member import MachineMember
from konvene.sim.members.member import RETRY_BACKOFF_MS, Member
from konvene.sim.members.streams.application import NO_TASKS, Application
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World

LEAVE = -1


class StreamsMember(MachineMember, Application):
    """An honest member of a streams group: a stream thread with the streams protocol."""

    def __init__(self, world: World, name: str, group: str, *, static: bool) -> None:
        super().__init__(world, name, group)
        self.instance_id = name if static else None
        self._silent = False
        self.place_and_plan(world)
        self._reset()

    def _reset(self) -> None:
        self.machine: StreamsMembership | None = None
        self.tasks = NO_TASKS
        self.running: set[Task] = set()
        self._version = 1
        self._reconciling = self._committing = False
        self._tasks_in_flight = self._unconfirmed = False
        """Whether a heartbeat that reports tasks is pending; whether the last heartbeat failed."""
        self._heartbeat_timer: Entry | None = None
        self._reconciliation = 0
        self._last_epoch = -1
        self._ticked_ms = 0

    def __repr__(self) -> str:
        state = "out" if self.machine is None else self.machine.state.value
        return f"<{self.name} of {self.process_id} {state} epoch {self.epoch}, {self.tasks}>"

    @property
    def is_stable(self) -> bool:
        """True if the member has reconciled its assignment and restored all of it."""
        m = self.machine
        return m is not None and m.state is MemberState.STABLE and not self._reconciling and self.is_restored

    # --- life ---

    def start(self) -> None:
        super().start()
        self._reset()
        options, random = self.world.options, self.world.random
        if options["varied"] and random.random() < 0.1:
            self.process_id = self.process_of(
                f"{self.host}-{self.name}.{self.life}"
            )  # It moved to a host with an empty disk.
        self._version = 0 if options["varied"] and random.random() < 0.2 else 1
        self._silent = bool(options["silent"]) and random.random() < options["silent"]
        if self._silent:
            self._version = 0  # After a restart, version 1 could not express that it does not report offsets.
        self.plan_topology()
        address = (self.host, 9000 + random.randint(0, 1))
        endpoint = address if random.random() < options["endpoints"] else None
        timeout_ms = options["rebalance.ms"] * (random.choice([1, 1, 2]) if options["varied"] else 1)
        self.machine = StreamsMembership(
            self.group, f"{self.name}.{self.life}", self.topology, process_id=self.process_id,
            endpoint=endpoint, tags={"zone": random.choice("ab")} if options["varied"] else {},
            settings=MembershipSettings(
                instance_id=self.instance_id, rebalance_timeout_ms=timeout_ms,
                retry_backoff_ms=RETRY_BACKOFF_MS, unreleased_timeout_ms=100 * options["session.ms"],
            ),
        )  # fmt: skip
        self._ticked_ms = self.world.event_queue.now_ms
        self._report_offsets(self.machine)
        self._schedule_heartbeat()
        self.schedule(0, self._tick)

    def die(self) -> None:
        super().die()
        self._reset()
        self.world.oracle.record_tasks(self)

    def leave(self) -> None:
        """Commit, and leave without waiting for the response; a static member may announce its return."""
        m = self.machine
        if not self.alive or m is None:
            return
        self._commit()
        leaves_permanently = self.world.leaves_permanently()
        m.leave(self.world.event_queue.now_ms)
        if m.state is MemberState.LEAVING:
            leave_request = m.request(self.world.event_queue.now_ms, self._version)
            if leaves_permanently:
                leave_request = leave_request.replace(member_epoch=LEAVE)
            self.send(leave_request, self._version, lambda answer: None)
        self.die()

    def request_shutdown(self) -> None:
        """Request the shutdown of the whole application, by the next heartbeat."""
        if self.machine is not None:
            self.machine.request_shutdown()
            self._schedule_heartbeat()

    def _fatal(self, why: object) -> None:
        """Stop after a fatal error; the world may restart the member later."""
        self.world.log_event(self.name, f"stops: {why}", None)
        self.die()
        self.world.member_stopped(self)

    # --- heartbeats ---

    def _send_heartbeat(self) -> None:
        m = self.machine
        if m is None or m.due_ms is None or m.due_ms > self.world.event_queue.now_ms:
            return
        request: StreamsGroupHeartbeatRequest = m.request(self.world.event_queue.now_ms, self._version)
        self._tasks_in_flight = request.active_tasks is not None
        self.send(request, self._version, lambda answer: self._handle_heartbeat(m, answer))

    def _handle_heartbeat(self, m: StreamsMembership, answer: Answer) -> None:
        if m is not self.machine:
            return
        now_ms, before = self.world.event_queue.now_ms, m.epoch
        self._tasks_in_flight = False
        if answer is None:
            m.handle_failure(ConnectionLost("no response"), now_ms)
        else:
            if isinstance(answer, Errors):
                answer = StreamsGroupHeartbeatResponse(error_code=answer)
            assert isinstance(answer, StreamsGroupHeartbeatResponse)
            m.handle_response(answer, now_ms)
        self._unconfirmed = answer is None or bool(getattr(answer, "error_code", 0))
        if m.epoch != before:
            self._last_epoch = before
        if m.state is MemberState.FENCED:
            self._lose_membership(m)
        elif m.state is MemberState.FATAL:
            self._fatal(m.error)
            return
        elif m.shutdown_requested and not self.world.faults_disabled:
            self.world.log_event(self.name, "shuts down on request", None)
            self.leave()
            self.world.member_stopped(self)
            return
        self._reconcile()
        self._schedule_heartbeat()

    def _lose_membership(self, m: StreamsMembership) -> None:
        """Close all tasks after fencing, and rejoin."""
        self._reconciling = False
        self._reconciliation += 1
        self.set_tasks(NO_TASKS)
        self.lose_all()
        m.rejoin_fenced(self.world.event_queue.now_ms)

    # --- reconciliation ---

    def _reconcile(self) -> None:
        """Begin to reconcile the target assignment: revoke first, then take over new tasks."""
        m = self.machine
        if m is None or self._reconciling or m.state is not MemberState.RECONCILING:
            return
        revoked = self.tasks - m.target
        if not revoked and not self._may_acquire():
            return
        self._reconciling = True
        self._reconciliation += 1
        if revoked.active:
            self._revoke(self._reconciliation, (m.incarnation, m.target_version, m.target))
        else:
            self._reconciled(self._reconciliation, (m.incarnation, m.target_version, m.target))

    def _may_acquire(self) -> bool:
        return not (self._tasks_in_flight or self._unconfirmed)

    def _revoke(self, reconciliation: int, target_at: tuple[int, int, Assignment]) -> None:
        request = self.commit_request(self.epoch, self.instance_id)
        if request is None:
            self._close(reconciliation, target_at)
        else:
            self.send_commit(request, lambda error: self._close(reconciliation, target_at), 1_000)

    def _close(self, reconciliation: int, target_at: tuple[int, int, Assignment]) -> None:
        """Close the revoked tasks, then own those of the target. This may outlast the rebalance timeout.

        `reconciliation` is the number of this reconciliation; `target_at` is the state machine's incarnation,
        the version of its target, and the target, all as they were when the reconciliation began."""
        options = self.world.options
        longest_ms = options["slow.callback"] * options["rebalance.ms"]
        duration_ms = (
            round(self.world.random.uniform(0, longest_ms))
            if longest_ms and not self.world.faults_disabled
            else 0
        )
        self.schedule(duration_ms, self._reconciled, reconciliation, target_at)

    def _reconciled(self, reconciliation: int, target_at: tuple[int, int, Assignment]) -> None:
        m = self.machine
        if m is None or reconciliation != self._reconciliation:
            return
        self._reconciling = False
        incarnation, target_version, target = target_at
        owned = (
            target
            if self._may_acquire() and target_version == m.target_version
            else _intersection(self.tasks, target)
        )
        if m.confirm_owned(incarnation, target_version, owned):
            self.set_tasks(owned)
        self._reconcile()
        self._schedule_heartbeat()

    # --- working ---

    def _tick(self) -> None:
        """Run one iteration of the thread: restore, process, sometimes commit."""
        self.schedule(self.world.options["heartbeat.ms"], self._tick)
        m, now_ms = self.machine, self.world.event_queue.now_ms
        if m is None:
            return
        if self.restart_if_outdated():
            return
        self.restore_since(self._ticked_ms)
        self._ticked_ms = now_ms
        if not self._reconciling:
            self.process()
            self._report_offsets(m)
            self._reconcile()
        if self.world.random.random() < 0.5:
            self._commit()
        self._schedule_heartbeat()

    def _report_offsets(self, m: StreamsMembership) -> None:
        """Give the state machine the restored offsets of all state on the process's disk, to report them.

        This includes tasks that no member of the process owns. End offsets are reported for the member's own
        tasks, except for some that it pretends not to know."""
        if self._silent:
            return
        world, unknown = self.world, self.world.conditions["unknown.ends"]
        offsets = dict.fromkeys(self.opened, 0) | dict(world.stores.on_disk(self.process_id, self.group))
        ends = {
            task: world.stores.end((self.group, task))
            for task in sorted(self.opened, key=lambda t: t.sort_key)
            if not unknown or world.random.random() >= unknown
        }
        m.report(offsets, ends)

    def _commit(self) -> None:
        if self.epoch <= 0 or self._committing:
            return
        old_epochs, epoch = self.world.options["old.epochs"], self.epoch
        if (
            old_epochs
            and not self.world.faults_disabled
            and self._last_epoch > 0
            and self.world.random.random() < old_epochs
        ):
            epoch = self._last_epoch
        request = self.commit_request(epoch, self.instance_id)
        if request is not None:
            self._committing = True
            self.send_commit(request, self._committed)

    def _committed(self, error: Errors | None) -> None:
        """Ignore the result: the next heartbeat reports every error that matters."""
        self._committing = False


def _intersection(one: Assignment, other: Assignment) -> Assignment:
    """Return the tasks that are in both assignments, role by role."""
    return Assignment(one.active & other.active, one.standby & other.standby, one.warmup & other.warmup)


def _member(world: World, name: str, group: str) -> Member:
    """Make a member; a client is static in every life or in none."""
    number = int(name.removeprefix("c"))
    static_interval = world.options["instances"]
    return StreamsMember(world, name, group, static=bool(static_interval) and number % static_interval == 0)


KINDS = (Kind("streams", _member, HostileStreams, assigned=True, applications=True),)
