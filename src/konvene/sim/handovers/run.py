"""A run of one hand-over scenario on the production coordinator, with its figures.

    hand-over     a member becomes active for a stateful task that it was not active for before
    cold          a hand-over with more than the acceptable lag, although another process had caught up
                  when the target assignment of the task was computed (the active member always has)
    unavoidable   the same, but no live process had caught up
    idle          tasks that no live member is processing, summed over ticks, with stateless ones
    settled       all members have reconciled their target, no warm-up is left, all tasks are processing, and
                  no standby exceeds the acceptable lag
    ticks         number of ticks that do not end settled
    moving        ticks from a change until active tasks stay on their members and are processing

Counting starts when the group has settled for the first time. Lags are measured on the disks, independently
of the coordinator. Target assignments and the tasks of members are checked against the rules of the assignor
(`_check_target`, `check_members`).

The group must settle within the time that Kafka's own scenarios allow: 100 ticks, and for each stateful task
the ticks that it takes to restore 30,000 records, plus ten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from random import Random

from konvene.client.membership.state_machine import MemberState
from konvene.client.streams.tasks import Assignment, Task
from konvene.groups.assignors.tasks.contract import MemberAssignment
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.streams.group import State as GroupState
from konvene.groups.streams.group import StreamsGroup
from konvene.sim.handovers.application import GROUP, Application, Thread, topology_of
from konvene.sim.handovers.coordinator import Coordinator, Host, group_of, topics_of
from konvene.sim.handovers.plan import MOST_RECORDS, Change, Scenario, What

__all__ = ["SETTINGS", "TICK_MS", "Outcome", "Run", "run"]

TICK_MS = 5_000
"""`group.streams.heartbeat.interval.ms`."""

SETTINGS: Mapping[str, str] = {
    "konvene.heartbeat.policy": "kafka",
    "group.streams.assignor.offload.enable": "false",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": str(3 * TICK_MS),
}
"""Kafka's defaults except for these. A dead member is removed after three ticks instead of nine, because the
coordinator decides nothing before that."""

LIMITS = {
    What.STANDBYS: "group.streams.num.standby.replicas",
    What.WARMUPS: "group.streams.num.warmup.replicas",
    What.LAG: "group.streams.acceptable.recovery.lag",
}


@dataclass(slots=True)
class Outcome:
    """The figures of one scenario, or their sums over several; see the module for their definitions."""

    handovers: int = 0
    cold: int = 0
    unavoidable: int = 0
    idle: int = 0
    ticks: int = 0
    moving: int = 0
    """Ticks until active tasks stay on their members and are processing; standbys may still move."""
    epochs: int = 0
    warmups: int = 0
    """Number of assigned warm-up tasks."""
    uneven: int = 0
    """Number of scenarios that end with two members whose task counts differ by more than one."""

    def add(self, other: Outcome) -> None:
        for target in fields(self):
            setattr(self, target.name, getattr(self, target.name) + getattr(other, target.name))


def run(
    scenario: Scenario,
    *,
    warmups: bool = True,
    host: Callable[[Mapping[str, str]], Coordinator] = Host,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a scenario and return its figures. Raises `AssertionError` if a rule is violated or the group does
    not become stable.

    Without `warmups` the limit of warm-up tasks is 0. `host` creates the coordinator from broker settings;
    `trace` receives a line for each event."""
    return Run(scenario, warmups=warmups, host=host, trace=trace).play()


class Run:
    """A running scenario. `trace` receives a line for each of its events."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        warmups: bool = True,
        host: Callable[[Mapping[str, str]], Coordinator] = Host,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.scenario, self.outcome = scenario, Outcome()
        self.limits = {
            What.STANDBYS: scenario.standbys,
            What.WARMUPS: scenario.warmups if warmups else 0,
            What.LAG: scenario.lag,
        }
        self.tick = 0
        self.app, topics = _application(scenario)
        settings = {LIMITS[what]: str(value) for what, value in self.limits.items()}
        self.host = host({**SETTINGS, **settings})
        self.host.topics = topics_of(topics)
        self._with_warmups = warmups
        self._random = Random(scenario.seed)
        self._trace = trace
        self._tick_is_traced = False
        self._counts = False
        self._target_epoch = FIRST_EPOCH
        """Epoch of the last observed target assignment."""
        self._moved = 0
        """Last tick in which an active task changed its member or was not processing."""
        self._actives: dict[Task, str] = {}
        self._targets: dict[str, MemberAssignment] = {}
        self._owners: dict[Task, str] = {}
        self._caught_up: dict[Task, frozenset[str]] = {}
        """Processes that had caught up with a task when its current target was computed."""
        self._max_ticks = 100 + (MOST_RECORDS // scenario.restores + 10) * max(1, len(self.app.ends))

    def play(self) -> Outcome:
        """Run the scenario: let the group settle, apply each change, and let it settle at the end. Return the
        figures."""
        for name, threads in self.scenario.processes.items():
            self.app.start(name, threads)
        self.settle()
        self._counts = True
        epoch, began = self._target_epoch, self.tick
        for change in self.scenario.changes:
            self._trace_line(f"-- {change}")
            self._apply(change)
            for _ in range(change.soon or 1):
                self._count_tick()
            if not change.soon:
                self.settle()
                self._trace_line("-- settled")
                self.outcome.moving += max(0, self._moved - began)
                for _ in range(change.calm):
                    self._count_tick()
                began = self.tick
        self.settle()
        self.outcome.moving += max(0, self._moved - began)
        self.outcome.epochs = self._target_epoch - epoch
        self.outcome.uneven = int(self._is_uneven())
        return self.outcome

    def settle(self) -> None:
        """Run ticks until the group has settled. Raises `AssertionError` if that takes too long."""
        for _ in range(self._max_ticks):
            if self.is_settled():
                return
            self._count_tick()
        raise AssertionError(f"seed {self.scenario.seed}: not settled after {self._max_ticks} ticks")

    def is_settled(self) -> bool:
        group = group_of(self.host, GROUP)
        if group is None or group.state is not GroupState.STABLE or self.app.not_processing():
            return False
        threads = list(self.app.threads())
        if {thread.name for thread in threads} != group.members.keys():
            return False
        if any(t.machine.state is not MemberState.STABLE or t.has.warmup for t in threads):
            return False
        most = self.limits[What.LAG]
        return all(self.app.lag(t.process, task) <= most for t in threads for task in t.has.standby)

    # --- a tick ---

    def _count_tick(self) -> None:
        self.one_tick()
        if self._counts:
            self.outcome.ticks += not self.is_settled()
            self.outcome.idle += len(self.app.not_processing())
        actives = {task: thread.name for thread in self.app.threads() for task in thread.has.active}
        if actives != self._actives or self.app.not_processing():
            self._moved, self._actives = self.tick, actives

    def one_tick(self, *, lost: bool = False) -> None:
        """Run a tick of the application, then send a heartbeat of every member.

        `lost`: no heartbeat reaches the coordinator."""
        self.tick += 1
        self._tick_is_traced = False
        self.app.work()
        threads = list(self.app.threads())
        self._random.shuffle(threads)
        for thread in threads:
            self.beat(thread, lost=lost)
            self.host.advance(TICK_MS // len(threads))
        self.check_members()
        self.observe_target()

    def beat(self, thread: Thread, *, lost: bool = False) -> None:
        """Send a heartbeat of a member; if the response has a new assignment that it has to acknowledge, send
        another one at once.

        `lost`: the first heartbeat does not reach the coordinator."""
        self._beat(thread, lost=lost)
        if thread.machine.state is MemberState.ACKNOWLEDGING:
            self._beat(thread)

    def _beat(self, thread: Thread, *, lost: bool = False) -> None:
        machine, now_ms = thread.machine, self.host.now_ms
        self.app.report(thread)
        had = thread.has
        request = machine.request(now_ms)
        answer = None if lost else self.host.ask(thread.name, request, 1)
        taken = self.app.receive(thread, answer, now_ms)
        self.observe_target()
        for task in sorted(taken & self.app.ends.keys()):
            self._handed_over(thread, task)
        if self._trace is not None and thread.has != had:
            self._trace_line(f"   {thread.name} has {thread.has}")

    def _handed_over(self, thread: Thread, task: Task) -> None:
        lag, others = self.app.lag(thread.process, task), self._caught_up.get(task, frozenset())
        kind = "warm"
        if lag > self.limits[What.LAG]:
            others -= {thread.process.name}
            kind = "cold" if others else "unavoidable"
            self._trace_line(
                f"   {thread.name} takes over {task} {kind}: lag {lag}; caught up: {' '.join(sorted(others))}"
            )
        if self._counts:
            self.outcome.handovers += 1
            self.outcome.cold += kind == "cold"
            self.outcome.unavoidable += kind == "unavoidable"

    # --- changes ---

    def _apply(self, change: Change) -> None:
        what, name, app = change.what, change.process, self.app
        if what in (What.STARTS, What.RETURNS):
            app.start(name, change.value)
        elif what is What.STOPS:
            for thread in app.stop(name):
                self._leave(thread)
        elif what in (What.DIES, What.BURNS):
            app.stop(name)
            if what is What.BURNS:
                app.lose_disk(name)
        elif what is What.GROWS:
            app.add_thread(name)
        elif what is What.SHRINKS:
            self._leave(app.stop_thread(name))
        elif what is What.FAILS_OVER:
            self.host.restart()
            self._lost_tick()
        elif what is not What.WARMUPS or self._with_warmups:
            self.limits[what] = change.value
            self.host.set_config((LIMITS[what], str(change.value)))

    def _lost_tick(self) -> None:
        """Run a tick in which every heartbeat is lost, after which members send all fields in their next
        heartbeat."""
        self.one_tick(lost=True)
        self.outcome.ticks += 1
        self.outcome.idle += len(self.app.not_processing())

    def _leave(self, thread: Thread) -> None:
        thread.machine.leave(self.host.now_ms)
        if thread.machine.due_ms is not None:
            self.host.ask(thread.name, thread.machine.request(self.host.now_ms), 1)

    # --- checks ---

    def observe_target(self) -> None:
        """Check the target assignment if the coordinator has computed a new one since the last call.

        For each stateful task that gets another active member in it, record which processes have caught
        up."""
        group = group_of(self.host, GROUP)
        if group is None or group.assignment_epoch == self._target_epoch:
            return
        self._target_epoch = group.assignment_epoch
        owners: dict[Task, str] = {}
        for member_id, target in group.targets.items():
            for name, partitions in target.active.items():
                owners |= dict.fromkeys((Task(name, partition) for partition in partitions), member_id)
        for task, owner in owners.items():
            if task in self.app.ends and self._owners.get(task) != owner:
                self._caught_up[task] = self.app.caught_up(task, self.limits[What.LAG])
        self._owners = owners
        self._check_target(group)
        self._record_target(group)

    def _record_target(self, group: StreamsGroup) -> None:
        before, self._targets = self._targets, dict(group.targets)
        for member_id, target in sorted(group.targets.items()):
            old = before.get(member_id)
            if old is not None and target is old:
                continue
            if self._counts:
                new = _tasks_of(target.warmup) - (_tasks_of(old.warmup) if old is not None else set())
                self.outcome.warmups += len(new)
            if self._trace is not None and target != old:
                roles = (_tasks_of(role) for role in (target.active, target.standby, target.warmup))
                assignment = Assignment(*map(frozenset, roles))
                self._trace_line(f"   epoch {self._target_epoch}: target of {member_id}: {assignment}")

    def _check_target(self, group: StreamsGroup) -> None:
        """Check that a target assignment keeps the limits of warm-ups and standbys, and gives every task an
        active member."""
        warmups = [t for target in group.targets.values() for t in _tasks_of(target.warmup)]
        standbys = [t for target in group.targets.values() for t in _tasks_of(target.standby)]
        most = self.limits[What.WARMUPS]
        self._check(len(warmups) <= most, f"{len(warmups)} warm-ups, the limit is {most}")
        self._check(len(set(warmups)) == len(warmups), "a task warms up twice")
        self._check(set(warmups) | set(standbys) <= self.app.ends.keys(), "a copy of a task without state")
        for task in set(standbys):
            few = standbys.count(task) <= self.limits[What.STANDBYS]
            self._check(few, f"{task} has {standbys.count(task)} standbys")
        self._check(self._owners.keys() == set(self.app.tasks), "a task is assigned to no member")

    def check_members(self) -> None:
        """Check that no task is active on two members, and that no process has a task twice, in whatever
        role."""
        active: dict[Task, str] = {}
        for process in self.app.processes.values():
            opened: dict[Task, str] = {}
            for thread in process.threads:
                for task in thread.has.active:
                    other = active.setdefault(task, thread.name)
                    self._check(other == thread.name, f"{task} is active on {other} and {thread.name}")
                for role in thread.has:
                    for task in role:
                        other = opened.setdefault(task, thread.name)
                        self._check(other == thread.name, f"{other} and {thread.name} have {task}")
                self._check(
                    sum(map(len, thread.has)) == len(set().union(*thread.has)),
                    f"{thread.name} has a task in two roles",
                )

    def _check(self, holds: bool, why: str) -> None:
        if not holds:
            raise AssertionError(f"seed {self.scenario.seed}, tick {self.tick}: {why}")

    def _is_uneven(self) -> bool:
        counts = [len(thread.has.active) for thread in self.app.threads()]
        return max(counts) - min(counts) > 1

    def _trace_line(self, line: str) -> None:
        if self._trace is not None:
            if not self._tick_is_traced and not line.startswith("--"):
                self._tick_is_traced = True
                idle = " ".join(map(str, self.app.not_processing()))
                self._trace(f"tick {self.tick}" + (f", not processing: {idle}" if idle else ""))
            self._trace(line)


def _tasks_of(tasks: Mapping[str, Iterable[int]]) -> set[Task]:
    return {Task(name, partition) for name, partitions in tasks.items() for partition in partitions}


def _application(scenario: Scenario) -> tuple[Application, dict[str, int]]:
    """Return the application of a scenario without processes, and the partition counts of its topics."""
    parts = scenario.parts
    topology, topics = topology_of([(len(part.records), part.stateful) for part in parts])
    ends: dict[Task, int] = {}
    stateless: set[Task] = set()
    for number, part in enumerate(parts):
        for partition, records in enumerate(part.records):
            if part.stateful:
                ends[Task(f"{number}", partition)] = records
            else:
                stateless.add(Task(f"{number}", partition))
    return Application(topology, ends, stateless, scenario.restores, scenario.writes), topics
