"""`konvene consume --share-group`: print records as a member of a share group, as
`kafka-console-share-consumer`.

Each printed record is acknowledged with the type of `--acknowledge`; the acknowledgement is sent with the
next fetch, or at the end. Records that were fetched but not printed are released. The start position and the
isolation level are settings of the group, not of this command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from konvene.cli.options import Connect, run
from konvene.cli.records.consume_options import ConsumeOptions, parse_consumer_properties, resolve_topics

if TYPE_CHECKING:
    from konvene.cli.records.record_printers import Printer
    from konvene.client.share.consumer import ShareConsumer

__all__ = ["CLIENT_ID", "consume_share"]

CLIENT_ID = "console-share-consumer"
"""The client id of Kafka's tool."""

_POLL_MS = 500

_NOT_WITH = {
    "group": "--group", "partition": "--partition", "offset": "--offset", "assignors": "--assignor",
    "instance_id": "--instance-id",
}  # fmt: skip
"""Options that share groups do not support."""

_OF_THE_GROUP = {
    "from_beginning": ("--from-beginning", "share.auto.offset.reset=earliest"),
    "isolation_level": ("--isolation-level", "share.isolation.level=read_committed"),
}
"""Options that are settings of a share group."""


def consume_share(
    connect: Connect, printer: Printer, group: str, options: ConsumeOptions, properties: Sequence[str]
) -> None:
    """Print records as a member of a share group and acknowledge each one."""
    from konvene.client.share.settings import share_settings

    _check(options)
    chosen = parse_consumer_properties(properties, share_settings)
    if chosen.group_id not in (None, group):
        raise click.UsageError(
            f"--share-group {group} and --consumer-property group.id={chosen.group_id} are different."
        )

    async def job() -> None:
        from konvene.client.share.consumer import ShareConsumer

        async with connect(options.client_id or chosen.client_id or CLIENT_ID) as cluster:
            consumer = ShareConsumer(cluster, group, **(chosen.consumer | {"explicit": True}))
            consumer.subscribe(await resolve_topics(cluster, options.topic, options.include))
            try:
                await _read(consumer, printer, options)
            finally:
                await consumer.close()
                printer.end()

    run(job)


def _check(options: ConsumeOptions) -> None:
    given_types = [
        kind
        for kind in (options.acknowledge, *(w for w in ("release", "reject") if getattr(options, w)))
        if kind
    ]
    if len(set(given_types)) > 1:
        raise click.UsageError(f"{' and '.join(given_types)} cannot be used together.")
    for name, option in _NOT_WITH.items():
        if getattr(options, name) not in (None, ()):
            raise click.UsageError(f"--share-group and {option} cannot be used together.")
    for name, (option, setting) in _OF_THE_GROUP.items():
        if getattr(options, name):
            raise click.UsageError(
                f"{option} is a setting of the share group: konvene configs alter --entity-type groups "
                f"--entity-name {options.share_group} --add-config {setting}"
            )


async def _read(consumer: ShareConsumer, printer: Printer, options: ConsumeOptions) -> None:
    """Print records until `max_messages` of them are printed, or none arrives for `timeout_ms`."""
    import asyncio

    from konvene.client.share.consumer import AcknowledgeType

    short = "release" if options.release else "reject" if options.reject else "accept"
    kind = AcknowledgeType[(options.acknowledge or short).upper()]
    limit, timeout_ms = options.max_messages, options.timeout_ms
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
        for record in records[: None if limit is None else limit - printer.count]:
            printer.show(record)
            consumer.acknowledge(record, kind)
        printer.flush()
