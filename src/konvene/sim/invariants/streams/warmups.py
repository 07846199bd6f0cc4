"""Invariants of warm-ups (KIP-1071): who may have one, how long, and what moves an epoch for it.

What members report is taken down here once more, from their heartbeats alone: what each said last, and when.
By that a copy is known to have caught up, or not; of who was not heard since the coordinator was loaded
nothing is known. So nothing of what the coordinator works out of reports is believed.

Two coordinators may live beside one another for a while; each has heard what it has heard itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from konvene.client.consumer.protocol import read_subscription
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT
from konvene.groups.streams.assignors import read_configs
from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.groups.streams.classic.user_data import read_subscription_info
from konvene.groups.streams.current_assignment import Role
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KAFKA
from konvene.shard import causes
from konvene.sim.group_runtime import GroupRuntime
from konvene.sim.invariants.streams.state import Task, new_causes, touched, units, was
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")

HEARTBEAT = "StreamsGroupHeartbeat"
LARGEST = 2**63 - 1
WAITS = "highly_available"


class Said(NamedTuple):
    """What a member reported last."""

    offsets: dict[Task, int]
    ends: dict[Task, int]
    at_ms: int
    reports: bool


class Known:
    """What one coordinator was told, by member id, of one group."""

    def __init__(self, said: dict[str, Said] | None = None) -> None:
        self.said = said or {}

    def __repr__(self) -> str:
        return f"<known of {sorted(self.said)}>"

    def reports(self, group: StreamsGroup, process: str) -> bool:
        """Whether somebody of the process says how far it is, or may."""
        mates = [name for name, member in group.members.items() if member.process_id == process]
        return any(name not in self.said or self.said[name].reports for name in mates)

    def leave(self, gone: str, group: Any, there: Mapping[str, Member]) -> None:
        """A member of the group is gone, and its disk is not, where its process has others: what it said last
        counts as if the one of them that was heard last had said it."""
        said, member = self.said.pop(gone), group.members.get(gone)
        mates = [
            (other.at_ms, name)
            for name, other in self.said.items()
            if member is not None and name in there and there[name].process_id == member.process_id
        ]
        came = (
            member is not None
            and member.instance_id is not None
            and any(member.instance_id == other.instance_id for other in there.values())
        )
        if came or not mates or not (said.offsets or said.ends):
            return  # Who is back under another id says itself what there is.
        name = max(mates)[1]
        last = self.said[name]
        older, newer = sorted((said, last), key=lambda each: each.at_ms)
        self.said[name] = last._replace(offsets=older.offsets | newer.offsets, ends=older.ends | newer.ends)

    def caught_up(self, group: StreamsGroup, process: str, task: Task, lag: int) -> bool:
        """Whether the process is known to be behind by no more; of what it said, the last counts. The end is
        the one that came with it, or else the largest that anybody told."""
        told = [
            (said.at_ms, said.offsets[task], said.ends.get(task, -1))
            for name, said in self.said.items()
            if task in said.offsets and name in group.members and group.members[name].process_id == process
        ]
        if not told:
            return False
        _, offset, own = max(told)
        end = (
            own if own >= 0 else max((s.ends[task] for s in self.said.values() if task in s.ends), default=-1)
        )
        return end >= 0 and end - offset <= lag


class Ears:
    """What each coordinator was told, as the heartbeats come."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[GroupRuntime, dict[str, Known]] = WeakKeyDictionary()

    def hear(self, event: Event) -> dict[str, Known]:
        """What the coordinator of the event knows after it, by group."""
        known = self._of.setdefault(event.runtime, {})
        if event.kind in ("loaded", "append failed"):
            known.clear()
        if event.is_request(HEARTBEAT) and event.changed:
            self._take_over(event, known)
        if event.is_request(HEARTBEAT) and event.error is Errors.NONE and event.request.member_epoch >= 0:
            self._take(event, known.setdefault(event.request.group_id, Known()).said)
        if event.is_request("JoinGroup") and event.error is Errors.NONE:
            self._join(event, known)
        if isinstance(event.news, EndsFound):
            self._find(event, known)
        if event.changed:
            for name in event.before.groups.keys() & known.keys():
                group = event.after.groups.get(name)
                there: dict[str, Member] = group.members if isinstance(group, StreamsGroup) else {}
                for gone in sorted(known[name].said.keys() - there.keys()):
                    known[name].leave(gone, event.before.groups[name], there)
        return known

    def _join(self, event: Event, known: dict[str, Known]) -> None:
        """A member of the classic protocol says how far it is, and nothing of ends. The copies that it was
        told to have are as far behind as before, until the ends are found."""
        name, member_id = event.request.group_id, str(getattr(event.answer, "member_id", ""))
        group, old = event.after.groups.get(name), event.before.groups.get(name)
        if not isinstance(group, StreamsGroup) or member_id not in group.members:
            return
        said = known.setdefault(name, Known()).said
        classic = group.members[member_id].classic
        assert classic is not None, f"{member_id} joined, and speaks the streams protocol"
        offsets, reports = said_of_offsets(classic.protocols)
        last, before = said.get(member_id), None
        if isinstance(old, StreamsGroup):
            before = was(old, group.members[member_id])
        ends = {}
        if last is not None and before is not None:
            for role, subtopology, partition in before.current.assigned.units():
                task = subtopology, partition
                told = task in last.ends and task in last.offsets and task in offsets
                if role is not Role.ACTIVE and told and last.offsets[task] <= offsets[task]:
                    ends[task] = offsets[task] + max(0, last.ends[task] - last.offsets[task])
        said[member_id] = Said(offsets, ends, event.context.now_ms, reports)

    def _take_over(self, event: Event, known: dict[str, Known]) -> None:
        """A classic group has become a streams group: what its members said as they joined last counts."""
        name = event.request.group_id
        group, old = event.after.groups.get(name), event.before.groups.get(name)
        if isinstance(old, ClassicGroup) and isinstance(group, StreamsGroup):
            said = known.setdefault(name, Known()).said
            for member_id in old.members.keys() & group.members.keys():
                if event.request.instance_id is not None and member_id == event.request.member_id:
                    continue  # It takes its own place, and says itself what there is.
                offsets, reports = said_of_offsets(old.members[member_id].protocols)
                said[member_id] = Said(offsets, {}, event.context.now_ms, reports)

    def _find(self, event: Event, known: dict[str, Known]) -> None:
        """Where tasks end came from elsewhere."""
        wanted = event.news.wanted
        group = event.after.groups.get(wanted.group_id)
        member = group.members.get(wanted.member_id) if isinstance(group, StreamsGroup) else None
        said = known.get(wanted.group_id, Known()).said.get(wanted.member_id)
        if member is None or member.classic is None or said is None:
            return
        ends = dict(said.ends)
        for task, partitions in wanted.tasks:
            ends.pop(task, None)
            if task in said.offsets and all(each in event.news.ends for each in partitions):
                ends[task] = sum(event.news.ends[each] for each in partitions)
        known[wanted.group_id].said[wanted.member_id] = said._replace(ends=ends)

    def _take(self, event: Event, known: dict[str, Said]) -> None:
        said: Any = event.request
        last = known.get(said.member_id)
        if said.task_offsets:
            reports = True
        elif said.member_epoch == 0:
            reports = event.version > 0 and said.task_offsets is not None
        else:
            reports = event.version > 0 if last is None else last.reports
        if said.member_epoch == 0 and said.instance_id is not None:
            old = event.before.groups.get(said.group_id)
            mine = old.members.get(said.member_id) if isinstance(old, StreamsGroup) else None
            if mine is not None and mine.classic is not None:
                last = None  # It takes its own place with the other protocol.
        offsets, ends, at_ms, _ = last or Said({}, {}, 0, reports)
        if said.task_offsets is not None:
            offsets = _sums(said.task_offsets)
        if said.task_end_offsets is not None:
            ends = _sums(said.task_end_offsets)
        if said.task_offsets is not None or said.task_end_offsets is not None:
            at_ms = event.context.now_ms
        known[said.member_id] = Said(offsets, ends, at_ms, reports)


def said_of_offsets(protocols: Iterable[tuple[str, bytes]]) -> tuple[dict[Task, int], bool]:
    """What a member of the classic protocol said as it joined last of how far it is, and whether it is one
    that does: that of active tasks says nothing."""
    said = read_subscription(dict(protocols)["stream"])
    info = read_subscription_info(said.user_data or b"")
    return {task: at for task, at in info.offset_sums.items() if at >= 0}, info.version >= 7


def _sums(told: Any) -> dict[Task, int]:
    """Numbers that say nothing are left out."""
    return {(t.subtopology_id, t.partition): t.offset for t in told if 0 <= t.offset < LARGEST}


class TaskOffsetReportsAreKept(Invariant):
    """T13: of each member the coordinator knows what it said last of its offsets, when, and whether it is one
    that says so, and of its disk what members said that are gone; after a load it knows of nobody."""

    def __init__(self) -> None:
        self.ears = Ears()

    def after(self, event: Event) -> None:
        known = self.ears.hear(event)
        if event.kind == "loaded":
            for group in event.after.groups.values():
                if isinstance(group, StreamsGroup):
                    assert not group.reported, f"{group!r} was loaded, and knows of {sorted(group.reported)}"
        if (
            not event.is_request(HEARTBEAT)
            or event.error is not Errors.NONE
            or event.request.member_epoch < 0
        ):
            return
        group, member_id = event.after.groups[event.request.group_id], event.request.member_id
        told, kept = known[group.group_id].said[member_id], group.reported.get(member_id)
        assert kept is not None, f"{group!r}: {member_id} was heard, and nothing is known of it"
        ours = (_flat(kept.offsets), _flat(kept.end_offsets), kept.reported_ms, kept.reports)
        assert ours == tuple(told), f"{group!r}: {member_id} said {told}, kept is {ours}"
        strangers = group.reported.keys() - known[group.group_id].said.keys()
        assert not strangers, f"{group!r}: something is known of {sorted(strangers)}, who said nothing"


def _flat(kept: Any) -> dict[Task, int]:
    return {(n, p): o for n, told in kept.items() for p, o in told.items() if 0 <= o < LARGEST}


class _Asked(NamedTuple):
    """On what a target rests that is worked out elsewhere."""

    known: Known
    before: StreamsGroup
    """As it was: who was heard then took its next step after the target was asked for."""
    group: StreamsGroup
    waits: bool


class WarmupsAreJustified(Invariant):
    """T4, T5: who is to warm a task up has not caught up, as far as the coordinator was told, and says how
    far it is, or may; none does where nobody waits.

    T15: where members are waited for, a task with state that somebody runs goes to another process only if
    that has caught up, or nobody of it says how far it is."""

    def __init__(self) -> None:
        self.ears = Ears()
        self.asked: dict[tuple[str, int], _Asked] = {}
        self.offered: Mapping[str, Any] = {}
        """Which assignors there are, where they are not the usual ones."""

    def after(self, event: Event) -> None:
        known = self.ears.hear(event)
        if event.context is not None:
            self.offered = event.context.task_assignors or {}
        for effect in event.outcome.effects if event.outcome is not None else ():
            if effect.verb == COMPUTE_ASSIGNMENT:
                name, epoch = effect.subject.group_id, effect.subject.epoch
                now = Known(dict(known[name].said)) if name in known else Known()
                group = event.after.groups[name].copy()
                had = event.before.groups.get(name)
                before = had.copy() if isinstance(had, StreamsGroup) else StreamsGroup(name)
                self.asked[name, epoch] = _Asked(now, before, group, _waits(event, group, now, self.offered))
        for name, old, group in touched(event):
            if event.is_complete or old is None or old.assignment_epoch == group.assignment_epoch:
                continue
            if group.assignment_epoch != group.epoch or not group.members or group.state == "NotReady":
                continue
            now = known.get(name) or Known()
            if event.kind == "completion":
                found = self.asked.get((name, group.epoch))
                if found is None or found.group.members.keys() != group.members.keys():
                    continue
                self._look(event, found.before, group, found.known, waits=found.waits)
            else:
                self._look(event, old, group, now, waits=_waits(event, group, now, self.offered))

    def _look(
        self, event: Event, old: StreamsGroup, group: StreamsGroup, known: Known, *, waits: bool
    ) -> None:
        assert group.topology is not None
        configs = read_configs(group.assignment_configs)
        warming = list(_given(group, Role.WARMUP))
        assert waits or not warming, f"{group!r}: nobody is waited for, and to warm up are {warming}"
        stale = event.runtime.config["konvene.streams.mode"] != KAFKA and any(
            member.topology_epoch != group.topology_epoch for member in group.members.values()
        )
        for member_id, task in [] if stale else warming:
            process = group.members[member_id].process_id
            behind = not known.caught_up(group, process, task, configs.acceptable_recovery_lag)
            assert behind, f"{group!r}: {member_id} is to warm up {task}, and has caught up"
            says = known.reports(group, process)
            assert says, f"{group!r}: {member_id} is to warm up {task}, and says not how far it is"
        if not stale and waits and configs.num_warmup_replicas and old.topology == group.topology:
            self._moves(old, group, known, configs.acceptable_recovery_lag)

    def _moves(self, old: StreamsGroup, group: StreamsGroup, known: Known, lag: int) -> None:
        assert group.topology is not None
        owners = {}
        for member in group.members.values():
            before = was(old, member)
            if before is not None:
                had = before.current.assigned.active
                owners.update({(n, p): member for n, some in had.items() for p in some})
        for member_id, task in _given(group, Role.ACTIVE):
            owner, new = owners.get(task), group.members[member_id]
            if owner is None or owner.process_id == new.process_id or not group.topology.is_stateful(task[0]):
                continue
            may = known.caught_up(group, new.process_id, task, lag) or not known.reports(
                group, new.process_id
            )
            assert may, f"{group!r}: {task} goes from {owner.member_id} to {member_id}, who is behind"


class CaughtUpWarmupsBumpEpochs(Invariant):
    """T5, T13: a warm-up that is heard to have caught up moves the epoch, and it is told why; what is in vain
    does as well. That something warms up is no reason by itself."""

    def __init__(self) -> None:
        self.ears = Ears()

    def after(self, event: Event) -> None:
        known = self.ears.hear(event)
        for name, old, group in touched(event):
            if event.is_complete or old is None:
                continue
            now = known.get(name) or Known()
            lag = event.runtime.group_configs.of(name)["streams.acceptable.recovery.lag"]
            done, vain = self._ended(old, group, now, lag), self._in_vain(old, group, now)
            why = {cause.kind for cause in new_causes(event, old, group)}
            if causes.WARMUP_CAUGHT_UP in why:
                assert done, f"{group!r} moved for a copy that has caught up, and there is none"
            elif (
                group.epoch > old.epoch
                and why == {causes.MEMBER_METADATA_CHANGED}
                and not self._news(old, group)
            ):
                assert vain, f"{group!r} moved for what a member says of itself, and it says nothing"
            self._must(event, old, group, done, vain)

    def _must(
        self, event: Event, old: StreamsGroup, group: StreamsGroup, done: list[Any], vain: list[Any]
    ) -> None:
        if (
            not event.is_request(HEARTBEAT)
            or event.error is not Errors.NONE
            or event.request.member_epoch < 0
        ):
            return
        if event.request.group_id != group.group_id or group.state == "NotReady" or group.soft.computing:
            return
        if old.epoch != group.epoch or old.assignment_epoch != group.epoch:
            return
        if event.request.member_epoch == 0:
            return  # One that takes its own place is looked at when it is heard next.
        said: Any = event.request
        told = {
            (t.subtopology_id, t.partition)
            for t in (*(said.task_offsets or ()), *(said.task_end_offsets or ()))
        }
        heard = [(i, task) for i, task in done if i == said.member_id or task in told]
        assert not heard, f"{group!r}: {heard} have caught up, and its epoch stays"
        process = group.members[said.member_id].process_id
        idle = [i for i in vain if group.members[i].process_id == process]
        assert not idle, f"{group!r}: {idle} warm up, nobody hears how far, and its epoch stays"

    def _news(self, old: StreamsGroup, group: StreamsGroup) -> bool:
        """Whether a member is described in other words."""
        both = [(before, m) for m in group.members.values() if (before := was(old, m)) is not None]
        return any(replace(m, current=before.current) != before for before, m in both)

    def _ended(
        self, old: StreamsGroup, group: StreamsGroup, known: Known, lag: int
    ) -> list[tuple[str, Task]]:
        return [(i, task) for i, task in _warm(old, group) if self._is(known, group, i, task, lag)]

    def _is(self, known: Known, group: StreamsGroup, member_id: str, task: Task, lag: int) -> bool:
        return known.caught_up(group, group.members[member_id].process_id, task, lag)

    def _in_vain(self, old: StreamsGroup, group: StreamsGroup, known: Known) -> list[str]:
        ids = dict.fromkeys(member_id for member_id, _ in _warm(old, group))
        return [i for i in ids if not known.reports(group, group.members[i].process_id)]


def _warm(old: StreamsGroup, group: StreamsGroup) -> Iterator[tuple[str, Task]]:
    """What members warm up that are meant to."""
    for member_id, member in old.members.items():
        if member_id in group.members:
            given = old.target_of(member_id).warmup
            for name, some in member.current.assigned.warmup.items():
                yield from ((member_id, (name, p)) for p in some if p in given.get(name, ()))


def _given(group: StreamsGroup, role: Role) -> Iterator[tuple[str, Task]]:
    for member_id, target in group.targets.items():
        for each, name, partition in sorted(units(target)):
            if each is role:
                yield member_id, (name, partition)


def _waits(event: Event, group: StreamsGroup, known: Known, offered: Mapping[str, Any]) -> bool:
    """Whether the group's assignor is the one that has tasks warmed up: it is chosen, or nobody chose one,
    and somebody may say how far it is."""
    config = event.runtime.group_configs.of(group.group_id)
    name, topology = config["streams.assignor.name"], group.topology
    if name is None and config["streams.num.warmup.replicas"] > 0 and topology is not None:
        has_state = any(map(topology.is_stateful, topology.subtopologies))
        somebody = any(i not in known.said or known.said[i].reports for i in group.members)
        name = WAITS if has_state and somebody else None
    return name == WAITS if name in offered or not offered else next(iter(offered)) == WAITS
