"""`konvene consume --share-group`: print records as a member of a share group, as
`kafka-console-share-consumer`.

Each printed record is acknowledged with the type of `--acknowledge`; the acknowledgement is sent with the
next fetch, or at the end. Records that were fetched but not printed are released. The start position and the
isolation level are settings of the group, not of this command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.consume_options import parse_consumer_properties, resolve_topics
from konvene.cli.options import Connect, run

if TYPE_CHECKING:
    from konvene.cli.record_printers import Printer
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
    connect: Connect, printer: Printer, given: Mapping[str, Any], properties: Sequence[str]
) -> None:
    """Print records as a member of a share group and acknowledge each one."""
    from konvene.client.share.settings import share_settings

    _check(given)
    chosen = parse_consumer_properties(properties, share_settings)
    if chosen.group_id not in (None, given["share_group"]):
        raise click.UsageError(
            f"--share-group {given['share_group']} and --consumer-property group.id={chosen.group_id} "
            "are different."
        )

    async def job() -> None:
        from konvene.client.share.consumer import ShareConsumer

        async with connect(given["client_id"] or chosen.client_id or CLIENT_ID) as cluster:
            consumer = ShareConsumer(cluster, given["share_group"], **(chosen.consumer | {"explicit": True}))
            consumer.subscribe(await resolve_topics(cluster, given["topic"], given["include"]))
            try:
                await _read(consumer, printer, given)
            finally:
                await consumer.close()
                printer.end()

    run(job)


def _check(given: Mapping[str, Any]) -> None:
    given_types = [
        kind for kind in (given["acknowledge"], *(w for w in ("release", "reject") if given[w])) if kind
    ]
    if len(set(given_types)) > 1:
        raise click.UsageError(f"{' and '.join(given_types)} cannot be used together.")
    for name, option in _NOT_WITH.items():
        if given[name] not in (None, ()):
            raise click.UsageError(f"--share-group and {option} cannot be used together.")
    for name, (option, setting) in _OF_THE_GROUP.items():
        if given[name]:
            raise click.UsageError(
                f"{option} is a setting of the share group: konvene configs alter --entity-type groups "
                f"--entity-name {given['share_group']} --add-config {setting}"
            )


async def _read(consumer: ShareConsumer, printer: Printer, given: Mapping[str, Any]) -> None:
    """Print records until `max_messages` of them are printed, or none arrives for `timeout_ms`."""
    import asyncio

    from konvene.client.share.consumer import AcknowledgeType

    short = "release" if given["release"] else "reject" if given["reject"] else "accept"
    kind = AcknowledgeType[(given["acknowledge"] or short).upper()]
    limit, timeout_ms = given["max_messages"], given["timeout_ms"]
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
