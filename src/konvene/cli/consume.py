"""`konvene consume`: what `kafka-console-consumer` does: records of topics to standard output.

Without `--group` it is a member of nothing and leaves nothing behind: it reads the partitions themselves (and
sees partitions that are added later only when started again). With `--group` it joins, commits and leaves.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import note
from konvene.cli.produce import parse_properties

if TYPE_CHECKING:
    from konvene.client.cluster import Cluster
    from konvene.client.consumer import Consumed, Consumer

PROPERTIES = {
    "print.timestamp": "false", "print.partition": "false", "print.offset": "false", "print.headers": "false",
    "print.key": "false", "print.value": "true", "key.separator": "\t", "line.separator": "\n",
    "headers.separator": ",", "null.literal": "null",
}  # fmt: skip
"""The properties of Kafka's formatter, and their defaults."""

_POLL_MS = 500


@click.command()
@cluster_options
@json_option
@click.option("--topic", metavar="NAME", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Read all topics whose whole name matches.")
@click.option("--group", metavar="GROUP", help="Read as a member of this group, and commit.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition of --topic; not with --group.")
@click.option(
    "--offset", metavar="WHERE", help="Start at earliest, latest (default) or an offset; with --partition."
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the first record; with --group only where it has committed nothing.",
)
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="End after this many records.")
@click.option("--timeout-ms", type=click.IntRange(1), metavar="MS", help="End when none came for this long.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether to read what a transaction has not committed.",
)
@click.option(
    "--formatter-property",
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"What is printed of a record; repeatable: {', '.join(PROPERTIES)}.",
)
@click.option("--client-id", metavar="ID", default="", help="What the broker calls this client.")
@click.option(
    "--assignor",
    "assignors",
    multiple=True,
    metavar="NAME",
    default=("range",),
    show_default=True,
    help="How the group gives out partitions: range, roundrobin, cooperative-sticky; repeatable.",
)
@click.option("--instance-id", metavar="ID", help="Join as a static member under this group.instance.id.")
def consume(connect: Connect, as_json: bool, properties: tuple[str, ...], **given: Any) -> None:
    """Read records from topics and print them.

    \b
    konvene consume --topic greetings --from-beginning --timeout-ms 2000
    konvene consume --topic greetings --group readers --property print.key=true
    """
    _check(given)
    printer = JsonPrinter() if as_json else LinePrinter(parse_properties(properties, PROPERTIES))

    async def job() -> None:
        async with connect(given["client_id"]) as cluster:
            consumer = await _consumer(cluster, given)
            try:
                await _read(consumer, printer, given["max_messages"], given["timeout_ms"])
            finally:
                await consumer.close("konvene consume was ended")
                printer.end()

    run(job)


def _check(given: Mapping[str, Any]) -> None:
    """Options that contradict each other."""
    if (given["topic"] is None) == (given["include"] is None):
        raise click.UsageError("Give --topic NAME or --include REGEX.")
    if given["partition"] is not None and given["topic"] is None:
        raise click.UsageError("--partition needs --topic.")
    if given["partition"] is not None and given["group"] is not None:
        raise click.UsageError("--partition and --group contradict each other: a group gives out partitions.")
    if given["offset"] is not None and given["partition"] is None:
        raise click.UsageError("--offset needs --partition.")
    if given["offset"] is not None and given["from_beginning"]:
        raise click.UsageError("--offset and --from-beginning contradict each other: give one of them.")
    if given["offset"] is not None and not re.fullmatch(r"earliest|latest|\d+", given["offset"]):
        raise click.UsageError(f"--offset {given['offset']}: write earliest, latest or a number.")
    if given["instance_id"] is not None and given["group"] is None:
        raise click.UsageError("--instance-id needs --group.")


async def _consumer(cluster: Cluster, given: Mapping[str, Any]) -> Consumer:
    """A consumer that stands where it should start."""
    from konvene.client.cluster import TopicPartition
    from konvene.client.consumer import Consumer
    from konvene.client.fetch import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
    from konvene.client.member import MemberSettings

    names = await _topics(cluster, given["topic"], given["include"])
    reset = "earliest" if given["from_beginning"] else "latest"
    level = READ_COMMITTED if given["isolation_level"] == "read_committed" else READ_UNCOMMITTED
    member = MemberSettings(group_instance_id=given["instance_id"])
    made = Consumer(
        cluster, given["group"], auto_offset_reset=reset, isolation_level=level, max_poll_records=500,
        assignors=given["assignors"], member=member,
    )  # fmt: skip
    if given["group"] is not None:
        made.subscribe(names)
        return made
    partitions = [TopicPartition(n, p.partition) for n in names for p in (await cluster.topic(n)).partitions]
    if given["partition"] is not None:
        chosen = TopicPartition(given["topic"], given["partition"])
        if chosen not in partitions:
            fail(
                f"topic {chosen.topic} has no partition {chosen.partition}",
                f"It has the partitions 0 to {len(partitions) - 1}.",
            )
        partitions = [chosen]
    made.assign(partitions)
    where = given["offset"] or reset
    if where.isdigit():
        made.seek(partitions[0], int(where))
    else:
        await made.seek_to(EARLIEST if where == "earliest" else LATEST)
    return made


async def _topics(cluster: Cluster, topic: str | None, include: str | None) -> list[str]:
    if topic is not None:
        return [(await cluster.topic(topic)).name]
    assert include is not None
    try:
        pattern = re.compile(include)
    except re.error as error:
        raise click.UsageError(f"--include {include} is not a regular expression: {error}.") from None
    metadata = await cluster.refresh()
    names = sorted(n for n, t in metadata.topics.items() if pattern.fullmatch(n) and not t.is_internal)
    if not names:
        fail(f"no topic matches {include}", "`konvene topics list` shows the topics there are.")
    return names


async def _read(
    consumer: Consumer, printer: LinePrinter | JsonPrinter, most: int | None, timeout_ms: int | None
) -> None:
    """Print until `most` records are out or none came for `timeout_ms`."""
    import asyncio

    from konvene.client.cluster import TopicPartition

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
        room = len(got) if most is None else most - printer.count
        for record in got[:room]:
            printer.show(record)
        for record in reversed(got[room:]):  # Not printed, so not consumed.
            consumer.seek(TopicPartition(record.topic, record.partition), record.offset)
        printer.flush()


class LinePrinter:
    """A record per line, as Kafka's formatter prints it: what was asked for, between separators."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._parts = [show for name, show in _PARTS.items() if settings[name].strip().lower() == "true"]
        self._settings = settings
        self._separator = settings["key.separator"].encode()
        self._end = settings["line.separator"].encode()
        self._out = sys.stdout.buffer
        self.count = 0

    def show(self, record: Consumed) -> None:
        parts = [show(record, self._settings) for show in self._parts]
        self._out.write(self._separator.join(parts) + self._end)
        self.count += 1

    def flush(self) -> None:
        self._out.flush()

    def end(self) -> None:
        note(f"Processed a total of {self.count} messages")


class JsonPrinter:
    """One JSON array, an element at a time, whole also when it is ended by an interrupt."""

    def __init__(self) -> None:
        self._out = sys.stdout
        self.count = 0

    def show(self, record: Consumed) -> None:
        self._out.write(",\n" if self.count else "[\n")
        self.count += 1
        self._out.write(json.dumps(_document(record), ensure_ascii=False))

    def flush(self) -> None:
        self._out.flush()

    def end(self) -> None:
        self._out.write("\n]\n" if self.count else "[]\n")
        self._out.flush()


def _timestamp(r: Consumed, settings: Mapping[str, str]) -> bytes:
    return f"CreateTime:{r.timestamp}".encode() if r.timestamp >= 0 else b"NO_TIMESTAMP"


def _headers(r: Consumed, settings: Mapping[str, str]) -> bytes:
    if not r.headers:
        return b"NO_HEADERS"
    null = settings["null.literal"].encode()
    pairs = (k.encode() + b":" + (null if v is None else v) for k, v in r.headers)
    return settings["headers.separator"].encode().join(pairs)


def _bytes(data: bytes | None, settings: Mapping[str, str]) -> bytes:
    return settings["null.literal"].encode() if data is None else data


_PARTS: dict[str, Callable[[Consumed, Mapping[str, str]], bytes]] = {
    "print.timestamp": _timestamp,
    "print.partition": lambda r, settings: f"Partition:{r.partition}".encode(),
    "print.offset": lambda r, settings: f"Offset:{r.offset}".encode(),
    "print.headers": _headers,
    "print.key": lambda r, settings: _bytes(r.key, settings),
    "print.value": lambda r, settings: _bytes(r.value, settings),
}
"""What can be printed of a record, in the order in which it is."""


def _document(r: Consumed) -> dict[str, Any]:
    """A record as JSON. Keys and values that are not UTF-8 are given as base64, under another name."""
    out: dict[str, Any] = {
        "topic": r.topic,
        "partition": r.partition,
        "offset": r.offset,
        "timestamp_ms": r.timestamp if r.timestamp >= 0 else None,
    }
    out |= _text("key", r.key) | _text("value", r.value)
    out["headers"] = [{"name": name} | _text("value", value) for name, value in r.headers]
    return out


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(data).decode()}
