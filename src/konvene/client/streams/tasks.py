"""Tasks, task assignments and topologies of streams groups (KIP-1071), as clients use them.

A task is a partition of a subtopology, written `0_1` as in Kafka Streams. A topology defines which
topics each subtopology reads and writes, and where it keeps its state. All types are values. `to_message`
returns the form that a heartbeat carries, sorted as Java's client sorts it, so that two clients with the same
topology send the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from konvene.client.errors import Misconfigured
from konvene.messages import streams_group_heartbeat as messages

if TYPE_CHECKING:
    from konvene.messages import streams_group_describe as descriptions

__all__ = ["Assignment", "InternalTopic", "Role", "Subtopology", "Task", "Topology", "by_subtopology"]


class Role(Enum):
    """The role of a task: it processes records (active) or keeps a copy of the state (standby, warm-up)."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


class Task(NamedTuple):
    """One partition of a subtopology."""

    subtopology: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @property
    def sort_key(self) -> tuple[bool, int, str, int]:
        """Key that sorts subtopologies numerically if their names are numbers, as they nearly always are."""
        name = self.subtopology
        number = int(name) if name.isascii() and name.isdigit() else -1
        return number < 0, number, name, self.partition


Tasks = frozenset[Task]
TaskRows: TypeAlias = "Iterable[messages.TaskIds | descriptions.TaskIds] | None"


class Assignment(NamedTuple):
    """The tasks of a member by role. `-` subtracts role by role; `bool` is whether there is any task."""

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
            "; ".join(f"{role.value} {_format_tasks(self.of(role))}" for role in Role if self.of(role))
            or "none"
        )

    def of(self, role: Role) -> Tasks:
        tasks: Tasks = getattr(self, role.value)
        return tasks

    def units(self) -> Iterator[tuple[Role, Task]]:
        """Yield every task with its role, in order."""
        for role in Role:
            for task in sorted(self.of(role), key=lambda t: t.sort_key):
                yield role, task

    @classmethod
    def from_message(cls, active: TaskRows, standby: TaskRows, warmup: TaskRows) -> Assignment:
        """Return the assignment in the task rows of a heartbeat response or of a group description."""
        return cls(*(_tasks(rows) for rows in (active, standby, warmup)))


def by_subtopology(tasks: Iterable[Task]) -> dict[str, tuple[int, ...]]:
    """Return the partitions of tasks by subtopology, both sorted."""
    found: dict[str, tuple[int, ...]] = {}
    for task in sorted(tasks, key=lambda t: t.sort_key):
        found[task.subtopology] = (*found.get(task.subtopology, ()), task.partition)
    return found


def task_ids(tasks: Iterable[Task]) -> tuple[messages.TaskIds, ...]:
    """Return the task rows of a heartbeat request."""
    return tuple(
        messages.TaskIds(subtopology_id=name, partitions=partitions)
        for name, partitions in by_subtopology(tasks).items()
    )


def _tasks(rows: TaskRows) -> Tasks:
    return frozenset(Task(row.subtopology_id, p) for row in rows or () for p in row.partitions)


def _format_tasks(tasks: Tasks) -> str:
    return ",".join(map(str, sorted(tasks, key=lambda t: t.sort_key)))


# topologies -----------------------------------------------------------------------------------


class InternalTopic(NamedTuple):
    """A topic that the coordinator creates for the application.

    If `partitions` or `replication_factor` is 0 the coordinator chooses the number."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: Mapping[str, str] = {}

    def to_message(self) -> messages.TopicInfo:
        return messages.TopicInfo(
            name=self.name, partitions=self.partitions, replication_factor=self.replication_factor,
            topic_configs=tuple(messages.KeyValue(key=k, value=v) for k, v in sorted(self.configs.items())),
        )  # fmt: skip

    @classmethod
    def from_message(cls, row: descriptions.TopicInfo) -> InternalTopic:
        configs = {each.key: each.value for each in row.topic_configs}
        return cls(row.name, row.partitions, row.replication_factor, configs)


class Subtopology(NamedTuple):
    """A part of a topology that shares no state with other parts.

    Each of its tasks reads one partition of each of its source topics."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[frozenset[str], ...] = ()
    """Sets of source topics or expressions that must have the same number of partitions. Group descriptions
    do not contain them."""
    source_topic_regex: tuple[str, ...] = ()
    """RE2 expressions that match whole names of source topics. Apache Kafka rejects them; konvene accepts
    them with `konvene.streams.mode` = `kip`. Group descriptions list the topics that they match as
    sources."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Topics that the tasks of this subtopology read: source topics and repartition topics."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))

    def to_message(self) -> messages.Subtopology:
        """Return the subtopology as a heartbeat carries it.

        Raises `Misconfigured` if a copartition group names a topic that is not a source."""
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
            state_changelog_topics=tuple(each.to_message() for each in changelogs),
            repartition_source_topics=tuple(each.to_message() for each in repartitioned),
            copartition_groups=tuple(groups),
        )  # fmt: skip

    @classmethod
    def from_message(cls, row: descriptions.Subtopology) -> Subtopology:
        return cls(
            row.subtopology_id, tuple(row.source_topics), tuple(row.repartition_sink_topics),
            tuple(map(InternalTopic.from_message, row.state_changelog_topics)),
            tuple(map(InternalTopic.from_message, row.repartition_source_topics)),
        )  # fmt: skip


class Topology(NamedTuple):
    """The topology of an application. The application raises `epoch` whenever it changes the topology."""

    subtopologies: tuple[Subtopology, ...]
    epoch: int = 0

    def to_message(self) -> messages.Topology:
        subtopologies = tuple(
            each.to_message() for each in sorted(self.subtopologies, key=lambda s: s.subtopology_id)
        )
        return messages.Topology(epoch=self.epoch, subtopologies=subtopologies)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Input topics of the application."""
        return tuple(sorted({name for each in self.subtopologies for name in each.source_topics}))

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """Names of the topics that the coordinator creates.

        A table's source topic that is also its changelog is not one of them."""
        made = {
            topic.name
            for each in self.subtopologies
            for topic in (*each.repartition_source_topics, *each.state_changelog_topics)
        }
        return tuple(sorted(made - set(self.source_topics)))


def _name(topic: InternalTopic) -> str:
    return topic.name
