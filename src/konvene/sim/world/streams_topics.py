"""Settings and topics of streams groups in a simulated world.

Internal topics are created as `broker.groups.internal_topics` does it: when a coordinator reports that a
group lacks them, they are created after a delay, unless the creation fails or is not authorized. A topic is
not created twice at the same time, and an existing topic is not changed. When source topics grow, internal
topics do not. As in Kafka, the group cannot continue then until an operator deletes its internal topics.

As in `broker.groups.changelog_ends`, a coordinator can look up the end offsets of changelogs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from konvene.client.streams.tasks import Task
from konvene.groups.streams.classic.changelog_ends import EndsFound, EndsToLookUp
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import KIP, Status, configure
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated, TopicsToCreate
from konvene.groups.streams.topology.topology import Topology
from konvene.sim.group_runtime import GroupRuntime
from konvene.sim.members.streams.topologies import EXTRA, LAST_EPOCH, topology_of
from konvene.sim.world import fault_actions
from konvene.sim.world.faults import Options

if TYPE_CHECKING:
    from konvene.sim.world.world import World

DENIED = 0.3
"""Fraction of failed creations that fail because they are not authorized."""


def streams_settings(options: Options) -> dict[str, str]:
    """Return the broker's settings of streams groups, without lower limits for their timeouts."""
    settings_by_name = {
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
    settings = {f"group.streams.{name}": str(value) for name, value in settings_by_name.items()}
    return settings | {
        "konvene.streams.mode": options["streams.mode"],
        "konvene.streams.migration.policy": options["streams.migration.policy"],
    }


class InternalTopics:
    """The simulated broker and operator, as far as they create and delete topics of streams groups and
    return their end offsets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pending: set[str] = set()
        self.deployed: dict[str, int] = {}
        """By group, the topology epoch to which its application was rolled last, completely or in part."""

    def __repr__(self) -> str:
        return f"<internal topics: {len(self._pending)} being made>"

    # --- the broker ---

    def create(self, runtime: GroupRuntime, request: TopicsToCreate) -> None:
        """Create the requested topics that do not exist and are not being created yet.

        After a delay the creation of each one succeeds or fails."""
        existing = self._world.topics.by_name
        names = [t.name for t in request.topics if t.name not in self._pending and t.name not in existing]
        if names:
            self._pending.update(names)
            world = self._world
            takes_ms = world.latency_ms("work.ms")
            world.event_queue.after(takes_ms, self._created, runtime, runtime.core, request, tuple(names))

    def _created(
        self, runtime: GroupRuntime, core: object, request: TopicsToCreate, names: tuple[str, ...]
    ) -> None:
        self._pending.difference_update(names)
        world, random = self._world, self._world.random
        fails = world.conditions["create.fails"]
        failed = tuple(name for name in names if fails and random.random() < fails)
        for topic in request.topics:
            if topic.name in names and topic.name not in failed and topic.name not in world.topics.by_name:
                world.log_event("broker", f"creates {topic.name}", None)
                world.set_topic(topic.name, topic.partitions)
        if failed:
            denied = random.random() < DENIED
            errors = {} if denied else dict.fromkeys(failed, "it fails")
            news = TopicsNotCreated(request.group_id, errors, failed if denied else ())
            if runtime.core is core and runtime in (world.runtime, *world.deposed):
                world.log_event("work", "is done", news)
                runtime.inform(news)

    def ends(self, request: EndsToLookUp) -> EndsFound:
        """Return the current end offsets of the requested changelogs that exist.

        The first changelog of a task has all records that the task wrote; its others are empty."""
        stores, existing, ends = self._world.stores, self._world.topics.by_name, {}
        for task, partitions in request.tasks:
            for topic, partition in partitions:
                if topic in existing and partition < existing[topic].partitions:
                    is_first = (topic, partition) == partitions[0]
                    ends[topic, partition] = stores.end((request.group_id, Task(*task))) if is_first else 0
        return EndsFound(request, ends)

    # --- operators ---

    def schedule_source(self) -> None:
        """Create the second source topic, `extra`, if it does not exist. With the option `late.topic` it is
        deleted first, and created after 0.1 to 30 s."""
        world = self._world
        late = world.options["late.topic"]
        if late and EXTRA in world.topics.by_name:
            world.delete_topic(EXTRA)
        if EXTRA not in world.topics.by_name:
            world.event_queue.after(
                fault_actions.draw_duration_ms(world, 100, 30_000) if late else 0, self._create_source
            )

    def _create_source(self) -> None:
        if EXTRA not in self._world.topics.by_name:
            self._world.set_topic(EXTRA, 1 + self._world.options["partitions"] // 4)

    def next_topology(self, group: str) -> None:
        """Restart an application's hosts with its next topology, sometimes only some of them.

        Does nothing unless the group durably has the topology that was rolled out last."""
        world, random = self._world, self._world.random
        configured, deployed_epoch = world.runtime.core.groups.get(group), self.deployed.get(group, 0)
        if (
            world.config["konvene.streams.mode"] != KIP
            or world.options["hostile"]
            or deployed_epoch >= LAST_EPOCH
        ):
            return
        if (
            not isinstance(configured, StreamsGroup)
            or configured.topology_epoch != deployed_epoch
            or configured.classic_members
        ):
            return
        if world.log.durable < len(world.log.batches):
            return
        self.deployed[group] = deployed_epoch + 1
        world.log_event("operator", f"rolls {group} to topology {deployed_epoch + 1}", None)
        hosts = list(
            dict.fromkeys(getattr(m, "host", m.name) for m in world.live_members() if m.group == group)
        )
        if hosts and random.random() < 0.4:
            hosts = hosts[: random.randint(1, len(hosts))]
        at_ms = 0
        for host in hosts:
            at_ms += random.randint(100, world.options["session.ms"])
            world.event_queue.after(at_ms, fault_actions.restart_host, world, host)

    def epoch_to_start_with(self, group: str) -> int:
        """Return the topology epoch that a starting member sends: that of the last rollout, but at most one
        more than the group's."""
        configured, deployed_epoch = self._world.runtime.core.groups.get(group), self.deployed.get(group, 0)
        known = configured.topology_epoch if isinstance(configured, StreamsGroup) else -1
        return deployed_epoch if known < 0 else min(deployed_epoch, known + 1)

    def delete_misfits(self, *, allow_any: bool = False) -> None:
        """Delete internal topics whose partition counts do not match their sources.

        If there are none and `allow_any`, delete a random internal topic."""
        world = self._world
        if world.faults_disabled:
            self._create_source()
        doomed = [(group, name) for group, names in self._misfits() for name in names]
        if allow_any and not doomed:
            existing = [(g, name) for g in self._groups() for name in self._internal_topics_of(g)]
            doomed = [world.random.choice(existing)] if existing else []
        for group, name in doomed:
            world.log_event("operator", f"deletes {name}", None)
            fault_actions.forget_topic(world, name)
            world.delete_topic(name)
            world.stores.delete_changelogs(group)

    def _groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.group for member in self._world.members))

    def _internal_topics_of(self, group: str) -> list[str]:
        """Return the existing internal topics of an application."""
        epochs = range(self.deployed.get(group, 0) + 1)
        topologies = (topology_of(self._world.options["topology"], group, epoch) for epoch in epochs)
        names = dict.fromkeys(name for topology in topologies for name in topology.internal_topics)
        return [name for name in names if name in self._world.topics.by_name]

    def _misfits(self) -> Iterator[tuple[str, list[str]]]:
        """Yield (group, internal topics) of applications whose internal topics do not match their sources."""
        for group in self._groups():
            for epoch in range(self.deployed.get(group, 0) + 1):
                message = topology_of(self._world.options["topology"], group, epoch).to_message()
                configured = configure(Topology.from_request(message), dict(self._world.partition_counts()))
                if configured.failure and configured.failure.status is Status.INCORRECTLY_PARTITIONED_TOPICS:
                    yield group, self._internal_topics_of(group)
                    break
