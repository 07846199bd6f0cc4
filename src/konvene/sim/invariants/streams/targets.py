"""Invariants of what members of a streams group are meant to have, of its topology and its topics, and
of what makes its epoch move.

How many tasks there are is worked out here from the topics alone: as many as the largest source of a
subtopology has partitions, once all of them are there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from konvene.codec.hashes import metadata_hash, topic_hash
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, RegexesResolved
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.streams.assignors import assignment_configs, read_configs
from konvene.groups.streams.current_assignment import CurrentAssignment, Role
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KAFKA, Status
from konvene.groups.streams.topology.expressions import expand_expressions, unmatched
from konvene.groups.streams.topology.internal_topics import CREATE_TOPICS
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.shard import causes
from konvene.shard.image import Topics
from konvene.sim.invariants.streams.state import Task, matched_topics, new_causes, touched, units, was
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")

HEARTBEAT = "StreamsGroupHeartbeat"


class TasksAreAssigned(Invariant):
    """T1, T12: a target gives each task there is to exactly one member as active, and no other to anybody.

    T2: to no process twice, in whatever roles. T6: each task with state has as many standbys as are
    configured, or one on each other process. T4, T7: one without state has none, and nobody warms up.
    T10: while the topology is not ready nobody is to have anything, but who is behind it what it has.

    T9: who is behind the topology, in mode `kip`, is to have nothing that it has not. So there may be fewer
    standbys then, and where all are behind, tasks that nobody runs."""

    def __init__(self) -> None:
        self.seen: dict[str, Topics] = {}
        """The topics when a member was heard last, by group: for a target that a timer computes."""
        self.asked: dict[tuple[str, int], Topics] = {}
        """Those when a target was asked for elsewhere, by group and epoch."""

    def after(self, event: Event) -> None:
        joins = event.is_request("JoinGroup") or (
            event.is_request(HEARTBEAT) and event.request.member_epoch >= 0
        )
        if joins and event.error is Errors.NONE:
            self.seen[event.request.group_id] = event.runtime.topics
        if event.kind == "completion" and isinstance(event.news, RegexesResolved):
            self.seen[event.news.group_id] = event.runtime.topics
        for effect in event.outcome.effects if event.outcome is not None else ():
            if effect.verb == COMPUTE_ASSIGNMENT:
                group_id = effect.subject.group_id
                self.asked[group_id, effect.subject.epoch] = self.seen.get(group_id, event.runtime.topics)
        for name, old, group in touched(event):
            if event.is_complete or (old is not None and old.assignment_epoch == group.assignment_epoch):
                continue
            if group.assignment_epoch == group.epoch and group.members:
                topics = self.seen.get(name, event.runtime.topics)
                if event.kind == "completion":
                    topics = self.asked[name, group.epoch]
                behind = self._behind(event, old, group)
                self._look(group, topics, behind)

    def _behind(self, event: Event, old: StreamsGroup | None, group: StreamsGroup) -> set[str]:
        """Who may get nothing new, and has not."""
        if group.topology is None or event.runtime.config["konvene.streams.mode"] == KAFKA:
            return set()
        behind = {m.member_id for m in group.members.values() if m.topology_epoch != group.topology.epoch}
        for member_id in sorted(behind & group.targets.keys()):
            before = was(old, group.members[member_id]) if old is not None else None
            has = before.current.assigned.units() if before is not None else set()
            new = units(group.targets[member_id]) - has
            assert not new, f"{group!r}: {member_id} is behind the topology, and is to have {sorted(new)}"
        return behind

    def _look(self, group: StreamsGroup, topics: Topics, behind: set[str]) -> None:
        without = group.members.keys() - group.targets.keys()
        assert not without, f"{group!r}: {sorted(without)} have no target"
        if group.topology is None or group.validated_topology_epoch != group.topology.epoch:
            given = {name: units(target) for name, target in group.targets.items() if name not in behind}
            assert not any(given.values()), f"{group!r} is not ready, and given is {given}"
            return
        tasks = tasks_of(expand_expressions(group.topology, matched_topics(group, topics) or {}), topics)
        active: dict[Task, str] = {}
        copies: dict[Task, int] = dict.fromkeys(tasks, 0)
        warming: dict[Task, int] = dict.fromkeys(tasks, 0)
        there: dict[tuple[str, Task], str] = {}
        for member_id, target in group.targets.items():
            process = group.members[member_id].process_id
            for role, subtopology, partition in sorted(units(target)):
                task = subtopology, partition
                assert task in tasks, f"{group!r}: {member_id} is to have {task}, which there is not"
                other = there.setdefault((process, task), member_id)
                assert other == member_id, f"{group!r}: {process} is to have {task} twice"
                if role is Role.ACTIVE:
                    assert task not in active, f"{group!r}: {active[task]} and {member_id} are to run {task}"
                    active[task] = member_id
                else:
                    assert tasks[task], f"{group!r}: {member_id} is to have a copy of {task}, without state"
                    (warming if role is Role.WARMUP else copies)[task] += 1
            mine = [unit[1:] for unit in units(target)]
            assert len(mine) == len(set(mine)), f"{group!r}: {member_id} is to have a task in two roles"
        left = sorted(tasks.keys() - active.keys())
        assert not left or behind == group.members.keys(), f"{group!r}: nobody is to run {left}"
        processes = {member.process_id for member in group.members.values()}
        configs = read_configs(group.assignment_configs)
        assert sum(warming.values()) <= configs.num_warmup_replicas, f"{group!r}: too many warm up: {warming}"
        most = min(configs.num_standby_replicas, len(processes) - 1)
        for task, count in copies.items():
            expected, warm = most if tasks[task] else 0, warming[task]
            is_right = warm <= 1 and count <= expected and (behind or count + warm >= expected)
            assert is_right, f"{group!r}: {task} is to have {count} standbys, not {expected}, {warm} warm-ups"


def tasks_of(topology: Topology, topics: Topics) -> dict[Task, bool]:
    """The tasks there are, and whether they have state. All topics have to be there."""
    return {
        (name, partition): bool(each.state_changelog_topics)
        for name, each in topology.subtopologies.items()
        for partition in range(max(topics.by_name[topic].partitions for topic in sources(each)))
    }


class StreamsEpochBumpsHaveACause(Invariant):
    """T13: a decision moves the epoch by one or not at all. It does where members come or go, where one says
    something else of itself (a static one: of what targets rest on), where the topology, its topics, whether
    they are all there, or the settings for targets are others; for what warms up, if that is said
    (`CaughtUpWarmupsBumpEpochs`); and for nothing else."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            if old is None and isinstance(event.before.groups.get(name), ClassicGroup):
                continue  # See `StreamsUpgradesKeepTasks`.
            if old is None:
                assert group.epoch == FIRST_EPOCH + 1, f"{name} came to be at {group.epoch}"
                continue
            if _takes_the_id_of_another(event, old):
                continue
            moved = group.epoch - old.epoch
            assert moved in (0, 1), f"{name} moved from {old.epoch} to {group.epoch} at once"
            must = self._rests_on(old, group) != self._rests_on(group, old)
            may = must or old.members.keys() != group.members.keys()
            may = may or any(self._said(m) != self._said(was(old, m)) for m in group.members.values())
            why = {cause.kind for cause in new_causes(event, old, group)}
            warms = bool(old.warmup) and why <= {causes.WARMUP_CAUGHT_UP, causes.MEMBER_METADATA_CHANGED}
            may = may or warms
            assert moved or not must, f"{group!r}: what it rests on is another, and its epoch stayed"
            assert may or not moved, f"{group!r} moved on, and nothing is new"
            if moved and (must or warms):
                continue
            if moved:  # A static member that spoke without its name is taken for a dynamic one.
                nameless = event.request is not None and getattr(event.request, "instance_id", None) is None
                assert nameless, f"{group!r} moved on for nothing that targets rest on"

    def _rests_on(self, group: StreamsGroup, other: StreamsGroup) -> Any:
        """Of a member that is static, or was or becomes so, or of the classic protocol, what targets rest
        on."""
        members = {
            m.member_id if m.member_id in other.members else (m.instance_id, m.instance_id or m.member_id): (
                (m.topology_epoch, m.rack_id, m.client_tags, m.process_id)
                if {m.instance_id, getattr(was(other, m), "instance_id", None)} != {None}
                or m.classic is not None
                else self._said(m)
            )
            for m in group.members.values()
        }
        return (
            members, group.topology, group.metadata_hash, group.validated_topology_epoch,
            dict(group.assignment_configs),
        )  # fmt: skip

    def _said(self, member: Member | None) -> Member | None:
        return None if member is None else replace(member, member_id="", current=CurrentAssignment())


def _takes_the_id_of_another(event: Event, old: StreamsGroup) -> bool:
    """Whether who is not honest comes in a static member's place under an id that another one has: nobody
    notices that it is gone, in Kafka neither."""
    said = event.request
    if not event.is_request(HEARTBEAT) or said.instance_id is None or said.member_id not in old.members:
        return False
    return bool(old.members[said.member_id].instance_id != said.instance_id)


class StreamsMetadataHashIsCurrent(Invariant):
    """T13, M12: after a member was heard, the group's hash is that of the topics in its topology, as they
    are: a change is seen with the next heartbeat, whoever sends it."""

    def after(self, event: Event) -> None:
        if (
            not event.is_request(HEARTBEAT)
            or event.error is not Errors.NONE
            or event.request.member_epoch < 0
        ):
            return
        group, topics = event.after.groups[event.request.group_id], event.runtime.topics
        assert group.topology is not None, f"{group!r} has no topology, and accepts a member"
        matches = matched_topics(group, topics)
        if matches is None:
            return
        hashes = {}
        for name in expand_expressions(group.topology, matches).required_topics:
            if (topic := topics.by_name.get(name)) is not None:
                hashes[name] = topic_hash(name, topic.id, topic.racks or ((),) * topic.partitions)
        expected = metadata_hash(hashes)
        assert group.metadata_hash == expected, (
            f"{group!r}: the hash is {group.metadata_hash}, of {sorted(hashes)} it is {expected}"
        )


class AssignmentConfigsAreCurrent(Invariant):
    """T13: after a member was heard, targets rest on the settings that the group has now."""

    def after(self, event: Event) -> None:
        if (
            not event.is_request(HEARTBEAT)
            or event.error is not Errors.NONE
            or event.request.member_epoch < 0
        ):
            return
        group = event.after.groups[event.request.group_id]
        config = event.context.group_configs.of(group.group_id)
        expected = assignment_configs(config, group.topology)
        assert group.assignment_configs == expected, (
            f"{group!r}: targets rest on {dict(group.assignment_configs)}, the settings are {expected}"
        )


class TopologiesAreKept(Invariant):
    """T8: a group keeps its topology as long as it is there; in mode `kip` the next epoch may replace it. It
    is validated at its own epoch or not at all."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            own = group.topology.epoch if group.topology is not None else -1
            assert group.validated_topology_epoch in (-1, own), (
                f"{group!r}: validated at {group.validated_topology_epoch}, the topology is at {own}"
            )
            if old is None or event.is_complete or old.topology is None or old.topology == group.topology:
                continue
            assert event.runtime.config["konvene.streams.mode"] != KAFKA, f"{name} has another topology"
            assert own == old.topology.epoch + 1, f"{name} came from topology {old.topology.epoch} to {own}"


class MissingTopicsAreReported(Invariant):
    """T10: a group is ready exactly if its members are told of no topics in the way. Sources that are missing
    are told of first, then what does not fit, then internal topics that are missing.

    T11: those, and no others, are to be made; nothing that exists is touched."""

    def after(self, event: Event) -> None:
        if (
            not event.is_request(HEARTBEAT)
            or event.error is not Errors.NONE
            or event.request.member_epoch < 0
        ):
            return
        group, known = event.after.groups[event.request.group_id], event.runtime.topics.by_name
        matches = matched_topics(group, event.runtime.topics)
        if matches is None:
            return
        topology: Topology = expand_expressions(group.topology, matches)
        answer: Any = event.answer
        in_the_way = {s.status_code for s in answer.status} & {1, 2, 3}
        ready = group.validated_topology_epoch == topology.epoch
        assert ready == (not in_the_way), f"{group!r}: ready: {ready}, told: {sorted(in_the_way)}"
        absent = {name for name in topology.source_topics if name not in known}
        absent.update(unmatched(group.topology, matches))
        missing = {name for name in topology.required_topics if name not in known} - absent
        made = [e.subject for e in event.outcome.effects if e.verb == CREATE_TOPICS] if event.outcome else []
        assert len(made) <= 1, f"{group!r}: topics are to be made in {len(made)} ways"
        if absent:
            assert in_the_way == {Status.MISSING_SOURCE_TOPICS}, f"without {sorted(absent)}: {in_the_way}"
        elif missing:
            assert in_the_way <= {2, 3}, f"without {sorted(missing)}: {in_the_way}"
            assert in_the_way, f"without {sorted(missing)} nothing is in the way"
        else:
            assert in_the_way <= {2}, f"all topics are there, in the way is {in_the_way}"
        asked = {topic.name: topic.partitions for each in made for topic in each.topics}
        expected = missing if in_the_way == {3} else set()
        assert asked.keys() == expected, f"{group!r}: to be made are {sorted(asked)}, not {sorted(expected)}"
        assert all(count > 0 for count in asked.values()), f"{group!r}: to be made are {asked}"
        if ready:
            self._fits(topology, known)

    def _fits(self, topology: Topology, known: Any) -> None:
        """Each changelog has a partition for each task, and what is joined as many as each other."""
        for name, each in topology.subtopologies.items():
            count = max(known[topic].partitions for topic in sources(each))
            for changelog in each.state_changelog_topics:
                found = known[changelog.name].partitions
                assert found == count, f"{name} has {count} tasks, {changelog.name} {found} partitions"
            for joined in each.copartition_groups:
                names = [each.source_topics[at] for at in joined.source_topics]
                names += [each.repartition_source_topics[at].name for at in joined.repartition_source_topics]
                counts = {known[topic].partitions for topic in names}
                assert len(counts) <= 1, f"{names} are joined, and have {sorted(counts)} partitions"
