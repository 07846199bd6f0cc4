"""`konvene groups reset-offsets`: move what a group has committed, or say where it would move.

The rules are in `konvene.cli.offsets`; here facts are asked for, plans are shown, and with `--execute` they
are committed. Each group is planned for itself: what is wrong with one is told, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from konvene.cli.groups_named import Named, refuse_other_types, several_groups
from konvene.cli.options import (
    Connect,
    Failure,
    cluster_options,
    fail_all,
    failure_of,
    json_option,
    run,
)
from konvene.cli.output import Table, note, print_json, print_tables

if TYPE_CHECKING:
    from konvene.cli.offsets import Facts, Goal, Topics
    from konvene.client.admin import Admin
    from konvene.client.cluster import TopicPartition

NOT_DONE = "WARN: No action will be performed as the --execute option is missing."
LATEST_TIME = 2**63 - 1
DRY_RUN_HINT = "  Give --dry-run where only the plan is wanted."


@click.command("reset-offsets")
@several_groups("Reset")
@click.option("--all-topics", is_flag=True, help="Every partition that the group has committed.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)  # fmt: skip
@click.option("--to-earliest", is_flag=True, help="To the first record that is there.")
@click.option("--to-latest", is_flag=True, help="To the end: only new records are read.")
@click.option("--to-current", is_flag=True, help="To where it is; to the end where nothing is committed.")
@click.option("--to-offset", type=int, metavar="OFFSET", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="By so many records, back where N is negative.")
@click.option(
    "--to-datetime", metavar="TIME",
    help="To the first record at or after YYYY-MM-DDThh:mm:ss.sss, in UTC unless it says +hh:mm.",
)  # fmt: skip
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To the first record of the last so much time.")
@click.option(
    "--from-file", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="CSV",
    help="To what --export has written.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be done: the default.")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", is_flag=True, help="Print the plan as CSV that --from-file takes.")
@cluster_options
@json_option
def reset_offsets(
    connect: Connect, as_json: bool, groups: Named, all_topics: bool, topics: tuple[str, ...],
    dry_run: bool, execute: bool, export: bool, **goals: Any,
) -> None:  # fmt: skip
    """Reset the committed offsets of groups that have no members.

    Needs what is to be reset (--all-topics or --topic) and one of the ways to say where to. A group that does
    not exist yet may be given its first offsets.

    \b
    konvene groups reset-offsets readers --all-topics --to-earliest --dry-run
    konvene groups reset-offsets readers --topic orders:0,1 --shift-by -100 --execute
    konvene groups reset-offsets readers --all-topics --to-current --export > before.csv
    konvene groups reset-offsets readers --from-file before.csv --execute
    """
    if dry_run and execute:
        raise click.UsageError("--execute and --dry-run contradict each other: give one of them.")
    if export and as_json:
        raise click.UsageError("--export and --json contradict each other: give one of them.")
    aims, scope = _aims(groups, goals), _scope(all_topics, topics, goals)
    if not (dry_run or execute):
        note(NOT_DONE)
        click.echo(DRY_RUN_HINT, err=True)

    async def job() -> list[Reset]:
        from konvene.client.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            resets = [await _planned(admin, name, aims, scope) for name in await groups.of(admin)]
            return [await _done(admin, each) for each in resets] if execute else resets

    _show(run(job), with_group=len(groups.names) != 1, execute=execute, export=export, as_json=as_json)


# what was asked for ---------------------------------------------------------------------------


class Aims(NamedTuple):
    """One goal for every group, or, from a file, each group's own."""

    goal: Goal
    of_groups: Mapping[str, Mapping[TopicPartition, int]] | None = None


def _aims(groups: Named, goals: Mapping[str, Any]) -> Aims:
    from konvene.cli import offsets

    given = {
        name.replace("_", "-"): value
        for name, value in goals.items()
        if value is not None and value is not False
    }
    if len(given) != 1:
        ways = ", ".join(f"--{kind}" for kind in offsets.RULES)
        raise click.UsageError(f"Give exactly one of {ways}.")
    ((kind, value),) = given.items()
    try:
        if kind == "from-file":
            rows = offsets.read_csv(value.read_bytes().decode("utf-8-sig"), groups.names)
            return Aims(offsets.Goal(kind), rows)
        if kind == "to-datetime":
            return Aims(offsets.Goal(kind, offsets.read_datetime(value)))
        if kind == "by-duration":
            now_ns = time.time_ns()
            return Aims(offsets.Goal(kind, (now_ns - offsets.read_duration_ns(value)) // 1_000_000))
    except offsets.BadInput as error:
        where = f" {value}:" if kind == "from-file" else ""
        raise click.UsageError(f"--{kind}:{where} {error}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--{kind}: cannot read {value}: {error}.") from None
    return Aims(offsets.Goal(kind, 0 if value is True else value))


def _scope(all_topics: bool, words: tuple[str, ...], goals: Mapping[str, Any]) -> Topics | None:
    """The topics that are meant; None for all that the group has committed, or all that the file names."""
    from konvene.cli.offsets import BadInput, read_topics

    if all_topics and words:
        raise click.UsageError("--all-topics and --topic contradict each other: give one of them.")
    if goals["from_file"] is not None:
        if all_topics or words:
            note("--from-file says itself which partitions are meant: --topic and --all-topics do nothing.")
        return None
    if not (all_topics or words):
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    try:
        return read_topics(words) or None
    except BadInput as error:
        raise click.UsageError(f"{error}.") from None


# one group ------------------------------------------------------------------------------------


class Reset(NamedTuple):
    """A group's plan, and why there is none or why it was not carried out."""

    group: str
    offsets: Mapping[TopicPartition, int]
    warnings: list[str]
    failure: Failure | None = None


async def _planned(admin: Admin, group: str, aims: Aims, scope: Topics | None) -> Reset:
    from konvene.cli.offsets import BadInput, plan
    from konvene.client.errors import KafkaError

    try:
        await _refuse_members(admin, group)
        goal = aims.goal
        if aims.of_groups is not None:
            if group not in aims.of_groups:
                raise Failure(f"No reset plan for group {group} found.", "The file names other groups.")
            goal = goal._replace(offsets=aims.of_groups[group])
        partitions = await _partitions(admin, group, goal, scope)
        made = plan(goal, partitions, await _facts(admin, group, goal, partitions))
        nothing = [] if partitions else [f"Group '{group}' has no committed offsets: there is none to reset."]
        return Reset(group, made.offsets, made.warnings + nothing)
    except Failure as failure:
        return Reset(group, {}, [], failure)
    except BadInput as error:
        return Reset(group, {}, [], Failure(f"group {group}: {error}."))
    except KafkaError as error:
        return Reset(group, {}, [], failure_of(error))


async def _done(admin: Admin, reset: Reset) -> Reset:
    from konvene.client.errors import ClientError

    if not reset.offsets:
        return reset
    try:
        await admin.alter_offsets(reset.group, reset.offsets)
    except ClientError as error:
        return reset._replace(offsets={}, failure=failure_of(error))
    return reset


async def _refuse_members(admin: Admin, group: str) -> None:
    """Kafka's rule: a group that is Empty or that is not there; any other state is told."""
    from konvene.client.errors import KafkaError

    try:
        state = (await admin.describe_group(group)).state
    except KafkaError as error:
        if error.name != "GROUP_ID_NOT_FOUND":
            raise
        await refuse_other_types(admin, group)
        return
    if state not in ("Empty", "Dead"):
        raise Failure(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
            f"{state}.",
            "Stop its members first: `konvene groups describe --members` shows them.",
        )


async def _partitions(admin: Admin, group: str, goal: Goal, scope: Topics | None) -> list[TopicPartition]:
    """The partitions that are meant. A `Failure` where one does not exist or nobody leads it."""
    from konvene.client.cluster import TopicPartition

    if goal.kind == "from-file":
        wanted = list(goal.offsets)
    elif scope is None:
        wanted = list(await admin.committed_offsets(group))
    else:
        wanted = [TopicPartition(topic, each) for topic, numbers in scope for each in numbers or ()]
    whole = [topic for topic, numbers in scope or () if numbers is None]
    topics = {*whole, *(tp.topic for tp in wanted)}
    found = (await admin.cluster.refresh(topics)).topics if topics else {}
    for topic in whole:
        if found[topic].error_code:
            raise Failure(f"there is no topic {topic}", "`konvene topics list` shows the topics there are.")
        wanted += (TopicPartition(topic, p.partition) for p in found[topic].partitions)
    leaders = {TopicPartition(t, p.partition): p.leader for t in topics for p in found[t].partitions}
    missing = sorted(tp for tp in wanted if tp not in leaders)
    if missing:
        raise Failure(
            f'group {group}: The partitions "{",".join(map(str, missing))}" do not exist',
            "`konvene topics describe` shows a topic's partitions.",
        )
    headless = sorted(tp for tp in wanted if leaders[tp] < 0)
    if headless:
        raise Failure(
            f'group {group}: The partitions "{",".join(map(str, headless))}" have no leader',
            "Try again when the broker that leads them is back.",
        )
    return sorted(set(wanted))


async def _facts(admin: Admin, group: str, goal: Goal, partitions: Iterable[TopicPartition]) -> Facts:
    """What the goal's rule needs to know, and no more."""
    from konvene.cli.offsets import RULES, Facts
    from konvene.client.fetch import EARLIEST, LATEST

    needs = RULES[goal.kind].needs

    async def listed(place: int) -> dict[TopicPartition, int]:
        found = await admin.list_offsets(dict.fromkeys(partitions, place))
        return {tp: at.offset for tp, at in found.items()}

    facts = Facts()
    if "earliest" in needs:
        facts = facts._replace(earliest=await listed(EARLIEST))
    if "latest" in needs:
        facts = facts._replace(latest=await listed(LATEST))
    if "committed" in needs:
        known = await admin.committed_offsets(group)
        facts = facts._replace(committed={tp: at.offset for tp, at in known.items()})
    if "at_time" in needs:
        # Negative times are places in the log to a broker; nothing is older than 1970.
        late = await listed(min(max(0, goal.number), LATEST_TIME))
        facts = facts._replace(at_time={tp: at if at >= 0 else None for tp, at in late.items()})
    return facts


# what is said of it ---------------------------------------------------------------------------


def _show(resets: list[Reset], *, with_group: bool, execute: bool, export: bool, as_json: bool) -> None:
    from konvene.cli.offsets import write_csv

    for each in resets:
        for warning in each.warnings:
            note(f"WARN: {warning}")
    if as_json:
        print_json({"executed": execute, "groups": [_document(each, execute) for each in resets]})
    elif export:
        click.echo(write_csv({r.group: r.offsets for r in resets}, with_group=with_group), nl=False)
    else:
        rows = [(r.group, tp.topic, tp.partition, at) for r in resets for tp, at in r.offsets.items()]
        print_tables([Table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET") if rows else (), rows)])
    fail_all(each.failure for each in resets if each.failure is not None)


def _document(reset: Reset, execute: bool) -> dict[str, Any]:
    return {
        "group": reset.group,
        "offsets": [
            {"topic": tp.topic, "partition": tp.partition, "offset": at} for tp, at in reset.offsets.items()
        ],
        "executed": execute and reset.failure is None,
        "warnings": reset.warnings,
        "error": None if reset.failure is None else reset.failure.message,
    }
