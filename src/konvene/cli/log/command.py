"""`konvene log`: dump and verify log files; `clean` and `repair` change them while no broker uses them.

The files are read without a broker: a segment, a partition directory or a whole data directory, of konvene or
Apache Kafka, running or stopped. `dump` decodes coordinator records by the topic in the directory name;
`--json` prints an object for each record. `konvene.log` reads and checks the bytes; this module selects the
record tables.

A record of the cluster metadata has no key; its type, which begins its value, is shown as the key type.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from konvene.cli.log.clean import clean
from konvene.cli.log.decoding import Decode, batch_facts, control_facts, decoder_of, record_facts, text_in
from konvene.cli.log.repair import repair
from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, Table, iso, note, print_json, print_json_line, print_tables, text_of
from konvene.codec.batches import BatchHeader, Record, records
from konvene.codec.errors import CodecError
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.log.disk.read_only import ReadOnlyDisk
    from konvene.log.inspect.dump import Folder, Listing
    from konvene.log.inspect.verify import Finding, Verification

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@click.group()
def log() -> None:
    """Dump, verify, clean and repair the files of a log, of konvene or Apache Kafka."""


log.add_command(clean)
log.add_command(repair)


@log.command()
@click.argument("path", type=click.Path(exists=True))
@click.option("--json", "as_json", is_flag=True, help="Print each record as a JSON object on one line.")
@click.option("--offsets-from", type=click.IntRange(0), metavar="N", help="Start at this offset.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="Print at most N records.")
@click.option("--no-records", is_flag=True, help="Print batches only; --max counts batches then.")
@click.option(
    "--topic", metavar="TOPIC", help="Topic of the records, if the directory name does not contain it."
)
def dump(
    path: str, as_json: bool, offsets_from: int | None, most: int | None, no_records: bool, topic: str | None
) -> None:
    """Print the batches and records below PATH.

    PATH is a .log file, a partition directory, a data directory, or an .index, .timeindex, .txnindex,
    .snapshot or leader-epoch-checkpoint file. Damaged bytes are reported and skipped, and the exit code is 1.

    \b
    konvene log dump data/__consumer_offsets-0
    konvene log dump /var/kafka/orders-0 --offsets-from 1000 --max 20 --json
    """
    from konvene.log.disk.read_only import ReadOnlyDisk
    from konvene.log.inspect import dump as reading

    disk, path = ReadOnlyDisk(), _absolute(path)
    try:
        rows = None if disk.is_directory(path) else reading.listing(disk, path)
        if rows is not None:
            _print_listing(path, rows, as_json, most)
            return
        folders = reading.find(disk, path)
        if topic is not None:
            folders = [each._replace(topic=topic) for each in folders]
        printer = _json_printer if as_json else _text_printer
        dumping = _Dumping(disk, offsets_from or 0, most, printer, no_records)
        dumping.progress.total = _bytes_below(disk, folders)
        for folder in folders:
            dumping.folder(folder)
        dumping.progress.clear()
    except reading.NotALog as error:
        raise click.UsageError(f"{error}.") from None
    except BrokenPipeError:
        raise  # The reader of the pipe has closed it: click ends quietly.
    except OSError as error:
        fail(f"cannot read {error.filename or path}: {error.strerror}")
    if dumping.damaged:
        raise click.exceptions.Exit(1)


@log.command()
@click.argument("path", type=click.Path(exists=True))
@json_option
@click.option("--no-records", is_flag=True, help="Check batches only, not each record; faster.")
def verify(path: str, as_json: bool, no_records: bool) -> None:
    """Verify the files below PATH.

    Checks checksums, counts, the order of offsets, leader epochs, and the indexes against the log. The exit
    code is 0 if all files are valid, 1 if one is damaged, 2 if PATH is not a log.

    \b
    konvene log verify data
    konvene log verify /var/kafka/orders-0 --json
    """
    from konvene.log.disk.read_only import ReadOnlyDisk
    from konvene.log.inspect.dump import NotALog, find
    from konvene.log.inspect.verify import verify as check

    disk, path = ReadOnlyDisk(), _absolute(path)
    found: list[Verification] = []
    try:
        folders = find(disk, path)
        durable = _recovery_points(disk, folders, path)
        progress = Progress(_bytes_below(disk, folders), beside_output=True)
        for folder in folders:
            what = str(folder)
            report_progress = lambda count, what=what: progress.add(count, what)  # noqa: E731
            found.append(
                check(
                    disk,
                    folder,
                    with_records=not no_records,
                    durable=durable.get(what),
                    on_read=report_progress,
                )
            )
        progress.clear()
    except NotALog as error:
        raise click.UsageError(f"{error}.") from None
    except BrokenPipeError:
        raise  # The reader of the pipe has closed it: click ends quietly.
    except OSError as error:
        fail(f"cannot read {error.filename or path}: {error.strerror}")
    if as_json:
        sound = all(each.is_sound for each in found)
        print_json({"path": path, "sound": sound, "partitions": [_verdict(each) for each in found]})
    else:
        print_tables([_verdicts(found)])
    if not all(each.is_sound for each in found):
        raise click.exceptions.Exit(1)


def _absolute(path: str) -> str:
    """Return the path in a form that contains the name of the partition directory, from which the topic is
    read: `.` and bare file names become absolute paths."""
    return path if "/" in path.strip("./") else os.path.abspath(path)  # noqa: PTH100 (a path is text here)


def _bytes_below(disk: ReadOnlyDisk, folders: list[Folder]) -> int:
    return sum(disk.size(f"{folder.path}/{name}") for folder in folders for name in folder.logs)


# dumping ------------------------------------------------------------------------------------------


class _Printer(NamedTuple):
    """The three functions that print each file, each batch and each record of a dump as it is read."""

    file: Callable[[str], None]
    batch: Callable[[Folder, BatchHeader, int, bool], None]
    record: Callable[[Folder, BatchHeader, Record, Decode], None]


class _Dumping:
    """A dump of log files: it walks them from the start offset, prints up to `most` records, and notes
    whether it found damage."""

    def __init__(
        self, disk: ReadOnlyDisk, start: int, most: int | None, printer: _Printer, no_records: bool
    ) -> None:
        self.disk = disk
        self.damaged = False
        self.progress = Progress(0)
        self._start = start
        self._left = most
        self._print = printer
        self._no_records = no_records

    def folder(self, folder: Folder) -> None:
        from konvene.log.inspect.dump import base_offset_of

        bases = [base_offset_of(name) for name in folder.logs]
        decode = decoder_of(folder.topic)
        for at, name in enumerate(folder.logs):
            if self._left == 0:
                return
            if at + 1 < len(bases) and bases[at + 1] <= self._start:
                continue
            self._segment(folder, f"{folder.path}/{name}", bases[at], decode)

    def _segment(self, folder: Folder, path: str, base_offset: int, decode: Decode) -> None:
        from konvene.log.inspect.dump import Damage, first_position, walk

        size = self.disk.size(path)
        file = self.disk.open(path)
        position = 0
        if self._start > base_offset and path.endswith(".log"):
            position = first_position(self.disk, path, base_offset, size, self._start)
        self._print.file(path)
        seen = 0
        try:
            for part in walk(file, size, base_offset, position):
                if self._left == 0:
                    return
                if isinstance(part, Damage):
                    on = part.resumes_at
                    follows = "" if on is None or on == part.position else f"; continues at byte {on}"
                    self._report_damage(
                        f"{path}, byte {part.position}, offset {part.offset}: {part.why}{follows}"
                    )
                    continue
                if part.header.last_offset >= self._start:
                    self._batch(folder, path, part.header, part.position, part.view, decode)
                self.progress.add(part.position + part.header.size - seen, path)
                seen = part.position + part.header.size
        finally:
            file.close()

    def _batch(
        self, folder: Folder, path: str, header: BatchHeader, position: int, view: memoryview, decode: Decode
    ) -> None:
        self._print.batch(folder, header, position, self._no_records)
        if self._no_records:
            self._count()
            return
        try:
            found = records(view, header)
        except CodecError as error:
            self._report_damage(f"{path}, byte {position}, offset {header.base_offset}: {error}")
            return
        for record in found:
            if self._left == 0:
                return
            if record.offset >= self._start:
                self._print.record(folder, header, record, decode)
                self._count()

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1

    def _report_damage(self, text: str) -> None:
        self.damaged = True
        self.progress.clear()
        sys.stdout.flush()
        note(f"konvene: damaged: {text}")


# printing as JSON ---------------------------------------------------------------------------------


def _json_batch(folder: Folder, header: BatchHeader, position: int, alone: bool) -> None:
    if alone:
        print_json_line(
            {
                "topic": folder.topic,
                "partition": folder.partition,
                "base_offset": header.base_offset,
                "last_offset": header.last_offset,
                "position": position,
                "size": header.size,
                "record_count": header.record_count,
                "base_timestamp": header.base_timestamp,
                "max_timestamp": header.max_timestamp,
                **batch_facts(header),
                "is_control": header.is_control,
            }
        )


def _json_record(folder: Folder, header: BatchHeader, record: Record, decode: Decode) -> None:
    print_json_line(record_facts(folder.topic, folder.partition, header, record, decode))


_json_printer = _Printer(lambda _path: None, _json_batch, _json_record)


# printing as text ---------------------------------------------------------------------------------


def _text_batch(folder: Folder, header: BatchHeader, position: int, _alone: bool) -> None:
    facts = batch_facts(header)
    words = [
        f"batch {header.base_offset}..{header.last_offset}",
        f"at byte {position}",
        f"{header.size} bytes",
        counted(header.record_count, "record"),
        f"{facts['timestamp_type']} {iso(header.max_timestamp) or 'none'}",
        str(facts["compression"]),
        f"leader epoch {header.partition_leader_epoch}",
    ]
    if header.has_producer_id:
        words.append(
            f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}"
        )
    words += ["transactional"] * header.is_transactional + ["control"] * header.is_control
    click.echo("  ".join(words))


def _text_record(folder: Folder, header: BatchHeader, record: Record, decode: Decode) -> None:
    click.echo(f"  {record.offset}  {iso(record.timestamp) or '-'}  {_content(header, record, decode)}")


def _content(header: BatchHeader, record: Record, decode: Decode) -> str:
    if header.is_control:
        facts = control_facts(record)
        kind = str(facts.pop("control"))
        return " ".join([kind, *(f"{field}={_short(value)}" for field, value in facts.items())])
    facts = decode(record)
    wrong = f"  ({facts['error']})" if "error" in facts else ""
    if "key_type" in facts:
        name = facts["key_name"] or f"type {facts['key_type']}"
        key = "" if facts["key"] is None else f" {_short(facts['key'])}"
        if record.value is None:
            return f"{name}{key} deleted{wrong}"
        value = f"0x{record.value.hex()}" if facts["value"] is None else _short(facts["value"])
        return f"{name}{key} v{facts['value_version']} {value}{wrong}"
    headers = "".join(f" {name}: {_bytes(value)}" for name, value in record.headers)
    return text_of(f"{_bytes(record.key)} = {_bytes(record.value)}{headers}")


def _short(value: object) -> str:
    return text_of(json.dumps(value, ensure_ascii=False))


def _bytes(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = text_in(data)
    return f"0x{data.hex()}" if text is None else text


_text_printer = _Printer(lambda path: click.echo(path), _text_batch, _text_record)


def _print_listing(path: str, rows: Listing, as_json: bool, most: int | None) -> None:
    shown = rows.rows[:most]
    if as_json:
        for row in shown:
            print_json_line(dict(zip(rows.columns, row, strict=True)))
    else:
        heads = [name.upper().replace("_", "-") for name in rows.columns]
        print_tables([Table(heads, [_with_time(rows.columns, row) for row in shown])])
    if rows.fault is not None:
        fail(f"{path} is damaged: {rows.fault}")


def _with_time(columns: tuple[str, ...], row: tuple[int | None, ...]) -> list[object]:
    return [
        f"{value} ({iso(value)})" if "timestamp" in name and value is not None and value >= 0 else value
        for name, value in zip(columns, row, strict=True)
    ]


# verdicts -----------------------------------------------------------------------------------------


def _recovery_points(disk: ReadOnlyDisk, folders: list[Folder], path: str) -> dict[str, int]:
    """Return the recovery point of each partition of the data directory, up to which its log was flushed;
    empty if there are none."""
    from konvene.log.directory import read_checkpoint
    from konvene.log.errors import LogError

    if [folder.path for folder in folders] == [path.rstrip("/")] or not disk.is_directory(path):
        return {}
    try:
        points = read_checkpoint(disk, f"{path.rstrip('/')}/{RECOVERY_POINTS}")
    except LogError as error:
        note(f"konvene: {error}")
        return {}
    return {str(partition): offset for partition, offset in points.items()}


def _verdicts(found: list[Verification]) -> Table:
    columns = ("PARTITION", "SEGMENTS", "BATCHES", "RECORDS", "BYTES", "OFFSETS", "VERDICT")
    rows = [
        (
            str(each.folder), each.segments, each.batches, each.records, each.bytes,
            None if each.first_offset is None else f"{each.first_offset}..{each.next_offset - 1}",
            "sound" if each.is_sound else "DAMAGED",
        )
        for each in found
    ]  # fmt: skip
    return Table(columns, rows, (), [list(_findings(each)) for each in found])


def _findings(checked: Verification) -> Iterator[str]:
    return (str(finding) for finding in checked.findings)


def _verdict(checked: Verification) -> dict[str, object]:
    return {
        "topic": checked.folder.topic,
        "partition": checked.folder.partition,
        "path": checked.folder.path,
        "sound": checked.is_sound,
        "segments": checked.segments,
        "batches": checked.batches,
        "records": checked.records,
        "bytes": checked.bytes,
        "first_offset": checked.first_offset,
        "next_offset": checked.next_offset,
        "findings": [_finding(finding) for finding in checked.findings],
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind,
        "damage": finding.is_damage,
        "file": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "message": finding.message,
    }
