"""Tables and JSON of `konvene groups describe` for streams groups.

The tables have the columns of `kafka-streams-groups`, in its order; `--verbose` adds columns. Below a member
are its warm-ups with their progress, and whether its topology is older than the group's. `--topology` draws
the topology that the coordinator has, for any broker; Kafka's tool needs a plugin in the broker for that.
Offsets are shown also for partitions that no member reads at the moment; Kafka's tool shows none for an empty
group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from konvene.cli.groups.overview import (
    coordinator_cell,
    group_document,
    heartbeat_cells,
    heartbeat_columns,
    heartbeats_document,
)
from konvene.cli.groups.placement import describe_placement, placement_document
from konvene.cli.groups.topology import document as topology_document
from konvene.cli.groups.topology import tree_lines
from konvene.cli.output import Table
from konvene.client.admin.any_group import described_or_none
from konvene.client.admin.group_state import GroupState
from konvene.client.admin.pending_tasks import (
    Progress,
    blocking_members,
    describe_progress,
    describe_protocol,
    format_assignment,
    member_progress,
)
from konvene.client.admin.restore_progress import (
    TaskProgress,
    describe_group_progress,
    describe_task_progress,
    is_stale,
    task_progress,
    warmup_count,
)
from konvene.client.net.cluster import TopicPartition
from konvene.client.streams.tasks import Role, Task

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin, CommittedOffset
    from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription

__all__ = ["DescribedStreams", "describe", "document", "notes", "tables", "tree"]

REBALANCING = (GroupState.ASSIGNING, GroupState.RECONCILING)


class OffsetRow(NamedTuple):
    """A partition that the group reads, or has a committed offset for."""

    partition: TopicPartition
    committed: CommittedOffset | None
    log_end_offset: int | None
    earliest: int | None
    task: Task | None
    member: StreamsMemberDescription | None

    @property
    def lag(self) -> int | None:
        """Return the number of records after the committed offset, or of all records if there is none."""
        if self.log_end_offset is None:
            return None
        since = self.committed.offset if self.committed else self.earliest
        return None if since is None else self.log_end_offset - since


class DescribedStreams(NamedTuple):
    group: StreamsGroupDescription
    offsets: list[OffsetRow]
    missing_topics: tuple[str, ...]
    """Topics of the topology that do not exist, if the group is not ready."""


async def describe(admin: Admin, name: str, *, part: str, verbose: bool) -> DescribedStreams | None:
    """Describe a streams group, and request what the table `part` (such as `offsets`) shows in addition; None
    if there is no such streams group."""
    group = await described_or_none(
        admin.describe_streams_group(
            name,
            topology_description=part == "topology",
            pending_revocations=True,
            heartbeats=verbose,
        )
    )
    if group is None:
        return None
    rows = await _offsets(admin, group) if part == "offsets" else []
    missing: tuple[str, ...] = ()
    if group.state == GroupState.NOT_READY and group.topology is not None:
        needed = {*group.topology.source_topics, *group.topology.internal_topics}
        found = (await admin.cluster.refresh(needed)).topics
        missing = tuple(sorted(topic for topic in needed if found[topic].error_code))
    return DescribedStreams(group, rows, missing)


async def _offsets(admin: Admin, group: StreamsGroupDescription) -> list[OffsetRow]:
    """Return the rows of `--offsets`: partitions that a member reads, then the others with a committed
    offset."""
    from konvene.client.consumer.fetch import EARLIEST, LATEST

    readers = _readers(group)
    sources = (
        {topic for each in group.topology.subtopologies for topic in each.reads} if group.topology else ()
    )
    committed = {
        tp: at
        for tp, at in (await admin.committed_offsets(group.group_id)).items()
        if not sources or tp.topic in sources
    }
    partitions = sorted(readers.keys() | committed.keys())
    found = (await admin.cluster.refresh({tp.topic for tp in partitions})).topics if partitions else {}
    with_leader = {
        TopicPartition(t, p.partition) for t in found for p in found[t].partitions if p.leader >= 0
    }
    existing = [tp for tp in partitions if tp in with_leader]
    ends = await admin.list_offsets(dict.fromkeys(existing, LATEST)) if existing else {}
    uncommitted = [tp for tp in existing if tp not in committed]
    begins = await admin.list_offsets(dict.fromkeys(uncommitted, EARLIEST)) if uncommitted else {}
    rows = [
        OffsetRow(
            tp, committed.get(tp), ends[tp].offset if tp in ends else None,
            begins[tp].offset if tp in begins else None, *readers.get(tp, (None, None)),
        )
        for tp in partitions
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row.member is None, row.partition))


def _readers(
    group: StreamsGroupDescription,
) -> dict[TopicPartition, tuple[Task, StreamsMemberDescription]]:
    """Return, for each partition that is read, its task and the member that runs it."""
    reads = (
        {each.subtopology_id: each.reads for each in group.topology.subtopologies} if group.topology else {}
    )
    return {
        TopicPartition(topic, task.partition): (task, member)
        for member in group.members
        for task in member.assignment.active
        for topic in reads.get(task.subtopology, ())
    }


# tables ---------------------------------------------------------------------------------------


def tables(described: DescribedStreams, part: str, verbose: bool) -> list[Table]:
    """Return the tables of a part of the description. The topology is no table: `tree` draws it."""
    return _TABLES[part](described, verbose)


def tree(described: DescribedStreams) -> list[str]:
    """Return the lines of the topology as a tree."""
    return tree_lines(described.group)


def _offsets_table(described: DescribedStreams, verbose: bool) -> list[Table]:
    group = described.group
    columns = ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"]
    if verbose:
        columns[3:] = ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG", "TASK", "MEMBER",
                       "CLIENT-ID"]  # fmt: skip
    rows = []
    for row in described.offsets:
        tp, at, m = row.partition, row.committed, row.member
        cells: list[object] = [group.group_id, tp.topic, tp.partition]
        if verbose:
            epoch = at.leader_epoch if at and at.leader_epoch >= 0 else None
            cells += [at.offset if at else None, epoch, row.log_end_offset, row.lag, row.task]
            cells += [m.member_id, m.client_id] if m else [None, None]
        else:
            cells.append(row.lag)
        rows.append(cells)
    return [Table(columns if rows else (), rows, notes(described))]


def _members_table(described: DescribedStreams, verbose: bool) -> list[Table]:
    group = described.group
    if not verbose:
        columns = ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
        rows: list[list[object]] = [
            [group.group_id, m.member_id, m.process_id, m.client_id, format_assignment(m.assignment)]
            for m in group.members
        ]
        details = [[*describe_protocol(m, group), *describe_task_progress(m, group)] for m in group.members]
        return [Table(columns if rows else (), rows, notes(described), details)]
    columns = [
        "GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH",
        "PROCESS", "CLIENT-ID", "GROUP-INSTANCE-ID", "HOST", "RACK", "ENDPOINT", "STATE", "ASSIGNMENTS",
        *heartbeat_columns(group),
    ]  # fmt: skip
    rows, details = [], []
    for each in member_progress(group):
        m = each.member
        both = f"{format_assignment(m.assignment)} {format_assignment(m.target, 'TARGET-')}".strip()
        rows.append(
            [
                group.group_id, group.assignment_epoch, m.topology_epoch, m.member_id,
                "classic" if m.is_classic else "streams", m.epoch, m.process_id, m.client_id, m.instance_id,
                m.client_host, m.rack_id, _endpoint(m), each.state, both,
                *heartbeat_cells(group, m.heartbeats),
            ]
        )  # fmt: skip
        details.append(
            [*describe_progress(each, group), *describe_task_progress(m, group, verbose=True), *_reported(m)]
        )
    return [Table(columns if rows else (), rows, notes(described), details)]


def _state_table(described: DescribedStreams, verbose: bool) -> list[Table]:
    group = described.group
    columns = ["GROUP", "COORDINATOR (ID)", "ASSIGNOR", "STATE"]
    row: list[object] = [group.group_id, coordinator_cell(group), group.assignor, group.state]
    if verbose:
        columns += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH"]
        row += [group.epoch, group.assignment_epoch, group.topology.epoch if group.topology else None]
    lines = [*describe_group_progress(group), *describe_placement(group)]
    return [Table([*columns, "#MEMBERS"], [[*row, len(group.members)]], notes(described), [lines])]


def _reconciliation_tables(described: DescribedStreams, verbose: bool) -> list[Table]:
    """Return two tables: the state of the group; and a row for each member, blocking ones first, with its
    progress in the lines below."""
    group = described.group
    state = _state_table(described, verbose=True)
    columns = (
        "MEMBER", "GROUP-INSTANCE-ID", "PROCESS", "HOST", "CLIENT-ID", "EPOCH", "STATE", "ASSIGNMENT",
        "TARGET",
    )  # fmt: skip
    rows, details = [], []
    for each in member_progress(group):
        m = each.member
        rows.append(
            (
                m.member_id, m.instance_id, m.process_id, m.client_host, m.client_id, m.epoch, each.state,
                format_assignment(m.assignment), format_assignment(m.target),
            )
        )  # fmt: skip
        more = (
            (*describe_task_progress(m, group, verbose=True), *_reported(m))
            if verbose
            else describe_task_progress(m, group)
        )
        details.append([*describe_progress(each, group), *more])
    return [*state, Table(columns, rows, (), details)] if rows else state


_TABLES = {
    "offsets": _offsets_table, "members": _members_table, "state": _state_table,
    "reconciliation": _reconciliation_tables,
}  # fmt: skip


def _endpoint(m: StreamsMemberDescription) -> str | None:
    return None if m.endpoint is None else f"{m.endpoint[0]}:{m.endpoint[1]}"


def _reported(m: StreamsMemberDescription) -> list[str]:
    """Return lines with the client tags and the task offsets that a member reports."""
    lines = []
    if m.tags:
        lines.append("tags: " + ", ".join(f"{key}={value}" for key, value in sorted(m.tags.items())))
    if m.task_offsets or m.task_end_offsets:
        tasks = sorted({*m.task_offsets, *m.task_end_offsets}, key=lambda task: task.sort_key)
        lines.append("task offsets: " + ", ".join(_progress(m, task) for task in tasks))
    return lines


def _progress(m: StreamsMemberDescription, task: Task) -> str:
    at, end = m.task_offsets.get(task), m.task_end_offsets.get(task)
    if end is None:
        return f"{task} at {at}"
    return f"{task} at {'?' if at is None else at} of {end}"


def notes(described: DescribedStreams) -> list[str]:
    """Return the notes to print with every part of the description: that the group is empty, not ready or
    rebalancing."""
    group = described.group
    if group.state == GroupState.EMPTY:
        return [f"Streams group '{group.group_id}' has no active members."]
    if group.state == GroupState.NOT_READY:
        if described.missing_topics:
            why = f"missing topics: {', '.join(described.missing_topics)}"
        else:
            why = "its topics are incorrectly partitioned, or its first assignment is delayed"
        return [f"Warning: Streams group '{group.group_id}' is not ready: {why}."]
    if group.state in REBALANCING:
        return [f"Warning: Streams group '{group.group_id}' is rebalancing.", *blocking_members(group)]
    return []


# JSON -----------------------------------------------------------------------------------------


def document(described: DescribedStreams, part: str | None) -> dict[str, object]:
    """Return the description as a JSON document. It includes `offsets`, `members` or `topology` if `part`
    selects that field; `offsets` and `members` if `part` is None."""
    g = described.group
    out = group_document(g, topology_epoch=g.topology.epoch if g.topology else None) | {
        "warmups": warmup_count(g),
        "num_warmup_replicas": g.num_warmup_replicas,
        "acceptable_recovery_lag": g.acceptable_recovery_lag,
        "stale_member_count": sum(is_stale(m, g) for m in g.members),
        "classic_member_count": sum(m.is_classic for m in g.members),
        "placement": placement_document(g),
    }
    if g.state == GroupState.NOT_READY:
        out["missing_topics"] = list(described.missing_topics)
    if part == "topology":
        out["topology"] = topology_document(g)
    if part in (None, "members", "reconciliation"):
        out["members"] = [_member(each, g) for each in member_progress(g)]
    if part in (None, "offsets"):
        out["offsets"] = [_offset(row) for row in described.offsets]
    return out


def _offset(row: OffsetRow) -> dict[str, object]:
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "current_offset": row.committed.offset if row.committed else None,
        "leader_epoch": row.committed.leader_epoch if row.committed else None,
        "metadata": row.committed.metadata if row.committed else None,
        "log_end_offset": row.log_end_offset,
        "lag": row.lag,
        "task": str(row.task) if row.task else None,
        "member_id": row.member.member_id if row.member else None,
        "client_id": row.member.client_id if row.member else None,
    }


def _member(progress: Progress, group: StreamsGroupDescription) -> dict[str, object]:
    m = progress.member
    return {
        "member_id": m.member_id,
        "instance_id": m.instance_id,
        "client_id": m.client_id,
        "client_host": m.client_host,
        "process_id": m.process_id,
        "rack_id": m.rack_id,
        "endpoint": _endpoint(m),
        "tags": dict(m.tags),
        "protocol": "classic" if m.is_classic else "streams",
        "epoch": m.epoch,
        "topology_epoch": m.topology_epoch,
        "stale": is_stale(m, group),
        "state": progress.state,
        "assignment": _roles(m.assignment.units()),
        "target_assignment": _roles(m.target.units()),
        "task_offsets": {str(task): offset for task, offset in m.task_offsets.items()},
        "task_end_offsets": {str(task): offset for task, offset in m.task_end_offsets.items()},
        "reports_offsets": None if group.not_reporting is None else m.member_id not in group.not_reporting,
        "progress": [_task(each) for each in task_progress(m, group)],
        "to_release": _units_with("wanted_by", progress.revocations),
        "waits_for": _units_with("held_by", progress.waits),
        **heartbeats_document(m.heartbeats),
    }


def _task(progress: TaskProgress) -> dict[str, object]:
    active = progress.active_member
    return {
        "task": str(progress.task),
        "role": progress.role.value,
        "offset": progress.offset,
        "end_offset": progress.end,
        "lag": progress.lag,
        "caught_up": progress.caught_up,
        "active_on": active.member_id if active is not None else None,
    }


def _roles(units: Iterable[tuple[Role, Task]]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {role.value: [] for role in Role}
    for role, task in units:
        out[role.value].append(str(task))
    return out


def _units_with(
    key: str, units: Mapping[tuple[Role, Task], tuple[StreamsMemberDescription, ...]]
) -> list[dict[str, object]]:
    return [
        {"role": role.value, "task": str(task), key: [each.member_id for each in members]}
        for (role, task), members in units.items()
    ]
