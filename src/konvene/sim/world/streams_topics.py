"""What a world has for streams groups beside members: settings, and topics as somebody keeps them.

Internal topics are made as `broker.groups.internal_topics` makes them: when a coordinator says that a group
misses
them, each once at a time, after a while; or it fails, or nobody may. A topic that exists is left alone. Where
sources grow, internal topics do not, and the group cannot go on, in Kafka neither: an operator deletes them.

Where changelogs end is told as `broker.groups.changelog_ends` tells it, by what applications have written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from konvene.client.streams.tasks import Task
from konvene.groups.streams.classic.changelog_ends import EndsFound, EndsToLookUp
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import KIP, Status, configure
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated, TopicsToCreate
from konvene.groups.streams.topology.topology import Topology
from konvene.sim.members.streams.topologies import EXTRA, LAST_EPOCH, topology_of
from konvene.sim.runtime import Shell
from konvene.sim.world import fault_actions
from konvene.sim.world.faults import Options

if TYPE_CHECKING:
    from konvene.sim.world.world import World

DENIED = 0.3
"""Of the topics that cannot be made: the part that nobody may make."""


def streams_settings(options: Options) -> dict[str, str]:
    """What streams groups run with. The limits of the limits are out of the way."""
    told = {
        "min.session.timeout.ms": 1,
        "min.heartbeat.interval.ms": 1,
        "min.task.offset.interval.ms": 1,
        "session.timeout.ms": options["session.ms"],
        "heartbeat.interval.ms": min(options["heartbeat.ms"], options["session.ms"] // 3),
        "assignment.interval.ms": options["assignment.interval.ms"],
        "initial.rebalance.delay.ms": options["streams.delay.ms"],
        "num.standby.replicas": options["standbys"],
        "num.warmup.replicas": options["warmups"],
        "acceptable.recovery.lag": options["recovery.lag"],
        "task.offset.interval.ms": options["offsets.ms"],
        "max.size": options["max.size"],
    }
    settings = {f"group.streams.{name}": str(value) for name, value in told.items()}
    return settings | {
        "konvene.streams.mode": options["streams.mode"],
        "konvene.streams.migration.policy": options["streams.migration.policy"],
    }


class InternalTopics:
    """See the top of this file."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._making: set[str] = set()
        self.deployed: dict[str, int] = {}
        """By group, the topology epoch to which its application was rolled last, as a whole or in part."""

    def __repr__(self) -> str:
        return f"<internal topics: {len(self._making)} being made>"

    # --- the broker ---

    def create(self, shell: Shell, wanted: TopicsToCreate) -> None:
        """Make those that nobody is making. They are there, or not, in a while."""
        there = self._world.topics.by_name
        names = [t.name for t in wanted.topics if t.name not in self._making and t.name not in there]
        if names:
            self._making.update(names)
            world = self._world
            takes_ms = world.latency_ms("work.ms")
            world.agenda.after(takes_ms, self._created, shell, shell.core, wanted, tuple(names))

    def _created(self, shell: Shell, core: object, wanted: TopicsToCreate, names: tuple[str, ...]) -> None:
        self._making.difference_update(names)
        world, random = self._world, self._world.random
        fails = world.conditions["create.fails"]
        failed = tuple(name for name in names if fails and random.random() < fails)
        for topic in wanted.topics:
            if topic.name in names and topic.name not in failed and topic.name not in world.topics.by_name:
                world.log_event("broker", f"makes {topic.name}", None)
                world.set_topic(topic.name, topic.partitions)
        if failed:
            denied = random.random() < DENIED
            errors = {} if denied else dict.fromkeys(failed, "it fails")
            news = TopicsNotCreated(wanted.group_id, errors, failed if denied else ())
            if shell.core is core and shell in (world.shell, *world.deposed):
                world.log_event("work", "is done", news)
                shell.inform(news)

    def ends(self, wanted: EndsToLookUp) -> EndsFound:
        """Where changelogs end now: all that a task wrote is in the first one that it has."""
        stores, there, ends = self._world.stores, self._world.topics.by_name, {}
        for task, partitions in wanted.tasks:
            for topic, partition in partitions:
                if topic in there and partition < there[topic].partitions:
                    is_first = (topic, partition) == partitions[0]
                    ends[topic, partition] = stores.end((wanted.group_id, Task(*task))) if is_first else 0
        return EndsFound(wanted, ends)

    # --- operators ---

    def source_comes(self) -> None:
        """Every application has its sources, sooner or later."""
        world = self._world
        late = world.options["late.topic"]
        if late and EXTRA in world.topics.by_name:
            world.delete_topic(EXTRA)
        if EXTRA not in world.topics.by_name:
            world.agenda.after(
                fault_actions.log_uniform_ms(world, 100, 30_000) if late else 0, self._source_is_there
            )

    def _source_is_there(self) -> None:
        if EXTRA not in self._world.topics.by_name:
            self._world.set_topic(EXTRA, 1 + self._world.options["partitions"] // 4)

    def next_topology(self, group: str) -> None:
        """Roll an application to its next topology, if its group has the last one for certain: its processes
        are started anew one after another. Now and then that stops half-way."""
        world, random = self._world, self._world.random
        found, at = world.shell.core.groups.get(group), self.deployed.get(group, 0)
        if world.config["konvene.streams.mode"] != KIP or world.options["hostile"] or at >= LAST_EPOCH:
            return
        if not isinstance(found, StreamsGroup) or found.topology_epoch != at or found.classic_members:
            return
        if world.log.durable < len(world.log.batches):
            return
        self.deployed[group] = at + 1
        world.log_event("operator", f"rolls {group} to topology {at + 1}", None)
        hosts = list(
            dict.fromkeys(getattr(m, "host", m.name) for m in world.live_members() if m.group == group)
        )
        if hosts and random.random() < 0.4:
            hosts = hosts[: random.randint(1, len(hosts))]
        at_ms = 0
        for host in hosts:
            at_ms += random.randint(100, world.options["session.ms"])
            world.agenda.after(at_ms, fault_actions.restart_host, world, host)

    def epoch_to_bring(self, group: str) -> int:
        """Of who starts: that which was rolled out last, but no further than one behind the group's."""
        found, at = self._world.shell.core.groups.get(group), self.deployed.get(group, 0)
        known = found.topology_epoch if isinstance(found, StreamsGroup) else -1
        return at if known < 0 else min(at, known + 1)

    def mend(self, *, some: bool = False) -> None:
        """Delete the internal topics of applications that they do not fit; `some`: or one that is there."""
        world = self._world
        if world.faults_disabled:
            self._source_is_there()
        gone = [(group, name) for group, names in self._misfits() for name in names]
        if some and not gone:
            there = [(g, name) for g in self._groups() for name in self._internal(g)]
            gone = [world.random.choice(there)] if there else []
        for group, name in gone:
            world.log_event("operator", f"deletes {name}", None)
            fault_actions.forget(world, name)
            world.delete_topic(name)
            world.stores.lose(group)

    def _groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.group for member in self._world.members))

    def _internal(self, group: str) -> list[str]:
        """The internal topics of an application that there are."""
        epochs = range(self.deployed.get(group, 0) + 1)
        every = (topology_of(self._world.options["topology"], group, epoch) for epoch in epochs)
        names = dict.fromkeys(name for each in every for name in each.internal_topics)
        return [name for name in names if name in self._world.topics.by_name]

    def _misfits(self) -> Iterator[tuple[str, list[str]]]:
        """By group, where its internal topics are not as its sources are."""
        for group in self._groups():
            for epoch in range(self.deployed.get(group, 0) + 1):
                sent = topology_of(self._world.options["topology"], group, epoch).to_message()
                found = configure(Topology.from_request(sent), dict(self._world.partition_counts()))
                if found.failure and found.failure.status is Status.INCORRECTLY_PARTITIONED_TOPICS:
                    yield group, self._internal(group)
                    break
