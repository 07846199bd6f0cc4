"""`konvene groups delete`, `delete-offsets`, `remove-members`: what takes something away from groups.

Each asks for many things and tells what became of each; the exit code is 1 where one of them was refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.groups_named import Named, no_such_group, one_group, several_groups
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
    from konvene.client.admin import Admin, Removal
    from konvene.client.cluster import TopicPartition
    from konvene.client.errors import KafkaError

SUCCESSFUL = "Successful"


@click.command()
@several_groups("Delete")
@cluster_options
@json_option
def delete(connect: Connect, as_json: bool, groups: Named) -> None:
    """Delete groups that have no members, with their offsets."""

    async def job() -> None:
        from konvene.client.admin import Admin
        from konvene.client.errors import KafkaError

        failed: dict[str, KafkaError] = {}
        async with connect() as cluster:
            admin = Admin(cluster)
            names = await groups.of(admin)
            for name in names:
                try:
                    await admin.delete_groups([name])
                except KafkaError as error:
                    failed[name] = error
        gone = [name for name in names if name not in failed]
        if as_json:
            print_json({"deleted": gone, "failed": {name: str(why) for name, why in failed.items()}})
        else:
            for name in gone:
                click.echo(f"Deleted group {name}.")
        fail_all(failure_of(why) for why in failed.values())

    run(job)


@click.command("delete-offsets")
@one_group
@click.option(
    "--topic", "words", multiple=True, required=True, metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)  # fmt: skip
@cluster_options
@json_option
def delete_offsets(connect: Connect, as_json: bool, group: str, words: tuple[str, ...]) -> None:
    """Delete what a group has committed for topics that no member of it subscribes to.

    \b
    konvene groups delete-offsets readers --topic orders --topic payments:0,1
    """
    from konvene.cli.offsets import BadInput, Topics, read_topics

    try:
        topics: Topics = read_topics(words)
    except BadInput as error:
        raise click.UsageError(f"{error}.") from None

    async def job() -> None:
        from konvene.client.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            wanted, absent = await _partitions(admin, topics)
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


async def _partitions(admin: Admin, topics: Sequence[Any]) -> tuple[list[TopicPartition], list[str]]:
    """The partitions that are meant, and the topics without numbers that do not exist.

    Partitions that are named by number are left to the coordinator: their topic may be gone."""
    from konvene.client.cluster import TopicPartition

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
        from konvene.client.admin import Admin

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
