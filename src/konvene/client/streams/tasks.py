"""The nouns of streams groups (KIP-1071) as clients know them: tasks in three roles, and topologies.

A task is a subtopology and a partition, written `0_1` as Kafka Streams does. A topology is what an
application tells its group: which topics each subtopology reads, writes and keeps its state in. All are
values; `wire` gives what a heartbeat carries, sorted as Java's client sorts it, so that two clients with the
same topology say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from konvene.client.errors import Misconfigured
from konvene.messages import streams_group_heartbeat as messages

__all__ = ["Assignment", "InternalTopic", "Role", "Subtopology", "Task", "Topology", "by_subtopology"]


class Role(Enum):
    """What a member does with a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


class Task(NamedTuple):
    subtopology: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @property
    def place(self) -> tuple[bool, int, str, int]:
        """Sorts: subtopologies are numbers nearly always, and 10 comes after 9."""
        name = self.subtopology
        number = int(name) if name.isascii() and name.isdigit() else -1
        return number < 0, number, name, self.partition


Tasks = frozenset[Task]


class Assignment(NamedTuple):
    """Tasks in three roles. With `-`, role by role, and with `bool`, whether there is any."""

    active: Tasks = frozenset()
    standby: Tasks = frozenset()
    warmup: Tasks = frozenset()

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __sub__(self, other: Assignment) -> Assignment:
        return Assignment(
            self.active - other.active, self.standby - other.standby, self.warmup - other.warmup
        )

    def __str__(self) -> str:
        return (
            "; ".join(f"{role.value} {_spelled(self.of(role))}" for role in Role if self.of(role)) or "none"
        )

    def of(self, role: Role) -> Tasks:
        tasks: Tasks = getattr(self, role.value)
        return tasks

    def units(self) -> Iterator[tuple[Role, Task]]:
        """Every task with its role, in order."""
        for role in Role:
            for task in sorted(self.of(role), key=lambda t: t.place):
                yield role, task

    @classmethod
    def read(cls, active: Any, standby: Any, warmup: Any) -> Assignment:
        """From the rows of a heartbeat's answer, or of a description."""
        return cls(*(_read(rows) for rows in (active, standby, warmup)))


def by_subtopology(tasks: Iterable[Task]) -> dict[str, tuple[int, ...]]:
    """Partitions by subtopology, both in order."""
    found: dict[str, tuple[int, ...]] = {}
    for task in sorted(tasks, key=lambda t: t.place):
        found[task.subtopology] = (*found.get(task.subtopology, ()), task.partition)
    return found


def rows(tasks: Iterable[Task]) -> tuple[messages.TaskIds, ...]:
    """What a heartbeat carries."""
    return tuple(
        messages.TaskIds(subtopology_id=name, partitions=partitions)
        for name, partitions in by_subtopology(tasks).items()
    )


def _read(told: Any) -> Tasks:
    return frozenset(Task(row.subtopology_id, p) for row in told or () for p in row.partitions)


def _spelled(tasks: Tasks) -> str:
    return ",".join(map(str, sorted(tasks, key=lambda t: t.place)))


# topologies -----------------------------------------------------------------------------------


class InternalTopic(NamedTuple):
    """A topic that the coordinator makes for the application. 0 leaves a number to it."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: Mapping[str, str] = {}

    def wire(self) -> messages.TopicInfo:
        return messages.TopicInfo(
            name=self.name, partitions=self.partitions, replication_factor=self.replication_factor,
            topic_configs=tuple(messages.KeyValue(key=k, value=v) for k, v in sorted(self.configs.items())),
        )  # fmt: skip

    @classmethod
    def read(cls, told: Any) -> InternalTopic:
        configs = {each.key: each.value for each in told.topic_configs}
        return cls(told.name, told.partitions, told.replication_factor, configs)


class Subtopology(NamedTuple):
    """A part of a topology that shares no state with others. Each of its tasks reads one partition of each
    of its source topics."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[frozenset[str], ...] = ()
    """Names of sources, and expressions, that must have the same number of partitions; no description tells
    of them."""
    source_topic_regex: tuple[str, ...] = ()
    """Expressions of RE2 for sources, whole names. Apache Kafka refuses them; a broker of ours with
    `konvene.streams.mode` = `kip` does not. A description tells what they match among the sources."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Everything that its tasks read: topics of users, and what other subtopologies write."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))

    def wire(self) -> messages.Subtopology:
        """Raises `Misconfigured` where a copartition group names what is no source."""
        sources = tuple(sorted(self.source_topics))
        expressions = tuple(sorted(self.source_topic_regex))
        repartitioned = tuple(sorted(self.repartition_source_topics, key=_name))
        changelogs = sorted(self.state_changelog_topics, key=_name)
        names = tuple(topic.name for topic in repartitioned)
        groups = []
        for group in self.copartition_groups:
            for name in sorted(group - {*sources, *expressions, *names}):
                raise Misconfigured(f"Source topic not found in subtopology {self.subtopology_id}: {name}")
            groups.append(
                messages.CopartitionGroup(
                    source_topics=tuple(i for i, name in enumerate(sources) if name in group),
                    source_topic_regex=tuple(i for i, name in enumerate(expressions) if name in group),
                    repartition_source_topics=tuple(i for i, name in enumerate(names) if name in group),
                )
            )
        return messages.Subtopology(
            subtopology_id=self.subtopology_id, source_topics=sources, source_topic_regex=expressions,
            repartition_sink_topics=tuple(sorted(self.repartition_sink_topics)),
            state_changelog_topics=tuple(each.wire() for each in changelogs),
            repartition_source_topics=tuple(each.wire() for each in repartitioned),
            copartition_groups=tuple(groups),
        )  # fmt: skip

    @classmethod
    def read(cls, told: Any) -> Subtopology:
        return cls(
            told.subtopology_id, tuple(told.source_topics), tuple(told.repartition_sink_topics),
            tuple(map(InternalTopic.read, told.state_changelog_topics)),
            tuple(map(InternalTopic.read, told.repartition_source_topics)),
        )  # fmt: skip


class Topology(NamedTuple):
    """All of an application. Its epoch is the application's to raise when the topology is another one."""

    subtopologies: tuple[Subtopology, ...]
    epoch: int = 0

    def wire(self) -> messages.Topology:
        found = tuple(each.wire() for each in sorted(self.subtopologies, key=lambda s: s.subtopology_id))
        return messages.Topology(epoch=self.epoch, subtopologies=found)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics of users that it reads: the application's input."""
        return tuple(sorted({name for each in self.subtopologies for name in each.source_topics}))

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """What is made for the application. A table's source topic may be its changelog, too: it is none."""
        made = {
            topic.name
            for each in self.subtopologies
            for topic in (*each.repartition_source_topics, *each.state_changelog_topics)
        }
        return tuple(sorted(made - set(self.source_topics)))


def _name(topic: InternalTopic) -> str:
    return topic.name
