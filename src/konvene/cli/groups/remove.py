"""`konvene groups delete`, `delete-offsets`, `remove-members`: what takes something away from groups.

Each asks for many things and tells what became of each; the exit code is 1 where one of them was refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from konvene.cli.groups.selection import Named, no_such_group, one_group, several_groups
from konvene.cli.groups.share import share_group
from konvene.cli.groups.topic_scope import (
    Scope,
    delete_topics,
    internal_topics,
    scope_options,
    streams_group,
    words_of,
)
from konvene.cli.options import (
    HINTS,
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
    from konvene.client.admin.admin import Admin, Removal
    from konvene.client.errors import KafkaError
    from konvene.client.net.cluster import TopicPartition

SUCCESSFUL = "Successful"


@click.command()
@several_groups("Delete")
@click.option(
    "--delete-all-internal-topics", "all_internal", is_flag=True,
    help="Of a streams group, all of its internal topics, too.",
)  # fmt: skip
@click.option(
    "--internal-topics", "lists", multiple=True, metavar="TOPIC,TOPIC",
    help="Of a streams group, these of its internal topics, too.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@cluster_options
@json_option
def delete(
    connect: Connect, as_json: bool, groups: Named, all_internal: bool, lists: tuple[str, ...], dry_run: bool
) -> None:
    """Delete groups that have no members, with their offsets.

    \b
    konvene groups delete readers
    konvene groups delete words --delete-all-internal-topics --dry-run
    """
    named = [word for text in lists for word in words_of(text)]
    if all_internal and named:
        raise click.UsageError("--delete-all-internal-topics and --internal-topics contradict each other.")
    if all_internal or named:
        groups = groups._replace(streams=True)

    async def job() -> list[Deletion]:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            plans = [await _doomed(admin, name, all_internal, named) for name in await groups.of(admin)]
            return plans if dry_run else [await _deleted(admin, each) for each in plans]

    _show_deletions(run(job), as_json, dry_run=dry_run)


class Deletion(NamedTuple):
    """A group that is to go with some of its topics, or has gone; and what was refused."""

    group: str
    topics: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    stays: bool = False


async def _doomed(admin: Admin, name: str, all_internal: bool, named: Sequence[str]) -> Deletion:
    """What is to be deleted; which topics are internal can only be known while the group is there."""
    from konvene.client.errors import KafkaError

    if not (all_internal or named):
        return Deletion(name)
    try:
        group = await streams_group(admin, name)
    except KafkaError as error:
        return Deletion(name, failures=(failure_of(error),), stays=True)
    if group is None:
        why = Failure(
            f"Group '{name}' does not exist or is not a streams group.",
            "`konvene groups list` shows the groups there are.",
        )
        return Deletion(name, failures=(why,), stays=True)
    if group.members:
        why = Failure(f"Streams group '{name}' is not EMPTY.", HINTS["NON_EMPTY_GROUP"])
        return Deletion(name, failures=(why,), stays=True)
    known = internal_topics(group)
    strange = sorted(set(named) - set(known))
    if strange:
        why = Failure(
            f"{', '.join(strange)}: no internal topic of group {name}",
            "--delete-all-internal-topics --dry-run shows them.",
        )
        return Deletion(name, failures=(why,), stays=True)
    return Deletion(name, tuple(known) if all_internal else tuple(dict.fromkeys(named)))


async def _deleted(admin: Admin, doomed: Deletion) -> Deletion:
    """The group first, as in Kafka: topics of a group that stays are left alone."""
    from konvene.client.errors import KafkaError

    if doomed.stays:
        return doomed
    try:
        await admin.delete_groups([doomed.group])
    except KafkaError as error:
        return Deletion(doomed.group, failures=(failure_of(error),), stays=True)
    gone, failures = await delete_topics(admin, doomed.group, doomed.topics)
    return doomed._replace(topics=tuple(gone), failures=tuple(failures))


def _show_deletions(done: Sequence[Deletion], as_json: bool, *, dry_run: bool) -> None:
    gone = [each for each in done if not each.stays]
    if as_json:
        failed = {each.group: each.failures[0].message for each in done if each.stays}
        out: dict[str, Any] = {"deleted": [each.group for each in gone], "failed": failed}
        if any(each.topics or each.failures for each in gone):
            out["deleted_topics"] = [topic for each in gone for topic in each.topics]
            out["failed_topics"] = [why.message for each in gone for why in each.failures]
        print_json(out | ({"dry_run": True} if dry_run else {}))
    else:
        word = "Would delete" if dry_run else "Deleted"
        for each in gone:
            click.echo(f"{word} group {each.group}.")
            for topic in each.topics:
                click.echo(f"{word} internal topic {topic}.")
    fail_all(why for each in done for why in each.failures)


@click.command("delete-offsets")
@one_group
@scope_options
@click.option(
    "--from-file", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="CSV",
    help="The partitions that this file names, as `reset-offsets --export` writes it.",
)  # fmt: skip
@cluster_options
@json_option
def delete_offsets(
    connect: Connect, as_json: bool, group: str, scope: Scope | None, from_file: Path | None
) -> None:
    """Delete what a group has committed for topics that no member of it subscribes to.

    Of a share group without members, where it stands in whole topics.

    \b
    konvene groups delete-offsets readers --topic orders --topic payments:0,1
    konvene groups delete-offsets words --all-input-topics
    """
    if (scope is None) == (from_file is None):
        raise click.UsageError(
            "Give what is to be deleted: --topic or --all-topics, --input-topic or --all-input-topics, or "
            "--from-file."
        )
    listed = _listed(from_file, group) if from_file is not None else None

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            absent: list[str] = []
            if await share_group(admin, group) is not None:
                _show_share(group, await _forget(admin, group, scope), as_json)
                return
            if listed is not None:
                wanted = listed
            elif scope is None or scope.topics is None:
                wanted = await _all_input(admin, group)
            else:
                wanted, absent = await _partitions(admin, scope.topics)
            done = await admin.delete_offsets(group, wanted) if wanted else {}
        rows: list[tuple[str, int | None, KafkaError | str | None]] = [
            (topic, None, f"there is no topic {topic}") for topic in absent
        ]
        rows += ((tp.topic, tp.partition, why) for tp, why in sorted(done.items()))
        if as_json:
            print_json([{"topic": t, "partition": p, "error": _told(why)} for t, p, why in rows])
        else:
            print_tables([Table(("TOPIC", "PARTITION", "STATUS"), [(t, p, _status(w)) for t, p, w in rows])])
        _raise_one([why for *_, why in rows], f"of the offsets of group {group}", "were not deleted")

    run(job)


async def _forget(admin: Admin, group: str, scope: Scope | None) -> dict[str, KafkaError | None]:
    """A share group forgets where it stands in topics; why not, where it is refused."""
    if scope is None or any(numbers is not None for _, numbers in scope.topics or ()):
        raise Failure(
            f"group {group} is a share group: it forgets whole topics", "Give --topic TOPIC or --all-topics."
        )
    topics = [topic for topic, _ in scope.topics or ()]
    if scope.topics is None:
        found = (await admin.list_share_group_offsets({group: None}))[group]
        topics = sorted({tp.topic for tp in found})
    return await admin.delete_share_group_offsets(group, topics) if topics else {}


def _show_share(group: str, done: Mapping[str, KafkaError | None], as_json: bool) -> None:
    rows = sorted(done.items())
    if as_json:
        print_json([{"topic": topic, "partition": None, "error": _told(why)} for topic, why in rows])
    else:
        print_tables([Table(("TOPIC", "STATUS"), [(topic, _status(why)) for topic, why in rows])])
    _raise_one([why for _, why in rows], f"of the topics of share group {group}", "were not forgotten")


def _listed(path: Path, group: str) -> list[TopicPartition]:
    """The partitions of a file, whatever their offsets."""
    from konvene.cli.groups.reset_plan import BadInput, read_csv

    try:
        rows = read_csv(path.read_bytes().decode("utf-8-sig"), (group,))
    except (BadInput, OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--from-file: {path}: {error}.") from None
    return sorted(rows.get(group, {}))


async def _all_input(admin: Admin, group: str) -> list[TopicPartition]:
    """All that the group has committed; of a streams group what it reads that others write."""
    found = await admin.committed_offsets(group)
    streams = await streams_group(admin, group)
    if streams is None or streams.topology is None:
        return sorted(found)
    return sorted(tp for tp in found if tp.topic in streams.topology.source_topics)


async def _partitions(admin: Admin, topics: Sequence[Any]) -> tuple[list[TopicPartition], list[str]]:
    """The partitions that are meant, and the topics without numbers that do not exist.

    Partitions that are named by number are left to the coordinator: their topic may be gone."""
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
@click.option("--member", "member_ids", multiple=True, metavar="ID", help="A member's id; repeatable.")
@click.option(
    "--instance", "instance_ids", multiple=True, metavar="ID",
    help="The group.instance.id of a static member; repeatable.",
)  # fmt: skip
@click.option("--all-members", is_flag=True, help="Everybody who is in the group.")
@click.option("--reason", default="", metavar="TEXT", help="What the coordinator notes as the reason.")
@cluster_options
@json_option
def remove_members(
    connect: Connect, as_json: bool, group: str, member_ids: tuple[str, ...], instance_ids: tuple[str, ...],
    all_members: bool, reason: str,
) -> None:  # fmt: skip
    """Make members leave a group, whether they want to or not.

    A member that still runs joins again: this is for those that are gone, and whose session the group would
    wait for.

    \b
    konvene groups remove-members readers --instance reader-1 --reason "its host is gone"
    konvene groups remove-members readers --all-members
    """
    if bool(member_ids or instance_ids) == all_members:
        raise click.UsageError("Give --member ID or --instance ID (both repeatable), or --all-members.")

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        members, instances = member_ids, instance_ids
        async with connect() as cluster:
            admin = Admin(cluster)
            if all_members:
                members, instances = await _everybody(admin, group)
            done = await admin.remove_members(
                group, member_ids=members, instance_ids=instances, reason=reason
            )
        if as_json:
            print_json([_document(each) for each in done])
        elif done:
            rows = [(each.member_id, each.instance_id, _status(each.error)) for each in done]
            print_tables([Table(("CONSUMER-ID", "GROUP-INSTANCE-ID", "STATUS"), rows)])
        else:
            note(f"Consumer group '{group}' has no active members.")
        _raise_one([each.error for each in done], f"of the members of group {group}", "were not removed")

    run(job)


async def _everybody(admin: Admin, group: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Static members by their instance id, so that it is they who go even if they have joined anew since."""
    from konvene.client.errors import KafkaError

    try:
        found = (await admin.describe_group(group)).members
    except KafkaError as error:
        if error.name == "GROUP_ID_NOT_FOUND":
            await no_such_group(admin, group)
        raise
    members = tuple(m.member_id for m in found if not m.instance_id)
    return members, tuple(m.instance_id for m in found if m.instance_id)


def _document(each: Removal) -> Mapping[str, Any]:
    return {
        "member_id": each.member_id or None,
        "instance_id": each.instance_id,
        "error": _told(each.error),
    }


# what became of each --------------------------------------------------------------------------


def _told(why: KafkaError | str | None) -> str | None:
    return why if why is None or isinstance(why, str) else why.name


def _status(why: KafkaError | str | None) -> str:
    return SUCCESSFUL if why is None else f"Error: {_told(why)}"


def _raise_one(reasons: Sequence[KafkaError | str | None], of_what: str, what: str) -> None:
    """One line for all that was refused, with what to do about the first reason; each has its own row."""
    refused = [why for why in reasons if why is not None]
    if refused:
        hint = next((failure_of(why).hint for why in refused if not isinstance(why, str)), "")
        hint = hint or "`konvene topics list` and `konvene groups describe` show what there is."
        raise Failure(f"{len(refused)} {of_what} {what}", hint)
