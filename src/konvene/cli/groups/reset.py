"""`konvene groups reset-offsets`: plan new committed offsets of groups, and commit them with `--execute`.

`konvene.cli.groups.reset_plan` has the rules; this module requests the facts, shows the plans and commits
them. Each group is planned on its own: an error of one group does not affect the others.

For a streams group the input topics are reset (`topic_scope`); its internal topics stay unless they are
deleted as well, which makes the application start from scratch. For a share group the start offsets are
reset."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from konvene.cli.groups.selection import GroupSelection, several_groups
from konvene.cli.groups.share import share_group
from konvene.cli.groups.topic_scope import Scope, delete_topics, internal_topics, scope_options, streams_group
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
    from konvene.cli.groups.overview import AnyGroup
    from konvene.cli.groups.reset_plan import Facts, Goal, Topics
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.groups import GroupDescription
    from konvene.client.admin.streams_groups import StreamsGroupDescription
    from konvene.client.net.cluster import TopicPartition

NOT_EXECUTED = "WARN: No action will be performed as the --execute option is missing."
LATEST_TIME = 2**63 - 1
DRY_RUN_HINT = "  Use --dry-run to show the plan without this warning."


@click.command("reset-offsets")
@several_groups("Reset")
@scope_options
@click.option("--to-earliest", is_flag=True, help="Reset to the earliest offset.")
@click.option("--to-latest", is_flag=True, help="Reset to the latest offset.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Reset to the committed offset, or to the latest offset if there is none.",
)
@click.option("--to-offset", type=int, metavar="OFFSET", help="Reset to this offset.")
@click.option(
    "--shift-by", type=int, metavar="N", help="Shift the committed offset by N, which may be negative."
)
@click.option(
    "--to-datetime", metavar="TIME",
    help="Reset to the first record at or after YYYY-MM-DDThh:mm:ss.sss, in UTC unless +hh:mm follows.",
)  # fmt: skip
@click.option(
    "--by-duration", metavar="PnDTnHnMnS", help="Reset to the first record within this duration before now."
)
@click.option(
    "--from-file", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="CSV",
    help="Reset to the offsets in a file that --export has written.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the new offsets without committing them (default).")
@click.option("--execute", is_flag=True, help="Commit the new offsets.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV for --from-file.")
@click.option(
    "--delete-internal-topic", "internal", multiple=True, metavar="TOPIC",
    help="With --execute: also delete this internal topic of a streams group; may be repeated.",
)  # fmt: skip
@click.option(
    "--delete-all-internal-topics", "all_internal", is_flag=True,
    help="With --execute: also delete all internal topics of a streams group.",
)  # fmt: skip
@cluster_options
@json_option
def reset_offsets(
    connect: Connect, as_json: bool, groups: GroupSelection, scope: Scope | None, dry_run: bool,
    execute: bool, export: bool, internal: tuple[str, ...], all_internal: bool, **goals: Any,
) -> None:  # fmt: skip
    """Reset the committed offsets of groups that have no members.

    Needs a scope (--topic or --all-topics) and exactly one target, such as --to-earliest. For a group that
    does not exist yet, the offsets create it; with --share it becomes a share group. For a streams group the
    input topics are reset; --input-topic and --all-input-topics need --execute or --dry-run.

    \b
    konvene groups reset-offsets readers --all-topics --to-earliest --dry-run
    konvene groups reset-offsets readers --topic orders:0,1 --shift-by -100 --execute
    konvene groups reset-offsets readers --all-topics --to-current --export > before.csv
    konvene groups reset-offsets readers --from-file before.csv --execute
    konvene groups reset-offsets words --all-input-topics --to-earliest --delete-all-internal-topics --execute
    konvene groups reset-offsets jobs --share --topic orders --to-datetime 2026-11-21T08:30:00.000 --execute
    """
    if dry_run and execute:
        raise click.UsageError("--execute and --dry-run cannot be used together.")
    if export and as_json:
        raise click.UsageError("--export and --json cannot be used together.")
    if (internal or all_internal) and not execute:
        raise click.UsageError("Deleting internal topics needs --execute.")
    if scope is not None and scope.is_streams_scope and not (dry_run or execute):
        raise click.UsageError("Resetting input topics needs --execute or --dry-run.")
    scope = _scope(scope, goals)
    targets = _targets(groups, goals, scope)
    if scope.is_streams_scope:
        groups = groups._replace(streams=True)
    topics_to_delete = TopicsToDelete(internal, all_internal)
    if not (dry_run or execute):
        note(NOT_EXECUTED)
        click.echo(DRY_RUN_HINT, err=True)

    async def job() -> list[Reset]:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            names = await groups.resolve(admin)
            resets = [
                await _plan_reset(admin, name, targets, scope, topics_to_delete, share=groups.share)
                for name in names
            ]
            return [await _execute(admin, each) for each in resets] if execute else resets

    _show(run(job), with_group=len(groups.names) != 1, execute=execute, export=export, as_json=as_json)


# options --------------------------------------------------------------------------------------


class Targets(NamedTuple):
    """The target of the reset: one goal for all groups, or the offsets of each group from a file."""

    goal: Goal
    of_groups: Mapping[str, Mapping[TopicPartition, int]] | None = None


class TopicsToDelete(NamedTuple):
    """The internal topics to delete with a reset: those that are named on the command line, or all."""

    named: tuple[str, ...]
    all: bool

    def of(self, group: StreamsGroupDescription) -> tuple[str, ...]:
        """Return the internal topics of the group that are to be deleted. Raises `Failure` for a named one
        that is not internal."""
        if not (self.named or self.all):
            return ()
        known = internal_topics(group)
        for topic in sorted(set(self.named) - set(known)):
            raise Failure(
                f"{topic} is not an internal topic of group {group.group_id}",
                "`konvene groups describe --topology` shows the internal topics.",
            )
        return tuple(known) if self.all else tuple(dict.fromkeys(self.named))


def _targets(groups: GroupSelection, goals: Mapping[str, Any], scope: Scope) -> Targets:
    from konvene.cli.groups import reset_plan as offsets

    given = {
        name.replace("_", "-"): value
        for name, value in goals.items()
        if value is not None and value is not False
    }
    if not given and scope.defaults_to_earliest:
        given = {"to-earliest": True}
    if len(given) != 1:
        options = ", ".join(f"--{kind}" for kind in offsets.RULES)
        raise click.UsageError(f"Give exactly one of {options}.")
    ((kind, value),) = given.items()
    try:
        if kind == "from-file":
            rows = offsets.read_csv(value.read_bytes().decode("utf-8-sig"), groups.names)
            return Targets(offsets.Goal(kind), rows)
        if kind == "to-datetime":
            return Targets(offsets.Goal(kind, offsets.read_datetime(value)))
        if kind == "by-duration":
            now_ns = time.time_ns()
            return Targets(offsets.Goal(kind, (now_ns - offsets.read_duration_ns(value)) // 1_000_000))
    except offsets.BadInput as error:
        where = f" {value}:" if kind == "from-file" else ""
        raise click.UsageError(f"--{kind}:{where} {error}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--{kind}: cannot read {value}: {error}.") from None
    return Targets(offsets.Goal(kind, 0 if value is True else value))


def _scope(scope: Scope | None, goals: Mapping[str, Any]) -> Scope:
    if goals["from_file"] is not None:
        if scope is not None:
            note("The file of --from-file lists the partitions: --topic and --all-topics are ignored.")
        return Scope(None, scope is not None and scope.is_streams_scope)
    if scope is None:
        raise click.UsageError(
            "One of the reset scopes should be defined: --all-topics, --topic. For a streams group also "
            "--all-input-topics, --input-topic."
        )
    return scope


# planning and executing -----------------------------------------------------------------------


class Reset(NamedTuple):
    """The plan to reset one group, and the failure of planning or executing it, if any."""

    group: str
    offsets: Mapping[TopicPartition, int]
    warnings: list[str]
    failure: Failure | None = None
    topics_to_delete: tuple[str, ...] = ()
    """Internal topics to delete; after the execution, those that were deleted."""
    share: bool = False


async def _plan_reset(
    admin: Admin, group: str, targets: Targets, scope: Scope, topics_to_delete: TopicsToDelete, *, share: bool
) -> Reset:
    """Plan the reset of one group. With `share` a group that does not exist yet becomes a share group."""
    from konvene.cli.groups.reset_plan import BadInput, plan
    from konvene.client.errors import KafkaError

    try:
        found = await _describe_inactive(admin, group, scope, topics_to_delete)
        streams = _streams(found)
        share = _is_share(group, found, share)
        goal = targets.goal
        if targets.of_groups is not None:
            if group not in targets.of_groups:
                raise Failure(f"No reset plan for group {group} found.", "The file names other groups.")
            goal = goal._replace(offsets=targets.of_groups[group])
        current = await _current(admin, group, goal, scope.topics, share=share)
        partitions = await _partitions(admin, group, goal, scope.topics, streams, current)
        planned = plan(goal, partitions, await _facts(admin, goal, partitions, current))
        nothing = [] if partitions else [f"Group '{group}' has no committed offsets to reset."]
        topics = topics_to_delete.of(streams) if streams is not None else ()
        return Reset(group, planned.offsets, planned.warnings + nothing, topics_to_delete=topics, share=share)
    except Failure as failure:
        return Reset(group, {}, [], failure)
    except BadInput as error:
        return Reset(group, {}, [], Failure(f"group {group}: {error}."))
    except KafkaError as error:
        return Reset(group, {}, [], failure_of(error))


async def _execute(admin: Admin, reset: Reset) -> Reset:
    from konvene.client.errors import ClientError

    try:
        if reset.offsets and reset.share:
            return await _execute_share(admin, reset)
        if reset.offsets:
            await admin.alter_offsets(reset.group, reset.offsets)
    except ClientError as error:
        return reset._replace(offsets={}, failure=failure_of(error), topics_to_delete=())
    deleted, failures = await delete_topics(admin, reset.group, reset.topics_to_delete)
    for each in failures[:-1]:
        each.show()
    return reset._replace(
        topics_to_delete=tuple(deleted), failure=failures[-1] if failures else reset.failure
    )


async def _execute_share(admin: Admin, reset: Reset) -> Reset:
    """Alter the start offsets of a share group. An error of one partition does not affect the others."""
    errors = await admin.alter_share_group_offsets(reset.group, reset.offsets)
    failures = [failure_of(error) for error in errors.values() if error is not None]
    for each in failures[:-1]:
        each.show()
    return reset._replace(
        offsets={tp: at for tp, at in reset.offsets.items() if errors.get(tp) is None},
        failure=failures[-1] if failures else None,
    )


async def _describe_inactive(
    admin: Admin, group: str, scope: Scope, topics_to_delete: TopicsToDelete
) -> AnyGroup | None:
    """Describe a group that may be reset: an Empty one, or None for one that does not exist.

    Raises `Failure` for any other state, as Kafka's tool does."""
    streams = await streams_group(admin, group)
    found = streams or await share_group(admin, group) or await _consumer_group(admin, group)
    state = found.state if found is not None else None
    if streams is None and (scope.is_streams_scope or topics_to_delete.named or topics_to_delete.all):
        if state is None:
            raise Failure(
                f"there is no streams group {group}",
                "`konvene groups list --streams` shows the existing streams groups.",
            )
        raise Failure(
            f"group {group} is not a streams group: it has no input topics and no internal topics",
            "Use --topic or --all-topics for other groups.",
        )
    if state not in (None, "Empty", "Dead"):
        raise Failure(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
            f"{state}.",
            "Stop its members first: `konvene groups describe --members` shows them.",
        )
    return found


async def _consumer_group(admin: Admin, group: str) -> GroupDescription | None:
    """Describe a classic or consumer group; None if it does not exist."""
    from konvene.client.errors import KafkaError

    try:
        return await admin.describe_group(group)
    except KafkaError as error:
        if error.name != "GROUP_ID_NOT_FOUND":
            raise
    return None


def _streams(found: AnyGroup | None) -> StreamsGroupDescription | None:
    from konvene.client.admin.streams_groups import StreamsGroupDescription

    return found if isinstance(found, StreamsGroupDescription) else None


def _is_share(group: str, found: AnyGroup | None, requested: bool) -> bool:
    """Return True if the group is a share group, or does not exist and `requested` makes it one. Raises
    `Failure` if --share is given for a group of another type."""
    is_share = found is not None and found.type == "share"
    if requested and found is not None and not is_share:
        raise Failure(
            f"group {group} is a {found.type} group; --share needs a share group",
            "`konvene groups list` shows the type of each group.",
        )
    return is_share or requested


async def _current(
    admin: Admin, group: str, goal: Goal, scope: Topics | None, *, share: bool
) -> dict[TopicPartition, int]:
    """Return the current committed offsets of a group, or the start offsets of a share group.

    Empty if neither the goal nor the scope needs them.
    """
    from konvene.cli.groups.reset_plan import RULES

    is_scope = scope is None and goal.kind != "from-file"
    if not is_scope and "committed" not in RULES[goal.kind].needs:
        return {}
    if not share:
        return {tp: at.offset for tp, at in (await admin.committed_offsets(group)).items()}
    found = (await admin.list_share_group_offsets({group: None}))[group]
    return {tp: at.start_offset for tp, at in found.items() if at.start_offset is not None}


async def _partitions(
    admin: Admin, group: str, goal: Goal, scope: Topics | None, streams: StreamsGroupDescription | None,
    current: Mapping[TopicPartition, int],
) -> list[TopicPartition]:  # fmt: skip
    """Return the partitions to reset. Raises `Failure` if one does not exist or has no leader.

    They are those of the file or of `scope`; without either, those in `current`.
    """
    from konvene.client.net.cluster import TopicPartition

    if goal.kind == "from-file":
        selected = list(goal.offsets)
    elif scope is None:
        selected = list(current)
        if streams is not None and streams.topology is not None:
            selected = [tp for tp in selected if tp.topic in streams.topology.source_topics]
    else:
        selected = [TopicPartition(topic, each) for topic, numbers in scope for each in numbers or ()]
    whole = [topic for topic, numbers in scope or () if numbers is None]
    topics = {*whole, *(tp.topic for tp in selected)}
    if streams is not None:
        _check_topics(streams, topics)
    found = (await admin.cluster.refresh(topics)).topics if topics else {}
    for topic in whole:
        if found[topic].error_code:
            raise Failure(f"there is no topic {topic}", "`konvene topics list` shows the existing topics.")
        selected += (TopicPartition(topic, p.partition) for p in found[topic].partitions)
    leaders = {TopicPartition(t, p.partition): p.leader for t in topics for p in found[t].partitions}
    missing = sorted(tp for tp in selected if tp not in leaders)
    if missing:
        raise Failure(
            f'group {group}: The partitions "{",".join(map(str, missing))}" do not exist',
            "`konvene topics describe` shows a topic's partitions.",
        )
    leaderless = sorted(tp for tp in selected if leaders[tp] < 0)
    if leaderless:
        raise Failure(
            f'group {group}: The partitions "{",".join(map(str, leaderless))}" have no leader',
            "Try again when their broker is available.",
        )
    return sorted(set(selected))


def _check_topics(group: StreamsGroupDescription, topics: Iterable[str]) -> None:
    """Raise `Failure` for a topic that the topology does not read: its offsets would never be used."""
    if group.topology is None:
        return
    reads = {topic for each in group.topology.subtopologies for topic in each.reads}
    for topic in sorted(set(topics) - reads):
        raise Failure(
            f"topic {topic} is not part of the group '{group.group_id}'",
            "`konvene groups describe --topology` shows the topics that it reads.",
        )


async def _facts(
    admin: Admin, goal: Goal, partitions: Iterable[TopicPartition], current: Mapping[TopicPartition, int]
) -> Facts:
    """Return the facts (offsets of partitions) that the rule of the goal needs, requested from the cluster.

    `current` are the committed offsets, which are known already.
    """
    from konvene.cli.groups.reset_plan import RULES, Facts
    from konvene.client.consumer.fetch import EARLIEST, LATEST

    needs = RULES[goal.kind].needs

    async def listed(timestamp: int) -> dict[TopicPartition, int]:
        found = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
        return {tp: at.offset for tp, at in found.items()}

    facts = Facts(committed=current)
    if "earliest" in needs:
        facts = facts._replace(earliest=await listed(EARLIEST))
    if "latest" in needs:
        facts = facts._replace(latest=await listed(LATEST))
    if "at_time" in needs:
        # Brokers reserve negative timestamps for EARLIEST, LATEST and others.
        late = await listed(min(max(0, goal.number), LATEST_TIME))
        facts = facts._replace(at_time={tp: at if at >= 0 else None for tp, at in late.items()})
    return facts


# output ---------------------------------------------------------------------------------------


def _show(resets: list[Reset], *, with_group: bool, execute: bool, export: bool, as_json: bool) -> None:
    from konvene.cli.groups.reset_plan import write_csv

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
        for topic in (topic for each in resets for topic in each.topics_to_delete):
            note(f"Deleted internal topic {topic}.")
    fail_all(each.failure for each in resets if each.failure is not None)


def _document(reset: Reset, execute: bool) -> dict[str, object]:
    return {
        "group": reset.group,
        "offsets": [
            {"topic": tp.topic, "partition": tp.partition, "offset": at} for tp, at in reset.offsets.items()
        ],
        "executed": execute and reset.failure is None,
        "deleted_topics": list(reset.topics_to_delete),
        "warnings": reset.warnings,
        "error": None if reset.failure is None else reset.failure.message,
    }
