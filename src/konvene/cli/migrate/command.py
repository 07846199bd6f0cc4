"""`konvene migrate`: check before an upgrade or downgrade whether groups can change their protocol online.

    dry-run LOG…      for the groups of a copy of a coordinator's log; writes nothing and contacts no broker
    check GROUP…      for groups of a running cluster; changes nothing
    explain           list everything that can block a migration

`groups.migration.dry_run` runs the migration with the code of the coordinator. Exit code 0: every group can
migrate; 1: at least one cannot; 2: wrong usage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from konvene.cli.migrate.show import (
    catalogue_document,
    catalogue_tables,
    document,
    has_findings,
    members_table,
    table,
)
from konvene.cli.name_completion import complete_groups
from konvene.cli.options import Connect, cluster_options, json_option, run
from konvene.cli.output import note, print_json, print_tables
from konvene.cli.positional import several_names
from konvene.cli.sim.options import pairs_of
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.groups.group_type import Group
    from konvene.groups.migration.dry_run import DryRun, DryRunInputs
    from konvene.messages.streams_group_heartbeat import Topology

__all__ = ["migrate"]

F = TypeVar("F", bound=Callable[..., object])


@click.group()
def migrate() -> None:
    """Check whether groups can migrate between the classic, consumer and streams protocols.

    \b
    konvene migrate dry-run data --explain
    konvene migrate check orders-app
    konvene migrate explain
    """


def _shared_options(command: F) -> F:
    for option in (
        click.option("--explain", is_flag=True, help="Show what to do about each blocker and note."),
        click.option("--members", "verbose", is_flag=True, help="Show the members of each group as well."),
        click.option("--set", "--config", "settings", multiple=True, metavar="NAME=VALUE",
                     help="A broker or group setting to assume; may be repeated."),
        click.option("--topology", "file", metavar="FILE",
                     type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="The topology, as printed by `konvene groups describe --topology --json`."),
        click.option("--to", type=click.Choice(["consumer", "streams", "classic"]),
                     help="Target protocol [default: streams for Kafka Streams, else consumer; classic for "
                     "consumer and streams groups]."),
        json_option,
    ):  # fmt: skip
        command = option(command)
    return command


class Options(NamedTuple):
    """Options that `dry-run` and `check` have in common."""

    file: Path | None
    to: str | None
    settings: tuple[str, ...]
    verbose: bool
    explain: bool
    as_json: bool


def _at(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    from konvene.cli.explain.command import _time

    return _time(context, parameter, text)


@migrate.command("dry-run")
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--group", "names", multiple=True, metavar="GROUP", help="Check only this group; may be repeated."
)
@click.option("--at", "at_ms", callback=_at, metavar="TIME",
              help="State at this time: 2026-11-22T10:00, or 2h ago; without compacted records.")  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="NAME=PARTITIONS",
              help="Partitions of a topic that the logs do not show; may be repeated.")  # fmt: skip
@click.option("--topology-of", metavar="GROUP", help="Use the topology of this streams group of the log.")
@_shared_options
def dry_run(
    logs: tuple[str, ...], names: tuple[str, ...], at_ms: int | None, topics: tuple[str, ...],
    topology_of: str | None, **common: Any,
) -> None:  # fmt: skip
    """Migrate each group of a log without writing: show blockers, and how many partitions or tasks would
    move.

    LOGS are data directories, partition directories of __consumer_offsets, or segments, of konvene or Apache
    Kafka, all of one cluster. They are only read. The exit code is 0 if all groups can migrate, else 1.

    \b
    konvene migrate dry-run data
    konvene migrate dry-run /var/kafka --group orders-app --members --explain
    konvene migrate dry-run data --group words --topology words.json --set konvene.streams.mode=kip
    """
    from konvene.cli.migrate.load import context_of, load
    from konvene.cli.migrate.topology import read_file, topology_of_group
    from konvene.groups.migration.dry_run import dry_run_migration

    options = Options(**common)
    if options.file is not None and topology_of is not None:
        raise click.UsageError("--topology and --topology-of cannot be used together.")
    loaded = load(logs, at_ms)
    counts = dict(loaded.topics) | _counts(topics)
    overrides = pairs_of("--set", options.settings)
    context = context_of(counts, loaded.groups, overrides, max(loaded.newest_ms, 1))
    topology, owner = read_file(options.file) if options.file is not None else (None, topology_of)
    if topology_of is not None:
        topology = topology_of_group(loaded.groups.get(topology_of), topology_of)
    found = [
        dry_run_migration(loaded.groups[name], target, context, _known(topology, owner, name, unseen=True))
        for name, target in _selected(loaded.groups, names, options.to)
    ]
    _print(found, options)
    _exit(found, damaged=loaded.damaged)


def _known(topology: Topology | None, owner: str | None, group: str, *, unseen: bool) -> DryRunInputs:
    from konvene.cli.migrate.topology import rename_internal_topics
    from konvene.groups.migration.dry_run import DryRunInputs

    of_group = None if topology is None else rename_internal_topics(topology, group, owner)
    return DryRunInputs(of_group, unseen_topics=unseen)


def _counts(texts: Iterable[str]) -> dict[str, int]:
    found = {}
    for name, count in pairs_of("--topic", texts):
        if not count.isdigit() or not 0 < int(count) <= 1_000_000:
            raise click.UsageError(f"--topic {name}={count}: write NAME=PARTITIONS, as in orders=12.")
        found[name] = int(count)
    return found


def _selected(groups: Mapping[str, Group], names: Sequence[str], to: str | None) -> list[tuple[str, str]]:
    """Return the names of the selected groups with their target protocols. Raises UsageError for a named
    group that cannot migrate at all."""
    from konvene.groups.classic.group import ClassicGroup
    from konvene.groups.classic.subscriptions import CONSUMER
    from konvene.groups.migration.dry_run import default_target
    from konvene.groups.share.group import ShareGroup

    if names:
        return [(name, _target(groups, name, to)) for name in dict.fromkeys(names)]
    found, skipped = [], 0
    for name in sorted(groups):
        group = groups[name]
        if isinstance(group, ShareGroup):
            continue
        target = default_target(group)
        if isinstance(group, ClassicGroup):
            if group.members and group.protocol_type != CONSUMER:
                skipped += 1
                continue
        elif not group.classic_members and to is None:
            continue
        if to in (None, target):
            found.append((name, target))
    if skipped:
        note(f"Skipped {counted(skipped, 'group')} without consumers as members; --group GROUP checks one.")
    return found


def _target(groups: Mapping[str, Group], name: str, to: str | None) -> str:
    from konvene.groups.classic.group import ClassicGroup
    from konvene.groups.migration.dry_run import default_target
    from konvene.groups.share.group import ShareGroup

    group = groups.get(name)
    if group is None:
        some = ", ".join(sorted(groups)[:5])
        raise click.UsageError(
            f"--group {name}: no such group." + (f" Existing groups: {some}." if some else "")
        )
    if isinstance(group, ShareGroup):
        raise click.UsageError(f"--group {name}: a share group cannot migrate to another protocol.")
    target = to or default_target(group)
    if isinstance(group, ClassicGroup) == (target == "classic"):
        what = (
            "a classic group already"
            if target == "classic"
            else "not a classic group: it can migrate to classic"
        )
        raise click.UsageError(f"--to {target}: {name} is {what}.")
    return target


# output ---------------------------------------------------------------------------------------


def _print(results: Sequence[DryRun], options: Options) -> None:
    if options.as_json:
        print_json([document(each, explain=options.explain) for each in results])
        return
    if not results:
        note("There is no group to migrate.")
        return
    tables = [table(results, explain=options.explain)]
    print_tables([*tables, *(members_table(each) for each in results if options.verbose and each.members)])
    blocked = sum(not each.can for each in results)
    note(f"{len(results) - blocked:,} of {counted(len(results), 'group')} can migrate.")
    if not options.explain and has_findings(results):
        note("Use --explain to see what to do about each blocker and note.")


def _exit(results: Sequence[DryRun], *, damaged: bool = False) -> None:
    if damaged or not all(each.can for each in results):
        raise click.exceptions.Exit(1)


@migrate.command()
@several_names("group", complete_groups)
@_shared_options
@cluster_options
def check(connect: Connect, names: tuple[str, ...], **common: Any) -> None:
    """Check whether groups of a running cluster can migrate, and what would move.

    Reads members, topics and settings from the cluster; --set replaces a setting. Changes nothing. The
    exit code is 0 if all groups can migrate, else 1.

    \b
    konvene migrate check orders-app
    konvene migrate check words --topology words.json --members --explain
    konvene migrate check orders-app --to classic --bootstrap-server kafka-1:9092
    """
    from konvene.cli.migrate.check import read_group
    from konvene.cli.migrate.load import context_of
    from konvene.cli.migrate.topology import read_file
    from konvene.groups.migration.dry_run import dry_run_migration

    if not names:
        raise click.UsageError("Give GROUP... (or --group GROUP).")
    options = Options(**common)
    topology, owner = read_file(options.file) if options.file is not None else (None, None)
    overrides = pairs_of("--set", options.settings)

    async def job() -> list[DryRun]:
        found = []
        async with connect() as cluster:
            for name in names:
                state = await read_group(cluster, name)
                target = _target({name: state.group}, name, options.to)
                context = context_of(state.topics, [name], [*state.settings, *overrides], state.now_ms)
                known = _known(topology, owner, name, unseen=False)
                found.append(dry_run_migration(state.group, target, context, known))
        return found

    found = run(job)
    _print(found, options)
    _exit(found)


@migrate.command("explain")
@json_option
def explain_all(as_json: bool) -> None:
    """List all possible blockers with what to do about them, and the client releases that can migrate.

    \b
    konvene migrate explain
    konvene migrate explain --json
    """
    if as_json:
        print_json(catalogue_document())
    else:
        print_tables(catalogue_tables())
