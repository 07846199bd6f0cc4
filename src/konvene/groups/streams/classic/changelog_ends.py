"""End offsets of changelogs, which the shell looks up for members of the classic protocol.

A member of the streams protocol reports the end offsets of its tasks along with their offsets (KIP-1071). One
of the classic protocol reports only offsets, since there the leader looks up the end offsets. So whenever
such a member joins, the shell looks up the end offsets of the changelogs of all tasks on its disk. The result
is stored beside the member's report. The end offset of a changelog is

    if only the state uses it            the end offset of its partition
    if a task also reads it as source    the group's committed offset at most: the state is not further
    if its partition does not exist      unknown, and so is that of its task

The end offset of a task is the sum over its changelogs. If a warm-up has caught up by that, the epoch is
bumped as for any other (`warmups`); a target is computed with the next request of a member, as after any such
event.

Until the result arrives, an assigned copy keeps the lag that it had when the member joined last: otherwise a
target computed meanwhile would treat its lag as unknown. Nothing waits for the result. One that never
arrives, because the coordinator was loaded again, is requested again with the next join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from konvene.groups.assignors.tasks.contract import TaskOffsets
from konvene.groups.assignors.tasks.lags import Task
from konvene.groups.offsets.committed import Offsets
from konvene.groups.streams.assignors import STICKY
from konvene.groups.streams.current_assignment import OwnedTasks
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Reported, StreamsGroup
from konvene.groups.streams.topology.configure import ConfiguredTopology
from konvene.groups.streams.topology.topology import Topology
from konvene.groups.streams.warmups import add_warmup_causes
from konvene.shard.contract import NOTHING, Context, Effect, Outcome

__all__ = ["LOOK_UP_ENDS", "EndsFound", "EndsToLookUp", "apply_ends", "estimated_ends", "look_up_ends"]

LOOK_UP_ENDS = "look-up-ends"
"""Effect: look up the end offsets of changelogs. Subject: `EndsToLookUp`."""

MAX_PARTITIONS = 2_000
"""Maximum number of end offsets in one lookup; the lags of further tasks stay unknown."""

Partition = tuple[str, int]
"""A topic's name and a partition index."""

Changelogs = tuple[Task, tuple[Partition, ...]]
"""A task and its changelog partitions."""


@dataclass(frozen=True, slots=True)
class EndsToLookUp:
    """The request to the shell to look up the end offsets of the tasks that a member has on its disk."""

    group_id: str
    member_id: str
    tasks: tuple[Changelogs, ...]

    @property
    def partitions(self) -> Iterator[Partition]:
        """Yield all changelog partitions to look up."""
        return (partition for _, some in self.tasks for partition in some)


@dataclass(frozen=True, slots=True)
class EndsFound:
    """Event: the end offsets of the requested partitions (`wanted`), without those that do not exist."""

    wanted: EndsToLookUp
    ends: Mapping[Partition, int]

    @property
    def group_id(self) -> str:
        """Return the id of the group that requested the end offsets."""
        return self.wanted.group_id


# --- as a member joins -----------------------------------------------------------------------------


def estimated_ends(
    offsets: TaskOffsets, known: Reported | None, assigned: OwnedTasks
) -> dict[str, dict[int, int]]:
    """Return estimated end offsets for a member's new report: its assigned copies keep their last lag.

    `offsets`: the new report; `known`: the report before. A copy whose offset has decreased was created anew,
    so it has no estimate.
    """
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


def look_up_ends(decision: Decision, member_id: str, configured: ConfiguredTopology) -> None:
    """Request the end offsets of the tasks in a member's report, if the group's assignor may use them."""
    report, topology = decision.reported_by(member_id), configured.topology
    if (
        report is None
        or not report.offsets
        or topology is None
        or not configured.is_ready
        or not _lags_matter(decision)
    ):
        return
    warm = decision.group.warmup
    tasks = [
        (partition not in warm.get(name, ()), name, partition)
        for name, some in report.offsets.items()
        if name in topology.subtopologies and topology.is_stateful(name)
        for partition in some
        if partition < configured.tasks.get(name, 0)
    ]
    wanted = tuple(_bounded(topology, ((name, partition) for _, name, partition in sorted(tasks))))
    if wanted:
        decision.effects.append(
            Effect(LOOK_UP_ENDS, EndsToLookUp(decision.group.group_id, member_id, wanted))
        )


def _lags_matter(decision: Decision) -> bool:
    """Return whether the group's assignor may use lags: not if it is sticky and there are no warm-ups."""
    named = decision.config["streams.assignor.name"]
    if decision.group.warmup or named not in (None, STICKY):
        return True
    return named is None and decision.config["streams.num.warmup.replicas"] > 0


def _bounded(topology: Topology, tasks: Iterable[Task]) -> Iterator[Changelogs]:
    """Yield tasks with their changelogs, while these have at most `MAX_PARTITIONS` partitions together."""
    left = MAX_PARTITIONS
    for name, partition in tasks:
        topics = topology.subtopologies[name].state_changelog_topics
        left -= len(topics)
        if left < 0:
            return
        yield (name, partition), tuple((topic.name, partition) for topic in topics)


# --- the result ------------------------------------------------------------------------------------


def apply_ends(group: StreamsGroup | None, result: EndsFound, offsets: Offsets, context: Context) -> Outcome:
    """Store the end offsets in the member's report, and bump the epoch if a warm-up has caught up.

    `offsets`: the group's committed offsets.
    """
    wanted = result.wanted
    member = group.members.get(wanted.member_id) if group is not None else None
    known = group.reported.get(wanted.member_id) if group is not None else None
    if group is None or member is None or member.classic is None or known is None:
        return NOTHING
    decision, configured = Decision(group, context), group.soft.configured
    topology = configured.topology if configured is not None else None
    found = {}
    for task, partitions in wanted.tasks:
        end = _end(task, partitions, result.ends, topology, offsets)
        if end is not None and task[1] in known.offsets.get(task[0], ()):
            found[task] = end
    decision.report(
        wanted.member_id, replace(known, end_offsets=_merged_ends(known.end_offsets, wanted, found))
    )
    if configured is not None and configured.is_ready and add_warmup_causes(decision, member, found):
        decision.bump()
    return decision.outcome()


def _end(
    task: Task,
    partitions: Iterable[Partition],
    ends: Mapping[Partition, int],
    topology: Topology | None,
    offsets: Offsets,
) -> int | None:
    """Return the end offset of a task: the sum over its changelog partitions; None if it is unknown."""
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


def _merged_ends(known: TaskOffsets, wanted: EndsToLookUp, found: Mapping[Task, int]) -> TaskOffsets:
    """Return the reported end offsets with those of the requested tasks replaced by the result.

    A requested task without a result has no end offset any more.
    """
    ends = {name: dict(some) for name, some in known.items()}
    for (name, partition), _ in wanted.tasks:
        if (name, partition) in found:
            ends.setdefault(name, {})[partition] = found[name, partition]
        elif ends.get(name, {}).pop(partition, None) is not None and not ends[name]:
            del ends[name]
    return ends
