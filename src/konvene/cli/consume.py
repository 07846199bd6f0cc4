"""`konvene consume`: what `kafka-console-consumer` does: records of topics to standard output.

Without `--group` it is a member of nothing and leaves nothing behind: it reads the partitions themselves (and
sees partitions that are added later only when started again). With `--group` it joins, commits and leaves;
`--consumer-property group.protocol=consumer` makes it a member of a consumer group (KIP-848). Then the
coordinator follows `--include`, in RE2's syntax, also to topics that are made later; otherwise it is Python's
and followed once, here. With `--share-group` it is a member of a share group: see `consume_share`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import note
from konvene.cli.produce import parse_properties

if TYPE_CHECKING:
    from konvene.client.consumer.consumer import Consumed, Consumer
    from konvene.client.consumer.settings import ConsumerSettings
    from konvene.client.net.cluster import Cluster
    from konvene.client.share.consumer import ShareRecord

PROPERTIES = {
    "print.timestamp": "false", "print.partition": "false", "print.offset": "false",
    "print.delivery": "false", "print.headers": "false", "print.key": "false", "print.value": "true",
    "key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null",
}  # fmt: skip
"""The properties of Kafka's formatter, and their defaults."""

_POLL_MS = 500


@click.command()
@cluster_options
@json_option
@click.option("--topic", metavar="NAME", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Read all topics whose whole name matches.")
@click.option("--group", metavar="GROUP", help="Read as a member of this group, and commit.")
@click.option("--share-group", metavar="GROUP", help="Read as a member of this share group.")
@click.option(
    "--acknowledge",
    type=click.Choice(["accept", "release", "reject"]),
    help="What becomes of a record once it is printed; with --share-group [default: accept].",
)
@click.option("--release", is_flag=True, help="The same as --acknowledge release.")
@click.option("--reject", is_flag=True, help="The same as --acknowledge reject.")
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
    help="Whether to read what a transaction has not committed [default: read_uncommitted].",
)
@click.option(
    "--formatter-property",
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"What is printed of a record; repeatable: {', '.join(PROPERTIES)}.",
)
@click.option(
    "--consumer-property",
    "--command-property",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Kafka's consumer, such as group.protocol=consumer; repeatable.",
)
@click.option("--client-id", metavar="ID", default="", help="What the broker calls this client.")
@click.option(
    "--assignor",
    "assignors",
    multiple=True,
    metavar="NAME",
    help="How a classic group gives out partitions: range [default], roundrobin, cooperative-sticky.",
)
@click.option("--instance-id", metavar="ID", help="Join as a static member under this group.instance.id.")
def consume(
    connect: Connect, as_json: bool, properties: tuple[str, ...], settings: tuple[str, ...], **given: Any
) -> None:  # fmt: skip
    """Read records from topics and print them.

    \b
    konvene consume --topic greetings --from-beginning --timeout-ms 2000
    konvene consume --topic greetings --group readers --property print.key=true
    konvene consume --include 'greet.*' --group readers --consumer-property group.protocol=consumer
    konvene consume --topic greetings --share-group workers --property print.delivery=true
    """
    printer = JsonPrinter() if as_json else LinePrinter(parse_properties(properties, PROPERTIES))
    _check_topics(given)
    if given["share_group"] is not None:
        from konvene.cli.share_consume import consume_share

        consume_share(connect, printer, given, settings)
        return
    chosen = _settings(settings)
    given["group"] = _one("--group", given["group"], "group.id", chosen.group_id)
    _check(given, chosen)

    async def job() -> None:
        async with connect(given["client_id"] or chosen.client_id) as cluster:
            consumer = await _consumer(cluster, given, chosen)
            try:
                await _read(consumer, printer, given["max_messages"], given["timeout_ms"])
            finally:
                await consumer.close("konvene consume was ended")
                printer.end()

    run(job)


def _settings(words: Sequence[str]) -> ConsumerSettings:
    """`--consumer-property`, repeated; a note of each that changes nothing."""
    from konvene.client.consumer.settings import consumer_settings
    from konvene.client.errors import Misconfigured

    try:
        found = consumer_settings(pairs_of(words))
    except Misconfigured as error:
        raise click.UsageError(f"--consumer-property: {error}.") from None
    for name in found.unknown:
        note(f"--consumer-property {name} is not known here and changes nothing.")
    return found


def pairs_of(words: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE of `--consumer-property`, repeated."""
    pairs = [word.partition("=") for word in words]
    bad = [word for word, (key, equals, _) in zip(words, pairs, strict=True) if not (key and equals)]
    if bad:
        raise click.UsageError(f"--consumer-property {bad[0]}: write KEY=VALUE.")
    return {key.strip(): value for key, _, value in pairs}


def _one(option: str, given: str | None, name: str, setting: str | None) -> str | None:
    """What an option or a setting says, or both in the same words."""
    if given is not None and setting is not None and given != setting:
        raise click.UsageError(
            f"{option} {given} and --consumer-property {name}={setting} contradict each other."
        )
    return given if given is not None else setting


def _check_topics(given: Mapping[str, Any]) -> None:
    if (given["topic"] is None) == (given["include"] is None):
        raise click.UsageError("Give --topic NAME or --include REGEX.")


def _check(given: Mapping[str, Any], chosen: ConsumerSettings) -> None:
    """Options that contradict each other."""
    if given["acknowledge"] or given["release"] or given["reject"]:
        raise click.UsageError("Records are acknowledged with --share-group only.")
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
    if given["group"] is None and chosen.consumer["group_protocol"] == "consumer":
        raise click.UsageError("--consumer-property group.protocol=consumer needs --group.")
    if given["from_beginning"] and chosen.consumer.get("auto_offset_reset", "earliest") != "earliest":
        raise click.UsageError("--from-beginning and auto.offset.reset contradict each other.")


async def _consumer(cluster: Cluster, given: Mapping[str, Any], chosen: ConsumerSettings) -> Consumer:
    """A consumer that stands where it should start."""
    from konvene.client.consumer.consumer import Consumer
    from konvene.client.consumer.fetch import EARLIEST, LATEST
    from konvene.client.net.cluster import TopicPartition

    made = Consumer(cluster, given["group"], **_arguments(given, chosen))
    if given["include"] is not None and made.group_protocol == "consumer":
        made.subscribe(regex=given["include"])
        return made
    names = await topics_of(cluster, given["topic"], given["include"])
    if given["group"] is not None:
        made.subscribe(names)
        return made
    partitions = [TopicPartition(n, p.partition) for n in names for p in (await cluster.topic(n)).partitions]
    if given["partition"] is not None:
        only = TopicPartition(given["topic"], given["partition"])
        if only not in partitions:
            fail(
                f"topic {only.topic} has no partition {only.partition}",
                f"It has the partitions 0 to {len(partitions) - 1}.",
            )
        partitions = [only]
    made.assign(partitions)
    where = given["offset"] or made.auto_offset_reset
    if where.isdigit():
        made.seek(partitions[0], int(where))
    else:
        await made.seek_to(EARLIEST if where == "earliest" else LATEST)
    return made


def _arguments(given: Mapping[str, Any], chosen: ConsumerSettings) -> dict[str, Any]:
    """What `Consumer` is made with: what the settings say, and over it what the options say."""
    from konvene.client.consumer.classic_member import MemberSettings
    from konvene.client.consumer.fetch import READ_COMMITTED, READ_UNCOMMITTED

    usual = {
        "auto_offset_reset": "earliest" if given["from_beginning"] else "latest",
        "max_poll_records": 500,
    }
    made = usual | chosen.consumer
    if given["isolation_level"] is not None:
        committed = given["isolation_level"] == "read_committed"
        made["isolation_level"] = READ_COMMITTED if committed else READ_UNCOMMITTED
    if given["assignors"]:
        made["assignors"] = given["assignors"]
    if given["instance_id"] is not None:
        made["member"] = made.get("member", MemberSettings())._replace(group_instance_id=given["instance_id"])
    return made


async def topics_of(cluster: Cluster, topic: str | None, include: str | None) -> list[str]:
    """The topic, or those whose whole names match."""
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

    from konvene.client.net.cluster import TopicPartition

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

    def show(self, record: Consumed | ShareRecord) -> None:
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

    def show(self, record: Consumed | ShareRecord) -> None:
        self._out.write(",\n" if self.count else "[\n")
        self.count += 1
        self._out.write(json.dumps(_document(record), ensure_ascii=False))

    def flush(self) -> None:
        self._out.flush()

    def end(self) -> None:
        self._out.write("\n]\n" if self.count else "[]\n")
        self._out.flush()


def _timestamp(r: Consumed | ShareRecord, settings: Mapping[str, str]) -> bytes:
    return f"CreateTime:{r.timestamp}".encode() if r.timestamp >= 0 else b"NO_TIMESTAMP"


def _headers(r: Consumed | ShareRecord, settings: Mapping[str, str]) -> bytes:
    if not r.headers:
        return b"NO_HEADERS"
    null = settings["null.literal"].encode()
    pairs = (k.encode() + b":" + (null if v is None else v) for k, v in r.headers)
    return settings["headers.separator"].encode().join(pairs)


def _bytes(data: bytes | None, settings: Mapping[str, str]) -> bytes:
    return settings["null.literal"].encode() if data is None else data


_PARTS: dict[str, Callable[[Any, Mapping[str, str]], bytes]] = {
    "print.timestamp": _timestamp,
    "print.partition": lambda r, settings: f"Partition:{r.partition}".encode(),
    "print.offset": lambda r, settings: f"Offset:{r.offset}".encode(),
    "print.delivery": lambda r, settings: f"Delivery:{getattr(r, 'delivery_count', 'NOT_PRESENT')}".encode(),
    "print.headers": _headers,
    "print.key": lambda r, settings: _bytes(r.key, settings),
    "print.value": lambda r, settings: _bytes(r.value, settings),
}
"""What can be printed of a record, in the order in which it is."""


def _document(r: Consumed | ShareRecord) -> dict[str, Any]:
    """A record as JSON. Keys and values that are not UTF-8 are given as base64, under another name."""
    out: dict[str, Any] = {
        "topic": r.topic,
        "partition": r.partition,
        "offset": r.offset,
        "timestamp_ms": r.timestamp if r.timestamp >= 0 else None,
    }
    delivery_count = getattr(r, "delivery_count", None)
    if delivery_count is not None:
        out["delivery_count"] = delivery_count
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
