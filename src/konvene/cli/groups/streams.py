"""What `konvene groups describe` shows of a streams group: what `kafka-streams-groups` shows, and who waits.

The tables have the columns of Kafka's tool, in its order; `--verbose` adds to them. Under a member stand its
warm-ups, each with how far it is, and whether its topology is older than the group's. `--topology` draws what
the coordinator knows of the topology from any broker; Kafka's tool needs a plugin in the broker for that.
Offsets are also shown of partitions that nobody reads at the moment: Kafka's tool shows none of an empty
group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.cli.groups.pending_tasks import Standing, as_kafka, of_itself, sentences, standings, stuck
from konvene.cli.groups.placement import of_places, places_document
from konvene.cli.groups.progress import Copy, copies_of, is_stale, of_group, of_member, warming_up
from konvene.cli.groups.topology import document as topology_document
from konvene.cli.groups.topology import drawn
from konvene.cli.output import Table
from konvene.client.admin.group_state import GroupState
from konvene.client.net.cluster import TopicPartition
from konvene.client.streams.tasks import Role, Task

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin, CommittedOffset
    from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription

__all__ = ["DescribedStreams", "describe", "document", "notes", "tables", "tree"]

REBALANCING = (GroupState.ASSIGNING, GroupState.RECONCILING)


class OffsetRow(NamedTuple):
    """A partition that the group reads, or has an offset of."""

    partition: TopicPartition
    committed: CommittedOffset | None
    log_end_offset: int | None
    earliest: int | None
    task: Task | None
    member: StreamsMemberDescription | None

    @property
    def lag(self) -> int | None:
        """Without an offset, all that there is."""
        if self.log_end_offset is None:
            return None
        since = self.committed.offset if self.committed else self.earliest
        return None if since is None else self.log_end_offset - since


class DescribedStreams(NamedTuple):
    group: StreamsGroupDescription
    offsets: list[OffsetRow]
    missing: tuple[str, ...]
    """Topics that the group waits for, where it is not ready."""


async def describe(admin: Admin, name: str, *, part: str) -> DescribedStreams | None:
    """All that a part needs to know; None where there is no such group, or the cluster has none at all."""
    from konvene.client.errors import KafkaError, UnsupportedVersion

    try:
        group = await admin.describe_streams_group(name, topology_description=part == "topology", owed=True)
    except UnsupportedVersion:
        return None
    except KafkaError as error:
        if error.name in ("GROUP_ID_NOT_FOUND", "UNSUPPORTED_VERSION"):
            return None
        raise
    rows = await _offsets(admin, group) if part == "offsets" else []
    missing: tuple[str, ...] = ()
    if group.state == GroupState.NOT_READY and group.topology is not None:
        wanted = {*group.topology.source_topics, *group.topology.internal_topics}
        found = (await admin.cluster.refresh(wanted)).topics
        missing = tuple(sorted(topic for topic in wanted if found[topic].error_code))
    return DescribedStreams(group, rows, missing)


async def _offsets(admin: Admin, group: StreamsGroupDescription) -> list[OffsetRow]:
    """Partitions that somebody reads first, then the others of the group's topics."""
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
    everything = sorted(readers.keys() | committed.keys())
    found = (await admin.cluster.refresh({tp.topic for tp in everything})).topics if everything else {}
    there = {TopicPartition(t, p.partition) for t in found for p in found[t].partitions if p.leader >= 0}
    existing = [tp for tp in everything if tp in there]
    ends = await admin.list_offsets(dict.fromkeys(existing, LATEST)) if existing else {}
    unread = [tp for tp in existing if tp not in committed]
    begins = await admin.list_offsets(dict.fromkeys(unread, EARLIEST)) if unread else {}
    rows = [
        OffsetRow(
            tp, committed.get(tp), ends[tp].offset if tp in ends else None,
            begins[tp].offset if tp in begins else None, *readers.get(tp, (None, None)),
        )
        for tp in everything
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row.member is None, row.partition))


def _readers(
    group: StreamsGroupDescription,
) -> dict[TopicPartition, tuple[Task, StreamsMemberDescription]]:
    """Who reads what, for which task."""
    reads = (
        {each.subtopology_id: each.reads for each in group.topology.subtopologies} if group.topology else {}
    )
    return {
        TopicPartition(topic, task.partition): (task, member)
        for member in group.members
        for task in member.assignment.active
        for topic in reads.get(task.subtopology, ())
    }


# as tables ------------------------------------------------------------------------------------


def tables(found: DescribedStreams, part: str, verbose: bool) -> list[Table]:
    """The part as tables. `topology` is none: see `tree`."""
    return _TABLES[part](found, verbose)


def tree(found: DescribedStreams) -> list[str]:
    """The topology's lines."""
    return drawn(found.group)


def _offsets_table(found: DescribedStreams, verbose: bool) -> list[Table]:
    group = found.group
    columns = ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"]
    if verbose:
        columns[3:] = ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG", "TASK", "MEMBER",
                       "CLIENT-ID"]  # fmt: skip
    rows = []
    for row in found.offsets:
        tp, at, m = row.partition, row.committed, row.member
        cells: list[Any] = [group.group_id, tp.topic, tp.partition]
        if verbose:
            epoch = at.leader_epoch if at and at.leader_epoch >= 0 else None
            cells += [at.offset if at else None, epoch, row.log_end_offset, row.lag, row.task]
            cells += [m.member_id, m.client_id] if m else [None, None]
        else:
            cells.append(row.lag)
        rows.append(cells)
    return [Table(columns if rows else (), rows, notes(found))]


def _members_table(found: DescribedStreams, verbose: bool) -> list[Table]:
    group = found.group
    if not verbose:
        columns = ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
        rows: list[list[Any]] = [
            [group.group_id, m.member_id, m.process_id, m.client_id, as_kafka(m.assignment)]
            for m in group.members
        ]
        under = [[*of_itself(m, group), *of_member(m, group)] for m in group.members]
        return [Table(columns if rows else (), rows, notes(found), under)]
    columns = [
        "GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH",
        "PROCESS", "CLIENT-ID", "GROUP-INSTANCE-ID", "HOST", "RACK", "ENDPOINT", "STATE", "ASSIGNMENTS",
    ]  # fmt: skip
    rows, details = [], []
    for each in standings(group):
        m = each.member
        both = f"{as_kafka(m.assignment)} {as_kafka(m.target, 'TARGET-')}".strip()
        rows.append(
            [
                group.group_id, group.assignment_epoch, m.topology_epoch, m.member_id,
                "classic" if m.is_classic else "streams", m.epoch, m.process_id, m.client_id, m.instance_id,
                m.client_host, m.rack_id, _endpoint(m), each.state, both,
            ]
        )  # fmt: skip
        details.append([*sentences(each, group), *of_member(m, group, verbose=True), *_of_itself(m)])
    return [Table(columns if rows else (), rows, notes(found), details)]


def _state_table(found: DescribedStreams, verbose: bool) -> list[Table]:
    group, coordinator = found.group, found.group.coordinator
    columns = ["GROUP", "COORDINATOR (ID)", "ASSIGNOR", "STATE"]
    where = f"{coordinator.host}:{coordinator.port} ({coordinator.id})"
    row: list[Any] = [group.group_id, where, group.assignor, group.state]
    if verbose:
        columns += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH"]
        row += [group.epoch, group.assignment_epoch, group.topology.epoch if group.topology else None]
    told = [*of_group(group), *of_places(group)]
    return [Table([*columns, "#MEMBERS"], [[*row, len(group.members)]], notes(found), [told])]


def _reconciliation_tables(found: DescribedStreams, verbose: bool) -> list[Table]:
    """The group's line, and a row for each member, whom others wait for first; under it, what is missing."""
    group = found.group
    state = _state_table(found, verbose=True)
    columns = (
        "MEMBER", "GROUP-INSTANCE-ID", "PROCESS", "HOST", "CLIENT-ID", "EPOCH", "STATE", "ASSIGNMENT",
        "TARGET",
    )  # fmt: skip
    rows, details = [], []
    for each in standings(group):
        m = each.member
        rows.append(
            (
                m.member_id, m.instance_id, m.process_id, m.client_host, m.client_id, m.epoch, each.state,
                as_kafka(m.assignment), as_kafka(m.target),
            )
        )  # fmt: skip
        more = (*of_member(m, group, verbose=True), *_of_itself(m)) if verbose else of_member(m, group)
        details.append([*sentences(each, group), *more])
    return [*state, Table(columns, rows, (), details)] if rows else state


_TABLES = {
    "offsets": _offsets_table, "members": _members_table, "state": _state_table,
    "reconciliation": _reconciliation_tables,
}  # fmt: skip


def _endpoint(m: StreamsMemberDescription) -> str | None:
    return None if m.endpoint is None else f"{m.endpoint[0]}:{m.endpoint[1]}"


def _of_itself(m: StreamsMemberDescription) -> list[str]:
    """What a member told of itself: its tags, and how far its tasks have come."""
    told = []
    if m.tags:
        told.append("tags: " + ", ".join(f"{key}={value}" for key, value in sorted(m.tags.items())))
    if m.task_offsets or m.task_end_offsets:
        tasks = sorted({*m.task_offsets, *m.task_end_offsets}, key=lambda task: task.sort_key)
        told.append("task offsets: " + ", ".join(_progress(m, task) for task in tasks))
    return told


def _progress(m: StreamsMemberDescription, task: Task) -> str:
    at, end = m.task_offsets.get(task), m.task_end_offsets.get(task)
    if end is None:
        return f"{task} at {at}"
    return f"{task} at {'?' if at is None else at} of {end}"


def notes(found: DescribedStreams) -> list[str]:
    """What is said beside every part."""
    group = found.group
    if group.state == GroupState.EMPTY:
        return [f"Streams group '{group.group_id}' has no active members."]
    if group.state == GroupState.NOT_READY:
        if found.missing:
            why = f"there is no topic {', '.join(found.missing)}"
        else:
            why = "its topics do not fit each other, or its first assignment has yet to come"
        return [f"Warning: Streams group '{group.group_id}' is not ready: {why}."]
    if group.state in REBALANCING:
        return [f"Warning: Streams group '{group.group_id}' is rebalancing.", *stuck(group)]
    return []


# as JSON --------------------------------------------------------------------------------------


def document(found: DescribedStreams, part: str | None) -> dict[str, Any]:
    """What is known of a group; parts as for other groups, and the topology where it was asked for."""
    g = found.group
    out: dict[str, Any] = {
        "group": g.group_id,
        "type": g.type,
        "state": g.state,
        "assignor": g.assignor or None,
        "epoch": g.epoch,
        "assignment_epoch": g.assignment_epoch,
        "topology_epoch": g.topology.epoch if g.topology else None,
        "coordinator": {"id": g.coordinator.id, "host": g.coordinator.host, "port": g.coordinator.port},
        "member_count": len(g.members),
        "warmups": warming_up(g),
        "num_warmup_replicas": g.num_warmup_replicas,
        "acceptable_recovery_lag": g.acceptable_recovery_lag,
        "stale_member_count": sum(is_stale(m, g) for m in g.members),
        "classic_member_count": sum(m.is_classic for m in g.members),
        "placement": places_document(g),
    }
    if g.state == GroupState.NOT_READY:
        out["missing_topics"] = list(found.missing)
    if part == "topology":
        out["topology"] = topology_document(g)
    if part in (None, "members", "reconciliation"):
        out["members"] = [_member(each, g) for each in standings(g)]
    if part in (None, "offsets"):
        out["offsets"] = [_offset(row) for row in found.offsets]
    return out


def _offset(row: OffsetRow) -> dict[str, Any]:
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


def _member(standing: Standing, group: StreamsGroupDescription) -> dict[str, Any]:
    m = standing.member
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
        "state": standing.state,
        "assignment": _roles(m.assignment.units()),
        "target_assignment": _roles(m.target.units()),
        "task_offsets": {str(task): offset for task, offset in m.task_offsets.items()},
        "task_end_offsets": {str(task): offset for task, offset in m.task_end_offsets.items()},
        "reports_offsets": None if group.silent is None else m.member_id not in group.silent,
        "progress": [_copy(each) for each in copies_of(m, group)],
        "to_release": _with_whom("wanted_by", standing.releases),
        "waits_for": _with_whom("held_by", standing.waits),
    }


def _copy(copy: Copy) -> dict[str, Any]:
    return {
        "task": str(copy.task),
        "role": copy.role.value,
        "offset": copy.offset,
        "end_offset": copy.end,
        "lag": copy.lag,
        "caught_up": copy.caught_up,
        "active_on": copy.runs_it.member_id if copy.runs_it is not None else None,
    }


def _roles(units: Iterable[tuple[Role, Task]]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {role.value: [] for role in Role}
    for role, task in units:
        out[role.value].append(str(task))
    return out


def _with_whom(
    word: str, units: Mapping[tuple[Role, Task], tuple[StreamsMemberDescription, ...]]
) -> list[dict[str, Any]]:
    return [
        {"role": role.value, "task": str(task), word: [each.member_id for each in others]}
        for (role, task), others in units.items()
    ]
