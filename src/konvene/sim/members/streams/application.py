"""Base class of the threads of Kafka Streams applications, with either protocol: what they do with their
tasks.

A thread runs a topology of the catalogue. A stateful task is restored before it runs; a standby follows its
changelog. Copies on the disk survive the process; its next life finds them, whichever protocol it uses.
"""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING
from uuid import UUID

from konvene.client.streams.tasks import Assignment, Task
from konvene.sim.members.member import Member
from konvene.sim.members.streams.topologies import topology_of

if TYPE_CHECKING:
    from konvene.sim.world.world import World

NO_TASKS = Assignment()


class Application(Member):
    """A stream thread. `tasks` is its assignment, `running` the active tasks that are restored and so run."""

    locks_state = False
    """Whether a task waits while another member of the process has its state store open."""

    def place_and_plan(self, world: World) -> None:
        """Choose the host, the process and the topology of the thread's first life."""
        options = world.options
        number = (int(self.name.removeprefix("c")) - 1) // options["groups"]
        self.host = f"{self.group}-p{number // options['threads'] + 1}"
        self.process_id = self.process_of(self.host)
        self.tasks = NO_TASKS
        self.running: set[Task] = set()
        self.plan_topology()

    def process_of(self, host: str) -> str:
        """Return the process id of a host.

        The classic protocol encodes it in 16 bytes, so it is a UUID where members may use either protocol."""
        if "streams-migration" not in self.world.kinds:
            return host
        return str(UUID(bytes=md5(host.encode(), usedforsecurity=False).digest(), version=4))

    def plan_topology(self) -> None:
        """Choose the topology that the thread runs in this life."""
        world = self.world
        epoch = world.internal_topics.epoch_to_start_with(self.group)
        self.topology = topology_of(world.options["topology"], self.group, epoch)
        self.topics = self.topology.source_topics
        self.reads = {each.subtopology_id: each.reads for each in self.topology.subtopologies}
        self.stateful = {
            each.subtopology_id for each in self.topology.subtopologies if each.state_changelog_topics
        }

    @property
    def opened(self) -> frozenset[Task]:
        """The assigned stateful tasks; no other thread of the process may open their state."""
        tasks = self.tasks.active | self.tasks.standby | self.tasks.warmup
        return frozenset(task for task in tasks if task.subtopology in self.stateful)

    # --- working ---

    def set_tasks(self, tasks: Assignment) -> None:
        """Replace the assigned tasks, and run those that need no restoration."""
        self.tasks = tasks
        self.running &= tasks.active
        self.world.oracle.record_tasks(self)
        self.run_restored_tasks()

    def lag(self, task: Task) -> int:
        """Return the number of changelog records that this process has not restored for a task."""
        if task.subtopology not in self.stateful:
            return 0
        return self.world.stores.lag(self.process_id, (self.group, task))

    @property
    def is_restored(self) -> bool:
        """True if all active tasks run and all standby and warm-up tasks have caught up."""
        return self.running == self.tasks.active and all(
            not self.lag(task) for task in self.tasks.standby | self.tasks.warmup
        )

    def run_restored_tasks(self) -> None:
        """Run the active tasks that are restored, and own their partitions."""
        self.running |= {task for task in self.tasks.active if not self.lag(task)}
        counts = self.world.partition_counts()
        owned = {
            (topic, task.partition)
            for task in self.running
            for topic in self.reads.get(task.subtopology, ())
            if task.partition < counts.get(topic, 0)
        }
        if owned != self.owned:
            self.own(owned)

    def restore(self, max_records: int) -> None:
        """Restore at most `max_records` of each changelog, and run the tasks that are restored then."""
        for _, task in self.tasks.units():
            if task not in self.running and self.lag(task):
                self.world.stores.restore(self.process_id, (self.group, task), max_records)
        self.run_restored_tasks()

    def restore_since(self, since_ms: int) -> None:
        """Restore as many records as the option `restore.rate` allows since a time."""
        elapsed_ms = self.world.event_queue.now_ms - since_ms
        self.restore(elapsed_ms * self.world.options["restore.rate"] // 1_000)

    def process(self) -> None:
        """Read records, and write them to the changelogs of stateful tasks."""
        before = dict(self.positions)
        self.read()
        for task in sorted(self.running, key=lambda t: t.sort_key):
            if task.subtopology in self.stateful:
                tps = [(topic, task.partition) for topic in self.reads[task.subtopology]]
                count = sum(max(0, self.positions.get(tp, 0) - before.get(tp, 0)) for tp in tps)
                self.world.stores.write(self.process_id, (self.group, task), count)

    def restart_if_outdated(self) -> bool:
        """Restart the thread if faults have ended and a later topology was rolled out; return True if so."""
        epoch = self.world.internal_topics.epoch_to_start_with(self.group)
        if not self.world.faults_disabled or self.topology.epoch >= epoch:
            return False
        self.world.log_event(self.name, "restarts with the next topology", None)
        self.leave()
        self.start()
        return True
