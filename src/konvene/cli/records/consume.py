"""`konvene consume`: print records of topics, as `kafka-console-consumer`.

Without `--group` it reads partitions directly and leaves no state behind; partitions that are added later are
read after a restart only. With `--group` it joins the group, commits and leaves. With `--consumer-property
group.protocol=consumer` it is a member of a consumer group (KIP-848): the coordinator resolves `--include`
with RE2 syntax, also for topics that are created later. Otherwise `--include` has Python's syntax and is
resolved once. With `--share-group` it is a member of a share group: see `share_consume`."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.name_completion import complete_groups, complete_share_groups, complete_topics
from konvene.cli.options import Connect, client_properties, connection_options, fail, run
from konvene.cli.positional import one_name
from konvene.cli.records.consume_options import (
    ConsumeOptions,
    parse_consumer_properties,
    resolve_topics,
)
from konvene.cli.records.printer_options import printer_options
from konvene.cli.records.share_consume import consume_share

if TYPE_CHECKING:
    from konvene.cli.records.record_printers import Printer
    from konvene.client.consumer.consumer import Consumer
    from konvene.client.consumer.settings import ConsumerSettings
    from konvene.client.net.cluster import Cluster

_POLL_MS = 500


@click.command()
@connection_options("--consumer.config", "--consumer-config")
@printer_options
@one_name("topic", complete_topics, required=False)
@click.option("--include", metavar="REGEX", help="Consume all topics whose whole names match.")
@click.option(
    "--group", metavar="GROUP", shell_complete=complete_groups, help="Join this group and commit offsets."
)
@click.option(
    "--share-group", metavar="GROUP", shell_complete=complete_share_groups, help="Join this share group."
)
@click.option(
    "--acknowledge",
    type=click.Choice(["accept", "release", "reject"]),
    help="How to acknowledge printed records; with --share-group [default: accept].",
)
@click.option("--release", is_flag=True, help="Same as --acknowledge release.")
@click.option("--reject", is_flag=True, help="Same as --acknowledge reject.")
@click.option(
    "--partition", type=click.IntRange(0), help="Consume only this partition of --topic; not with --group."
)
@click.option(
    "--offset", metavar="WHERE", help="Start at earliest, latest (default) or an offset; with --partition."
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the earliest record; with --group only in partitions without a committed offset.",
)
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="Exit after this many records.")
@click.option(
    "--timeout-ms", type=click.IntRange(1), metavar="MS", help="Exit if no record arrives for this long."
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="Whether to read records of uncommitted transactions [default: read_uncommitted].",
)
@click.option(
    "--consumer-property",
    "--command-property",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A consumer setting, such as group.protocol=consumer; may be repeated; overrides the file.",
)
@click.option("--client-id", metavar="ID", default="", help="The client.id.")
@click.option(
    "--assignor",
    "assignors",
    multiple=True,
    metavar="NAME",
    help="Assignor of a classic group: range (default), roundrobin or cooperative-sticky; may be repeated.",
)
@click.option("--instance-id", metavar="ID", help="Join as a static member with this group.instance.id.")
def consume(connect: Connect, printer: Printer, settings: tuple[str, ...], **given: Any) -> None:
    """Read records from topics and print them.

    \b
    konvene consume greetings --from-beginning --timeout-ms 2000
    konvene consume --topic greetings --group readers --property print.key=true
    konvene consume --include 'greet.*' --group readers --consumer-property group.protocol=consumer
    konvene consume --topic greetings --from-beginning -f '%p:%o %k=%v\\n'
    konvene consume --topic orders --value-format avro --schema order.avsc --output json
    konvene consume --topic greetings --share-group workers --property print.delivery=true
    """
    from konvene.client.consumer.settings import consumer_settings

    options = ConsumeOptions(**given)
    _check_topics(options)
    connection, others = client_properties(settings, "--consumer-property")
    connect = partial(connect, properties=connection)
    if options.share_group is not None:
        consume_share(connect, printer, options.share_group, options, others)
        return
    chosen = parse_consumer_properties(others, consumer_settings)
    options = options._replace(group=_one("--group", options.group, "group.id", chosen.group_id))
    _check(options, chosen)

    async def job() -> None:
        async with connect(options.client_id or chosen.client_id) as cluster:
            consumer = await _consumer(cluster, options, chosen)
            try:
                await _read(consumer, printer, options.max_messages, options.timeout_ms)
            finally:
                await consumer.close("konvene consume was ended")
                printer.end()

    run(job)


def _one(option: str, given: str | None, name: str, setting: str | None) -> str | None:
    """Return the value of an option, or else of the consumer property `name` that means the same. Raises
    UsageError if both are given and differ."""
    if given is not None and setting is not None and given != setting:
        raise click.UsageError(f"{option} {given} and --consumer-property {name}={setting} are different.")
    return given if given is not None else setting


def _check_topics(options: ConsumeOptions) -> None:
    if (options.topic is None) == (options.include is None):
        raise click.UsageError("Give TOPIC (or --topic TOPIC) or --include REGEX.")


def _check(options: ConsumeOptions, chosen: ConsumerSettings) -> None:
    """Raise UsageError for options that cannot be used together."""
    if options.acknowledge or options.release or options.reject:
        raise click.UsageError("Acknowledging records needs --share-group.")
    if options.partition is not None and options.topic is None:
        raise click.UsageError("--partition needs --topic.")
    if options.partition is not None and options.group is not None:
        raise click.UsageError(
            "--partition and --group cannot be used together: the group assigns partitions."
        )
    if options.offset is not None and options.partition is None:
        raise click.UsageError("--offset needs --partition.")
    if options.offset is not None and options.from_beginning:
        raise click.UsageError("--offset and --from-beginning cannot be used together.")
    if options.offset is not None and not re.fullmatch(r"earliest|latest|\d+", options.offset):
        raise click.UsageError(f"--offset {options.offset}: write earliest, latest or a number.")
    if options.instance_id is not None and options.group is None:
        raise click.UsageError("--instance-id needs --group.")
    if options.group is None and chosen.consumer["group_protocol"] == "consumer":
        raise click.UsageError("--consumer-property group.protocol=consumer needs --group.")
    if options.from_beginning and chosen.consumer.get("auto_offset_reset", "earliest") != "earliest":
        raise click.UsageError("--from-beginning and auto.offset.reset cannot be used together.")


async def _consumer(cluster: Cluster, options: ConsumeOptions, chosen: ConsumerSettings) -> Consumer:
    """Create the consumer that the options and consumer properties describe, at its start position."""
    from konvene.client.consumer.consumer import Consumer
    from konvene.client.consumer.fetch import EARLIEST, LATEST
    from konvene.client.net.cluster import TopicPartition

    made = Consumer(cluster, options.group, **_arguments(options, chosen))
    if options.include is not None and made.group_protocol == "consumer":
        made.subscribe(regex=options.include)
        return made
    names = await resolve_topics(cluster, options.topic, options.include)
    if options.group is not None:
        made.subscribe(names)
        return made
    partitions = [TopicPartition(n, p.partition) for n in names for p in (await cluster.topic(n)).partitions]
    if options.topic is not None and options.partition is not None:
        only = TopicPartition(options.topic, options.partition)
        if only not in partitions:
            fail(
                f"topic {only.topic} has no partition {only.partition}",
                f"It has partitions 0 to {len(partitions) - 1}.",
            )
        partitions = [only]
    made.assign(partitions)
    start = options.offset or made.auto_offset_reset
    if start.isdigit():
        made.seek(partitions[0], int(start))
    else:
        await made.seek_to(EARLIEST if start == "earliest" else LATEST)
    return made


def _arguments(options: ConsumeOptions, chosen: ConsumerSettings) -> dict[str, Any]:
    """Return the keyword arguments of `Consumer`: those of the consumer properties, overridden by options."""
    from konvene.client.consumer.classic_member import MemberSettings
    from konvene.client.consumer.fetch import READ_COMMITTED, READ_UNCOMMITTED

    defaults = {
        "auto_offset_reset": "earliest" if options.from_beginning else "latest",
        "max_poll_records": 500,
    }
    made = defaults | chosen.consumer
    if options.isolation_level is not None:
        committed = options.isolation_level == "read_committed"
        made["isolation_level"] = READ_COMMITTED if committed else READ_UNCOMMITTED
    if options.assignors:
        made["assignors"] = options.assignors
    if options.instance_id is not None:
        made["member"] = made.get("member", MemberSettings())._replace(group_instance_id=options.instance_id)
    return made


async def _read(consumer: Consumer, printer: Printer, limit: int | None, timeout_ms: int | None) -> None:
    """Print records until `limit` of them are printed, or none arrives for `timeout_ms`."""
    import asyncio

    from konvene.client.net.cluster import TopicPartition

    loop = asyncio.get_running_loop()
    last = loop.time()
    while limit is None or printer.count < limit:
        wait_ms = _POLL_MS
        if timeout_ms is not None:
            left_ms = round((last - loop.time()) * 1000) + timeout_ms
            if left_ms <= 0:
                break
            wait_ms = min(wait_ms, left_ms)
        records = await consumer.poll(wait_ms)
        if records:
            last = loop.time()
        remaining = len(records) if limit is None else limit - printer.count
        for record in records[:remaining]:
            printer.show(record)
        for record in reversed(records[remaining:]):  # Not printed: consume them again.
            consumer.seek(TopicPartition(record.topic, record.partition), record.offset)
        printer.flush()
