"""`konvene groups delete`, `delete-offsets` and `remove-members`.

Each command processes many groups, partitions or members and shows the result of each; the exit code is 1 if
one of them failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from konvene.cli.groups.selection import GroupSelection, no_such_group, one_group, several_groups
from konvene.cli.groups.topic_scope import (
    Scope,
    delete_topics,
    internal_topics,
    scope_options,
    split_list,
)
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
from konvene.client.admin.any_group import share_group, streams_group
from konvene.client.hints import HINTS

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin, Removal
    from konvene.client.admin.reset_plan import Topics
    from konvene.client.errors import KafkaError
    from konvene.client.net.cluster import TopicPartition

SUCCESSFUL = "Successful"


@click.command()
@several_groups("Delete")
@click.option(
    "--delete-all-internal-topics", "all_internal", is_flag=True,
    help="Also delete all internal topics of a streams group.",
)  # fmt: skip
@click.option(
    "--internal-topics", "lists", multiple=True, metavar="TOPIC,TOPIC", shell_complete=complete_topics,
    help="Also delete these internal topics of a streams group.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@cluster_options
@json_option
def delete(
    connect: Connect,
    as_json: bool,
    groups: GroupSelection,
    all_internal: bool,
    lists: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Delete groups that have no members, and their offsets.

    \b
    konvene groups delete readers
    konvene groups delete words --delete-all-internal-topics --dry-run
    """
    named = [topic for text in lists for topic in split_list(text)]
    if all_internal and named:
        raise click.UsageError("--delete-all-internal-topics and --internal-topics cannot be used together.")
    if all_internal or named:
        groups = groups._replace(streams=True)

    async def job() -> list[Deletion]:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            plans = [await _plan(admin, name, all_internal, named) for name in await groups.resolve(admin)]
            return plans if dry_run else [await _delete(admin, each) for each in plans]

    _show_deletions(run(job), as_json, dry_run=dry_run)


class Deletion(NamedTuple):
    """The deletion of a group and some of its internal topics: as planned, and later with its result."""

    group: str
    topics: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    is_kept: bool = False
    """Whether the group cannot be, or was not, deleted."""


async def _plan(admin: Admin, name: str, all_internal: bool, named: Sequence[str]) -> Deletion:
    """Plan the deletion of a group and of its internal topics: all, those in `named`, or none.

    The internal topics can only be determined while the group exists."""
    from konvene.client.errors import KafkaError

    if not (all_internal or named):
        return Deletion(name)
    try:
        group = await streams_group(admin, name)
    except KafkaError as error:
        return Deletion(name, failures=(failure_of(error),), is_kept=True)
    if group is None:
        failure = Failure(
            f"Group '{name}' does not exist or is not a streams group.",
            "`konvene groups list` shows the existing groups.",
        )
        return Deletion(name, failures=(failure,), is_kept=True)
    if group.members:
        failure = Failure(f"Streams group '{name}' is not EMPTY.", HINTS["NON_EMPTY_GROUP"])
        return Deletion(name, failures=(failure,), is_kept=True)
    known = internal_topics(group)
    unknown = sorted(set(named) - set(known))
    if unknown:
        failure = Failure(
            f"{', '.join(unknown)}: not an internal topic of group {name}",
            "--delete-all-internal-topics --dry-run shows the internal topics.",
        )
        return Deletion(name, failures=(failure,), is_kept=True)
    return Deletion(name, tuple(known) if all_internal else tuple(dict.fromkeys(named)))


async def _delete(admin: Admin, plan: Deletion) -> Deletion:
    """Delete the group, then its internal topics; no topic is deleted if the group cannot be."""
    from konvene.client.errors import KafkaError

    if plan.is_kept:
        return plan
    try:
        await admin.delete_groups([plan.group])
    except KafkaError as error:
        return Deletion(plan.group, failures=(failure_of(error),), is_kept=True)
    deleted, failures = await delete_topics(admin, plan.group, plan.topics)
    return plan._replace(topics=tuple(deleted), failures=tuple(failures))


def _show_deletions(deletions: Sequence[Deletion], as_json: bool, *, dry_run: bool) -> None:
    deleted = [each for each in deletions if not each.is_kept]
    if as_json:
        failed = {each.group: each.failures[0].message for each in deletions if each.is_kept}
        out: dict[str, object] = {"deleted": [each.group for each in deleted], "failed": failed}
        if any(each.topics or each.failures for each in deleted):
            out["deleted_topics"] = [topic for each in deleted for topic in each.topics]
            out["failed_topics"] = [failure.message for each in deleted for failure in each.failures]
        print_json(out | ({"dry_run": True} if dry_run else {}))
    else:
        verb = "Would delete" if dry_run else "Deleted"
        for each in deleted:
            click.echo(f"{verb} group {each.group}.")
            for topic in each.topics:
                click.echo(f"{verb} internal topic {topic}.")
    fail_all(failure for each in deletions for failure in each.failures)


@click.command("delete-offsets")
@one_group
@scope_options
@click.option(
    "--from-file", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="CSV",
    help="Partitions listed in a file that `reset-offsets --export` has written.",
)  # fmt: skip
@cluster_options
@json_option
def delete_offsets(
    connect: Connect, as_json: bool, group: str, scope: Scope | None, from_file: Path | None
) -> None:
    """Delete committed offsets of a group for topics that no member subscribes to.

    For a share group without members, deletes the start offsets of whole topics.

    \b
    konvene groups delete-offsets readers --topic orders --topic payments:0,1
    konvene groups delete-offsets words --all-input-topics
    """
    if (scope is None) == (from_file is None):
        raise click.UsageError(
            "Give a scope: --topic, --all-topics, --input-topic, --all-input-topics or --from-file."
        )
    listed = _read_partitions(from_file, group) if from_file is not None else None

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            absent: list[str] = []
            if await share_group(admin, group) is not None:
                _show_share(group, await _delete_share_offsets(admin, group, scope), as_json)
                return
            if listed is not None:
                wanted = listed
            elif scope is None or scope.topics is None:
                wanted = await _all_committed(admin, group)
            else:
                wanted, absent = await _partitions(admin, scope.topics)
            errors = await admin.delete_offsets(group, wanted) if wanted else {}
        rows: list[tuple[str, int | None, KafkaError | str | None]] = [
            (topic, None, f"there is no topic {topic}") for topic in absent
        ]
        rows += ((tp.topic, tp.partition, error) for tp, error in sorted(errors.items()))
        if as_json:
            print_json([{"topic": t, "partition": p, "error": _error_name(e)} for t, p, e in rows])
        else:
            print_tables([Table(("TOPIC", "PARTITION", "STATUS"), [(t, p, _status(e)) for t, p, e in rows])])
        _raise_errors([error for *_, error in rows], f"offsets of group {group} were not deleted")

    run(job)


async def _delete_share_offsets(
    admin: Admin, group: str, scope: Scope | None
) -> dict[str, KafkaError | None]:
    """Delete the start offsets of a share group by topic; return the error of each topic, or None."""
    if scope is None or any(numbers is not None for _, numbers in scope.topics or ()):
        raise Failure(
            f"group {group} is a share group: its offsets can only be deleted by topic",
            "Give --topic TOPIC or --all-topics.",
        )
    topics = [topic for topic, _ in scope.topics or ()]
    if scope.topics is None:
        found = (await admin.list_share_group_offsets({group: None}))[group]
        topics = sorted({tp.topic for tp in found})
    return await admin.delete_share_group_offsets(group, topics) if topics else {}


def _show_share(group: str, errors: Mapping[str, KafkaError | None], as_json: bool) -> None:
    rows = sorted(errors.items())
    if as_json:
        print_json(
            [{"topic": topic, "partition": None, "error": _error_name(error)} for topic, error in rows]
        )
    else:
        print_tables([Table(("TOPIC", "STATUS"), [(topic, _status(error)) for topic, error in rows])])
    _raise_errors([error for _, error in rows], f"topics of share group {group}: offsets were not deleted")


def _read_partitions(path: Path, group: str) -> list[TopicPartition]:
    """Return the partitions of the group that a CSV file of offsets lists."""
    from konvene.client.admin.reset_plan import BadInput, read_csv

    try:
        rows = read_csv(path.read_bytes().decode("utf-8-sig"), (group,))
    except (BadInput, OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--from-file: {path}: {error}.") from None
    return sorted(rows.get(group, {}))


async def _all_committed(admin: Admin, group: str) -> list[TopicPartition]:
    """Return all partitions with a committed offset; for a streams group only those of its input topics."""
    found = await admin.committed_offsets(group)
    streams = await streams_group(admin, group)
    if streams is None or streams.topology is None:
        return sorted(found)
    return sorted(tp for tp in found if tp.topic in streams.topology.source_topics)


async def _partitions(admin: Admin, topics: Topics) -> tuple[list[TopicPartition], list[str]]:
    """Return the selected partitions, and the names of those topics selected as a whole that do not exist.

    Partitions that are selected by number are not checked: their topic may have been deleted."""
    from konvene.client.net.cluster import TopicPartition

    wanted = [TopicPartition(topic, each) for topic, numbers in topics for each in numbers or ()]
    whole = [topic for topic, numbers in topics if numbers is None]
    found = (await admin.cluster.refresh(whole)).topics if whole else {}
    absent = [topic for topic in whole if found[topic].error_code]
    wanted += (
        TopicPartition(topic, p.partition)
        for topic in whole
        if topic not in absent
        for p in found[topic].partitions
    )
    return wanted, absent


@click.command("remove-members")
@one_group
@click.option("--member", "member_ids", multiple=True, metavar="ID", help="A member id; may be repeated.")
@click.option(
    "--instance", "instance_ids", multiple=True, metavar="ID",
    help="The group.instance.id of a static member; may be repeated.",
)  # fmt: skip
@click.option("--all-members", is_flag=True, help="All members of the group.")
@click.option("--reason", default="", metavar="TEXT", help="Reason that is sent to the coordinator.")
@cluster_options
@json_option
def remove_members(
    connect: Connect, as_json: bool, group: str, member_ids: tuple[str, ...], instance_ids: tuple[str, ...],
    all_members: bool, reason: str,
) -> None:  # fmt: skip
    """Remove members from a group.

    A member that is still running joins again. Use this for members that have stopped, so that the group does
    not wait for their sessions to expire.

    \b
    konvene groups remove-members readers --instance reader-1 --reason "host was decommissioned"
    konvene groups remove-members readers --all-members
    """
    if bool(member_ids or instance_ids) == all_members:
        raise click.UsageError("Give --member ID or --instance ID (both may be repeated), or --all-members.")

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        members, instances = member_ids, instance_ids
        async with connect() as cluster:
            admin = Admin(cluster)
            if all_members:
                members, instances = await _all_members(admin, group)
            removals = await admin.remove_members(
                group, member_ids=members, instance_ids=instances, reason=reason
            )
        if as_json:
            print_json([_document(each) for each in removals])
        elif removals:
            rows = [(each.member_id, each.instance_id, _status(each.error)) for each in removals]
            print_tables([Table(("CONSUMER-ID", "GROUP-INSTANCE-ID", "STATUS"), rows)])
        else:
            note(f"Consumer group '{group}' has no active members.")
        _raise_errors([each.error for each in removals], f"members of group {group} were not removed")

    run(job)


async def _all_members(admin: Admin, group: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the member ids of dynamic members, and the instance ids of static ones.

    An instance id removes a static member even if it has rejoined with another member id."""
    from konvene.client.errors import KafkaError

    try:
        found = (await admin.describe_group(group)).members
    except KafkaError as error:
        if error.name == "GROUP_ID_NOT_FOUND":
            await no_such_group(admin, group)
        raise
    members = tuple(m.member_id for m in found if not m.instance_id)
    return members, tuple(m.instance_id for m in found if m.instance_id)


def _document(each: Removal) -> Mapping[str, object]:
    return {
        "member_id": each.member_id or None,
        "instance_id": each.instance_id,
        "error": _error_name(each.error),
    }


# results --------------------------------------------------------------------------------------


def _error_name(error: KafkaError | str | None) -> str | None:
    return error if error is None or isinstance(error, str) else error.name


def _status(error: KafkaError | str | None) -> str:
    return SUCCESSFUL if error is None else f"Error: {_error_name(error)}"


def _raise_errors(errors: Sequence[KafkaError | str | None], summary: str) -> None:
    """Raise one `Failure` for all errors among `errors`, with the first hint; do nothing if all are None.

    Its message is the number of errors and `summary`. The table rows show each error.
    """
    failed = [error for error in errors if error is not None]
    if failed:
        hint = next((failure_of(error).hint for error in failed if not isinstance(error, str)), "")
        hint = hint or "`konvene topics list` and `konvene groups describe` show what exists."
        raise Failure(f"{len(failed)} {summary}", hint)
