"""Warm-up tasks of a streams group: members' offset reports, and when they require a new target assignment.

A stateful task should move to a member that already has its state. Until then it stays with its owner, and
the next owner warms it up (KIP-1071). Assignors decide on warm-ups; this module decides when an assignor has
to run again, because the target is outdated. It bumps the epoch

    when a warm-up has caught up              the assignor makes it active or a standby, or removes it
    when a heartbeat shows that a member      nothing would report that its warm-up has caught up
    with a warm-up reports no offsets

An epoch that is already ahead of the target's is not bumped: the next target considers the reports. If its
computation outside the core has begun before, it does not, and the next heartbeat bumps the epoch. An
assignor that keeps warm-ups after they caught up would be run forever; the built-in ones do not, and those of
third-party assignors are removed.

Whether a member reports offsets follows from the task offsets of its heartbeats:

    some offsets                          it reports
    an empty list when it joins           it reports (version 1 and later): it has no state on disk
    null, or an empty list in version 0   it does not report: Java clients before 4.4 join like this
    null in later heartbeats              unchanged

Reports are not in the log. After the coordinator was loaded they are unknown, and members are treated as
reporting until their first heartbeat: otherwise the next epoch would move tasks to members that are still
restoring. Version 0 without offsets then means that the member does not report. In later versions this is
undecidable: a member of version 1 that joined with null is treated as reporting until it joins
again.

Limitation: a target that is computed outside the core depends on the tasks that members had at its start. A
task that a member got meanwhile, by the previous target, may move on at once to a member that lags.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from konvene.groups.assignors.tasks.contract import AssignmentMemberSpec, TaskOffsets
from konvene.groups.assignors.tasks.lags import Progress, Task
from konvene.groups.modern.group import JOIN
from konvene.groups.streams.current_assignment import Role
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import NOTHING_REPORTED, Member, Reported, StreamsGroup
from konvene.groups.streams.validate import check_offsets
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskOffset
from konvene.shard import causes

__all__ = [
    "NOT_YET_REPORTED",
    "add_warmup_causes",
    "hand_over_report",
    "reported_tasks",
    "update_report",
    "would_bump_epoch",
]

FIRST_VERSION_THAT_REPORTS = 1

NOT_YET_REPORTED = Reported(reports=True)
"""The report of a member that has sent none since the coordinator was loaded."""

ReportedBy = Callable[[str], Reported | None]
OutdatedTarget = tuple[str, Member, str | None]
"""The reason why a target is outdated: a cause (`shard.causes`), the member, and its tasks as a text."""


# --- reports ---------------------------------------------------------------------------------------


def update_report(decision: Decision, member_id: str, request: StreamsGroupHeartbeatRequest) -> None:
    """Update a member's report by the offsets of a heartbeat, and whether the member reports offsets at all.

    Raises `GroupError` if a task has two offsets.
    """
    known = decision.reported_by(member_id)
    last, reports = known or NOTHING_REPORTED, _reports(decision, known, request)
    offsets, ends = request.task_offsets, request.task_end_offsets
    if offsets is None and ends is None:
        decision.report(member_id, last if last.reports == reports else replace(last, reports=reports))
        return
    check_offsets(request)
    report = Reported(
        last.offsets if offsets is None else _offsets(offsets),
        last.end_offsets if ends is None else _offsets(ends),
        decision.context.now_ms,
        reports,
    )
    decision.report(member_id, report)


def _reports(decision: Decision, known: Reported | None, request: StreamsGroupHeartbeatRequest) -> bool:
    can_report = decision.context.api_version >= FIRST_VERSION_THAT_REPORTS
    if request.task_offsets:
        return True
    if request.member_epoch == JOIN:
        return can_report and request.task_offsets is not None
    return can_report if known is None else known.reports


def _offsets(reported: tuple[TaskOffset, ...]) -> TaskOffsets:
    found: dict[str, dict[int, int]] = {}
    for each in reported:
        found.setdefault(each.subtopology_id, {})[each.partition] = each.offset
    return found


def hand_over_report(decision: Decision, departed: Member) -> None:
    """Merge the last report of a departed member into that of another member of its process.

    The state of the departed member is still on the disk of the process. The report goes to the member of the
    process that reported last, until that member's next report replaces it.
    """
    report = decision.group.reported.get(departed.member_id)
    if report is None or not (report.offsets or report.end_offsets):
        return
    members_of_process = [
        (known.reported_ms, name)
        for name, member in decision.group.members.items()
        if member.process_id == departed.process_id
        and name not in decision.departed
        and (known := decision.reported_by(name))
    ]
    if not members_of_process:
        return
    _, name = max(members_of_process)
    known = decision.reported_by(name) or NOTHING_REPORTED
    older, newer = sorted((report, known), key=lambda each: each.reported_ms)
    offsets = _merged(older.offsets, newer.offsets)
    ends = _merged(older.end_offsets, newer.end_offsets)
    decision.report(name, replace(known, offsets=offsets, end_offsets=ends))


def _merged(older: TaskOffsets, newer: TaskOffsets) -> TaskOffsets:
    return {name: {**older.get(name, {}), **newer.get(name, {})} for name in sorted({*older, *newer})}


# --- outdated targets ------------------------------------------------------------------------------


def reported_tasks(request: StreamsGroupHeartbeatRequest) -> set[Task]:
    """Return the tasks whose offsets a heartbeat reports."""
    reported = (request.task_offsets or ()) + (request.task_end_offsets or ())
    return {(each.subtopology_id, each.partition) for each in reported}


def add_warmup_causes(decision: Decision, new: Member, reported: Iterable[Task]) -> bool:
    """Add the causes of an epoch bump by the progress of warm-ups; return whether there are any.

    `reported`: tasks whose offsets the heartbeat reports.
    """
    group = decision.group
    if not group.warmup or decision.soft.computing or group.epoch > group.assignment_epoch:
        return False
    found = _outdated_targets(
        group, new, reported, decision.reported_by, decision.config["streams.acceptable.recovery.lag"]
    )
    causes_found = [row for row in found if row[1].member_id not in decision.departed]
    for kind, member, tasks in causes_found:
        decision.cause(kind, member, reason=tasks)
    return bool(causes_found)


def would_bump_epoch(group: StreamsGroup, member: Member, acceptable_lag: int) -> bool:
    """Return whether the next heartbeat of a member will bump the epoch even if it reports no new offsets."""
    return bool(group.warmup) and any(
        _outdated_targets(group, member, (), group.reported.get, acceptable_lag)
    )


def _outdated_targets(
    group: StreamsGroup,
    member: Member,
    reported: Iterable[Task],
    reported_by: ReportedBy,
    acceptable_lag: int,
) -> Iterator[OutdatedTarget]:
    """Yield the reasons why the target is outdated, as far as they can follow from a member's heartbeat.

    These concern the tasks that it reports, its own warm-ups, and whether it reports at all. All others were
    checked at the heartbeats of other members.
    """
    report = reported_by(member.member_id) or NOT_YET_REPORTED
    if not report.reports:
        yield from _warmups_without_reports(group, member.process_id, reported_by)
    own = (
        (name, partition)
        for name, partitions in member.current.assigned.warmup.items()
        for partition in partitions
    )
    warmups = {task: members for task in {*reported, *own} if (members := _warming_members(group, task))}
    if not warmups:
        return
    progress = _progress(group, warmups, reported_by)
    caught_up: dict[str, tuple[Member, list[str]]] = {}
    for task in sorted(warmups):
        for holder in warmups[task]:
            if progress.has_caught_up(holder.process_id, task, acceptable_lag):
                caught_up.setdefault(holder.member_id, (holder, []))[1].append(f"{task[0]}_{task[1]}")
    for name in sorted(caught_up):
        holder, tasks = caught_up[name]
        yield causes.WARMUP_CAUGHT_UP, holder, ", ".join(tasks)


def _warmups_without_reports(
    group: StreamsGroup, process_id: str, reported_by: ReportedBy
) -> Iterator[OutdatedTarget]:
    """Yield the members of a process that have warm-ups, if no member of the process reports offsets."""
    tasks = sorted((name, p) for name, by_partition in group.warmup.items() for p in by_partition)
    found = {
        member.member_id: member
        for task in tasks
        for member in _warming_members(group, task)
        if member.process_id == process_id
    }
    mates = (name for name, member in group.members.items() if member.process_id == process_id)
    if found and not any((reported_by(name) or NOT_YET_REPORTED).reports for name in mates):
        for name in sorted(found):
            yield causes.MEMBER_METADATA_CHANGED, found[name], None


def _warming_members(group: StreamsGroup, task: Task) -> list[Member]:
    """Return the members that have a task as warm-up both currently and in their targets."""
    name, partition = task
    holders = (group.members[each] for each in sorted(group.warmup.get(name, {}).get(partition, ())))
    return [
        member
        for member in holders
        if member.current.assigned.has(Role.WARMUP, name, partition)
        and partition in group.target_of(member.member_id).warmup.get(name, ())
    ]


def _progress(group: StreamsGroup, tasks: Collection[Task], reported_by: ReportedBy) -> Progress:
    """Return the progress of the copies of these tasks, from the reports of all members."""
    return Progress.of(
        AssignmentMemberSpec(
            member.process_id, task_offsets=_offsets_of_tasks(report.offsets, tasks),
            task_end_offsets=_offsets_of_tasks(report.end_offsets, tasks), reported_ms=report.reported_ms,
        )
        for member in group.members.values()
        if (report := reported_by(member.member_id)) is not None and (report.offsets or report.end_offsets)
    )  # fmt: skip


def _offsets_of_tasks(offsets: TaskOffsets, tasks: Collection[Task]) -> TaskOffsets:
    found: dict[str, dict[int, int]] = {}
    for name, partition in tasks:
        if (offset := offsets.get(name, {}).get(partition)) is not None:
            found.setdefault(name, {})[partition] = offset
    return found
