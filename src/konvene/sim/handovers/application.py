"""State of a simulated streams application: processes with a disk, members with tasks, and changelogs.

Time passes in ticks, in each of which every member sends one heartbeat. `client.streams.membership` is the
protocol of a member; this module simulates its tasks.

    changelog    of a stateful task; it grows while the task is processing
    copy         of a stateful task, on the disk of a process, up to some record; it stays without a task
    processing   the active member has restored its copy, and appends records in each tick; a
                 stateless task is processing at once
    restoring    an active, standby or warm-up task restores a fixed number of records in each tick

Members report offsets as in KIP-1071: for a task that is processing the end offset twice; for one that is
restoring its position and the end offset; for a copy on disk that no member of the process owns its position
alone. They revoke and take over tasks at once, and report that in the next heartbeat.

Simplifications: copies restore independently of each other, a crash leaves every copy as it was, and copies
are never deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from konvene.client.errors import ConnectionLost
from konvene.client.membership.state_machine import MemberState
from konvene.client.streams.membership import StreamsMembership
from konvene.client.streams.tasks import Assignment, InternalTopic, Subtopology, Task, Topology
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

__all__ = ["GROUP", "Application", "Process", "Thread", "topology_of"]

GROUP = "app"


@dataclass(eq=False, slots=True)
class Thread:
    """A member of the streams group, which is one thread of a process. `running` has the active tasks that it
    is processing."""

    process: Process
    machine: StreamsMembership
    running: set[Task] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.machine.member_id

    @property
    def has(self) -> Assignment:
        return self.machine.owned


@dataclass(eq=False, slots=True)
class Process:
    """A simulated Streams process: a state directory and the members that share it.

    The process id is stored in the directory; a process that loses its disk becomes another one."""

    name: str
    process_id: str
    threads: list[Thread] = field(default_factory=list)
    disk: dict[Task, int] = field(default_factory=dict)
    """Position of each copy."""
    started: int = 0


class Application:
    """A streams application: its processes with their disks, members and tasks, and the changelogs of the
    tasks."""

    def __init__(
        self, topology: Topology, ends: dict[Task, int], stateless: set[Task], restores: int, writes: int
    ) -> None:
        self.topology = topology
        self.ends = ends
        """End offset of the changelog of each stateful task."""
        self.tasks = [*ends, *sorted(stateless)]
        self.processes: dict[str, Process] = {}
        """Running processes by name."""
        self._away: dict[str, Process] = {}
        self._restores, self._writes = restores, writes

    def __repr__(self) -> str:
        return f"<application: {len(self.processes)} processes, {len(self.tasks)} tasks>"

    def threads(self) -> Iterator[Thread]:
        for process in self.processes.values():
            yield from process.threads

    # --- changes ---

    def start(self, name: str, threads: int) -> None:
        """Start a process with `threads` members, and with its previous disk if that still exists."""
        process = self._away.pop(name, None) or Process(name, f"{name}-dir")
        self.processes[name] = process
        for _ in range(threads):
            self.add_thread(name)

    def add_thread(self, name: str) -> None:
        process = self.processes[name]
        process.started += 1
        member_id = f"{name}-{process.started}"
        machine = StreamsMembership(GROUP, member_id, self.topology, process_id=process.process_id)
        process.threads.append(Thread(process, machine))

    def stop(self, name: str) -> list[Thread]:
        """Stop a process and return its members. The caller decides whether they leave the group."""
        process = self._away[name] = self.processes.pop(name)
        threads, process.threads = process.threads, []
        return threads

    def stop_thread(self, name: str) -> Thread:
        """Stop the youngest member of a process and return it."""
        return self.processes[name].threads.pop()

    def lose_disk(self, name: str) -> None:
        """Delete the disk of a stopped process."""
        del self._away[name]

    # --- ticks ---

    def work(self) -> None:
        """Simulate one tick: tasks that are processing append to their changelogs, all other copies
        restore."""
        for thread in self.threads():
            for task in thread.running:
                if task in self.ends:
                    self.ends[task] += self._writes
                    thread.process.disk[task] = self.ends[task]
        for thread in self.threads():
            disk, has = thread.process.disk, thread.has
            for role in has:
                for task in role - thread.running if thread.running else role:
                    if task in self.ends:
                        disk[task] = min(self.ends[task], disk.get(task, 0) + self._restores)
            thread.running |= {t for t in has.active - thread.running if self.lag(thread.process, t) == 0}

    def lag(self, process: Process, task: Task) -> int:
        """Return the number of changelog records that a process's copy lacks; 0 for a stateless task."""
        return self.ends[task] - process.disk.get(task, 0) if task in self.ends else 0

    def caught_up(self, task: Task, acceptable: int) -> frozenset[str]:
        """Return the names of the live processes whose copy of a task lags by at most `acceptable`
        records."""
        least = self.ends[task] - acceptable
        return frozenset(
            name for name, process in self.processes.items() if process.disk.get(task, 0) >= least
        )

    def not_processing(self) -> list[Task]:
        """Return the tasks that no member is processing at the moment, including tasks that are being
        restored."""
        running = {task for thread in self.threads() for task in thread.running}
        return [task for task in self.tasks if task not in running]

    # --- heartbeats ---

    def report(self, thread: Thread) -> None:
        """Set the offsets that a member reports in its next heartbeat.

        They are those of all copies on the disk of its process, except copies of tasks that other members of
        the process own."""
        process = thread.process
        others: set[Task] = set()
        for other in process.threads:
            if other is not thread:
                others.update(*other.has)
        offsets = {task: offset for task, offset in process.disk.items() if task not in others}
        mine = {task for role in thread.has for task in role}
        ends = {task: self.ends[task] for task in offsets if task in mine}
        thread.machine.report(offsets, ends)

    def receive(self, thread: Thread, answer: StreamsGroupHeartbeatResponse | None, now_ms: int) -> set[Task]:
        """Let a member handle the response to its heartbeat (None if it was lost) and apply the assignment in
        it.

        Return the active tasks that it owns now and did not own before."""
        machine, before = thread.machine, thread.has.active
        if answer is None:
            machine.handle_failure(ConnectionLost("the coordinator is unavailable"), now_ms)
            return set()
        machine.handle_response(answer, now_ms)
        if machine.state is MemberState.FATAL:
            raise AssertionError(f"{thread.name} fails: {machine.error}")
        if machine.state is MemberState.FENCED:
            machine.rejoin_fenced(now_ms)
            thread.running.clear()
            return set()
        machine.confirm_owned(machine.incarnation, machine.target_version, machine.target)
        thread.running &= thread.has.active
        return set(thread.has.active - before)


def topology_of(counts: list[tuple[int, bool]]) -> tuple[Topology, dict[str, int]]:
    """Return a topology with these subtopologies, and the partition counts of its topics by name.

    `counts` has a pair for each subtopology: its number of tasks, and whether it is stateful."""
    parts, topics = [], {}
    for number, (count, stateful) in enumerate(counts):
        topics[f"in-{number}"] = count
        changelogs: tuple[InternalTopic, ...] = ()
        if stateful:
            changelogs = (InternalTopic(f"{GROUP}-store-{number}-changelog"),)
            topics[changelogs[0].name] = count
        parts.append(Subtopology(f"{number}", (f"in-{number}",), state_changelog_topics=changelogs))
    return Topology(tuple(parts)), topics
