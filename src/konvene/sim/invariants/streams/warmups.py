"""Invariants of warm-up tasks (KIP-1071): which members may have one, for how long, and when they bump the
epoch.

The reports of members are recorded here a second time, from their heartbeats alone: the last one of each
member, and when it was sent. They show whether a copy of a task has caught up; nothing is known of members
that have sent no heartbeat since the coordinator loaded its log.

Two coordinators may run at the same time for a while; each has the reports that were sent to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from konvene.client.consumer.protocol import read_subscription
from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import TaskAssignor
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT
from konvene.groups.streams.assignors import read_configs
from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.groups.streams.classic.user_data import read_subscription_info
from konvene.groups.streams.current_assignment import Role
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KAFKA
from konvene.messages.streams_group_heartbeat import TaskOffset
from konvene.shard import causes
from konvene.sim.group_runtime import GroupRuntime
from konvene.sim.invariants.streams.classic_state import FIRST_VERSION_WITH_OFFSETS, STREAM
from konvene.sim.invariants.streams.decisions import is_accepted_heartbeat, joined_member_id
from konvene.sim.invariants.streams.state import Task, new_causes, previous_member, touched, units
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")

UNKNOWN_OFFSET = 2**63 - 1
"""Smallest offset that stands for an unknown one."""
HIGHLY_AVAILABLE = "highly_available"
"""Name of the assignor that uses warm-ups."""


class Report(NamedTuple):
    """The task offsets and changelog end offsets that a member reported last."""

    offsets: dict[Task, int]
    ends: dict[Task, int]
    reported_ms: int
    reports: bool
    """Whether the member is one that reports task offsets."""


class GroupReports:
    """The reports of a group's members to one coordinator, by member id."""

    def __init__(self, by_member: dict[str, Report] | None = None) -> None:
        self.by_member = by_member or {}

    def __repr__(self) -> str:
        return f"<reports of {sorted(self.by_member)}>"

    def may_report(self, group: StreamsGroup, process: str) -> bool:
        """Return True if a member of the process reports task offsets, or has sent no heartbeat yet and may
        report them."""
        ids = [member_id for member_id, member in group.members.items() if member.process_id == process]
        return any(i not in self.by_member or self.by_member[i].reports for i in ids)

    def remove(self, removed_id: str, group: StreamsGroup, remaining: Mapping[str, Member]) -> None:
        """Remove the report of the member `removed_id`; `remaining` are the members after its removal.

        If some of them are in the same process, the state on its disk remains: the removed report is merged
        into the latest report of those, unless the member is static and has returned under another id."""
        report, member = self.by_member.pop(removed_id), group.members.get(removed_id)
        candidates = [
            (other.reported_ms, member_id)
            for member_id, other in self.by_member.items()
            if member is not None
            and member_id in remaining
            and remaining[member_id].process_id == member.process_id
        ]
        returned = (
            member is not None
            and member.instance_id is not None
            and any(member.instance_id == other.instance_id for other in remaining.values())
        )
        if returned or not candidates or not (report.offsets or report.ends):
            return  # A static member that returns under another id sends its own report.
        heir = max(candidates)[1]
        last = self.by_member[heir]
        older, newer = sorted((report, last), key=lambda each: each.reported_ms)
        self.by_member[heir] = last._replace(
            offsets=older.offsets | newer.offsets, ends=older.ends | newer.ends
        )

    def has_caught_up(self, group: StreamsGroup, process: str, task: Task, lag: int) -> bool:
        """Return True if the copy of a task in a process is known to be behind by at most `lag`. The latest
        report counts; the end offset is the one in it, or else the largest one that any member reported."""
        reported = [
            (report.reported_ms, report.offsets[task], report.ends.get(task, -1))
            for member_id, report in self.by_member.items()
            if task in report.offsets
            and member_id in group.members
            and group.members[member_id].process_id == process
        ]
        if not reported:
            return False
        _, offset, end = max(reported)
        if end < 0:
            end = max((r.ends[task] for r in self.by_member.values() if task in r.ends), default=-1)
        return end >= 0 and end - offset <= lag


class ReportRecorder:
    """Recorder of the task offsets that members report to each coordinator, fed event by event."""

    def __init__(self) -> None:
        self._by_runtime: WeakKeyDictionary[GroupRuntime, dict[str, GroupReports]] = WeakKeyDictionary()

    def record(self, event: Event) -> dict[str, GroupReports]:
        """Record the reports in an event; return the reports that its coordinator has received so far, by
        group id."""
        groups = self._by_runtime.setdefault(event.runtime, {})
        if event.kind in ("loaded", "append failed"):
            groups.clear()
        if event.is_request("StreamsGroupHeartbeat") and event.changed:
            self._record_upgrade(event, groups)
        if is_accepted_heartbeat(event):
            reports = groups.setdefault(event.request.group_id, GroupReports())
            self._record_heartbeat(event, reports.by_member)
        if event.is_request("JoinGroup") and event.error is Errors.NONE:
            self._record_join(event, groups)
        if isinstance(event.news, EndsFound):
            self._record_ends(event, groups)
        if event.changed:
            for name in event.before.groups.keys() & groups.keys():
                group = event.after.groups.get(name)
                remaining: dict[str, Member] = group.members if isinstance(group, StreamsGroup) else {}
                for member_id in sorted(groups[name].by_member.keys() - remaining.keys()):
                    groups[name].remove(member_id, event.before.groups[name], remaining)
        return groups

    def _record_join(self, event: Event, groups: dict[str, GroupReports]) -> None:
        """Record the offsets of a member of the classic protocol, which sends no end offsets. Until they are
        found, its copies are assumed to lag as much as before."""
        name, member_id = event.request.group_id, joined_member_id(event)
        group, old = event.after.groups.get(name), event.before.groups.get(name)
        if not isinstance(group, StreamsGroup) or member_id not in group.members:
            return
        by_member = groups.setdefault(name, GroupReports()).by_member
        classic = group.members[member_id].classic
        assert classic is not None, f"{member_id} sent a JoinGroup, but uses the streams protocol"
        offsets, reports = reported_offsets(classic.protocols)
        last, before = by_member.get(member_id), None
        if isinstance(old, StreamsGroup):
            before = previous_member(old, group.members[member_id])
        ends = {}
        if last is not None and before is not None:
            for role, subtopology, partition in before.current.assigned.units():
                task = subtopology, partition
                comparable = task in last.ends and task in last.offsets and task in offsets
                if role is not Role.ACTIVE and comparable and last.offsets[task] <= offsets[task]:
                    ends[task] = offsets[task] + max(0, last.ends[task] - last.offsets[task])
        by_member[member_id] = Report(offsets, ends, event.context.now_ms, reports)

    def _record_upgrade(self, event: Event, groups: dict[str, GroupReports]) -> None:
        """Record the offsets in the last JoinGroup of each member of a group that became a streams group."""
        name = event.request.group_id
        group, old = event.after.groups.get(name), event.before.groups.get(name)
        if isinstance(old, ClassicGroup) and isinstance(group, StreamsGroup):
            by_member = groups.setdefault(name, GroupReports()).by_member
            for member_id in old.members.keys() & group.members.keys():
                if event.request.instance_id is not None and member_id == event.request.member_id:
                    continue  # The static member returns with the streams protocol and its own report.
                offsets, reports = reported_offsets(old.members[member_id].protocols)
                by_member[member_id] = Report(offsets, {}, event.context.now_ms, reports)

    def _record_ends(self, event: Event, groups: dict[str, GroupReports]) -> None:
        """Record the end offsets of changelogs that were found for a member of the classic protocol."""
        wanted = event.news.wanted
        group = event.after.groups.get(wanted.group_id)
        member = group.members.get(wanted.member_id) if isinstance(group, StreamsGroup) else None
        report = groups.get(wanted.group_id, GroupReports()).by_member.get(wanted.member_id)
        if member is None or member.classic is None or report is None:
            return
        ends = dict(report.ends)
        for task, partitions in wanted.tasks:
            ends.pop(task, None)
            if task in report.offsets and all(each in event.news.ends for each in partitions):
                ends[task] = sum(event.news.ends[each] for each in partitions)
        groups[wanted.group_id].by_member[wanted.member_id] = report._replace(ends=ends)

    def _record_heartbeat(self, event: Event, by_member: dict[str, Report]) -> None:
        request = event.request
        last, joins = by_member.get(request.member_id), request.member_epoch == 0
        if request.task_offsets:
            reports = True
        elif joins:
            reports = event.version > 0 and request.task_offsets is not None
        else:
            reports = event.version > 0 if last is None else last.reports
        if joins and request.instance_id is not None:
            old = event.before.groups.get(request.group_id)
            before = old.members.get(request.member_id) if isinstance(old, StreamsGroup) else None
            if before is not None and before.classic is not None:
                last = None  # The static member returns with the other protocol.
        offsets, ends, reported_ms, _ = last or Report({}, {}, 0, reports)
        if request.task_offsets is not None:
            offsets = _by_task(request.task_offsets)
        if request.task_end_offsets is not None:
            ends = _by_task(request.task_end_offsets)
        if request.task_offsets is not None or request.task_end_offsets is not None:
            reported_ms = event.context.now_ms
        by_member[request.member_id] = Report(offsets, ends, reported_ms, reports)


def reported_offsets(protocols: Iterable[tuple[str, bytes]]) -> tuple[dict[Task, int], bool]:
    """Return the offsets by task that a member of the classic protocol sent in the user data of `protocols`,
    without active tasks (they have none); and whether the version of that data includes offsets."""
    subscription = read_subscription(dict(protocols)[STREAM])
    info = read_subscription_info(subscription.user_data or b"")
    offsets = {task: offset for task, offset in info.offset_sums.items() if offset >= 0}
    return offsets, info.version >= FIRST_VERSION_WITH_OFFSETS


def _by_task(task_offsets: Iterable[TaskOffset]) -> dict[Task, int]:
    """Return the offsets of a heartbeat by task, without those that stand for an unknown offset."""
    return {(t.subtopology_id, t.partition): t.offset for t in task_offsets if 0 <= t.offset < UNKNOWN_OFFSET}


class TaskOffsetReportsAreKept(Invariant):
    """T13: the coordinator has the last report of each member, with its time, and the offsets of removed
    members whose process remains. After a load it has no reports."""

    def __init__(self) -> None:
        self.recorder = ReportRecorder()

    def after(self, event: Event) -> None:
        groups = self.recorder.record(event)
        if event.kind == "loaded":
            for group in event.after.groups.values():
                if isinstance(group, StreamsGroup):
                    ids = sorted(group.reported)
                    assert not ids, f"{group!r} was loaded with reports of {ids}"
        if not is_accepted_heartbeat(event):
            return
        group, member_id = event.after.groups[event.request.group_id], event.request.member_id
        by_member = groups[group.group_id].by_member
        expected, kept = by_member[member_id], group.reported.get(member_id)
        assert kept is not None, f"{group!r} has no report of {member_id}, which sent a heartbeat"
        report = (
            _valid_offsets(kept.offsets),
            _valid_offsets(kept.end_offsets),
            kept.reported_ms,
            kept.reports,
        )
        assert report == tuple(expected), f"{group!r}: {member_id} sent {expected}, kept is {report}"
        unknown = group.reported.keys() - by_member.keys()
        assert not unknown, f"{group!r} has reports of {sorted(unknown)}, which sent none"


def _valid_offsets(by_subtopology: Mapping[str, Mapping[int, int]]) -> dict[Task, int]:
    return {
        (name, p): offset
        for name, offsets in by_subtopology.items()
        for p, offset in offsets.items()
        if 0 <= offset < UNKNOWN_OFFSET
    }


class _Request(NamedTuple):
    """The inputs of a target assignment that is computed in the background."""

    reports: GroupReports
    before: StreamsGroup
    """The group before the request; the requesting member was reconciled afterwards."""
    group: StreamsGroup
    uses_warmups: bool


class WarmupsAreJustified(Invariant):
    """T4, T5: a member gets a warm-up task only if the assignor uses warm-ups, if the reports do not show
    that its process has caught up, and if it reports offsets or may do so.

    T15: if the assignor uses warm-ups, an active stateful task moves to another process only if that has
    caught up, or if no member of it reports offsets."""

    def __init__(self) -> None:
        self.recorder = ReportRecorder()
        self.requests: dict[tuple[str, int], _Request] = {}
        self.assignors: Mapping[str, TaskAssignor] = {}
        """The available assignors, if they are not the default ones."""

    def after(self, event: Event) -> None:
        groups = self.recorder.record(event)
        if event.context is not None:
            self.assignors = event.context.task_assignors or {}
        for effect in event.outcome.effects if event.outcome is not None else ():
            if effect.verb == COMPUTE_ASSIGNMENT:
                self._record_request(event, effect.subject, groups)
        for name, old, group in touched(event):
            if event.is_complete or old is None or old.assignment_epoch == group.assignment_epoch:
                continue
            if group.assignment_epoch != group.epoch or not group.members or group.state == "NotReady":
                continue
            if event.kind == "completion":
                request = self.requests.get((name, group.epoch))
                if request is not None and request.group.members.keys() == group.members.keys():
                    self._check_target(event, group, request)
            else:
                reports = groups.get(name) or GroupReports()
                uses_warmups = _uses_warmups(event, group, reports, self.assignors)
                self._check_target(event, group, _Request(reports, old, group, uses_warmups))

    def _record_request(self, event: Event, subject: Any, groups: dict[str, GroupReports]) -> None:
        name, epoch = subject.group_id, subject.epoch
        reports = GroupReports(dict(groups[name].by_member)) if name in groups else GroupReports()
        group, before = event.after.groups[name].copy(), event.before.groups.get(name)
        old = before.copy() if isinstance(before, StreamsGroup) else StreamsGroup(name)
        uses_warmups = _uses_warmups(event, group, reports, self.assignors)
        self.requests[name, epoch] = _Request(reports, old, group, uses_warmups)

    def _check_target(self, event: Event, group: StreamsGroup, request: _Request) -> None:
        assert group.topology is not None
        configs = read_configs(group.assignment_configs)
        lag, reports = configs.acceptable_recovery_lag, request.reports
        warmups = list(_target_tasks(group, Role.WARMUP))
        assert request.uses_warmups or not warmups, (
            f"{group!r}: the assignor uses no warm-ups, but the target has {warmups}"
        )
        if event.runtime.config["konvene.streams.mode"] != KAFKA and any(
            member.topology_epoch != group.topology_epoch for member in group.members.values()
        ):
            return  # Members with an older topology keep their tasks.
        for member_id, task in warmups:
            process = group.members[member_id].process_id
            caught_up = reports.has_caught_up(group, process, task, lag)
            assert not caught_up, f"{group!r}: {member_id} is to warm up {task}, but has caught up"
            may_report = reports.may_report(group, process)
            assert may_report, f"{group!r}: {member_id} is to warm up {task}, but reports no offsets"
        same_topology = request.before.topology == group.topology
        if request.uses_warmups and configs.num_warmup_replicas and same_topology:
            self._check_moves(request.before, group, reports, lag)

    def _check_moves(self, old: StreamsGroup, group: StreamsGroup, reports: GroupReports, lag: int) -> None:
        assert group.topology is not None
        owners = {}
        for member in group.members.values():
            before = previous_member(old, member)
            if before is not None:
                active = before.current.assigned.active
                owners.update({(name, p): member for name, partitions in active.items() for p in partitions})
        for member_id, task in _target_tasks(group, Role.ACTIVE):
            owner, process = owners.get(task), group.members[member_id].process_id
            if owner is None or owner.process_id == process or not group.topology.is_stateful(task[0]):
                continue
            allowed = reports.has_caught_up(group, process, task, lag)
            allowed = allowed or not reports.may_report(group, process)
            assert allowed, (
                f"{group!r}: {task} moves from {owner.member_id} to {member_id}, which has not caught up"
            )


class CaughtUpWarmupsBumpEpochs(Invariant):
    """T5, T13: a report that shows that a warm-up has caught up bumps the epoch, with that cause; so does a
    warm-up whose process reports no offsets. A warm-up in progress is no cause."""

    def __init__(self) -> None:
        self.recorder = ReportRecorder()

    def after(self, event: Event) -> None:
        groups = self.recorder.record(event)
        for name, old, group in touched(event):
            if event.is_complete or old is None:
                continue
            reports = groups.get(name) or GroupReports()
            lag = event.runtime.group_configs.of(name)["streams.acceptable.recovery.lag"]
            caught_up = [
                (member_id, task)
                for member_id, task in _current_warmups(old, group)
                if reports.has_caught_up(group, group.members[member_id].process_id, task, lag)
            ]
            silent = self._silent_members(old, group, reports)
            kinds = {cause.kind for cause in new_causes(event, old, group)}
            if causes.WARMUP_CAUGHT_UP in kinds:
                assert caught_up, f"{group!r}: the epoch moved for a warm-up, but none has caught up"
            elif group.epoch > old.epoch and kinds == {causes.MEMBER_METADATA_CHANGED}:
                assert silent or self._metadata_changed(old, group), (
                    f"{group!r}: the epoch moved for changed metadata, but none changed"
                )
            self._check_bump(event, old, group, caught_up, silent)

    def _check_bump(
        self,
        event: Event,
        old: StreamsGroup,
        group: StreamsGroup,
        caught_up: list[tuple[str, Task]],
        silent: list[str],
    ) -> None:
        """Check that an accepted heartbeat that did not bump the epoch did not have to.

        `caught_up` are the warm-ups that have caught up, as pairs of member id and task; `silent` are the
        members with warm-ups whose process reports no offsets."""
        if not is_accepted_heartbeat(event) or event.request.group_id != group.group_id:
            return
        if group.state == "NotReady" or group.soft.computing:
            return
        if old.epoch != group.epoch or old.assignment_epoch != group.epoch:
            return
        if event.request.member_epoch == 0:
            return  # The reports of a returning static member count from its next heartbeat on.
        request = event.request
        reported = {
            (t.subtopology_id, t.partition)
            for t in (*(request.task_offsets or ()), *(request.task_end_offsets or ()))
        }
        ignored = [(i, task) for i, task in caught_up if i == request.member_id or task in reported]
        assert not ignored, f"{group!r}: {ignored} have caught up, but the epoch did not move"
        process = group.members[request.member_id].process_id
        idle = [i for i in silent if group.members[i].process_id == process]
        assert not idle, f"{group!r}: {idle} warm up without reports, but the epoch did not move"

    def _metadata_changed(self, old: StreamsGroup, group: StreamsGroup) -> bool:
        pairs = [
            (before, m) for m in group.members.values() if (before := previous_member(old, m)) is not None
        ]
        return any(replace(m, current=before.current) != before for before, m in pairs)

    def _silent_members(self, old: StreamsGroup, group: StreamsGroup, reports: GroupReports) -> list[str]:
        """Return the members that warm up tasks and whose process reports no offsets."""
        ids = dict.fromkeys(member_id for member_id, _ in _current_warmups(old, group))
        return [i for i in ids if not reports.may_report(group, group.members[i].process_id)]


def _current_warmups(old: StreamsGroup, group: StreamsGroup) -> Iterator[tuple[str, Task]]:
    """Yield the warm-ups that members had before an event and that are in their target."""
    for member_id, member in old.members.items():
        if member_id in group.members:
            target = old.target_of(member_id).warmup
            for name, partitions in member.current.assigned.warmup.items():
                yield from ((member_id, (name, p)) for p in partitions if p in target.get(name, ()))


def _target_tasks(group: StreamsGroup, role: Role) -> Iterator[tuple[str, Task]]:
    """Yield the tasks of a role in all targets."""
    for member_id, target in group.targets.items():
        for each, name, partition in sorted(units(target)):
            if each is role:
                yield member_id, (name, partition)


def _uses_warmups(
    event: Event, group: StreamsGroup, reports: GroupReports, assignors: Mapping[str, TaskAssignor]
) -> bool:
    """Return True if the group's assignor is `HIGHLY_AVAILABLE`. If none is configured, that one is used if
    warm-ups are enabled, the topology has state, and a member may report offsets."""
    config = event.runtime.group_configs.of(group.group_id)
    name, topology = config["streams.assignor.name"], group.topology
    if name is None and config["streams.num.warmup.replicas"] > 0 and topology is not None:
        stateful = any(map(topology.is_stateful, topology.subtopologies))
        by_member = reports.by_member
        may_report = any(i not in by_member or by_member[i].reports for i in group.members)
        name = HIGHLY_AVAILABLE if stateful and may_report else None
    if name in assignors or not assignors:
        return bool(name == HIGHLY_AVAILABLE)
    return next(iter(assignors)) == HIGHLY_AVAILABLE
