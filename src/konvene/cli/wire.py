"""`konvene wire`: convert messages and records between bytes and JSON, line by line.

Each line is a JSON object with `name` (Kafka's name of a request, response, header, record or consumer
protocol message), `version`, and `hex` (for `decode`) or `json` (for `encode`). The output adds the other one
and keeps all other fields. The JSON is that of Kafka's converters: names begin with a lower-case letter,
bytes are base64, uuids have 22 characters, and tagged fields are included unless they have the default value.
Unknown tagged fields are in `unknownTags`.

`hex` is the body of a message without length and header. For a coordinator record it is the content of the
log: a key with its 2-byte type, or a value with its 2-byte version (the line may omit `version` then); for a
record of the cluster metadata it includes the frame. Messages of the consumer protocol are without their
version.

For a line that cannot be converted the output has `line` (its number), `error` and its identifying fields, so
that each line that is not blank has an output line.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.output import note, print_json_line
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.codec.schema import Struct
    from konvene.records.coordinator import RecordType

Convert = Callable[[dict[str, Any]], dict[str, Any]]


@click.group()
def wire() -> None:
    """Convert messages and records between bytes and JSON."""


@wire.command()
def decode() -> None:
    """Decode JSON lines from standard input: add to each line the message in "hex" as "json".

    \b
    {"name":"ConsumerProtocolSubscription","version":0,"hex":"000000010001740000000000"}
    """
    _convert_lines(_decoded)


@wire.command()
def encode() -> None:
    """Encode lines with "json" from standard input: add "hex".

    \b
    {"name":"GroupMetadataKey","version":0,"json":{"group":"billing"}}
    """
    _convert_lines(_encoded)


def _convert_lines(convert: Convert) -> None:
    failed = lines = 0
    for number, raw in enumerate(sys.stdin.buffer, 1):
        if not raw.strip():
            continue
        lines += 1
        row: Any = None
        try:
            row = json.loads(raw)
            if not isinstance(row, dict):
                raise BadLine("not a JSON object")
            done = convert(row)
        except ValueError as error:  # Not JSON, not UTF-8, `BadLine` or a `CodecError`.
            failed += 1
            done = _failed(number, row, str(error))
        except RecursionError:
            failed += 1
            done = _failed(number, row, "nested too deeply")
        print_json_line(done, ascii_only=True)
    if failed:
        sys.stdout.flush()
        note(f'konvene: {failed:,} of {counted(lines, "line")} could not be converted; see "error"')
        raise click.exceptions.Exit(1)


def _failed(number: int, row: Any, why: str) -> dict[str, Any]:
    known = row if isinstance(row, dict) else {}
    return {"line": number, "error": why} | {k: known[k] for k in ("name", "version") if k in known}


class BadLine(ValueError):
    """An input line whose fields are missing or invalid."""


# one line -------------------------------------------------------------------------------------------


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    from konvene.codec.compile import decode as read
    from konvene.codec.json import to_json

    cls = _declared(row)
    try:
        data = bytes.fromhex(_field(row, "hex", str))
    except ValueError as error:
        raise BadLine(f"hex: {error}") from None
    front, body = _split(cls, data)
    version = _version(cls, row, front)
    value = read(cls, version, data, body)
    out = row | {"version": version, "json": to_json(value, version)}
    if value.unknown_tags:
        out["unknownTags"] = [{"tag": tag, "hex": bytes(held).hex()} for tag, held in value.unknown_tags]
    return out


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    from konvene.codec.compile import encode as write
    from konvene.codec.json import from_json

    cls = _declared(row)
    version = _version(cls, row, None)
    value = from_json(cls, _field(row, "json", dict), version)
    if row.get("unknownTags"):
        value = value.replace(unknown_tags=_tags(row["unknownTags"]))
    return row | {"hex": (_front(cls, version) + write(value, version)).hex()}


def _field(row: dict[str, Any], name: str, kind: type) -> Any:
    found = row.get(name)
    if not isinstance(found, kind):
        word = "text" if kind is str else "an object"
        raise BadLine(f'"{name}" is missing' if name not in row else f'"{name}" is not {word}')
    return found


def _declared(row: dict[str, Any]) -> type[Struct]:
    name = _field(row, "name", str)
    cls = _find(name)
    if cls is None:
        raise BadLine(
            f"{name} is not a message or record of Kafka 4.4 (examples: FetchRequest, GroupMetadataKey)"
        )
    return cls


def _version(cls: type[Struct], row: dict[str, Any], found_version: int | None) -> int:
    """Return the version of the message in a line. If its bytes contain a version, `found_version`, both must
    be equal."""
    version = row.get("version", found_version)
    if version is None:
        raise BadLine('"version" is missing')
    if isinstance(version, bool) or not isinstance(version, int):
        raise BadLine('"version" is not a whole number')
    if found_version is not None and found_version != version:
        raise BadLine(f"the line has version {version}, its bytes have version {found_version}")
    if version not in cls.__versions__:
        raise BadLine(f"{cls.__name__} has no version {version} (it has {cls.__versions__})")
    return version


def _tags(rows: Any) -> tuple[tuple[int, bytes], ...]:
    try:
        return tuple((int(row["tag"]), bytes.fromhex(row["hex"])) for row in rows)
    except (TypeError, KeyError, ValueError):
        raise BadLine('"unknownTags" is not a list of {"tag": number, "hex": text}') from None


# the prefix of a record -----------------------------------------------------------------------------


def _split(cls: type[Struct], data: bytes) -> tuple[int | None, int]:
    """Return the version in front of the fields of a message (None if there is none), and the position of the
    first field."""
    from konvene.codec.errors import Malformed, Truncated
    from konvene.codec.varint import read_unsigned_varint
    from konvene.records.cluster_log import METADATA_RECORDS

    if cls in _coordinator_keys() or cls in _coordinator_values():
        if len(data) < 2:
            raise Truncated(f"{cls.__name__}: the first 2 bytes are missing")
        front = int.from_bytes(data[:2], "big")
        code = _coordinator_keys().get(cls)
        if code is None:
            return front, 2
        if front != code:
            raise Malformed(f"{cls.__name__} has record type {code}, the bytes have {front}")
        return None, 2
    if METADATA_RECORDS.get(cls.__key__) is cls:
        frame, at = read_unsigned_varint(data, 0)
        code, at = read_unsigned_varint(data, at)
        version, at = read_unsigned_varint(data, at)
        if (frame, code) != (1, cls.__key__):
            raise Malformed(f"{cls.__name__} is framed as 1, {cls.__key__}; the bytes have {frame}, {code}")
        return version, at
    return None, 0


def _front(cls: type[Struct], version: int) -> bytes:
    from konvene.codec.varint import write_unsigned_varint
    from konvene.records.cluster_log import METADATA_RECORDS

    if cls in _coordinator_keys():
        return _coordinator_keys()[cls].to_bytes(2, "big")
    if cls in _coordinator_values():
        return version.to_bytes(2, "big")
    if METADATA_RECORDS.get(cls.__key__) is cls:
        return b"".join(write_unsigned_varint(number) for number in (1, cls.__key__, version))
    return b""


# message classes ------------------------------------------------------------------------------------


def _find(name: str) -> type[Struct] | None:
    """Return the message class with this name in Kafka; None if there is none. Only the module of that API is
    imported."""
    from konvene.messages import BY_NAME

    for kind in ("Request", "Response"):
        api = BY_NAME.get(name.removesuffix(kind)) if name.endswith(kind) else None
        if api is not None:
            return api.request if kind == "Request" else api.response
    return _others().get(name)


@functools.cache
def _others() -> Mapping[str, type[Struct]]:
    from konvene.codec.schema import FOREVER
    from konvene.codec.schema import Struct as Declared
    from konvene.messages import consumer_protocol, header
    from konvene.records import control
    from konvene.records.cluster_log import METADATA_RECORDS

    found = [*_coordinator_keys(), *_coordinator_values(), *METADATA_RECORDS.values()]
    for module in (header, consumer_protocol, control):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Declared) and value is not Declared:
                found.append(value)
    return {cls.__name__: cls for cls in found if cls.__versions__.last < FOREVER}


@functools.cache
def _coordinator_keys() -> Mapping[type[Struct], int]:
    return {kind.key: kind.code for kind in _record_types()}


@functools.cache
def _coordinator_values() -> frozenset[type[Struct]]:
    return frozenset(kind.value for kind in _record_types())


def _record_types() -> list[RecordType]:
    from konvene.records import coordinator as c

    tables = (c.GROUP_RECORDS, c.SHARE_STATE_RECORDS, c.TRANSACTION_RECORDS, c.AUDIT_RECORDS)
    return [kind for table in tables for kind in table.values()]
