"""Members of streams groups (KIP-1071), each a thread of a process: what they say is decided by the client.

`konvene.client.streams.membership` makes every heartbeat, and judges every answer; here is what an
application does with it. It gives up first: what it processed is committed, and closing takes its time. Then
it takes what it was given. A task with state is restored before it is run; a standby follows its changelog.
What is on the disk stays there when the process dies, and is found again by the next life of it.

It is careful: while something that it said of its tasks is on its way, or was not answered, it takes nothing.
Else what it said without a task would be taken for giving it up. So nobody who is a member ever runs what
another one runs, and the oracle holds them to that.

Not here: expressions for topics (Kafka has none yet), and rebalances that a classic member would see.
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
from konvene.sim.members.member import RETRY_BACKOFF_MS, Member
from konvene.sim.members.streams.application import NO_TASKS, Application
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World

LEAVE = -1


class StreamsMember(Application):
    """See the top of this file."""

    def __init__(self, world: World, name: str, group: str, *, static: bool) -> None:
        super().__init__(world, name, group)
        self.instance_id = name if static else None
        self._silent = False
        self.plan(world)
        self._reset()

    def _reset(self) -> None:
        self.machine: StreamsMembership | None = None
        self.tasks = NO_TASKS
        self.running: set[Task] = set()
        self._version = 1
        self._busy = self._committing = False
        self._says_tasks = self._unheard = False
        """Whether a heartbeat that says its tasks is on its way; whether the last one was not answered."""
        self._beats: Entry | None = None
        self._carrying = 0
        self._last_epoch = -1
        self._ticked_ms = 0

    def __repr__(self) -> str:
        state = "out" if self.machine is None else self.machine.state.value
        return f"<{self.name} of {self.process_id} {state} epoch {self.epoch}, {self.tasks}>"

    @property
    def settled(self) -> bool:
        """In, with all that it was told to have, restored."""
        m = self.machine
        return m is not None and m.state is MemberState.STABLE and not self._busy and self.is_restored

    @property
    def epoch(self) -> int:
        return -1 if self.machine is None else self.machine.epoch

    @property
    def member_id(self) -> str:
        return "" if self.machine is None else self.machine.member_id

    # --- life ---

    def start(self) -> None:
        super().start()
        self._reset()
        options, random = self.world.options, self.world.random
        if options["varied"] and random.random() < 0.1:
            self.process_id = self.process_of(
                f"{self.host}-{self.name}.{self.life}"
            )  # Elsewhere, with an empty disk.
        self._version = 0 if options["varied"] and random.random() < 0.2 else 1
        self._silent = bool(options["silent"]) and random.random() < options["silent"]
        if self._silent:
            self._version = 0  # Of version 1 nobody hears, after a restart, that it does not report.
        self.plan_topology()
        at = (self.host, 9000 + random.randint(0, 1))
        endpoint = at if random.random() < options["endpoints"] else None
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
        self._report(self.machine)
        self._plan()
        self.schedule(0, self._tick)

    def die(self) -> None:
        super().die()
        self._reset()
        self.world.oracle.runs(self)

    def leave(self) -> None:
        """Commit, say goodbye and wait for no answer. A static member leaves for a while, as a rule."""
        m = self.machine
        if not self.alive or m is None:
            return
        self._commit()
        leaves_permanently = self.world.leaves_permanently()
        m.leave(self.world.event_queue.now_ms)
        if m.state is MemberState.LEAVING:
            goodbye = m.request(self.world.event_queue.now_ms, self._version)
            if leaves_permanently:
                goodbye = goodbye.replace(member_epoch=LEAVE)
            self.send(goodbye, self._version, lambda answer: None)
        self.die()

    def request_shutdown(self) -> None:
        """Something is so wrong with the application that none of it is to go on."""
        if self.machine is not None:
            self.machine.request_shutdown()
            self._plan()

    def _fatal(self, why: object) -> None:
        """An error after which it does not go on by itself. Somebody starts it again, or not."""
        self.world.log_event(self.name, f"stops: {why}", None)
        self.die()
        self.world.member_stopped(self)

    # --- heartbeats ---

    def _plan(self) -> None:
        """The next heartbeat, when it is due."""
        if self._beats is not None:
            self._beats.cancel()
        due_ms = self.machine.due_ms if self.machine is not None else None
        wait_ms = None if due_ms is None else max(0, due_ms - self.world.event_queue.now_ms)
        self._beats = None if wait_ms is None else self.schedule(wait_ms, self._beat)

    def _beat(self) -> None:
        m = self.machine
        if m is None or m.due_ms is None or m.due_ms > self.world.event_queue.now_ms:
            return
        request: StreamsGroupHeartbeatRequest = m.request(self.world.event_queue.now_ms, self._version)
        self._says_tasks = request.active_tasks is not None
        self.send(request, self._version, lambda answer: self._heard(m, answer))

    def _heard(self, m: StreamsMembership, answer: Answer) -> None:
        if m is not self.machine:
            return
        now_ms, before = self.world.event_queue.now_ms, m.epoch
        self._says_tasks = False
        if answer is None:
            m.handle_failure(ConnectionLost("nothing was heard"), now_ms)
        else:
            if isinstance(answer, Errors):
                answer = StreamsGroupHeartbeatResponse(error_code=answer)
            m.handle_response(answer, now_ms)
        self._unheard = answer is None or bool(getattr(answer, "error_code", 0))
        if m.epoch != before:
            self._last_epoch = before
        if m.state is MemberState.FENCED:
            self._lose(m)
        elif m.state is MemberState.FATAL:
            self._fatal(m.error)
            return
        elif m.shutdown_requested and not self.world.faults_disabled:
            self.world.log_event(self.name, "shuts down, as somebody asked for", None)
            self.leave()
            self.world.member_stopped(self)
            return
        self._carry_out()
        self._plan()

    def _lose(self, m: StreamsMembership) -> None:
        """It is no member any more: everything is closed, and it joins anew."""
        self._busy = False
        self._carrying += 1
        self.have(NO_TASKS)
        self.forget_all()
        m.rejoin_fenced(self.world.event_queue.now_ms)

    # --- carrying out an assignment ---

    def _carry_out(self) -> None:
        """The next step towards what it was told to have: give up first, then take."""
        m = self.machine
        if m is None or self._busy or m.state is not MemberState.RECONCILING:
            return
        gone = self.tasks - m.target
        if not gone and not self._may_take():
            return
        self._busy = True
        self._carrying += 1
        if gone.active:
            self._give_up(self._carrying, (m.incarnation, m.target_version, m.target))
        else:
            self._carried(self._carrying, (m.incarnation, m.target_version, m.target))

    def _may_take(self) -> bool:
        return not (self._says_tasks or self._unheard)

    def _give_up(self, carrying: int, told: tuple[int, int, Assignment]) -> None:
        request = self.commit_request(self.epoch, self.instance_id)
        if request is None:
            self._close(carrying, told)
        else:
            self.send_commit(request, lambda error: self._close(carrying, told), 1_000)

    def _close(self, carrying: int, told: tuple[int, int, Assignment]) -> None:
        """Closing tasks takes its time, and may take longer than it is allowed to."""
        options = self.world.options
        most = options["slow.callback"] * options["rebalance.ms"]
        takes_ms = round(self.world.random.uniform(0, most)) if most and not self.world.faults_disabled else 0
        self.schedule(takes_ms, self._carried, carrying, told)

    def _carried(self, carrying: int, told: tuple[int, int, Assignment]) -> None:
        m = self.machine
        if m is None or carrying != self._carrying:
            return
        self._busy = False
        life, turn, target = told
        has = target if self._may_take() and turn == m.target_version else _common(self.tasks, target)
        if m.confirm_owned(life, turn, has):
            self.have(has)
        self._carry_out()
        self._plan()

    # --- working ---

    def _tick(self) -> None:
        """Restore, process and now and then commit."""
        self.schedule(self.world.options["heartbeat.ms"], self._tick)
        m, now_ms = self.machine, self.world.event_queue.now_ms
        if m is None:
            return
        if self.is_outdated():
            self.world.log_event(self.name, "is started anew with the next topology", None)
            self.leave()
            self.start()
            return
        most = (now_ms - self._ticked_ms) * self.world.options["restore.rate"] // 1_000
        self._ticked_ms = now_ms
        self.restore(most)
        if not self._busy:
            self.process()
            self._report(m)
            self._carry_out()
        if self.world.random.random() < 0.5:
            self._commit()
        self._plan()

    def _report(self, m: StreamsMembership) -> None:
        """How far the copies on its disk are, those too that nobody of the process has at the moment. Ends it
        tells of what it has itself, as far as it knows them."""
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
        old, epoch = self.world.options["old.epochs"], self.epoch
        if (
            old
            and not self.world.faults_disabled
            and self._last_epoch > 0
            and self.world.random.random() < old
        ):
            epoch = self._last_epoch
        request = self.commit_request(epoch, self.instance_id)
        if request is not None:
            self._committing = True
            self.send_commit(request, self._committed)

    def _committed(self, error: Errors | None) -> None:
        """A refusal says nothing that the next heartbeat does not say better."""
        self._committing = False


def _common(one: Assignment, other: Assignment) -> Assignment:
    """What is in both, role by role."""
    return Assignment(one.active & other.active, one.standby & other.standby, one.warmup & other.warmup)


def _member(world: World, name: str, group: str) -> Member:
    """Who has an instance id has it in every life."""
    number = int(name.removeprefix("c"))
    every = world.options["instances"]
    return StreamsMember(world, name, group, static=bool(every) and number % every == 0)


KINDS = (Kind("streams", _member, HostileStreams, assigned=True, applications=True),)
