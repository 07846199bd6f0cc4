"""`konvene groups describe`: committed offsets and lag, members, or state, as Kafka's tool shows them.

Of a consumer group there is more to say, and `--reconciliation` says it: how far each member is from its
target, what it waits for and on whom. Whoever holds up others is named in every other part too, as a note.

Streams groups have tables of their own (`groups_streams`), and a topology to be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from konvene.cli.groups.pending_partitions import Standing, sentences, spelled, standings, stuck
from konvene.cli.groups.selection import Named, no_group, several_groups
from konvene.cli.options import Connect, cluster_options, json_option, run
from konvene.cli.output import Table, note, print_json, print_tables, text_of

if TYPE_CHECKING:
    from konvene.cli.groups.share import DescribedShare
    from konvene.cli.groups.streams import DescribedStreams
    from konvene.client.admin.admin import Admin, CommittedOffset, GroupDescription, MemberDescription
    from konvene.client.admin.streams_groups import StreamsGroupDescription
    from konvene.client.net.cluster import TopicPartition

    AnyDescribed: TypeAlias = "Described | DescribedShare | DescribedStreams"

_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@click.command()
@several_groups("Describe")
@click.option("--offsets", "part", flag_value="offsets", help="Offsets and lag by partition [the default].")
@click.option(
    "--members", "part", flag_value="members", help="The members and how many partitions they have."
)
@click.option("--state", "part", flag_value="state", help="Coordinator, assignor and state.")
@click.option(
    "--reconciliation",
    "part",
    flag_value="reconciliation",
    help="How far each member of a consumer or streams group is from its target, and on whom it waits.",
)
@click.option(
    "--topology", "part", flag_value="topology", help="The topology of a streams group, drawn as a tree."
)
@click.option(
    "--in-flight",
    "part",
    flag_value="in-flight",
    help="Who has which records of a share group, since when, and how long their locks are.",
)
@click.option(
    "--verbose",
    is_flag=True,
    help="More columns: epochs, with --members the assignments; from konvene, how members heartbeat. "
    "Of a streams group what each member waits for, its endpoint, tags and task offsets, too.",
)
@cluster_options
@json_option
def describe(connect: Connect, as_json: bool, groups: Named, part: str | None, verbose: bool) -> None:
    """Describe groups: offsets and lag, members, state, who waits for whom, who has what, or topologies.

    \b
    konvene groups describe readers
    konvene groups describe readers --reconciliation
    konvene groups describe readers --members --verbose
    konvene groups describe --all-groups --state
    konvene groups describe words --topology
    konvene groups describe --all-groups --streams --members --verbose
    konvene groups describe jobs --in-flight
    """

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        found: list[AnyDescribed] = []
        async with connect() as cluster:
            admin = Admin(cluster)
            for name in await groups.of(admin):
                one = await _found(admin, name, groups, part or "offsets", verbose=verbose)
                if one is not None:
                    found.append(one)
        if as_json:
            print_json([_any_document(d, part) for d in found])
        elif part == "topology":
            _print_topologies(found)
        else:
            print_tables(chain.from_iterable(_any_tables(d, part or "offsets", verbose) for d in found))

    run(job)


# what is known of a group ---------------------------------------------------------------------


class OffsetRow(NamedTuple):
    """A partition that the group has a member or an offset for."""

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


async def _found(admin: Admin, name: str, groups: Named, part: str, *, verbose: bool) -> AnyDescribed | None:
    """A group of whichever type; None for one that went away since it was listed."""
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
        found = await groups_streams.describe(admin, name, part=part)
    if found is None and not groups.streams:
        found = await groups_share.describe(admin, name, part=part)
    if found is None and groups.names:
        no_group(name, "share" if groups.share else "streams" if groups.streams else "")
    return found


async def _offsets(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    """Assigned partitions first, then those with an offset and no member. Idle members are not among them."""
    from konvene.client.consumer.fetch import LATEST

    committed = await admin.committed_offsets(group.group_id)
    owner = {tp: m for m in group.members for tp in m.assignment}
    everything = sorted(owner.keys() | committed.keys())
    metadata = await admin.cluster.refresh({tp.topic for tp in everything}) if everything else None
    existing = {
        tp: LATEST
        for tp in everything
        if metadata is not None
        and (topic := metadata.topics[tp.topic]).error_code == 0
        and any(p.partition == tp.partition and p.leader >= 0 for p in topic.partitions)
    }
    ends = await admin.list_offsets(existing) if existing else {}
    rows = [
        OffsetRow(tp, committed.get(tp), ends[tp].offset if tp in ends else None, owner.get(tp))
        for tp in everything
    ]
    return sorted(rows, key=lambda row: (row.member is None, row.partition))


# as tables ------------------------------------------------------------------------------------


def _any_tables(found: AnyDescribed, part: str, verbose: bool) -> list[Table]:
    if isinstance(found, Described):
        return _TABLES[part](found, verbose)
    from konvene.cli.groups import share as groups_share
    from konvene.cli.groups import streams as groups_streams

    if isinstance(found, groups_share.DescribedShare):
        return groups_share.tables(found, part, verbose)
    if part == "in-flight":
        return [Table((), (), [_nothing_in_flight(found.group)])]
    return groups_streams.tables(found, part, verbose)


def _print_topologies(found: Sequence[AnyDescribed]) -> None:
    """One tree under the other."""
    from konvene.cli.groups import streams as groups_streams

    for i, each in enumerate(found):
        group = each.group
        if not isinstance(each, groups_streams.DescribedStreams):
            note(f"Group '{group.group_id}' is a {group.type} group: it has no topology.")
            continue
        if i:
            click.echo()
        for told in groups_streams.notes(each):
            note(told)
        for line in groups_streams.tree(each):
            click.echo(text_of(line))


def _offsets_table(found: Described, verbose: bool) -> list[Table]:
    group = found.group
    epoch = ("LEADER-EPOCH",) if verbose else ()
    columns = (
        "GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
        "HOST", "CLIENT-ID",
    )  # fmt: skip
    rows = []
    for row in found.offsets:
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


def _members_table(found: Described, verbose: bool) -> list[Table]:
    group = found.group
    static = any(m.instance_id for m in group.members)
    # While a group moves from one protocol to the other, it matters who speaks which.
    migrating = verbose and {m.upgraded for m in group.members} >= {True, False}
    columns = ["GROUP", "CONSUMER-ID"] + (["GROUP-INSTANCE-ID"] if static else [])
    columns += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        columns += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    columns += ["UPGRADED"] if migrating else []
    columns += ["HEARTBEAT-MS", "HELD"] if group.heartbeat_policy else []
    rows = []
    for m in group.members:
        row: list[Any] = [group.group_id, m.member_id] + ([m.instance_id] if static else [])
        row += [m.client_host, m.client_id, len(m.assignment)]
        if verbose:
            row += [m.epoch, spelled(m.assignment)]
            row += [group.assignment_epoch if m.target is not None else None, spelled(m.target or ())]
        row += [m.upgraded] if migrating else []
        row += (m.heartbeats or (None, None)) if group.heartbeat_policy else ()
        rows.append(row)
    return [Table(columns if rows else (), rows, _notes(group))]


def _state_table(found: Described, verbose: bool) -> list[Table]:
    group, coordinator = found.group, found.group.coordinator
    columns = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    where = f"{coordinator.host}:{coordinator.port} ({coordinator.id})"
    row: list[Any] = [group.group_id, where, group.assignor, group.state]
    if verbose:
        columns += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [group.epoch, group.assignment_epoch]
    if group.heartbeat_policy:
        columns.append("HEARTBEAT-POLICY")
        row.append(group.heartbeat_policy)
    return [Table([*columns, "#MEMBERS"], [[*row, len(group.members)]], _notes(group))]


def _reconciliation_tables(found: Described, verbose: bool) -> list[Table]:
    """The group's line, and a row for each member, whom others wait for first; under it, what is missing."""
    group = found.group
    if group.type != "consumer":
        note = f"Group '{group.group_id}' is a {group.type} group: it has no targets to be reconciled with."
        return [Table((), (), [note])]
    state = _state_table(found, verbose=True)
    columns = (
        "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "RACK", "PROTOCOL", "EPOCH", "STATE",
        "ASSIGNMENT", "TARGET",
    )  # fmt: skip
    rows, details = [], []
    for each in standings(group):
        m = each.member
        rows.append(
            (
                m.member_id, m.instance_id, m.client_host, m.client_id, m.rack_id, _protocol(m), m.epoch,
                each.state, spelled(m.assignment), spelled(m.target or ()),
            )
        )  # fmt: skip
        details.append(sentences(each, group))
    return [*state, Table(columns, rows, (), details)] if rows else state


def _in_flight_table(found: Described, verbose: bool) -> list[Table]:
    return [Table((), (), [_nothing_in_flight(found.group)])]


def _nothing_in_flight(group: GroupDescription | StreamsGroupDescription) -> str:
    return f"Group '{group.group_id}' is a {group.type} group: only members of share groups hold records."


def _protocol(member: MemberDescription) -> str | None:
    """Which protocol a member of a consumer group speaks itself; before version 1 nobody says it."""
    return None if member.upgraded is None else "consumer" if member.upgraded else "classic"


_TABLES = {
    "offsets": _offsets_table, "members": _members_table, "state": _state_table,
    "reconciliation": _reconciliation_tables, "in-flight": _in_flight_table,
}  # fmt: skip


def _notes(group: GroupDescription) -> list[str]:
    if group.state == "Empty":
        return [f"Consumer group '{group.group_id}' has no active members."]
    if group.state in _REBALANCING:
        notes = [f"Warning: Consumer group '{group.group_id}' is rebalancing.", *stuck(group)]
        if group.state == "Assigning":
            notes.append(
                f"Epoch {group.epoch} has no target yet: one is made consumer.assignment.interval.ms after "
                "the last one. If none is, see the broker's log: a target that is larger than "
                "max.message.bytes of __consumer_offsets is refused, and that is what to raise."
            )
        return notes
    return []


# as JSON --------------------------------------------------------------------------------------


def _any_document(found: AnyDescribed, part: str | None) -> dict[str, Any]:
    if isinstance(found, Described):
        return _document(found, part)
    from konvene.cli.groups import share as groups_share
    from konvene.cli.groups import streams as groups_streams

    if isinstance(found, groups_share.DescribedShare):
        return groups_share.document(found, part)
    return groups_streams.document(found, part)


def _document(found: Described, part: str | None) -> dict[str, Any]:
    """What is known of a group; `offsets` and `members` only where they were asked for (both by default)."""
    g = found.group
    out: dict[str, Any] = {
        "group": g.group_id,
        "type": g.type,
        "state": g.state,
        "assignor": g.assignor or None,
        "epoch": g.epoch,
        "assignment_epoch": g.assignment_epoch,
        "coordinator": {"id": g.coordinator.id, "host": g.coordinator.host, "port": g.coordinator.port},
        "member_count": len(g.members),
    }
    if g.heartbeat_policy:
        out["heartbeat_policy"] = g.heartbeat_policy
    if part in (None, "members", "reconciliation"):
        out["members"] = [_member(each, concerns_modern_group=g.type == "consumer") for each in standings(g)]
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
            for row in found.offsets
        ]
    return out


def _member(standing: Standing, *, concerns_modern_group: bool) -> dict[str, Any]:
    m = standing.member
    out: dict[str, Any] = {
        "member_id": m.member_id,
        "instance_id": m.instance_id,
        "client_id": m.client_id,
        "client_host": m.client_host,
        "epoch": m.epoch,
        "assignment": _pairs(m.assignment),
        "target_assignment": None if m.target is None else _pairs(m.target),
    }
    if m.heartbeats is not None:
        out["heartbeats"] = {"told_interval_ms": m.heartbeats.told_ms, "held": m.heartbeats.held}
    if concerns_modern_group:
        out |= {
            "state": standing.state,
            "rack_id": m.rack_id,
            "protocol": _protocol(m),
            "subscribed_topics": list(m.subscribed),
            "subscribed_regex": m.regex,
            "to_release": _pairs_with("wanted_by", standing.releases),
            "waits_for": _pairs_with("held_by", standing.waits),
        }
    return out


def _pairs_with(
    word: str, partitions: Mapping[TopicPartition, MemberDescription | None]
) -> list[dict[str, Any]]:
    return [
        {"topic": tp.topic, "partition": tp.partition, word: each.member_id if each else None}
        for tp, each in sorted(partitions.items())
    ]


def _pairs(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
