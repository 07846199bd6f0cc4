"""`konvene groups describe`: offsets and lag, members, state and reconciliation of groups.

The tables have the columns of Kafka's tools. `--reconciliation` adds how far each member of a consumer or
streams group is from its target and which members it waits for. A member that blocks others is also named in
a note on standard error in every other table.

`cli.groups.streams` and `cli.groups.share` have the tables of streams and share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import click

from konvene.cli.groups.overview import (
    coordinator_cell,
    group_document,
    heartbeat_cells,
    heartbeat_columns,
    heartbeats_document,
)
from konvene.cli.groups.selection import GroupSelection, no_group, several_groups
from konvene.cli.options import Connect, cluster_options, json_option, run
from konvene.cli.output import Table, note, print_json, print_tables, text_of
from konvene.cli.watch import Screen, WatchCommand, repeat, watch_option
from konvene.client.admin.pending_partitions import (
    blocking_members,
    describe_progress,
    format_partitions,
    member_progress,
)

if TYPE_CHECKING:
    from konvene.cli.groups.share import DescribedShare
    from konvene.cli.groups.streams import DescribedStreams
    from konvene.client.admin.admin import Admin, CommittedOffset, GroupDescription, MemberDescription
    from konvene.client.admin.pending_partitions import Progress
    from konvene.client.admin.streams_groups import StreamsGroupDescription
    from konvene.client.net.cluster import TopicPartition

    AnyDescribed: TypeAlias = "Described | DescribedShare | DescribedStreams"

_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@click.command(cls=WatchCommand)
@several_groups("Describe")
@click.option("--offsets", "part", flag_value="offsets", help="Offsets and lag by partition (default).")
@click.option("--members", "part", flag_value="members", help="Members and their number of partitions.")
@click.option("--state", "part", flag_value="state", help="Coordinator, assignor and state.")
@click.option(
    "--reconciliation",
    "part",
    flag_value="reconciliation",
    help="Progress of each member of a consumer or streams group towards its target assignment, and the "
    "members that it is waiting for.",
)
@click.option("--topology", "part", flag_value="topology", help="Topology of a streams group, as a tree.")
@click.option(
    "--in-flight",
    "part",
    flag_value="in-flight",
    help="In-flight records of a share group: their owner, age and remaining lock time.",
)
@click.option(
    "--verbose",
    is_flag=True,
    help="Show more columns: epochs, and with --members assignments and the heartbeat intervals of a konvene "
    "broker; for streams groups also endpoints, tags, task offsets and what each member is waiting for.",
)
@watch_option
@cluster_options
@json_option
def describe(
    connect: Connect, as_json: bool, groups: GroupSelection, part: str | None, verbose: bool,
    interval_s: float | None,
) -> None:  # fmt: skip
    """Describe groups: offsets and lag, members, state, reconciliation, topology or in-flight records.

    \b
    konvene groups describe readers
    konvene groups describe readers --reconciliation
    konvene groups describe readers --watch
    konvene groups describe readers --members --verbose
    konvene groups describe --all-groups --state
    konvene groups describe words --topology
    konvene groups describe --all-groups --streams --members --verbose
    konvene groups describe jobs --in-flight
    """

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async def request() -> Callable[[], None]:
            found: list[AnyDescribed] = []
            for name in await groups.resolve(admin):
                one = await _describe(admin, name, groups, part or "offsets", verbose=verbose)
                if one is not None:
                    found.append(one)
            return lambda: _print(found, part, verbose=verbose, as_json=as_json)

        async with connect() as cluster:
            admin = Admin(cluster)
            if interval_s is not None:
                screen = Screen(interval_s)
                await repeat(request, interval_s, screen.show, screen.show_failure)
                return
            print_found = await request()
        print_found()

    run(job)


def _print(found: Sequence[AnyDescribed], part: str | None, *, verbose: bool, as_json: bool) -> None:
    if as_json:
        print_json([_any_document(d, part) for d in found])
    elif part == "topology":
        _print_topologies(found)
    else:
        print_tables(chain.from_iterable(_any_tables(d, part or "offsets", verbose) for d in found))


# requests -------------------------------------------------------------------------------------


class OffsetRow(NamedTuple):
    """A partition that is assigned to a member of the group, or has a committed offset."""

    partition: TopicPartition
    committed: CommittedOffset | None
    log_end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset


class Described(NamedTuple):
    group: GroupDescription
    offsets: list[OffsetRow]


async def _describe(
    admin: Admin, name: str, groups: GroupSelection, part: str, *, verbose: bool
) -> AnyDescribed | None:
    """Describe a group of any type, and request what the table `part` (such as `offsets`) shows in addition.

    Returns None if the group was listed, but has been deleted since. Fails if a group that was named on the
    command line does not exist."""
    from konvene.client.errors import KafkaError

    try:
        if not (groups.streams or groups.share):
            group = await admin.describe_group(name, heartbeats=verbose)
            return Described(group, await _offsets(admin, group) if part == "offsets" else [])
    except KafkaError as error:
        if error.name != "GROUP_ID_NOT_FOUND":
            raise
    from konvene.cli.groups import share as groups_share
    from konvene.cli.groups import streams as groups_streams

    found: AnyDescribed | None = None
    if not groups.share:
        found = await groups_streams.describe(admin, name, part=part, verbose=verbose)
    if found is None and not groups.streams:
        found = await groups_share.describe(admin, name, part=part, verbose=verbose)
    if found is None and groups.names:
        no_group(name, "share" if groups.share else "streams" if groups.streams else "")
    return found


async def _offsets(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    """Return the rows of `--offsets`: assigned partitions, then those that have only a committed offset."""
    from konvene.client.consumer.fetch import LATEST

    committed = await admin.committed_offsets(group.group_id)
    owner = {tp: m for m in group.members for tp in m.assignment}
    partitions = sorted(owner.keys() | committed.keys())
    metadata = await admin.cluster.refresh({tp.topic for tp in partitions}) if partitions else None
    existing = {
        tp: LATEST
        for tp in partitions
        if metadata is not None
        and (topic := metadata.topics[tp.topic]).error_code == 0
        and any(p.partition == tp.partition and p.leader >= 0 for p in topic.partitions)
    }
    ends = await admin.list_offsets(existing) if existing else {}
    rows = [
        OffsetRow(tp, committed.get(tp), ends[tp].offset if tp in ends else None, owner.get(tp))
        for tp in partitions
    ]
    return sorted(rows, key=lambda row: (row.member is None, row.partition))


# tables ---------------------------------------------------------------------------------------


def _any_tables(described: AnyDescribed, part: str, verbose: bool) -> list[Table]:
    if isinstance(described, Described):
        return _TABLES[part](described, verbose)
    from konvene.cli.groups import share as groups_share
    from konvene.cli.groups import streams as groups_streams

    if isinstance(described, groups_share.DescribedShare):
        return groups_share.tables(described, part, verbose)
    if part == "in-flight":
        return [Table((), (), [_nothing_in_flight(described.group)])]
    return groups_streams.tables(described, part, verbose)


def _print_topologies(described: Sequence[AnyDescribed]) -> None:
    from konvene.cli.groups import streams as groups_streams

    for i, each in enumerate(described):
        group = each.group
        if not isinstance(each, groups_streams.DescribedStreams):
            note(f"Group '{group.group_id}' is a {group.type} group: only streams groups have a topology.")
            continue
        if i:
            click.echo()
        for line in groups_streams.notes(each):
            note(line)
        for line in groups_streams.tree(each):
            click.echo(text_of(line))


def _offsets_table(described: Described, verbose: bool) -> list[Table]:
    group = described.group
    epoch = ("LEADER-EPOCH",) if verbose else ()
    columns = (
        "GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
        "HOST", "CLIENT-ID",
    )  # fmt: skip
    rows = []
    for row in described.offsets:
        tp, at, m = row.partition, row.committed, row.member
        leader_epoch = at.leader_epoch if at and at.leader_epoch >= 0 else None
        rows.append(
            (
                group.group_id, tp.topic, tp.partition,
                *((leader_epoch,) if verbose else ()),
                at.offset if at else None, row.log_end_offset, row.lag,
                m.member_id if m else None, m.client_host if m else None, m.client_id if m else None,
            )
        )  # fmt: skip
    return [Table(columns if rows else (), rows, _notes(group))]


def _members_table(described: Described, verbose: bool) -> list[Table]:
    group = described.group
    static = any(m.instance_id for m in group.members)
    # The protocol of each member matters while a group is being upgraded or downgraded.
    migrating = verbose and {m.upgraded for m in group.members} >= {True, False}
    columns = ["GROUP", "CONSUMER-ID"] + (["GROUP-INSTANCE-ID"] if static else [])
    columns += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        columns += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    columns += ["UPGRADED"] if migrating else []
    columns += heartbeat_columns(group)
    rows = []
    for m in group.members:
        row: list[object] = [group.group_id, m.member_id] + ([m.instance_id] if static else [])
        row += [m.client_host, m.client_id, len(m.assignment)]
        if verbose:
            row += [m.epoch, format_partitions(m.assignment)]
            row += [
                group.assignment_epoch if m.target is not None else None,
                format_partitions(m.target or ()),
            ]
        row += [m.upgraded] if migrating else []
        row += heartbeat_cells(group, m.heartbeats)
        rows.append(row)
    return [Table(columns if rows else (), rows, _notes(group))]


def _state_table(described: Described, verbose: bool) -> list[Table]:
    group = described.group
    columns = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row: list[object] = [group.group_id, coordinator_cell(group), group.assignor, group.state]
    if verbose:
        columns += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [group.epoch, group.assignment_epoch]
    if group.heartbeat_policy:
        columns.append("HEARTBEAT-POLICY")
        row.append(group.heartbeat_policy)
    return [Table([*columns, "#MEMBERS"], [[*row, len(group.members)]], _notes(group))]


def _reconciliation_tables(described: Described, verbose: bool) -> list[Table]:
    """Return two tables: the state of the group; and a row for each member, blocking ones first, with its
    progress in the lines below."""
    group = described.group
    if group.type != "consumer":
        line = f"Group '{group.group_id}' is a {group.type} group: its members have no target assignments."
        return [Table((), (), [line])]
    state = _state_table(described, verbose=True)
    columns = (
        "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "RACK", "PROTOCOL", "EPOCH", "STATE",
        "ASSIGNMENT", "TARGET",
    )  # fmt: skip
    rows, details = [], []
    for each in member_progress(group):
        m = each.member
        rows.append(
            (
                m.member_id, m.instance_id, m.client_host, m.client_id, m.rack_id, _protocol(m), m.epoch,
                each.state, format_partitions(m.assignment), format_partitions(m.target or ()),
            )
        )  # fmt: skip
        details.append(describe_progress(each, group))
    return [*state, Table(columns, rows, (), details)] if rows else state


def _in_flight_table(described: Described, verbose: bool) -> list[Table]:
    return [Table((), (), [_nothing_in_flight(described.group)])]


def _nothing_in_flight(group: GroupDescription | StreamsGroupDescription) -> str:
    return f"Group '{group.group_id}' is a {group.type} group: only share groups have in-flight records."


def _protocol(member: MemberDescription) -> str | None:
    """Return the protocol of a member of a consumer group; None if the broker did not report it
    (ConsumerGroupDescribe v0)."""
    return None if member.upgraded is None else "consumer" if member.upgraded else "classic"


_TABLES = {
    "offsets": _offsets_table, "members": _members_table, "state": _state_table,
    "reconciliation": _reconciliation_tables, "in-flight": _in_flight_table,
}  # fmt: skip


def _notes(group: GroupDescription) -> list[str]:
    if group.state == "Empty":
        return [f"Consumer group '{group.group_id}' has no active members."]
    if group.state in _REBALANCING:
        notes = [f"Warning: Consumer group '{group.group_id}' is rebalancing.", *blocking_members(group)]
        if group.state == "Assigning":
            notes.append(
                f"Epoch {group.epoch} has no target assignment yet: the next one is computed "
                "consumer.assignment.interval.ms after the previous one. If none appears, see the broker's "
                "log: a target assignment that is larger than max.message.bytes of __consumer_offsets is "
                "rejected; raise that setting."
            )
        return notes
    return []


# JSON -----------------------------------------------------------------------------------------


def _any_document(described: AnyDescribed, part: str | None) -> dict[str, object]:
    if isinstance(described, Described):
        return _document(described, part)
    from konvene.cli.groups import share as groups_share
    from konvene.cli.groups import streams as groups_streams

    if isinstance(described, groups_share.DescribedShare):
        return groups_share.document(described, part)
    return groups_streams.document(described, part)


def _document(described: Described, part: str | None) -> dict[str, object]:
    """Return the description as a JSON document. It includes `offsets` or `members` if `part` selects that
    field; both if `part` is None."""
    g = described.group
    out = group_document(g)
    if part in (None, "members", "reconciliation"):
        out["members"] = [
            _member(each, is_consumer_group=g.type == "consumer") for each in member_progress(g)
        ]
    if part in (None, "offsets"):
        out["offsets"] = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "current_offset": row.committed.offset if row.committed else None,
                "leader_epoch": row.committed.leader_epoch if row.committed else None,
                "metadata": row.committed.metadata if row.committed else None,
                "log_end_offset": row.log_end_offset,
                "lag": row.lag,
                "member_id": row.member.member_id if row.member else None,
                "client_host": row.member.client_host if row.member else None,
                "client_id": row.member.client_id if row.member else None,
            }
            for row in described.offsets
        ]
    return out


def _member(progress: Progress, *, is_consumer_group: bool) -> dict[str, object]:
    m = progress.member
    out: dict[str, object] = {
        "member_id": m.member_id,
        "instance_id": m.instance_id,
        "client_id": m.client_id,
        "client_host": m.client_host,
        "epoch": m.epoch,
        "assignment": _pairs(m.assignment),
        "target_assignment": None if m.target is None else _pairs(m.target),
    }
    out |= heartbeats_document(m.heartbeats)
    if is_consumer_group:
        out |= {
            "state": progress.state,
            "rack_id": m.rack_id,
            "protocol": _protocol(m),
            "subscribed_topics": list(m.subscribed),
            "subscribed_regex": m.regex,
            "to_release": _pairs_with("wanted_by", progress.revocations),
            "waits_for": _pairs_with("held_by", progress.waits),
        }
    return out


def _pairs_with(
    key: str, partitions: Mapping[TopicPartition, tuple[MemberDescription, ...]]
) -> list[dict[str, object]]:
    return [
        {"topic": tp.topic, "partition": tp.partition, key: members[0].member_id if members else None}
        for tp, members in sorted(partitions.items())
    ]


def _pairs(partitions: Sequence[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
