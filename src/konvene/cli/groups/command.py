"""`konvene groups`: what `kafka-consumer-groups`, `kafka-share-groups` and `kafka-streams-groups` do, and why
groups rebalanced.

Here are the group itself, `list` and `history`; each other kind of command has its file: `groups_describe`,
`groups_reset`, `groups_remove`. They name groups in one way (`groups_named`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from konvene import __version__
from konvene.cli.groups.describe import describe
from konvene.cli.groups.remove import delete, delete_offsets, remove_members
from konvene.cli.groups.reset import reset_offsets
from konvene.cli.groups.selection import one_group
from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import Table, print_json, print_tables
from konvene.client.admin.group_state import GroupState, GroupType

STATES = tuple(str(state) for state in GroupState)
TYPES = tuple(str(each) for each in GroupType)


@click.group()
@click.version_option(__version__, message="konvene %(version)s")
def groups() -> None:
    """List, describe and delete groups, move their offsets, and tell why they rebalanced."""


for _command in (describe, reset_offsets, delete_offsets, remove_members, delete):
    groups.add_command(_command)


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
    "--group-type",
    "types",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,TYPE]",
    help=f"Only groups of these types: {', '.join(TYPES)}.",
)
@click.option("--streams", is_flag=True, help="The same as --type streams.")
@click.option("--share", is_flag=True, help="The same as --type share.")
def list_(
    connect: Connect, as_json: bool, states: str | None, types: str | None, streams: bool, share: bool
) -> None:
    """List groups with their type and state."""
    if (streams or share) and types is not None:
        short = "--streams" if streams else "--share"
        raise click.UsageError(f"{short} and --type contradict each other: give one of them.")
    wanted_states = _among("--state", states, STATES)
    wanted_types = [kind for kind, said in (("streams", streams), ("share", share)) if said]
    wanted_types = wanted_types or _among("--type", types, TYPES)

    async def job() -> None:
        from konvene.client.admin.admin import Admin

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
@one_group
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the last N rebalances.")
@cluster_options
@json_option
def history(connect: Connect, as_json: bool, group: str, limit: int | None) -> None:
    """Tell why a group rebalanced: every generation or epoch, and what caused it.

    Reads the broker's audit. Where there is none (Apache Kafka), it is inferred from the group's own records:
    then the causes are what these show, and start times are not known.
    """

    async def job() -> None:
        from konvene.cli.groups.history import document, read_history, table

        async with connect() as cluster:
            told = await read_history(cluster, group)
        rows = told.rebalances[-limit:] if limit else told.rebalances
        if as_json:
            print_json([document(group, value) for value in rows])
            return
        if not rows:
            fail(
                f"nothing is recorded of group {group}" + (f": {told.why_none}" if told.why_none else ""),
                "`konvene groups list` shows the groups there are.",
            )
        print_tables([table(rows, [told.note] if told.note else [])])

    run(job)


def _among(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """A comma-separated list of known words; nothing at all means any.

    Their case does not matter, nor do spaces and underscores within: KIP-1071 writes `Not Ready`."""
    by_name = {word.lower(): word for word in known}
    found = []
    for part in (p.strip() for p in (text or "").split(",") if p.strip()):
        name = re.sub(r"[ _]", "", part).lower()
        if name not in by_name:
            raise click.UsageError(f"{option} {part} is not known; there are {', '.join(known)}.")
        found.append(by_name[name])
    return found
