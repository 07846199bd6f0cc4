"""`konvene groups reset-offsets`: move what a group has committed, or say where it would move.

The rules are in `konvene.cli.groups.reset_plan`; here facts are asked for, plans are shown, and with
`--execute` they
are committed. Each group is planned for itself: what is wrong with one is told, and the others go on.

Of a streams group it is the application's input that is meant (`groups_scope`). What the application wrote
for itself stays, unless it is told to go: then the application begins anew. A share group has committed
nothing: where it stands is its start offset, and that is moved.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from konvene.cli.groups.selection import Named, several_groups
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
    from konvene.cli.groups.reset_plan import Facts, Goal, Topics
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.groups import GroupDescription
    from konvene.client.admin.share_groups import ShareGroupDescription
    from konvene.client.admin.streams_groups import StreamsGroupDescription
    from konvene.client.net.cluster import TopicPartition

    AnyGroup: TypeAlias = GroupDescription | ShareGroupDescription | StreamsGroupDescription

NOT_DONE = "WARN: No action will be performed as the --execute option is missing."
LATEST_TIME = 2**63 - 1
DRY_RUN_HINT = "  Give --dry-run where only the plan is wanted."


@click.command("reset-offsets")
@several_groups("Reset")
@scope_options
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
@click.option(
    "--delete-internal-topic", "internal", multiple=True, metavar="TOPIC",
    help="With --execute, delete this internal topic of a streams group, too; repeatable.",
)  # fmt: skip
@click.option(
    "--delete-all-internal-topics", "all_internal", is_flag=True,
    help="With --execute, delete all internal topics of a streams group, too.",
)  # fmt: skip
@cluster_options
@json_option
def reset_offsets(
    connect: Connect, as_json: bool, groups: Named, scope: Scope | None, dry_run: bool, execute: bool,
    export: bool, internal: tuple[str, ...], all_internal: bool, **goals: Any,
) -> None:  # fmt: skip
    """Reset the committed offsets of groups that have no members.

    Needs what is to be reset (--all-topics or --topic) and one of the ways to say where to. A group that does
    not exist yet may be given its first offsets; with --share it becomes a share group. Of a streams group
    the input topics are reset, and for these (--all-input-topics, --input-topic) it has to be said whether to
    --execute or --dry-run.

    \b
    konvene groups reset-offsets readers --all-topics --to-earliest --dry-run
    konvene groups reset-offsets readers --topic orders:0,1 --shift-by -100 --execute
    konvene groups reset-offsets readers --all-topics --to-current --export > before.csv
    konvene groups reset-offsets readers --from-file before.csv --execute
    konvene groups reset-offsets words --all-input-topics --to-earliest --delete-all-internal-topics --execute
    konvene groups reset-offsets jobs --share --topic orders --to-datetime 2026-11-21T08:30:00.000 --execute
    """
    if dry_run and execute:
        raise click.UsageError("--execute and --dry-run contradict each other: give one of them.")
    if export and as_json:
        raise click.UsageError("--export and --json contradict each other: give one of them.")
    if (internal or all_internal) and not execute:
        raise click.UsageError("Internal topics are deleted with --execute alone.")
    if scope is not None and scope.of_streams and not (dry_run or execute):
        raise click.UsageError("Offsets of input topics are reset with --execute or --dry-run: give one.")
    scope = _scope(scope, goals)
    aims = _aims(groups, goals, scope)
    if scope.of_streams:
        groups = groups._replace(streams=True)
    going = Going(internal, all_internal)
    if not (dry_run or execute):
        note(NOT_DONE)
        click.echo(DRY_RUN_HINT, err=True)

    async def job() -> list[Reset]:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            names = await groups.of(admin)
            resets = [await _planned(admin, name, aims, scope, going, share=groups.share) for name in names]
            return [await _done(admin, each) for each in resets] if execute else resets

    _show(run(job), with_group=len(groups.names) != 1, execute=execute, export=export, as_json=as_json)


# what was asked for ---------------------------------------------------------------------------


class Aims(NamedTuple):
    """One goal for every group, or, from a file, each group's own."""

    goal: Goal
    of_groups: Mapping[str, Mapping[TopicPartition, int]] | None = None


class Going(NamedTuple):
    """Which internal topics are to be deleted."""

    named: tuple[str, ...]
    all: bool

    def of(self, group: StreamsGroupDescription) -> tuple[str, ...]:
        """Raises `Failure` for one that is named and is none."""
        if not (self.named or self.all):
            return ()
        known = internal_topics(group)
        for topic in sorted(set(self.named) - set(known)):
            raise Failure(
                f"{topic} is no internal topic of group {group.group_id}",
                "`konvene groups describe --topology` shows them.",
            )
        return tuple(known) if self.all else tuple(dict.fromkeys(self.named))


def _aims(groups: Named, goals: Mapping[str, Any], scope: Scope) -> Aims:
    from konvene.cli.groups import reset_plan as offsets

    given = {
        name.replace("_", "-"): value
        for name, value in goals.items()
        if value is not None and value is not False
    }
    if not given and scope.by_list:
        given = {"to-earliest": True}
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


def _scope(scope: Scope | None, goals: Mapping[str, Any]) -> Scope:
    if goals["from_file"] is not None:
        if scope is not None:
            note("--from-file says itself which partitions are meant: --topic and --all-topics do nothing.")
        return Scope(None, scope is not None and scope.of_streams)
    if scope is None:
        raise click.UsageError(
            "One of the reset scopes should be defined: --all-topics, --topic. For a streams group there are "
            "--all-input-topics, --input-topic as well."
        )
    return scope


# one group ------------------------------------------------------------------------------------


class Reset(NamedTuple):
    """A group's plan, and why there is none or why it was not carried out."""

    group: str
    offsets: Mapping[TopicPartition, int]
    warnings: list[str]
    failure: Failure | None = None
    going: tuple[str, ...] = ()
    """Internal topics that are to be deleted; once that is done, those that are gone."""
    share: bool = False


async def _planned(admin: Admin, group: str, aims: Aims, scope: Scope, going: Going, *, share: bool) -> Reset:
    """`share`: a group that is not there yet is to be a share group."""
    from konvene.cli.groups.reset_plan import BadInput, plan
    from konvene.client.errors import KafkaError

    try:
        found = await _refuse_members(admin, group, scope, going)
        streams = _streams(found)
        share = _is_share(group, found, share)
        goal = aims.goal
        if aims.of_groups is not None:
            if group not in aims.of_groups:
                raise Failure(f"No reset plan for group {group} found.", "The file names other groups.")
            goal = goal._replace(offsets=aims.of_groups[group])
        current = await _current(admin, group, goal, scope.topics, share=share)
        partitions = await _partitions(admin, group, goal, scope.topics, streams, current)
        made = plan(goal, partitions, await _facts(admin, goal, partitions, current))
        nothing = [] if partitions else [f"Group '{group}' has no committed offsets: there is none to reset."]
        topics = going.of(streams) if streams is not None else ()
        return Reset(group, made.offsets, made.warnings + nothing, going=topics, share=share)
    except Failure as failure:
        return Reset(group, {}, [], failure)
    except BadInput as error:
        return Reset(group, {}, [], Failure(f"group {group}: {error}."))
    except KafkaError as error:
        return Reset(group, {}, [], failure_of(error))


async def _done(admin: Admin, reset: Reset) -> Reset:
    from konvene.client.errors import ClientError

    try:
        if reset.offsets and reset.share:
            return await _done_share(admin, reset)
        if reset.offsets:
            await admin.alter_offsets(reset.group, reset.offsets)
    except ClientError as error:
        return reset._replace(offsets={}, failure=failure_of(error), going=())
    gone, failures = await delete_topics(admin, reset.group, reset.going)
    for each in failures[:-1]:
        each.show()
    return reset._replace(going=tuple(gone), failure=failures[-1] if failures else reset.failure)


async def _done_share(admin: Admin, reset: Reset) -> Reset:
    """Partition by partition: what is refused of one leaves the others moved."""
    refused = await admin.alter_share_group_offsets(reset.group, reset.offsets)
    failures = [failure_of(error) for error in refused.values() if error is not None]
    for each in failures[:-1]:
        each.show()
    return reset._replace(
        offsets={tp: at for tp, at in reset.offsets.items() if refused.get(tp) is None},
        failure=failures[-1] if failures else None,
    )


async def _refuse_members(admin: Admin, group: str, scope: Scope, going: Going) -> AnyGroup | None:
    """Kafka's rule: a group that is Empty or that is not there; any other state is told."""
    streams = await streams_group(admin, group)
    found = streams or await share_group(admin, group) or await _consumer_group(admin, group)
    state = found.state if found is not None else None
    if streams is None and (scope.of_streams or going.named or going.all):
        if state is None:
            raise Failure(
                f"there is no streams group {group}",
                "`konvene groups list --streams` shows the streams groups there are.",
            )
        raise Failure(
            f"group {group} is no streams group: it has no input topics and no internal topics",
            "--topic and --all-topics say what is meant of other groups.",
        )
    if state not in (None, "Empty", "Dead"):
        raise Failure(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
            f"{state}.",
            "Stop its members first: `konvene groups describe --members` shows them.",
        )
    return found


async def _consumer_group(admin: Admin, group: str) -> GroupDescription | None:
    """A classic or consumer group; None where there is none."""
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


def _is_share(group: str, found: AnyGroup | None, meant: bool) -> bool:
    """Whether it is a share group, or shall be one. A `Failure` where it is another and one is meant."""
    is_share = found is not None and found.type == "share"
    if meant and found is not None and not is_share:
        raise Failure(
            f"group {group} is a {found.type} group, and with --share this is for share groups",
            "`konvene groups list` shows the type of each group.",
        )
    return is_share or meant


async def _current(
    admin: Admin, group: str, goal: Goal, scope: Topics | None, *, share: bool
) -> dict[TopicPartition, int]:
    """Where the group stands, wherever it does; nothing where nobody needs to know."""
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
    """The partitions that are meant. A `Failure` where one does not exist or nobody leads it."""
    from konvene.client.net.cluster import TopicPartition

    if goal.kind == "from-file":
        wanted = list(goal.offsets)
    elif scope is None:
        wanted = list(current)
        if streams is not None and streams.topology is not None:
            wanted = [tp for tp in wanted if tp.topic in streams.topology.source_topics]
    else:
        wanted = [TopicPartition(topic, each) for topic, numbers in scope for each in numbers or ()]
    whole = [topic for topic, numbers in scope or () if numbers is None]
    topics = {*whole, *(tp.topic for tp in wanted)}
    if streams is not None:
        _refuse_others(streams, topics)
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


def _refuse_others(group: StreamsGroupDescription, topics: Iterable[str]) -> None:
    """An application reads what its topology says, and an offset of anything else would stay unread."""
    if group.topology is None:
        return
    reads = {topic for each in group.topology.subtopologies for topic in each.reads}
    for topic in sorted(set(topics) - reads):
        raise Failure(
            f"topic {topic} is not part of the group '{group.group_id}'",
            "`konvene groups describe --topology` shows what it reads.",
        )


async def _facts(
    admin: Admin, goal: Goal, partitions: Iterable[TopicPartition], current: Mapping[TopicPartition, int]
) -> Facts:
    """What the goal's rule needs to know, and no more."""
    from konvene.cli.groups.reset_plan import RULES, Facts
    from konvene.client.consumer.fetch import EARLIEST, LATEST

    needs = RULES[goal.kind].needs

    async def listed(place: int) -> dict[TopicPartition, int]:
        found = await admin.list_offsets(dict.fromkeys(partitions, place))
        return {tp: at.offset for tp, at in found.items()}

    facts = Facts(committed=current)
    if "earliest" in needs:
        facts = facts._replace(earliest=await listed(EARLIEST))
    if "latest" in needs:
        facts = facts._replace(latest=await listed(LATEST))
    if "at_time" in needs:
        # Negative times are places in the log to a broker; nothing is older than 1970.
        late = await listed(min(max(0, goal.number), LATEST_TIME))
        facts = facts._replace(at_time={tp: at if at >= 0 else None for tp, at in late.items()})
    return facts


# what is said of it ---------------------------------------------------------------------------


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
        for topic in (topic for each in resets for topic in each.going):
            note(f"Deleted internal topic {topic}.")
    fail_all(each.failure for each in resets if each.failure is not None)


def _document(reset: Reset, execute: bool) -> dict[str, Any]:
    return {
        "group": reset.group,
        "offsets": [
            {"topic": tp.topic, "partition": tp.partition, "offset": at} for tp, at in reset.offsets.items()
        ],
        "executed": execute and reset.failure is None,
        "deleted_topics": list(reset.going),
        "warnings": reset.warnings,
        "error": None if reset.failure is None else reset.failure.message,
    }
