"""`konvene produce`: write a record for each line of standard input, as `kafka-console-producer`.

On a terminal each line has a prompt. Ctrl-D ends the input. Ctrl-C and SIGTERM exit with code 130, after the
records in flight have been acknowledged or reported; lines that were read later are not written.

With `--transactional-id` all lines are one transaction, committed at the end of the input. An interrupt, or a
line that cannot be parsed, aborts it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from konvene.cli.name_completion import complete_topics
from konvene.cli.options import (
    Connect,
    client_properties,
    connection_options,
    fail,
    json_option,
    run,
)
from konvene.cli.output import note, print_json
from konvene.cli.positional import one_name
from konvene.cli.records.standard_input import StandardInput
from konvene.plurals import counted

if TYPE_CHECKING:
    import asyncio

    from konvene.client.producer.producer import Produced, Producer

PROPERTIES = {
    "parse.key": "false", "key.separator": "\t", "parse.headers": "false", "headers.delimiter": "\t",
    "headers.separator": ",", "headers.key.separator": ":", "null.marker": "", "ignore.error": "false",
}  # fmt: skip
"""The properties of Kafka's line reader with their defaults. An empty null.marker is not used."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_MAX_IN_FLIGHT = 1_000

INTERRUPTED_FLUSH_S = 5.0
"""Time for the acknowledgements of the records in flight after Ctrl-C or SIGTERM."""

Tally: TypeAlias = dict[int, dict[str, int]]
"""First and last offset and number of the written records, by partition."""


class ProducerOptions(NamedTuple):
    """The parsed options of `produce` that configure its producer."""

    compression_codec: str
    acks: str
    sync: bool
    transactional_id: str | None
    transaction_timeout_ms: int


@click.command()
@connection_options("--producer.config")
@json_option
@one_name("topic", complete_topics)
@click.option("--partition", type=click.IntRange(0), help="Write to this partition.")
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Separator of key and value; short for parse.key=true and key.separator=TEXT.",
)
@click.option(
    "--reader-property",
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"Line reader property; may be repeated: {', '.join(PROPERTIES)}.",
)
@click.option(
    "--producer-property",
    "--command-property",
    "client_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the connections, such as security.protocol=SSL; may be repeated; overrides the file.",
)
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    default="none",
    show_default=True,
    type=click.Choice(CODECS),
    help="Compression type of batches.",
)
@click.option(
    "--request-required-acks",
    "--acks",
    "acks",
    default="-1",
    show_default=True,
    type=click.Choice(["-1", "all", "0", "1"]),
    help="Required acknowledgements: none (0), leader (1) or all in-sync replicas (-1, all).",
)
@click.option(
    "--sync", is_flag=True, help="Wait for the acknowledgement of each record before sending the next."
)
@click.option(
    "--transactional-id", metavar="ID", help="Write all lines in one transaction with this transactional.id."
)
@click.option(
    "--transaction-timeout-ms", type=click.IntRange(1), metavar="MS", default=60_000, show_default=True,
    help="Time after which the coordinator aborts the transaction.",
)  # fmt: skip
def produce(
    connect: Connect, as_json: bool, topic: str, partition: int | None, key_separator: str | None,
    properties: tuple[str, ...], client_settings: tuple[str, ...], **settings: Any,
) -> None:  # fmt: skip
    """Write lines from standard input to a topic.

    On a terminal each record has the prompt `>`; Ctrl-D ends the input. Ctrl-C waits for acknowledgements of
    the records in flight and exits with code 130.

    \b
    echo hello | konvene produce greetings
    echo "ann=hello" | konvene produce --topic greetings --key-separator =
    seq 1000 | konvene produce --topic numbers --transactional-id counter
    """
    options = ProducerOptions(**settings)
    if options.transactional_id is not None and options.acks not in ("-1", "all"):
        raise click.UsageError(f"--transactional-id and --acks {options.acks} cannot be used together.")
    connection, others = client_properties(client_settings, "--producer-property")
    for text in others:
        note(f"--producer-property {text.partition('=')[0]} is unknown and ignored.")
    connect = partial(connect, properties=connection)
    reader = parse_properties(properties, PROPERTIES)
    if key_separator is not None:
        reader["parse.key"], reader["key.separator"] = "true", key_separator
    line_format = LineFormat.of(reader)

    async def job() -> None:
        source = StandardInput()
        try:
            tally = await _produce(connect, source, options, topic, partition, line_format)
        finally:
            source.close()
        total = _written(tally)
        if as_json:
            rows = [{"partition": p, **row} for p, row in sorted(tally.items())]
            print_json({"topic": topic, "records": total, "partitions": rows})
        elif sys.stderr.isatty():
            note(f"{counted(total, 'record')} written to {topic}.")

    run(job)


async def _produce(
    connect: Connect, source: StandardInput, options: ProducerOptions, topic: str, partition: int | None,
    line_format: LineFormat,
) -> Tally:  # fmt: skip
    """Write the lines of `source` with the producer that the options describe."""
    import asyncio

    from konvene.client.producer.producer import Producer
    from konvene.client.producer.transactional import TransactionalProducer
    from konvene.codec.compression import Compression

    compression = Compression[options.compression_codec.upper()]
    at_once = 1 if options.sync or source.interactive else _MAX_IN_FLIGHT
    async with connect() as cluster:
        if source.interactive:
            await cluster.refresh([topic])  # An unreachable cluster is reported before the first prompt.
        if options.transactional_id is None:
            acks = -1 if options.acks == "all" else int(options.acks)
            plain = Producer(cluster, acks=acks, compression=compression)
            return await _write(plain, source, topic, partition, line_format, at_once)
        try:
            async with (
                TransactionalProducer(
                    cluster, options.transactional_id, compression=compression,
                    transaction_timeout_ms=options.transaction_timeout_ms,
                ) as producer,
                producer.transaction(),
            ):  # fmt: skip
                return await _write(producer, source, topic, partition, line_format, at_once)
        except asyncio.CancelledError:
            note(f"Interrupted: the transaction was aborted, no record was written to {topic}.")
            raise


async def _write(
    producer: Producer, source: StandardInput, topic: str, partition: int | None, line_format: LineFormat,
    at_once: int,
) -> Tally:  # fmt: skip
    """Send each line as a record, with up to `at_once` unacknowledged; return the first and last offset and
    the number of records of each partition.

    On a terminal `at_once` is 1, so that an error is reported at the line that it concerns."""
    import asyncio

    sent: list[asyncio.Future[Produced]] = []
    tally: Tally = {}
    try:
        async for number, line in source.lines():
            try:
                record = line_format.parse(line)
            except ValueError as error:
                await _settle(producer, sent, tally)
                total = 0 if producer.transactional_id else _written(tally)
                fail(
                    f"line {number}: {error}",
                    f"{counted(total, 'line')} before it {'was' if total == 1 else 'were'} written; "
                    "ignore.error=true uses such a line as the value.",
                )
            sent.append(
                await producer.send(
                    topic, record.value, key=record.key, headers=record.headers, partition=partition
                )
            )
            if len(sent) >= at_once:
                await _settle(producer, sent, tally)
        await _settle(producer, sent, tally)
    except asyncio.CancelledError:
        source.close()
        if producer.transactional_id:
            for done in sent:
                done.cancel()
        else:
            unsent = source.count - _written(tally) - len(sent)
            await _flush_interrupted(producer, topic, sent, _written(tally), unsent)
        raise
    return tally


async def _settle(producer: Producer, sent: list[asyncio.Future[Produced]], tally: Tally) -> None:
    """Wait for the acknowledgements of all records in `sent`, add their offsets to `tally` by partition, and
    clear `sent`. Raises the error of the first record that failed."""
    await producer.flush()
    failed = [error for done in sent if (error := done.exception()) is not None]
    if failed:
        raise failed[0]
    for done in sent:
        made = done.result()
        row = tally.setdefault(made.partition, {"base_offset": made.offset, "last_offset": -1, "records": 0})
        row["last_offset"], row["records"] = made.offset, row["records"] + 1
    sent.clear()


async def _flush_interrupted(
    producer: Producer, topic: str, sent: list[asyncio.Future[Produced]], written: int, unsent: int
) -> None:
    """After an interrupt wait for the acknowledgements of the records in `sent`, up to a time limit or a
    second interrupt, and print how many records were written to the topic, `written` of them before.

    `unsent` is the number of lines that were read and not sent."""
    import asyncio

    try:
        if not all(done.done() for done in sent):
            note(f"Interrupted: waiting for {counted(len(sent), 'acknowledgement')}; Ctrl-C again ends this.")
            await asyncio.wait_for(producer.flush(), INTERRUPTED_FLUSH_S)
    except TimeoutError:
        pass
    finally:
        pending = [done for done in sent if not done.done()]
        errors = [done.exception() for done in sent if done.done()]
        for done in pending:
            done.cancel()
        text = f"Interrupted: {counted(written + errors.count(None), 'record')} written to {topic}."
        if unsent:
            text += f" {counted(unsent, 'line')} not sent."
        if pending:
            text += f" {counted(len(pending), 'record')} without an acknowledgement may be lost."
        failed = [error for error in errors if error is not None]
        if failed:
            text += f" {counted(len(failed), 'record')} failed: {failed[0]}"
        note(text)


def _written(tally: Tally) -> int:
    return sum(row["records"] for row in tally.values())


class Line(NamedTuple):
    """A record parsed from a line."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LineFormat(NamedTuple):
    """The format of lines, as in Kafka's line reader: `headers<TAB>key<TAB>value`."""

    parse_key: bool
    key_separator: str
    parse_headers: bool
    headers_delimiter: str
    headers_separator: str
    headers_key_separator: str
    null_marker: str
    ignore_error: bool

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> LineFormat:
        made = cls(*(settings[name] for name in PROPERTIES))  # type: ignore[arg-type]
        return made._replace(
            parse_key=_parse_bool(settings["parse.key"]),
            parse_headers=_parse_bool(settings["parse.headers"]),
            ignore_error=_parse_bool(settings["ignore.error"]),
        )

    def parse(self, line: bytes) -> Line:
        """Parse a line. Raises `ValueError` for a missing separator unless `ignore_error`."""
        rest = line
        headers: tuple[tuple[str, bytes | None], ...] = ()
        key: bytes | None = None
        if self.parse_headers:
            text, rest = self._split(rest, self.headers_delimiter, "headers")
            headers = tuple(self._headers(text))
        if self.parse_key:
            found, rest = self._split(rest, self.key_separator, "a key")
            key = self._or_null(found)
        return Line(key, self._or_null(rest), headers)

    def _split(self, line: bytes, separator: str, what: str) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator.encode())
        if found:
            return before, after
        if not self.ignore_error:
            raise ValueError(f"no {separator!r} after {what}")
        return None, line

    def _headers(self, text: bytes | None) -> Iterator[tuple[str, bytes | None]]:
        if not text or self._or_null(text) is None:
            return
        for pair in text.split(self.headers_separator.encode()):
            name, found, value = pair.partition(self.headers_key_separator.encode())
            if not found and not self.ignore_error:
                raise ValueError(f"no {self.headers_key_separator!r} in the header {pair!r}")
            yield name.decode("utf-8", "replace"), self._or_null(value)

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if self.null_marker and text == self.null_marker.encode() else text


def parse_properties(given: tuple[str, ...], known: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults `known`, overridden by the `key=value` texts in `given`. In values \\t and \\n mean
    a tab and a newline, as in Kafka's tools. Raises UsageError for a key that is not in `known`."""
    out = dict(known)
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or key not in known:
            raise click.UsageError(
                f"--property {text}: write KEY=VALUE; valid properties: {', '.join(known)}."
            )
        out[key] = value.replace("\\t", "\t").replace("\\n", "\n")
    return out


def _parse_bool(text: str) -> bool:
    return text.strip().lower() == "true"
