"""`konvene groups`: the commands of `kafka-consumer-groups`, `kafka-share-groups` and `kafka-streams-groups`.

This module has the command group, `list` and `history`. The other commands are in `describe`, `reset` and
`remove`; `selection` has the arguments that name groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from konvene import __version__
from konvene.cli.groups.describe import describe
from konvene.cli.groups.remove import delete, delete_offsets, remove_members
from konvene.cli.groups.reset import reset_offsets
from konvene.cli.groups.selection import one_group
from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import Table, note, print_json, print_tables
from konvene.cli.watch import Outages, repeat
from konvene.client.admin.group_state import GroupState, GroupType

if TYPE_CHECKING:
    from konvene.cli.groups.history import HistoryReader

STATES = tuple(str(state) for state in GroupState)
TYPES = tuple(str(each) for each in GroupType)
FOLLOW_INTERVAL_S = 1.0
"""Time between two reads of `history --follow`."""


@click.group()
@click.version_option(__version__, message="konvene %(version)s")
def groups() -> None:
    """List, describe and delete groups, reset their offsets, and show why they rebalanced."""


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
    help=f"List only groups in these states: {', '.join(STATES)}.",
)
@click.option(
    "--type",
    "--group-type",
    "types",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,TYPE]",
    help=f"List only groups of these types: {', '.join(TYPES)}.",
)
@click.option("--streams", is_flag=True, help="Same as --type streams.")
@click.option("--share", is_flag=True, help="Same as --type share.")
def list_(
    connect: Connect, as_json: bool, states: str | None, types: str | None, streams: bool, share: bool
) -> None:
    """List groups with their type and state."""
    if (streams or share) and types is not None:
        short = "--streams" if streams else "--share"
        raise click.UsageError(f"{short} and --type cannot be used together.")
    wanted_states = _among("--state", states, STATES)
    wanted_types = [kind for kind, given in (("streams", streams), ("share", share)) if given]
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
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Show only the last N rebalances.")
@click.option(
    "--follow", is_flag=True, help="Then print each rebalance when it ends, until Ctrl-C; --json: JSON lines."
)
@cluster_options
@json_option
def history(connect: Connect, as_json: bool, group: str, limit: int | None, follow: bool) -> None:
    """Show why a group rebalanced: every generation or epoch, and what caused it.

    Reads konvene's audit topic. Without one (Apache Kafka), causes are inferred from the group's records in
    __consumer_offsets, and start times are unknown.

    \b
    konvene groups history readers
    konvene groups history readers --limit 5 --follow
    """

    async def job() -> None:
        from konvene.cli.groups.history import HistoryReader, document, table

        async with connect() as cluster:
            reader = HistoryReader(cluster, group)
            if follow:
                await _follow(reader, group, limit, as_json)
                return
            rebalances = await reader.read()
        rows = rebalances[-limit:] if limit else rebalances
        if as_json:
            print_json([document(group, value) for value in rows])
            return
        if not rows:
            fail(
                f"no rebalance of group {group} is recorded"
                + (f": {reader.reason_empty}" if reader.reason_empty else ""),
                "`konvene groups list` shows the existing groups.",
            )
        print_tables([table(rows, [reader.note] if reader.note else [])])

    run(job)


async def _follow(reader: HistoryReader, group: str, limit: int | None, as_json: bool) -> None:
    """Print the last rebalances, then each new one."""
    from konvene.cli.groups.history import HistoryPrinter

    printer = HistoryPrinter(group, as_json=as_json)
    remark = ""
    is_first = True

    async def read() -> Callable[[], None]:
        nonlocal remark, is_first
        rows = await reader.read()
        if is_first:
            rows = rows[-limit:] if limit else rows
            if not rows:
                note(f"No rebalance of group {group} is recorded yet.")
        is_first = False
        new_remark = reader.note if reader.note != remark else ""
        remark = reader.note
        return lambda: printer.show(rows, new_remark)

    outages = Outages()
    await repeat(read, FOLLOW_INTERVAL_S, outages.show, outages.show_failure)


def _among(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """Parse a comma-separated list of values of an option, each of which must be in `known`. An empty list
    means no filter.

    Case, spaces and underscores are ignored, as KIP-1071 writes `Not Ready`."""
    by_name = {value.lower(): value for value in known}
    found = []
    for part in (p.strip() for p in (text or "").split(",") if p.strip()):
        name = re.sub(r"[ _]", "", part).lower()
        if name not in by_name:
            raise click.UsageError(f"{option} {part} is unknown; valid values: {', '.join(known)}.")
        found.append(by_name[name])
    return found
