"""`konvene migrate`: whether groups can change their protocol while they run, before anybody tries.

    rehearse LOG…     on a copy of a coordinator's log: nothing is written, and no broker is asked
    check GROUP…      of groups of a running cluster: nothing is changed there
    explain           everything that can stand in the way

The rehearsal itself is `groups.migration.dry_run`, on the code that serves. Exit code 0: nothing stands in
the way of
any of the groups; 1: something does; 2: the command was not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from konvene.cli.migrate.show import (
    document,
    explained,
    members_table,
    obstacles,
    obstacles_document,
    table,
)
from konvene.cli.options import Connect, cluster_options, json_option, run
from konvene.cli.output import note, print_json, print_tables
from konvene.cli.sim.options import pairs_of

if TYPE_CHECKING:
    from konvene.groups.migration.dry_run import DryRun, DryRunInputs
    from konvene.messages.streams_group_heartbeat import Topology

__all__ = ["migrate"]

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def migrate() -> None:
    """Rehearse how groups change between the classic, the consumer and the streams protocol.

    \b
    konvene migrate rehearse data --explain
    konvene migrate check orders-app
    konvene migrate explain
    """


def _shared_options(command: F) -> F:
    for option in (
        click.option("--explain", is_flag=True, help="Say what to do about all that is found."),
        click.option("--members", "verbose", is_flag=True, help="A table of the members of each group, too."),
        click.option("--config", "settings", multiple=True, metavar="NAME=VALUE",
                     help="A setting of the broker, or of the groups; repeatable [default: the broker's]."),
        click.option("--topology", "file", metavar="FILE",
                     type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="The topology, as `konvene groups describe --topology --json` prints one."),
        click.option("--to", type=click.Choice(["consumer", "streams", "classic"]),
                     help="Only to this protocol [default: streams for Kafka Streams, else consumer; classic "
                     "for other groups]."),
        json_option,
    ):  # fmt: skip
        command = option(command)
    return command


def _at(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    from konvene.cli.explain.command import _time

    return _time(context, parameter, text)


@migrate.command()
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--group", "names", multiple=True, metavar="GROUP", help="Only this group. Repeatable.")
@click.option("--at", "at_ms", callback=_at, metavar="TIME",
              help="As it was then: 2026-11-22T10:00, or 2h; less what was compacted since.")  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="NAME=PARTITIONS",
              help="A topic of which the logs do not tell, or not all; repeatable.")  # fmt: skip
@click.option("--topology-of", metavar="GROUP", help="The topology of this streams group of the log.")
@_shared_options
def rehearse(
    logs: tuple[str, ...], names: tuple[str, ...], at_ms: int | None, topics: tuple[str, ...],
    topology_of: str | None, file: Path | None, to: str | None, settings: tuple[str, ...],
    verbose: bool, explain: bool, as_json: bool,
) -> None:  # fmt: skip
    """Rehearse the change of protocol of each group of a log: what blocks it, and what would move.

    LOGS are data directories, folders of partitions of __consumer_offsets, or segments, of konvene or of
    Apache Kafka, all of one cluster. They are only read. Ends with exit code 0 if all groups can change,
    else with 1.

    \b
    konvene migrate rehearse data
    konvene migrate rehearse /var/kafka --group orders-app --members --explain
    konvene migrate rehearse data --group words --topology words.json --config konvene.streams.mode=kip
    """
    from konvene.cli.migrate.load import context_of, load
    from konvene.cli.migrate.topology import of_group, read_file
    from konvene.groups.migration.dry_run import dry_run_migration

    if file is not None and topology_of is not None:
        raise click.UsageError("--topology and --topology-of exclude one another.")
    loaded = load(logs, at_ms)
    counts = dict(loaded.topics) | _counts(topics)
    context = context_of(counts, loaded.groups, pairs_of("--config", settings), max(loaded.newest_ms, 1))
    topology, whose = read_file(file) if file is not None else (None, topology_of)
    if topology_of is not None:
        topology = of_group(loaded.groups.get(topology_of), topology_of)
    found = [
        dry_run_migration(loaded.groups[name], aim, context, _known(topology, whose, name, unseen=True))
        for name, aim in _wanted(loaded.groups, names, to)
    ]
    _tell(found, explain=explain, verbose=verbose, as_json=as_json)
    _end(found, damaged=loaded.damaged)


def _known(topology: Topology | None, whose: str | None, group: str, *, unseen: bool) -> DryRunInputs:
    from konvene.cli.migrate.topology import named_after
    from konvene.groups.migration.dry_run import DryRunInputs

    of_group = None if topology is None else named_after(topology, group, whose)
    return DryRunInputs(of_group, unseen_topics=unseen)


def _counts(texts: Iterable[str]) -> dict[str, int]:
    found = {}
    for name, count in pairs_of("--topic", texts):
        if not count.isdigit() or not 0 < int(count) <= 1_000_000:
            raise click.UsageError(f"--topic {name}={count}: write NAME=PARTITIONS, as in orders=12.")
        found[name] = int(count)
    return found


def _wanted(groups: Mapping[str, Any], names: Sequence[str], to: str | None) -> list[tuple[str, str]]:
    """Which groups, and what each is to become. Raises UsageError for one that cannot be told of."""
    from konvene.groups.classic.group import ClassicGroup
    from konvene.groups.classic.subscriptions import CONSUMER
    from konvene.groups.migration.dry_run import default_target
    from konvene.groups.share.group import ShareGroup

    if names:
        return [(name, _aim(groups, name, to)) for name in dict.fromkeys(names)]
    found, others = [], 0
    for name in sorted(groups):
        group = groups[name]
        if isinstance(group, ShareGroup):
            continue
        aim = default_target(group)
        if isinstance(group, ClassicGroup):
            if group.members and group.protocol_type != CONSUMER:
                others += 1
                continue
        elif not group.classic_members and to is None:
            continue
        if to in (None, aim):
            found.append((name, aim))
    if others:
        note(f"{others} groups of members that are no consumers are left out; --group GROUP tells of one.")
    return found


def _aim(groups: Mapping[str, Any], name: str, to: str | None) -> str:
    from konvene.groups.classic.group import ClassicGroup
    from konvene.groups.migration.dry_run import default_target
    from konvene.groups.share.group import ShareGroup

    group = groups.get(name)
    if group is None:
        some = ", ".join(sorted(groups)[:5])
        raise click.UsageError(f"--group {name}: no such group. " + (f"There are: {some}." if some else ""))
    if isinstance(group, ShareGroup):
        raise click.UsageError(f"--group {name}: a share group has no other protocol.")
    aim = to or default_target(group)
    if isinstance(group, ClassicGroup) == (aim == "classic"):
        what = "a classic group already" if aim == "classic" else "no classic group: it can go to classic"
        raise click.UsageError(f"--to {aim}: {name} is {what}.")
    return aim


# what came of it ------------------------------------------------------------------------------


def _tell(found: Sequence[DryRun], *, explain: bool, verbose: bool, as_json: bool) -> None:
    if as_json:
        print_json([document(each, explain=explain) for each in found])
        return
    if not found:
        note("There is no group that could change its protocol.")
        return
    tables = [table(found, explain=explain)]
    print_tables([*tables, *(members_table(each) for each in found if verbose and each.members)])
    blocked = sum(not each.can for each in found)
    note(f"{len(found) - blocked} of {len(found)} groups can change their protocol.")
    if not explain and explained(found):
        note("--explain says what to do about what was found.")


def _end(found: Sequence[DryRun], *, damaged: bool = False) -> None:
    if damaged or not all(each.can for each in found):
        raise click.exceptions.Exit(1)


@migrate.command()
@click.argument("groups", nargs=-1, required=True)
@_shared_options
@cluster_options
def check(
    connect: Connect, groups: tuple[str, ...], file: Path | None, to: str | None,
    settings: tuple[str, ...], verbose: bool, explain: bool, as_json: bool,
) -> None:  # fmt: skip
    """Check whether groups of a running cluster can change their protocol, and what would move.

    The members, the topics, and the settings are asked of the cluster; --config says what they are to be
    instead. Nothing is changed. Ends with exit code 0 if all of them can change, else with 1.

    \b
    konvene migrate check orders-app
    konvene migrate check words --topology words.json --members --explain
    konvene migrate check orders-app --to classic --bootstrap-server kafka-1:9092
    """
    from konvene.cli.migrate.check import found_in
    from konvene.cli.migrate.load import context_of
    from konvene.cli.migrate.topology import read_file
    from konvene.groups.migration.dry_run import dry_run_migration

    topology, whose = read_file(file) if file is not None else (None, None)
    said = pairs_of("--config", settings)

    async def job() -> list[DryRun]:
        found = []
        async with connect() as cluster:
            for name in dict.fromkeys(groups):
                asked = await found_in(cluster, name)
                aim = _aim({name: asked.group}, name, to)
                context = context_of(asked.topics, [name], [*asked.settings, *said], asked.now_ms)
                known = _known(topology, whose, name, unseen=False)
                found.append(dry_run_migration(asked.group, aim, context, known))
        return found

    found = run(job)
    _tell(found, explain=explain, verbose=verbose, as_json=as_json)
    _end(found)


@migrate.command("explain")
@json_option
def explain_all(as_json: bool) -> None:
    """Print all that can stand in the way, what to do about it, and which clients can migrate.

    \b
    konvene migrate explain
    konvene migrate explain --json
    """
    if as_json:
        print_json(obstacles_document())
    else:
        print_tables(obstacles())
