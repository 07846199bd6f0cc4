"""Where changelogs end, for members that cannot say it: how far they are behind is found out by the shell.

A member of the streams protocol tells with the offsets of its tasks where these end (KIP-1071). One of the
classic protocol tells offsets alone, for there the leader asks brokers for the ends. So whenever such a
member joins, the shell is asked where the changelogs end of the tasks that it has on its disk, and its answer
stands beside what the member said:

    a changelog                          ends
    that is the state's alone            where its partition does
    that a task reads as well            where the group has committed it, at most: the state is no further
    whose end is not known               nobody knows where, and the same holds for its task

A task is as long as its changelogs are together. Where a warm-up has caught up by that, the epoch moves as
for any other (`warmups`); a target is computed with the next request of a member, as after any such event.

Until the answer is there, a copy that the member was told to have counts as being as far behind as when it
joined last: else a target that is computed meanwhile would take it for one of which nothing is known. Nobody
waits for the answer. One that never comes, since the coordinator was loaded anew, is asked for again with the
next join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from konvene.groups.assignors.tasks.contract import TaskOffsets
from konvene.groups.assignors.tasks.lags import Task
from konvene.groups.offsets.committed import Offsets
from konvene.groups.streams.assignors import STICKY
from konvene.groups.streams.current_assignment import Held
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Reported, StreamsGroup
from konvene.groups.streams.topology.configure import ConfiguredTopology
from konvene.groups.streams.topology.topology import Topology
from konvene.groups.streams.warmups import warmups_change
from konvene.shard.contract import NOTHING, Context, Effect, Outcome

__all__ = ["LOOK_UP_ENDS", "EndsFound", "EndsToLookUp", "as_far_behind", "ends_found", "look_up"]

LOOK_UP_ENDS = "look-up-ends"
"""Effect. Subject: `EndsToLookUp`."""

MOST_PARTITIONS = 2_000
"""So many ends are asked for at once; of further tasks nothing is known."""

Partition = tuple[str, int]
"""A topic's name, and a partition of it."""

Changelogs = tuple[Task, tuple[Partition, ...]]
"""A task, and the partitions that its state is kept in."""


@dataclass(frozen=True, slots=True)
class EndsToLookUp:
    """Tasks that a member has on its disk."""

    group_id: str
    member_id: str
    tasks: tuple[Changelogs, ...]

    @property
    def partitions(self) -> Iterator[Partition]:
        """All those whose ends are asked for."""
        return (partition for _, some in self.tasks for partition in some)


@dataclass(frozen=True, slots=True)
class EndsFound:
    """Where partitions end; those are left out that are not there."""

    wanted: EndsToLookUp
    ends: Mapping[Partition, int]

    @property
    def group_id(self) -> str:
        """Whose they are."""
        return self.wanted.group_id


# --- as a member joins -----------------------------------------------------------------------------


def as_far_behind(offsets: TaskOffsets, known: Reported | None, assigned: Held) -> dict[str, dict[int, int]]:
    """The ends that go with what a member says now, until they are looked up: of the copies that it was told
    to have. One that has lost something is another copy."""
    found: dict[str, dict[int, int]] = {}
    if known is None or not known.end_offsets:
        return found
    for copies in (assigned.standby, assigned.warmup):
        for name, some in copies.items():
            now, before, ends = (
                all_of.get(name, {}) for all_of in (offsets, known.offsets, known.end_offsets)
            )
            for partition in some:
                if partition in ends and 0 <= before.get(partition, -1) <= now.get(partition, -1):
                    lag = max(0, ends[partition] - before[partition])
                    found.setdefault(name, {})[partition] = now[partition] + lag
    return found


def look_up(step: Decision, member_id: str, configured: ConfiguredTopology) -> None:
    """Ask where the changelogs end of what a member says that it has, if that may be of use."""
    said, topology = step.reported_by(member_id), configured.topology
    if said is None or not said.offsets or topology is None or not configured.is_ready or not _matters(step):
        return
    warm = step.group.warmup
    tasks = [
        (partition not in warm.get(name, ()), name, partition)
        for name, some in said.offsets.items()
        if name in topology.subtopologies and topology.is_stateful(name)
        for partition in some
        if partition < configured.tasks.get(name, 0)
    ]
    wanted = tuple(_bounded(topology, ((name, partition) for _, name, partition in sorted(tasks))))
    if wanted:
        step.effects.append(Effect(LOOK_UP_ENDS, EndsToLookUp(step.group.group_id, member_id, wanted)))


def _matters(step: Decision) -> bool:
    """Whether an assignor looks at it: one that warms tasks up, or that nobody knows."""
    named = step.config["streams.assignor.name"]
    if step.group.warmup or named not in (None, STICKY):
        return True
    return named is None and step.config["streams.num.warmup.replicas"] > 0


def _bounded(topology: Topology, tasks: Iterable[Task]) -> Iterator[Changelogs]:
    """The first of these tasks, each with its changelogs."""
    left = MOST_PARTITIONS
    for name, partition in tasks:
        topics = topology.subtopologies[name].state_changelog_topics
        left -= len(topics)
        if left < 0:
            return
        yield (name, partition), tuple((topic.name, partition) for topic in topics)


# --- as the answer comes ---------------------------------------------------------------------------


def ends_found(group: StreamsGroup | None, answer: EndsFound, offsets: Offsets, context: Context) -> Outcome:
    """Note where tasks end, beside how far the member said that it is.

    `offsets`: what the group has committed."""
    wanted = answer.wanted
    member = group.members.get(wanted.member_id) if group is not None else None
    known = group.reported.get(wanted.member_id) if group is not None else None
    if group is None or member is None or member.classic is None or known is None:
        return NOTHING
    step, configured = Decision(group, context), group.soft.configured
    topology = configured.topology if configured is not None else None
    found = {}
    for task, partitions in wanted.tasks:
        end = _end(task, partitions, answer.ends, topology, offsets)
        if end is not None and task[1] in known.offsets.get(task[0], ()):
            found[task] = end
    step.report(wanted.member_id, replace(known, end_offsets=_with(known.end_offsets, wanted, found)))
    if configured is not None and configured.is_ready and warmups_change(step, member, found):
        step.bump()
    return step.outcome()


def _end(
    task: Task,
    partitions: Iterable[Partition],
    ends: Mapping[Partition, int],
    topology: Topology | None,
    offsets: Offsets,
) -> int | None:
    """How long a task is; None where that is not known."""
    total = 0
    for topic, partition in partitions:
        end = ends.get((topic, partition))
        if end is None:
            return None
        if topology is not None and topology.readers.get(topic) == task[0]:
            committed = offsets.get(topic, {}).get(partition)
            end = min(end, committed.offset) if committed is not None else 0
        total += end
    return total


def _with(known: TaskOffsets, wanted: EndsToLookUp, found: Mapping[Task, int]) -> TaskOffsets:
    """What is known of ends, with what was found of the wanted ones; of the rest of these nothing is."""
    ends = {name: dict(some) for name, some in known.items()}
    for (name, partition), _ in wanted.tasks:
        if (name, partition) in found:
            ends.setdefault(name, {})[partition] = found[name, partition]
        elif ends.get(name, {}).pop(partition, None) is not None and not ends[name]:
            del ends[name]
    return ends
