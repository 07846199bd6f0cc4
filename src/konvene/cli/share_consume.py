"""`konvene consume --share-group`: what `kafka-console-share-consumer` does.

Each record is acknowledged once it is printed, as `--acknowledge` says; the brokers are told of it with the
next fetch, or at the end. What was fetched and not printed is given back. Where a share group begins to read,
and what it may read, are settings of the group and not of this command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.options import Connect, run
from konvene.cli.output import note

if TYPE_CHECKING:
    from konvene.cli.consume import JsonPrinter, LinePrinter
    from konvene.client.share.consumer import ShareConsumer
    from konvene.client.share.settings import ShareSettings

__all__ = ["CLIENT_ID", "consume_share"]

CLIENT_ID = "console-share-consumer"
"""As Kafka's tool calls itself."""

_POLL_MS = 500

_NOT_WITH = {
    "group": "--group", "partition": "--partition", "offset": "--offset", "assignors": "--assignor",
    "instance_id": "--instance-id",
}  # fmt: skip
"""Options that a share group has no use for."""

_OF_THE_GROUP = {
    "from_beginning": ("--from-beginning", "share.auto.offset.reset=earliest"),
    "isolation_level": ("--isolation-level", "share.isolation.level=read_committed"),
}
"""Options that are settings of the whole group."""


def consume_share(
    connect: Connect, printer: LinePrinter | JsonPrinter, given: Mapping[str, Any], properties: Sequence[str]
) -> None:
    """Print records as a member of a share group, and acknowledge each."""
    _check(given)
    chosen = _settings(properties)
    if chosen.group_id not in (None, given["share_group"]):
        raise click.UsageError(
            f"--share-group {given['share_group']} and --consumer-property group.id={chosen.group_id} "
            "contradict each other."
        )

    async def job() -> None:
        from konvene.cli.consume import topics_of
        from konvene.client.share.consumer import ShareConsumer

        async with connect(given["client_id"] or chosen.client_id or CLIENT_ID) as cluster:
            consumer = ShareConsumer(cluster, given["share_group"], **(chosen.consumer | {"explicit": True}))
            consumer.subscribe(await topics_of(cluster, given["topic"], given["include"]))
            try:
                await _read(consumer, printer, given)
            finally:
                await consumer.close()
                printer.end()

    run(job)


def _check(given: Mapping[str, Any]) -> None:
    said = [kind for kind in (given["acknowledge"], *(w for w in ("release", "reject") if given[w])) if kind]
    if len(set(said)) > 1:
        raise click.UsageError(f"{' and '.join(said)} contradict each other: a record is acknowledged once.")
    for name, option in _NOT_WITH.items():
        if given[name] not in (None, ()):
            raise click.UsageError(f"--share-group and {option} contradict each other.")
    for name, (option, setting) in _OF_THE_GROUP.items():
        if given[name]:
            raise click.UsageError(
                f"{option}: of a share group that is a setting: konvene configs alter --entity-type groups "
                f"--entity-name {given['share_group']} --add-config {setting}"
            )


def _settings(properties: Sequence[str]) -> ShareSettings:
    """`--consumer-property`, repeated; a note of each that changes nothing."""
    from konvene.cli.consume import pairs_of
    from konvene.client.errors import Misconfigured
    from konvene.client.share.settings import share_settings

    try:
        found = share_settings(pairs_of(properties))
    except Misconfigured as error:
        raise click.UsageError(f"--consumer-property: {str(error).rstrip('.')}.") from None
    for name in found.unknown:
        note(f"--consumer-property {name} is not known here and changes nothing.")
    return found


async def _read(
    consumer: ShareConsumer, printer: LinePrinter | JsonPrinter, given: Mapping[str, Any]
) -> None:
    """Print until `max_messages` records are out or none came for `timeout_ms`."""
    import asyncio

    from konvene.client.share.consumer import AcknowledgeType

    short = "release" if given["release"] else "reject" if given["reject"] else "accept"
    kind = AcknowledgeType[(given["acknowledge"] or short).upper()]
    most, timeout_ms = given["max_messages"], given["timeout_ms"]
    loop = asyncio.get_running_loop()
    last = loop.time()
    while most is None or printer.count < most:
        wait_ms = _POLL_MS
        if timeout_ms is not None:
            left_ms = round((last - loop.time()) * 1000) + timeout_ms
            if left_ms <= 0:
                break
            wait_ms = min(wait_ms, left_ms)
        got = await consumer.poll(wait_ms)
        if got:
            last = loop.time()
        for record in got[: None if most is None else most - printer.count]:
            printer.show(record)
            consumer.acknowledge(record, kind)
        printer.flush()
