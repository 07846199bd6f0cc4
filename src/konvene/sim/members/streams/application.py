"""A thread of an application of Kafka Streams, whichever protocol it speaks: what it does with its tasks.

It runs a topology of the catalogue. A task with state is restored before it is run; a standby follows its
changelog. What is on the disk stays there when the process dies, and is found again by the next life of it,
whichever protocol that speaks.
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
    """See the top of this file. `tasks` is what it has, `running` those active ones that are restored."""

    locks = False
    """Whether it waits until nobody else of its process has a state open."""

    def plan(self, world: World) -> None:
        """Where it runs, of which process, and what: before its first life."""
        options = world.options
        number = (int(self.name.removeprefix("c")) - 1) // options["groups"]
        self.host = f"{self.group}-p{number // options['threads'] + 1}"
        self.process_id = self.process_of(self.host)
        self.tasks = NO_TASKS
        self.running: set[Task] = set()
        self.plan_topology()

    def process_of(self, place: str) -> str:
        """How the process at a place calls itself. In the classic protocol that is 16 bytes, so that it has
        to be a UUID where members may speak either."""
        if "streams-migration" not in self.world.kinds:
            return place
        return str(UUID(bytes=md5(place.encode(), usedforsecurity=False).digest(), version=4))

    def plan_topology(self) -> None:
        """What it runs in this life."""
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
        """The tasks whose state it has open: no other member of its process may."""
        tasks = self.tasks.active | self.tasks.standby | self.tasks.warmup
        return frozenset(task for task in tasks if task.subtopology in self.stateful)

    # --- working ---

    def have(self, tasks: Assignment) -> None:
        """From now on exactly these."""
        self.tasks = tasks
        self.running &= tasks.active
        self.world.oracle.runs(self)
        self.run_what_is_restored()

    def behind(self, task: Task) -> int:
        """How much of its state has yet to be restored here."""
        if task.subtopology not in self.stateful:
            return 0
        return self.world.stores.behind(self.process_id, (self.group, task))

    @property
    def is_restored(self) -> bool:
        """Whether all that it has is as far as can be."""
        return self.running == self.tasks.active and all(
            not self.behind(task) for task in self.tasks.standby | self.tasks.warmup
        )

    def run_what_is_restored(self) -> None:
        """What is restored it runs, and reads."""
        self.running |= {task for task in self.tasks.active if not self.behind(task)}
        counts = self.world.partition_counts()
        owned = {
            (topic, task.partition)
            for task in self.running
            for topic in self.reads.get(task.subtopology, ())
            if task.partition < counts.get(topic, 0)
        }
        if owned != self.owned:
            self.own(owned)

    def restore(self, most: int) -> None:
        """Read so much of each changelog, at most, and run what is restored by that."""
        for _, task in self.tasks.units():
            if task not in self.running and self.behind(task):
                self.world.stores.restore(self.process_id, (self.group, task), most)
        self.run_what_is_restored()

    def process(self) -> None:
        """What is processed is in the task's state, and in its changelog."""
        before = dict(self.positions)
        self.read()
        for task in sorted(self.running, key=lambda t: t.sort_key):
            if task.subtopology in self.stateful:
                tps = [(topic, task.partition) for topic in self.reads[task.subtopology]]
                count = sum(max(0, self.positions.get(tp, 0) - before.get(tp, 0)) for tp in tps)
                self.world.stores.write(self.process_id, (self.group, task), count)

    def is_outdated(self) -> bool:
        """Whether it is calm, and a next topology was rolled out that it does not run."""
        epoch = self.world.internal_topics.epoch_to_start_with(self.group)
        return self.world.faults_disabled and self.topology.epoch < epoch
