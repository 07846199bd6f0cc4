"""`konvene groups reset-offsets`: plan new committed offsets of groups, and commit them with `--execute`.

`konvene.client.admin.reset_offsets` plans and commits; this module parses options and shows the plans. Each
group is planned on its own: an error of one group does not affect the others.

For a streams group the input topics are reset (`topic_scope`); its internal topics stay unless they are
deleted as well, which makes the application start from scratch. For a share group the start offsets are
reset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from konvene.cli.groups.selection import GroupSelection, several_groups
from konvene.cli.groups.topic_scope import Scope, delete_topics, internal_topics, scope_options
from konvene.cli.name_completion import complete_topics
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
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.any_group import AnyGroup
    from konvene.client.admin.reset_plan import Goal
    from konvene.client.admin.streams_groups import StreamsGroupDescription
    from konvene.client.errors import KafkaError
    from konvene.client.net.cluster import TopicPartition

NOT_EXECUTED = "WARN: No action will be performed as the --execute option is missing."
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
    "--delete-internal-topic", "internal", multiple=True, metavar="TOPIC", shell_complete=complete_topics,
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

    def of(self, found: AnyGroup | None) -> tuple[str, ...]:
        """Return the internal topics of a streams group that are to be deleted. Raises `Failure` for a named
        one that is not internal."""
        group = _streams(found)
        if group is None or not (self.named or self.all):
            return ()
        known = internal_topics(group)
        for topic in sorted(set(self.named) - set(known)):
            raise Failure(
                f"{topic} is not an internal topic of group {group.group_id}",
                "`konvene groups describe --topology` shows the internal topics.",
            )
        return tuple(known) if self.all else tuple(dict.fromkeys(self.named))


def _targets(groups: GroupSelection, goals: Mapping[str, Any], scope: Scope) -> Targets:
    from konvene.client.admin import reset_plan as offsets

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
    from konvene.client.admin.reset_offsets import CannotReset, plan_offsets
    from konvene.client.admin.reset_plan import BadInput
    from konvene.client.errors import KafkaError

    try:
        found = await _describe_inactive(admin, group, scope, topics_to_delete)
        share = _is_share(group, found, share)
        goal = targets.goal
        if targets.of_groups is not None:
            if group not in targets.of_groups:
                raise Failure(f"No reset plan for group {group} found.", "The file names other groups.")
            goal = goal._replace(offsets=targets.of_groups[group])
        planned = await plan_offsets(admin, group, found, goal, scope.topics, is_share=share)
        topics = topics_to_delete.of(found)
        return Reset(group, planned.offsets, planned.warnings, topics_to_delete=topics, share=share)
    except Failure as failure:
        return Reset(group, {}, [], failure)
    except CannotReset as error:
        return Reset(group, {}, [], Failure(str(error), error.hint))
    except BadInput as error:
        return Reset(group, {}, [], Failure(f"group {group}: {error}."))
    except KafkaError as error:
        return Reset(group, {}, [], failure_of(error))


async def _execute(admin: Admin, reset: Reset) -> Reset:
    from konvene.client.admin.reset_offsets import commit_offsets
    from konvene.client.errors import ClientError

    errors: Mapping[TopicPartition, KafkaError | None] = {}
    try:
        if reset.offsets:
            errors = await commit_offsets(admin, reset.group, reset.offsets, is_share=reset.share)
    except ClientError as error:
        return reset._replace(offsets={}, failure=failure_of(error), topics_to_delete=())
    deleted, failures = await delete_topics(admin, reset.group, reset.topics_to_delete)
    failures += (failure_of(error) for error in errors.values() if error is not None)
    for each in failures[:-1]:
        each.show()
    return reset._replace(
        offsets={tp: at for tp, at in reset.offsets.items() if errors.get(tp) is None},
        topics_to_delete=tuple(deleted),
        failure=failures[-1] if failures else reset.failure,
    )


async def _describe_inactive(
    admin: Admin, group: str, scope: Scope, topics_to_delete: TopicsToDelete
) -> AnyGroup | None:
    """Describe a group that may be reset: an Empty one, or None for one that does not exist.

    Raises `Failure` or `CannotReset` for any other one."""
    from konvene.client.admin.any_group import any_group
    from konvene.client.admin.reset_offsets import check_inactive

    found = await any_group(admin, group)
    if _streams(found) is None and (scope.is_streams_scope or topics_to_delete.named or topics_to_delete.all):
        if found is None:
            raise Failure(
                f"there is no streams group {group}",
                "`konvene groups list --streams` shows the existing streams groups.",
            )
        raise Failure(
            f"group {group} is not a streams group: it has no input topics and no internal topics",
            "Use --topic or --all-topics for other groups.",
        )
    check_inactive(group, found)
    return found


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


# output ---------------------------------------------------------------------------------------


def _show(resets: list[Reset], *, with_group: bool, execute: bool, export: bool, as_json: bool) -> None:
    from konvene.client.admin.reset_plan import write_csv

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
