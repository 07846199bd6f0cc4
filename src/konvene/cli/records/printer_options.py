"""Options of `konvene consume` that choose how records are printed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from konvene.cli.options import json_option
from konvene.cli.records.produce import parse_properties
from konvene.cli.records.record_printers import (
    PROPERTIES,
    Formats,
    JsonLinesPrinter,
    JsonPrinter,
    LinePrinter,
    PatternPrinter,
    Printer,
)
from konvene.client.formats import FORMATS, FormatError, RecordFormat, record_format

F = TypeVar("F", bound=Callable[..., object])

__all__ = ["printer_options"]


def printer_options(command: F) -> F:
    """Add the output options to a command, passed as the parameter `printer`, a `Printer`."""

    @json_option
    @click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        help="Print lines (text, default) or one JSON object per line (json).",
    )
    @click.option(
        "-f",
        "--format",
        "pattern",
        metavar="FORMAT",
        help="Format string as in kcat: %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s or "
        "%v value, %h headers, %K and %S size of key and value (-1: null), %R size of the value as 4 bytes, "
        "%%; \\n and \\t. There is no line break unless it has one.",
    )
    @click.option(
        "--formatter-property",
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help=f"Formatter property; may be repeated: {', '.join(PROPERTIES)}.",
    )
    @click.option(
        "--key-format",
        type=click.Choice(FORMATS),
        help="Decode keys: long is 8 bytes, big-endian [default: print the bytes].",
    )
    @click.option("--value-format", type=click.Choice(FORMATS), help="Decode values, as --key-format.")
    @click.option(
        "--schema",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        metavar="FILE",
        help="The Avro schema (.avsc) of keys and values in the format avro; the schema id in front of a "
        "value, as Confluent's serializers write it, is skipped.",
    )
    @click.option(
        "--key-schema",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        metavar="FILE",
        help="The Avro schema of keys, if they have another one.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: object, as_json: bool, output: str | None, pattern: str | None, properties: tuple[str, ...],
        key_format: str | None, value_format: str | None, schema: Path | None, key_schema: Path | None,
        **kwargs: object,
    ) -> object:  # fmt: skip
        given = {
            "--json": as_json, "--output": output is not None, "--format": pattern is not None,
            "--property": bool(properties) and (output == "json" or pattern is not None),
        }  # fmt: skip
        used = [name for name, is_used in given.items() if is_used]
        if len(used) > 1:
            raise click.UsageError(f"{' and '.join(used)} cannot be used together.")
        formats = _formats(key_format, value_format, schema, key_schema)
        settings = parse_properties(properties, PROPERTIES)
        return command(*args, printer=_printer(as_json, output, pattern, settings, formats), **kwargs)

    return wrapped  # type: ignore[return-value]


def _printer(
    as_json: bool, output: str | None, pattern: str | None, settings: dict[str, str], formats: Formats
) -> Printer:
    if pattern is not None:
        try:
            return PatternPrinter(pattern, formats)
        except ValueError as error:
            raise click.UsageError(f"--format {pattern}: {error}.") from None
    if as_json:
        return JsonPrinter(formats)
    return JsonLinesPrinter(formats) if output == "json" else LinePrinter(settings, formats)


def _formats(key: str | None, value: str | None, schema: Path | None, key_schema: Path | None) -> Formats:
    if schema is not None and "avro" not in (key, value):
        raise click.UsageError("--schema needs --key-format avro or --value-format avro.")
    if key_schema is not None and key != "avro":
        raise click.UsageError("--key-schema needs --key-format avro.")
    if key is None and value is None:
        return Formats()
    return Formats(
        _format("--key-format", key, key_schema or schema, "--key-schema" if key_schema else "--schema"),
        _format("--value-format", value, schema, "--schema"),
    )


def _format(option: str, name: str | None, schema: Path | None, schema_option: str) -> RecordFormat | None:
    if name is None:
        return None
    if name == "avro" and schema is None:
        raise click.UsageError(f"{option} avro needs --schema FILE, an Avro schema (.avsc).")
    try:
        text = schema.read_bytes().decode("utf-8-sig") if name == "avro" and schema is not None else None
        return record_format(name, text)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{schema_option}: cannot read {schema}: {error}.") from None
    except FormatError as error:
        raise click.UsageError(f"{schema_option} {schema}: {error}.") from None
