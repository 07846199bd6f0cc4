"""`konvene groups`: what `kafka-consumer-groups` shows, and why groups rebalanced, which it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import MISSING, Table, note, print_json, print_tables

if TYPE_CHECKING:
    from konvene.client.admin import Admin, CommittedOffset, GroupDescription, MemberDescription
    from konvene.client.cluster import TopicPartition

STATES = (
    "Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady",
    "Dead",
)  # fmt: skip
TYPES = ("classic", "consumer", "share", "streams")

_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@click.group()
def groups() -> None:
    """List, describe and delete groups, and tell why they rebalanced."""


@groups.command("list")
@cluster_options
@json_option
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    metavar="[STATE,STATE]",
    help=f"Only groups in these states: {', '.join(STATES)}.",
)
@click.option(
    "--type",
    "types",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,TYPE]",
    help=f"Only groups of these types: {', '.join(TYPES)}.",
)
def list_(connect: Connect, as_json: bool, states: str | None, types: str | None) -> None:
    """List groups with their type and state."""
    wanted_states, wanted_types = _among("--state", states, STATES), _among("--type", types, TYPES)

    async def job() -> None:
        from konvene.client.admin import Admin

        async with connect() as cluster:
            found = await Admin(cluster).list_groups(states=wanted_states, types=wanted_types)
        if as_json:
            print_json(
                [
                    {"group": g.group_id, "type": g.type or None, "protocol": g.protocol_type or None,
                     "state": g.state or None}
                    for g in found
                ]
            )  # fmt: skip
        else:
            columns = ("GROUP", "TYPE", "PROTOCOL", "STATE")
            print_tables([Table(columns, [(g.group_id, g.type, g.protocol_type, g.state) for g in found])])

    run(job)


@groups.command()
@cluster_options
@json_option
@click.option("--group", "names", multiple=True, metavar="GROUP", help="The group to describe; repeatable.")
@click.option("--all-groups", is_flag=True, help="Describe all classic and consumer groups.")
@click.option("--offsets", "part", flag_value="offsets", help="Offsets and lag by partition [the default].")
@click.option(
    "--members", "part", flag_value="members", help="The members and how many partitions they have."
)
@click.option("--state", "part", flag_value="state", help="Coordinator, assignor and state.")
@click.option("--verbose", is_flag=True, help="More columns: epochs, and with --members the assignments.")
def describe(
    connect: Connect, as_json: bool, names: tuple[str, ...], all_groups: bool, part: str | None, verbose: bool
) -> None:
    """Describe groups: committed offsets and lag, members, or state."""
    if bool(names) == all_groups:
        raise click.UsageError("Give --group GROUP (repeatable) or --all-groups.")

    async def job() -> None:
        from konvene.client.admin import Admin
        from konvene.client.errors import KafkaError

        found: list[Described] = []
        async with connect() as cluster:
            admin = Admin(cluster)
            wanted = list(dict.fromkeys(names))
            if all_groups:
                listed = await admin.list_groups()
                wanted = [g.group_id for g in listed if g.type in ("", "classic", "consumer")]
            for name in wanted:
                try:
                    group = await admin.describe_group(name)
                except KafkaError as error:
                    if error.name != "GROUP_ID_NOT_FOUND":
                        raise
                    if all_groups:
                        continue  # Went away since it was listed.
                    fail(
                        f"there is no classic or consumer group {name}",
                        "`konvene groups list` shows the groups there are.",
                    )
                rows = [] if part in ("members", "state") else await _offsets(admin, group)
                found.append(Described(group, rows))
        if as_json:
            print_json([_document(d, part) for d in found])
        else:
            print_tables(_TABLES[part or "offsets"](d, verbose) for d in found)

    run(job)


@groups.command()
@cluster_options
@json_option
@click.option("--group", "name", required=True, metavar="GROUP", help="The group whose past to tell.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the last N rebalances.")
def history(connect: Connect, as_json: bool, name: str, limit: int | None) -> None:
    """Tell why a group rebalanced: every generation, and what caused it.

    Reads the broker's audit. Where there is none (Apache Kafka), it is inferred from the group's own records:
    then the causes are what these show, and start times are not known.
    """

    async def job() -> None:
        from konvene.cli.history import document, read_history, table

        async with connect() as cluster:
            told = await read_history(cluster, name)
        rows = told.rebalances[-limit:] if limit else told.rebalances
        if as_json:
            print_json([document(name, value) for value in rows])
            return
        if not rows:
            fail(
                f"nothing is recorded of group {name}" + (f": {told.why_none}" if told.why_none else ""),
                "`konvene groups list` shows the groups there are.",
            )
        print_tables([table(rows, [told.note] if told.note else [])])

    run(job)


@groups.command()
@cluster_options
@json_option
@click.option(
    "--group", "names", multiple=True, required=True, metavar="GROUP", help="The group; repeatable."
)
def delete(connect: Connect, as_json: bool, names: tuple[str, ...]) -> None:
    """Delete groups that have no members, with their offsets."""

    async def job() -> None:
        from konvene.client.admin import Admin
        from konvene.client.errors import KafkaError

        failed: dict[str, KafkaError] = {}
        async with connect() as cluster:
            for name in dict.fromkeys(names):
                try:
                    await Admin(cluster).delete_groups([name])
                except KafkaError as error:
                    failed[name] = error
        gone = [name for name in dict.fromkeys(names) if name not in failed]
        if as_json:
            print_json({"deleted": gone, "failed": {name: str(why) for name, why in failed.items()}})
        else:
            for name in gone:
                click.echo(f"Deleted group {name}.")
        *others, last = failed.values() or (None,)
        for why in others:
            note(f"konvene: {why}")
        if last is not None:
            raise last

    run(job)


# what is known of a group ---------------------------------------------------------------------


class OffsetRow(NamedTuple):
    """A partition that the group has a member or an offset for."""

    partition: TopicPartition | None
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


async def _offsets(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    """Assigned partitions first, then those with an offset and no member, then members without partitions."""
    from konvene.client.fetch import LATEST

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
    rows.sort(key=lambda row: (row.member is None, row.partition))
    rows += (OffsetRow(None, None, None, m) for m in group.members if not m.assignment)
    return rows


# as tables ------------------------------------------------------------------------------------


def _offsets_table(found: Described, verbose: bool) -> Table:
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
                group.group_id, tp.topic if tp else None, tp.partition if tp else None,
                *((leader_epoch,) if verbose else ()),
                at.offset if at else None, row.log_end_offset, row.lag,
                m.member_id if m else None, m.client_host if m else None, m.client_id if m else None,
            )
        )  # fmt: skip
    return Table(columns if rows else (), rows, _notes(group))


def _members_table(found: Described, verbose: bool) -> Table:
    group = found.group
    static = any(m.instance_id for m in group.members)
    columns = ["GROUP", "CONSUMER-ID"] + (["GROUP-INSTANCE-ID"] if static else [])
    columns += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        columns += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    rows = []
    for m in group.members:
        row: list[Any] = [group.group_id, m.member_id] + ([m.instance_id] if static else [])
        row += [m.client_host, m.client_id, len(m.assignment)]
        if verbose:
            row += [m.epoch, _spelled(m.assignment)]
            row += [group.assignment_epoch if m.target is not None else None, _spelled(m.target or ())]
        rows.append(row)
    return Table(columns if rows else (), rows, _notes(group))


def _state_table(found: Described, verbose: bool) -> Table:
    group, coordinator = found.group, found.group.coordinator
    columns = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    where = f"{coordinator.host}:{coordinator.port} ({coordinator.id})"
    row: list[Any] = [group.group_id, where, group.assignor, group.state]
    if verbose:
        columns += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [group.epoch, group.assignment_epoch]
    return Table([*columns, "#MEMBERS"], [[*row, len(group.members)]], _notes(group))


_TABLES = {"offsets": _offsets_table, "members": _members_table, "state": _state_table}


def _notes(group: GroupDescription) -> list[str]:
    if group.state == "Empty":
        return [f"Consumer group '{group.group_id}' has no active members."]
    if group.state in _REBALANCING:
        return [f"Warning: Consumer group '{group.group_id}' is rebalancing."]
    return []


def _spelled(partitions: Sequence[TopicPartition]) -> str:
    """As Kafka's tool spells an assignment: `orders:0,1;payments:2`."""
    grouped: dict[str, list[str]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(tp.topic, []).append(str(tp.partition))
    return ";".join(f"{topic}:{','.join(each)}" for topic, each in grouped.items()) or MISSING


# as JSON --------------------------------------------------------------------------------------


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
    if part in (None, "members"):
        out["members"] = [
            {
                "member_id": m.member_id,
                "instance_id": m.instance_id,
                "client_id": m.client_id,
                "client_host": m.client_host,
                "epoch": m.epoch,
                "assignment": _pairs(m.assignment),
                "target_assignment": None if m.target is None else _pairs(m.target),
            }
            for m in g.members
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
            for row in found.offsets
            if row.partition is not None
        ]
    return out


def _pairs(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def _among(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """A comma-separated list of known words, whatever their case; nothing at all means any."""
    by_name = {word.lower(): word for word in known}
    found = []
    for part in (p.strip() for p in (text or "").split(",") if p.strip()):
        if part.lower() not in by_name:
            raise click.UsageError(f"{option} {part} is not known; there are {', '.join(known)}.")
        found.append(by_name[part.lower()])
    return found
