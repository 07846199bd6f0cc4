"""`konvene produce`: what `kafka-console-producer` does: one record per line of standard input.

With `--transactional-id` the lines are one transaction, which is committed at the end of the input: whoever
reads only what is committed sees all of them or none. An interrupt, or a line that cannot be read, aborts it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import note, print_json

if TYPE_CHECKING:
    import asyncio

    from konvene.client.producer.producer import Produced, Producer

PROPERTIES = {
    "parse.key": "false", "key.separator": "\t", "parse.headers": "false", "headers.delimiter": "\t",
    "headers.separator": ",", "headers.key.separator": ":", "null.marker": "", "ignore.error": "false",
}  # fmt: skip
"""The properties of Kafka's line reader, and their defaults. An empty null.marker marks nothing."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_AT_ONCE = 1_000


@click.command()
@cluster_options
@json_option
@click.option("--topic", required=True, metavar="NAME", help="The topic to write to.")
@click.option("--partition", type=click.IntRange(0), help="Write to this partition.")
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="What stands between key and value; short for parse.key=true and key.separator=TEXT.",
)
@click.option(
    "--reader-property",
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"How lines are read; repeatable: {', '.join(PROPERTIES)}.",
)
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    default="none",
    show_default=True,
    type=click.Choice(CODECS),
    help="How batches are compressed.",
)
@click.option(
    "--request-required-acks",
    "--acks",
    "acks",
    default="-1",
    show_default=True,
    type=click.Choice(["-1", "all", "0", "1"]),
    help="Whose acknowledgement to wait for.",
)
@click.option("--sync", is_flag=True, help="Wait for each record's acknowledgement before the next.")
@click.option(
    "--transactional-id", metavar="ID", help="Write all lines in one transaction, as the producer of this id."
)
@click.option(
    "--transaction-timeout-ms", type=click.IntRange(1), metavar="MS", default=60_000, show_default=True,
    help="When the coordinator aborts the transaction by itself.",
)  # fmt: skip
def produce(
    connect: Connect, as_json: bool, topic: str, partition: int | None, key_separator: str | None,
    properties: tuple[str, ...], compression_codec: str, acks: str, sync: bool,
    transactional_id: str | None, transaction_timeout_ms: int,
) -> None:  # fmt: skip
    """Write lines from standard input to a topic.

    \b
    echo hello | konvene produce --topic greetings
    echo "ann=hello" | konvene produce --topic greetings --key-separator =
    seq 1000 | konvene produce --topic numbers --transactional-id counter
    """
    if transactional_id is not None and acks not in ("-1", "all"):
        raise click.UsageError(f"--transactional-id and --acks {acks} contradict each other.")
    settings = parse_properties(properties, PROPERTIES)
    if key_separator is not None:
        settings["parse.key"], settings["key.separator"] = "true", key_separator
    shape = LineShape.of(settings)

    async def job() -> None:
        from konvene.client.producer.producer import Producer
        from konvene.client.producer.transactional import TransactionalProducer
        from konvene.codec.compression import Compression

        compression = Compression[compression_codec.upper()]
        async with connect() as cluster:
            if transactional_id is None:
                needed = -1 if acks == "all" else int(acks)
                plain = Producer(cluster, acks=needed, compression=compression)
                tally = await _write(plain, topic, partition, shape, 1 if sync else _AT_ONCE)
            else:
                async with (
                    TransactionalProducer(
                        cluster, transactional_id, compression=compression,
                        transaction_timeout_ms=transaction_timeout_ms,
                    ) as producer,
                    producer.transaction(),
                ):  # fmt: skip
                    tally = await _write(producer, topic, partition, shape, 1 if sync else _AT_ONCE)
        total = sum(row["records"] for row in tally.values())
        if as_json:
            rows = [{"partition": p, **row} for p, row in sorted(tally.items())]
            print_json({"topic": topic, "records": total, "partitions": rows})
        elif sys.stderr.isatty():
            note(f"{total} records written to {topic}.")

    run(job)


async def _write(
    producer: Producer, topic: str, partition: int | None, shape: LineShape, at_once: int
) -> dict[int, dict[str, int]]:
    """Every line of standard input as a record; what came to lie where."""
    sent: list[asyncio.Future[Produced]] = []
    tally: dict[int, dict[str, int]] = {}
    async for number, line in _lines(sys.stdin.buffer):
        try:
            record = shape.read(line)
        except ValueError as error:
            await _settle(producer, sent, tally)
            total = 0 if producer.transactional_id else sum(row["records"] for row in tally.values())
            fail(
                f"line {number}: {error}",
                f"{total} lines before it were written; ignore.error=true takes such a line whole.",
            )
        sent.append(
            await producer.send(
                topic, record.value, key=record.key, headers=record.headers, partition=partition
            )
        )
        if len(sent) >= at_once:
            await _settle(producer, sent, tally)
    await _settle(producer, sent, tally)
    return tally


async def _settle(
    producer: Producer, sent: list[asyncio.Future[Produced]], tally: dict[int, dict[str, int]]
) -> None:
    """Wait for what was sent; raises the first record's error."""
    await producer.flush()
    failed = [error for done in sent if (error := done.exception()) is not None]
    if failed:
        raise failed[0]
    for done in sent:
        made = done.result()
        row = tally.setdefault(made.partition, {"base_offset": made.offset, "last_offset": -1, "records": 0})
        row["last_offset"], row["records"] = made.offset, row["records"] + 1
    sent.clear()


async def _lines(stream: BinaryIO) -> Any:
    """Lines with their number, read without holding up the loop: a terminal may wait for ever."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
    room = threading.Semaphore(10 * _AT_ONCE)

    def read() -> None:
        try:
            for number, line in enumerate(stream, 1):
                room.acquire()
                loop.call_soon_threadsafe(queue.put_nowait, (number, line))
            loop.call_soon_threadsafe(queue.put_nowait, None)
        except RuntimeError:
            pass  # The loop ended before the input did.

    threading.Thread(target=read, name="standard-input", daemon=True).start()
    while (item := await queue.get()) is not None:
        room.release()
        yield item[0], item[1].rstrip(b"\n").removesuffix(b"\r")


class Line(NamedTuple):
    """A record as a line spells it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LineShape(NamedTuple):
    """Where key, headers and value stand in a line: `headers<TAB>key<TAB>value`, as Kafka's reader has it."""

    parse_key: bool
    key_separator: str
    parse_headers: bool
    headers_delimiter: str
    headers_separator: str
    headers_key_separator: str
    null_marker: str
    ignore_error: bool

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> LineShape:
        made = cls(*(settings[name] for name in PROPERTIES))  # type: ignore[arg-type]
        return made._replace(
            parse_key=_truth(settings["parse.key"]),
            parse_headers=_truth(settings["parse.headers"]),
            ignore_error=_truth(settings["ignore.error"]),
        )

    def read(self, line: bytes) -> Line:
        """Raises `ValueError` with what is missing in the line (not with `ignore_error`)."""
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
            raise ValueError(f"no {separator!r} that ends {what}")
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
    """`key=value` pairs over the defaults. Kafka's tools write a tab as \\t here, so do we."""
    out = dict(known)
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or key not in known:
            raise click.UsageError(f"--property {text}: there are {', '.join(known)} (written KEY=VALUE).")
        out[key] = value.replace("\\t", "\t").replace("\\n", "\n")
    return out


def _truth(text: str) -> bool:
    return text.strip().lower() == "true"
