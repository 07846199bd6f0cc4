"""One scenario of hand-overs, run on the real coordinator and counted at its members.

    hand-over     a member becomes active for a task with state that it was not active for before
    cold          its copy is then behind by more than the acceptable lag, while another living process had a
                  copy that was not, when the target was made that gives it the task (who is processing has
                  such a copy)
    unavoidable   the same, but no living process had such a copy
    idle          a task and a tick in which no living member is processing it; tasks without state count too
    settled       all members have what they are meant to have and the coordinator knows, no warm-up is left,
                  all tasks are processing, and no standby is behind by more than the acceptable lag
    ticks         those at whose end it is not settled; what is calm between changes does not count
    moving        those from a change on until active tasks stay where they are and are processing

What comes before the group has settled for the first time is not counted. Whether a copy has caught up is
seen on the disks, not asked of the coordinator. Of its targets it is noted when they were made, and what they
must not be is held against them (`_check_target`); what members have is held against the rules in each tick
(`check_members`).

It has to settle in as many ticks as Kafka gives its own scenarios: 100, and for each task with state as many
as it takes to restore 30,000 records, and ten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from konvene.client.membership.state_machine import MemberState
from konvene.client.streams.tasks import Assignment, Task
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
"""As Kafka's but for these: who dies is missed after three ticks rather than nine, for all that a coordinator
decides comes after that."""

LIMITS = {
    What.STANDBYS: "group.streams.num.standby.replicas",
    What.WARMUPS: "group.streams.num.warmup.replicas",
    What.LAG: "group.streams.acceptable.recovery.lag",
}


@dataclass(slots=True)
class Outcome:
    """Figures of one or many scenarios."""

    handovers: int = 0
    cold: int = 0
    unavoidable: int = 0
    idle: int = 0
    ticks: int = 0
    moving: int = 0
    """The ticks until tasks stay with whom they are with, and are processing; copies may come after that."""
    epochs: int = 0
    warmups: int = 0
    """How often a member was given a task to warm up."""
    uneven: int = 0
    """How often there was in the end a member with two tasks more than another."""

    def add(self, other: Outcome) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def run(
    scenario: Scenario,
    *,
    warmups: bool = True,
    host: Callable[[Mapping[str, str]], Coordinator] = Host,
    tell: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a scenario. Raises `AssertionError` if a rule is violated or it does not become stable."""
    return Run(scenario, warmups=warmups, host=host, tell=tell).play()


class Run:
    """A running scenario; its events are written to a callback line by line."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        warmups: bool = True,
        host: Callable[[Mapping[str, str]], Coordinator] = Host,
        tell: Callable[[str], None] | None = None,
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
        self._tell = tell
        self._told = False
        self._counts = False
        self._made = FIRST_EPOCH
        """The epoch of the last target that was seen."""
        self._moved = 0
        """The last tick in which an active task came to somebody, or was not processing."""
        self._actives: dict[Task, str] = {}
        self._targets: dict[str, Any] = {}
        self._owners: dict[Task, str] = {}
        self._could: dict[Task, frozenset[str]] = {}
        """By task, who had caught up when the target was made that gives it to whom it goes."""
        self._most = 100 + (MOST_RECORDS // scenario.restores + 10) * max(1, len(self.app.ends))

    def play(self) -> Outcome:
        """Let the group become stable, apply all changes, and let it become stable again."""
        for name, threads in self.scenario.processes.items():
            self.app.start(name, threads)
        self.settle()
        self._counts = True
        epoch, began = self._made, self.tick
        for change in self.scenario.changes:
            self._say(f"-- {change}")
            self._happens(change)
            for _ in range(change.soon or 1):
                self._count_tick()
            if not change.soon:
                self.settle()
                self._say("-- settled")
                self.outcome.moving += max(0, self._moved - began)
                for _ in range(change.calm):
                    self._count_tick()
                began = self.tick
        self.settle()
        self.outcome.moving += max(0, self._moved - began)
        self.outcome.epochs = self._made - epoch
        self.outcome.uneven = int(self._is_uneven())
        return self.outcome

    def settle(self) -> None:
        """Run ticks until nothing is left to do."""
        for _ in range(self._most):
            if self.is_settled():
                return
            self._count_tick()
        raise AssertionError(f"seed {self.scenario.seed}: not settled after {self._most} ticks")

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
        """Work, then send a heartbeat of every member. `lost`: none reaches the coordinator."""
        self.tick += 1
        self._told = False
        self.app.work()
        threads = list(self.app.threads())
        self._random.shuffle(threads)
        for thread in threads:
            self.beat(thread, lost=lost)
            self.host.advance(TICK_MS // len(threads))
        self.check_members()
        self.see_target()

    def beat(self, thread: Thread, *, lost: bool = False) -> None:
        """Send a heartbeat, and another one at once if the client would not wait."""
        self._beat(thread, lost=lost)
        if thread.machine.state is MemberState.ACKNOWLEDGING:
            self._beat(thread)

    def _beat(self, thread: Thread, *, lost: bool = False) -> None:
        machine, now_ms = thread.machine, self.host.now_ms
        self.app.report(thread)
        had = thread.has
        request = machine.request(now_ms)
        answer = None if lost else self.host.ask(thread.name, request, 1)
        taken = self.app.hears(thread, answer, now_ms)
        self.see_target()
        for task in sorted(taken & self.app.ends.keys()):
            self._handed_over(thread, task)
        if self._tell is not None and thread.has != had:
            self._say(f"   {thread.name} has {thread.has}")

    def _handed_over(self, thread: Thread, task: Task) -> None:
        lag, others = self.app.lag(thread.process, task), self._could.get(task, frozenset())
        how = "warm"
        if lag > self.limits[What.LAG]:
            others -= {thread.process.name}
            how = "cold" if others else "unavoidable"
            self._say(f"   {thread.name} takes {task} {how}: {lag} behind; had: {', '.join(sorted(others))}")
        if self._counts:
            self.outcome.handovers += 1
            self.outcome.cold += how == "cold"
            self.outcome.unavoidable += how == "unavoidable"

    # --- changes ---

    def _happens(self, change: Change) -> None:
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
        """Run a tick without a coordinator: all members send everything again."""
        self.one_tick(lost=True)
        self.outcome.ticks += 1
        self.outcome.idle += len(self.app.not_processing())

    def _leave(self, thread: Thread) -> None:
        thread.machine.leave(self.host.now_ms)
        if thread.machine.due_ms is not None:
            self.host.ask(thread.name, thread.machine.request(self.host.now_ms), 1)

    # --- what is seen of it ---

    def see_target(self) -> None:
        """Note which members could take over, if there is a new target."""
        group = group_of(self.host, GROUP)
        if group is None or group.assignment_epoch == self._made:
            return
        self._made = group.assignment_epoch
        owners: dict[Task, str] = {}
        for member_id, target in group.targets.items():
            for name, partitions in target.active.items():
                owners |= dict.fromkeys((Task(name, each) for each in partitions), member_id)
        for task, owner in owners.items():
            if task in self.app.ends and self._owners.get(task) != owner:
                self._could[task] = self.app.caught_up(task, self.limits[What.LAG])
        self._owners = owners
        self._check_target(group)
        self._tell_target(group)

    def _tell_target(self, group: StreamsGroup) -> None:
        before, self._targets = self._targets, dict(group.targets)
        for member_id, target in sorted(group.targets.items()):
            old = before.get(member_id)
            if old is not None and target is old:
                continue
            if self._counts:
                new = _tasks_of(target.warmup) - (_tasks_of(old.warmup) if old is not None else set())
                self.outcome.warmups += len(new)
            if self._tell is not None and target != old:
                roles = (_tasks_of(role) for role in (target.active, target.standby, target.warmup))
                told = Assignment(*map(frozenset, roles))
                self._say(f"   epoch {self._made}: {member_id} is to have {told}")

    def _check_target(self, group: StreamsGroup) -> None:
        """Check what no target may contain."""
        warming = [t for each in group.targets.values() for t in _tasks_of(each.warmup)]
        standing = [t for each in group.targets.values() for t in _tasks_of(each.standby)]
        most = self.limits[What.WARMUPS]
        self._must(len(warming) <= most, f"{len(warming)} warm-ups, and {most} may be")
        self._must(len(set(warming)) == len(warming), "a task warms up twice")
        self._must(set(warming) | set(standing) <= self.app.ends.keys(), "a copy of a task without state")
        for task in set(standing):
            few = standing.count(task) <= self.limits[What.STANDBYS]
            self._must(few, f"{task} has {standing.count(task)} standbys")
        self._must(self._owners.keys() == set(self.app.tasks), "a task is given to nobody")

    def check_members(self) -> None:
        """Check what no members may own."""
        active: dict[Task, str] = {}
        for process in self.app.processes.values():
            opened: dict[Task, str] = {}
            for thread in process.threads:
                for task in thread.has.active:
                    other = active.setdefault(task, thread.name)
                    self._must(other == thread.name, f"{task} is active on {other} and {thread.name}")
                for role in thread.has:
                    for task in role:
                        other = opened.setdefault(task, thread.name)
                        self._must(other == thread.name, f"{other} and {thread.name} have {task}")
                self._must(
                    sum(map(len, thread.has)) == len(set().union(*thread.has)),
                    f"{thread.name} has a task in two roles",
                )

    def _must(self, holds: bool, why: str) -> None:
        if not holds:
            raise AssertionError(f"seed {self.scenario.seed}, tick {self.tick}: {why}")

    def _is_uneven(self) -> bool:
        counts = [len(thread.has.active) for thread in self.app.threads()]
        return max(counts) - min(counts) > 1

    def _say(self, line: str) -> None:
        if self._tell is not None:
            if not self._told and not line.startswith("--"):
                self._told = True
                idle = " ".join(map(str, self.app.not_processing()))
                self._tell(f"tick {self.tick}" + (f", not processing: {idle}" if idle else ""))
            self._tell(line)


def _tasks_of(tasks: Any) -> set[Task]:
    return {Task(name, partition) for name, partitions in tasks.items() for partition in partitions}


def _application(scenario: Scenario) -> tuple[Application, dict[str, int]]:
    """Return the application of a scenario without processes, and its topics."""
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
