"""Tasks that warm up, as the coordinator sees them: who reports, and when a target is out of date for it.

A task with state should move to a member that has the state already. Until then it stays where it is, and the
member that it is meant for warms it up (KIP-1071). Who warms up what is decided by an assignor; here it is
decided when it has to be asked again:

    a warm-up has caught up               the epoch moves: it becomes active, or a standby, or goes
    a member warms up a task, and it      the epoch moves: its catching up would never be heard of
    turns out that it does not report

Neither moves an epoch that is ahead of its target already: the next target knows of it. One that is computed
elsewhere may not, and then the next heartbeat sees that. An assignor that leaves a warm-up where it is though
it has caught up would be asked for ever: those that are built in do not, and of others it is taken away.

Who reports, by what it says of the offsets of its tasks:

    some                               it reports
    none (an empty list) as it joins   it reports, over version 1 and later: a disk with nothing on it
    null, or over version 0 none       it does not: that is how Java's clients before 4.4 join
    null later on                      as it was

What members report is kept beside the log. After a coordinator was loaded nothing is known, and who was not
heard yet counts as one that reports: else a task would go, with the next epoch, to a member that is only just
reading its state. Version 0 without offsets then says that the member does not report. Of later versions
nobody can tell: a member of version 1 that joined with null is waited for until it joins again.

Still ugly: a target that is computed elsewhere rests on what members had when that was begun. A task that
somebody took meanwhile, as the target before said, may go on at once to a member that is behind.
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
    "has_news",
    "leave_offsets",
    "reported_tasks",
    "take_offsets",
    "warmups_change",
]

FIRST_VERSION_THAT_REPORTS = 1

NOT_YET_REPORTED = Reported(reports=True)
"""The report of a member that has sent none since the coordinator was loaded."""

ReportedBy = Callable[[str], Reported | None]
News = tuple[str, Member, str | None]
"""A cause, the member, and the tasks that it is about."""


# --- who reports -----------------------------------------------------------------------------------


def take_offsets(decision: Decision, member_id: str, request: StreamsGroupHeartbeatRequest) -> None:
    """Set a member's report of its task offsets, and whether it reports at all.

    Raises `GroupError` for a duplicate task."""
    known = decision.reported_by(member_id)
    before, reports = known or NOTHING_REPORTED, _reports(decision, known, request)
    offsets, ends = request.task_offsets, request.task_end_offsets
    if offsets is None and ends is None:
        decision.report(member_id, before if before.reports == reports else replace(before, reports=reports))
        return
    check_offsets(request)
    report = Reported(
        before.offsets if offsets is None else _offsets(offsets),
        before.end_offsets if ends is None else _offsets(ends),
        decision.context.now_ms,
        reports,
    )
    decision.report(member_id, report)


def _reports(decision: Decision, known: Reported | None, request: StreamsGroupHeartbeatRequest) -> bool:
    may = decision.context.api_version >= FIRST_VERSION_THAT_REPORTS
    if request.task_offsets:
        return True
    if request.member_epoch == JOIN:
        return may and request.task_offsets is not None
    return may if known is None else known.reports


def _offsets(reported: tuple[TaskOffset, ...]) -> TaskOffsets:
    found: dict[str, dict[int, int]] = {}
    for each in reported:
        found.setdefault(each.subtopology_id, {})[each.partition] = each.offset
    return found


def leave_offsets(decision: Decision, departed: Member) -> None:
    """Keep the last report of a departed member, whose state is still on its process' disk: the member of
    that process that reported last takes it over, until its own next report."""
    report = decision.group.reported.get(departed.member_id)
    if report is None or not (report.offsets or report.end_offsets):
        return
    mates = [
        (known.reported_ms, name)
        for name, member in decision.group.members.items()
        if member.process_id == departed.process_id
        and name not in decision.departed
        and (known := decision.reported_by(name))
    ]
    if not mates:
        return
    _, name = max(mates)
    known = decision.reported_by(name) or NOTHING_REPORTED
    older, newer = sorted((report, known), key=lambda each: each.reported_ms)
    offsets = _merged(older.offsets, newer.offsets)
    ends = _merged(older.end_offsets, newer.end_offsets)
    decision.report(name, replace(known, offsets=offsets, end_offsets=ends))


def _merged(older: TaskOffsets, newer: TaskOffsets) -> TaskOffsets:
    return {name: {**older.get(name, {}), **newer.get(name, {})} for name in sorted({*older, *newer})}


# --- when a target is out of date ------------------------------------------------------------------


def reported_tasks(request: StreamsGroupHeartbeatRequest) -> set[Task]:
    """Return the tasks whose offsets a heartbeat reports."""
    reported = (request.task_offsets or ()) + (request.task_end_offsets or ())
    return {(each.subtopology_id, each.partition) for each in reported}


def warmups_change(decision: Decision, new: Member, about: Iterable[Task]) -> bool:
    """Whether the epoch has to move for what is known of warm-ups now; the cause is told then.

    `about`: the tasks of which the member says how far they are."""
    group = decision.group
    if not group.warmup or decision.soft.computing or group.epoch > group.assignment_epoch:
        return False
    found = _news(group, new, about, decision.reported_by, decision.config["streams.acceptable.recovery.lag"])
    news = [each for each in found if each[1].member_id not in decision.departed]
    for why, member, tasks in news:
        decision.cause(why, member, reason=tasks)
    return bool(news)


def has_news(group: StreamsGroup, member: Member, acceptable_lag: int) -> bool:
    """Whether the next heartbeat of a member would move the epoch, though it says nothing new."""
    return bool(group.warmup) and any(_news(group, member, (), group.reported.get, acceptable_lag))


def _news(
    group: StreamsGroup, new: Member, about: Iterable[Task], reported_by: ReportedBy, acceptable_lag: int
) -> Iterator[News]:
    """Why the target is out of date, by what a member said of these tasks and of those that it warms up.

    What others said they have been asked themselves: so a heartbeat is as dear as what it tells."""
    said = reported_by(new.member_id) or NOT_YET_REPORTED
    if not said.reports:
        yield from _waited_for_in_vain(group, new.process_id, reported_by)
    own = ((name, p) for name, some in new.current.assigned.warmup.items() for p in some)
    warming = {task: warm for task in {*about, *own} if (warm := _who_warms_up(group, task))}
    if not warming:
        return
    progress = _progress(group, warming, reported_by)
    caught_up: dict[str, tuple[Member, list[str]]] = {}
    for task in sorted(warming):
        for member in warming[task]:
            if progress.has_caught_up(member.process_id, task, acceptable_lag):
                caught_up.setdefault(member.member_id, (member, []))[1].append(f"{task[0]}_{task[1]}")
    for name in sorted(caught_up):
        member, tasks = caught_up[name]
        yield causes.WARMUP_CAUGHT_UP, member, ", ".join(tasks)


def _waited_for_in_vain(group: StreamsGroup, process_id: str, reported_by: ReportedBy) -> Iterator[News]:
    """Who warms something up in a process of which no member reports."""
    tasks = sorted((name, p) for name, there in group.warmup.items() for p in there)
    found = {
        member.member_id: member
        for task in tasks
        for member in _who_warms_up(group, task)
        if member.process_id == process_id
    }
    mates = (name for name, member in group.members.items() if member.process_id == process_id)
    if found and not any((reported_by(name) or NOT_YET_REPORTED).reports for name in mates):
        for name in sorted(found):
            yield causes.MEMBER_METADATA_CHANGED, found[name], None


def _who_warms_up(group: StreamsGroup, task: Task) -> list[Member]:
    """Who does, and is meant to."""
    name, partition = task
    holders = (group.members[each] for each in sorted(group.warmup.get(name, {}).get(partition, ())))
    return [
        member
        for member in holders
        if member.current.assigned.has(Role.WARMUP, name, partition)
        and partition in group.target_of(member.member_id).warmup.get(name, ())
    ]


def _progress(group: StreamsGroup, tasks: Collection[Task], reported_by: ReportedBy) -> Progress:
    """How far these tasks are, by what all members say."""
    return Progress.of(
        AssignmentMemberSpec(
            member.process_id, task_offsets=_of(said.offsets, tasks),
            task_end_offsets=_of(said.end_offsets, tasks), reported_ms=said.reported_ms,
        )
        for member in group.members.values()
        if (said := reported_by(member.member_id)) is not None and (said.offsets or said.end_offsets)
    )  # fmt: skip


def _of(offsets: TaskOffsets, tasks: Collection[Task]) -> TaskOffsets:
    found: dict[str, dict[int, int]] = {}
    for name, partition in tasks:
        if (offset := offsets.get(name, {}).get(partition)) is not None:
            found.setdefault(name, {})[partition] = offset
    return found
