"""Output of consumed records: as lines like Kafka's formatter, by a format string like kcat's, or as JSON.

Keys and values are written as they are, unless they have a format (`konvene.client.formats`). One that is not
of its format is shown as well as possible, with the error as a note on standard error, or in a field of the
JSON.
"""

from __future__ import annotations

import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from konvene.cli.output import note
from konvene.client.formats import Decoded, RecordFormat, record_format

if TYPE_CHECKING:
    from konvene.client.consumer.consumer import Consumed
    from konvene.client.share.consumer import ShareRecord

    AnyRecord: TypeAlias = Consumed | ShareRecord

__all__ = [
    "PROPERTIES", "Formats", "JsonLinesPrinter", "JsonPrinter", "LinePrinter", "PatternPrinter", "Printer",
    "parse_pattern",
]  # fmt: skip

PROPERTIES = {
    "print.timestamp": "false", "print.partition": "false", "print.offset": "false",
    "print.delivery": "false", "print.headers": "false", "print.key": "false", "print.value": "true",
    "key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null",
}  # fmt: skip
"""The properties of Kafka's formatter with their defaults."""


class Formats(NamedTuple):
    """The formats of keys and values; None writes their bytes."""

    key: RecordFormat | None = None
    value: RecordFormat | None = None

    def bytes_of(self, record: AnyRecord, part: str) -> bytes | None:
        """Return the key or value (`part`) to print as bytes; print a note if it is not of its format."""
        data: bytes | None = getattr(record, part)
        form = self.key if part == "key" else self.value
        if form is None or data is None:
            return data
        decoded = form.decode(data)
        if decoded.error is not None:
            note(f"{record.topic}-{record.partition} offset {record.offset}, {part}: {decoded.error}")
        return None if decoded.text is None else decoded.text.encode()


class Printer(ABC):
    """Printer of records to standard output; `count` is their number so far."""

    def __init__(self, formats: Formats) -> None:
        self.formats = formats
        self.count = 0
        self._out = sys.stdout.buffer

    def show(self, record: AnyRecord) -> None:
        self._out.write(self._bytes(record))
        self.count += 1

    @abstractmethod
    def _bytes(self, record: AnyRecord) -> bytes:
        """Return the output for one record."""

    def flush(self) -> None:
        self._out.flush()

    def end(self) -> None:
        """Complete the output, also after an interrupt."""
        self.flush()


class LinePrinter(Printer):
    """Printer of one record per line, as Kafka's console consumer formats it: the selected fields, with
    separators."""

    def __init__(self, settings: Mapping[str, str], formats: Formats) -> None:
        super().__init__(formats)
        self._parts = [show for name, show in _PARTS.items() if settings[name].strip().lower() == "true"]
        self._settings = settings
        self._separator = settings["key.separator"].encode()
        self._end = settings["line.separator"].encode()

    def _bytes(self, record: AnyRecord) -> bytes:
        parts = [show(record, self._settings, self.formats) for show in self._parts]
        return self._separator.join(parts) + self._end

    def end(self) -> None:
        super().end()
        note(f"Processed a total of {self.count} messages")


def _headers(r: AnyRecord, settings: Mapping[str, str], formats: Formats) -> bytes:
    if not r.headers:
        return b"NO_HEADERS"
    null = settings["null.literal"].encode()
    pairs = (k.encode() + b":" + (null if v is None else v) for k, v in r.headers)
    return settings["headers.separator"].encode().join(pairs)


def _part(r: AnyRecord, part: str, settings: Mapping[str, str], formats: Formats) -> bytes:
    data = formats.bytes_of(r, part)
    return settings["null.literal"].encode() if data is None else data


_PARTS: dict[str, Callable[[Any, Mapping[str, str], Formats], bytes]] = {
    "print.timestamp": lambda r, settings, formats: (
        f"{r.timestamp_type.label}:{r.timestamp}".encode() if r.timestamp >= 0 else b"NO_TIMESTAMP"
    ),
    "print.partition": lambda r, settings, formats: f"Partition:{r.partition}".encode(),
    "print.offset": lambda r, settings, formats: f"Offset:{r.offset}".encode(),
    "print.delivery": lambda r, settings, formats: (
        f"Delivery:{getattr(r, 'delivery_count', 'NOT_PRESENT')}".encode()
    ),
    "print.headers": _headers,
    "print.key": lambda r, settings, formats: _part(r, "key", settings, formats),
    "print.value": lambda r, settings, formats: _part(r, "value", settings, formats),
}
"""Printable fields of a record, in their order."""


# format strings -------------------------------------------------------------------------------


class PatternPrinter(Printer):
    """Printer of records by a format string of kcat, such as `%p:%o %s\\n`. Raises `ValueError` for an
    invalid one."""

    def __init__(self, pattern: str, formats: Formats) -> None:
        super().__init__(formats)
        self._parts = parse_pattern(pattern)

    def _bytes(self, record: AnyRecord) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else part(record, self.formats) for part in self._parts
        )


Show = Callable[[Any, Formats], bytes]

_TOKENS: dict[str, Show] = {
    "t": lambda r, formats: str(r.topic).encode(),
    "p": lambda r, formats: str(r.partition).encode(),
    "o": lambda r, formats: str(r.offset).encode(),
    "T": lambda r, formats: str(r.timestamp).encode(),
    "k": lambda r, formats: formats.bytes_of(r, "key") or b"",
    "s": lambda r, formats: formats.bytes_of(r, "value") or b"",
    "v": lambda r, formats: formats.bytes_of(r, "value") or b"",
    "K": lambda r, formats: str(_size(r.key)).encode(),
    "S": lambda r, formats: str(_size(r.value)).encode(),
    "R": lambda r, formats: _size(r.value).to_bytes(4, "big", signed=True),
    "h": lambda r, formats: b",".join(
        k.encode() + b"=" + (b"NULL" if v is None else v) for k, v in r.headers
    ),
}
"""The fields of a record by their letters in a format string. `%v` is konvene's; the others are kcat's."""


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_PATTERN_PART = re.compile(
    r"%(?P<token>.?)|\\(?P<escape>x[0-9a-fA-F]{1,2}|0[0-7]{0,3}|[1-9][0-9]{0,2}|.)", re.DOTALL
)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r"}


def parse_pattern(pattern: str) -> list[bytes | Show]:
    """Parse a format string of kcat to the texts and fields in it. Raises `ValueError`."""
    parts: list[bytes | Show] = []
    at = 0
    for match in _PATTERN_PART.finditer(pattern):
        parts.append(pattern[at : match.start()].encode())
        at = match.end()
        token, escape = match["token"], match["escape"]
        if escape is not None:
            parts.append(_escaped(escape))
        elif token == "%":
            parts.append(b"%")
        elif token in _TOKENS:
            parts.append(_TOKENS[token])
        else:
            known = " ".join(f"%{each}" for each in (*_TOKENS, "%"))
            raise ValueError(
                f"there is no %{token}: use {known}" if token else f"a lone % at the end: use {known}"
            )
    return [part for part in (*parts, pattern[at:].encode()) if part != b""]


def _escaped(escape: str) -> bytes:
    """Return the byte of an escape sequence without its backslash; numbers are as in kcat: `x0A`, `012`
    (octal) or `10`."""
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if escape[0] == "x" and len(escape) > 1:
        return bytes((int(escape[1:], 16),))
    if escape.isascii() and escape.isdigit():
        return bytes((int(escape, 8 if escape[0] == "0" else 10) & 0xFF,))
    return escape.encode()


# JSON -----------------------------------------------------------------------------------------


class JsonPrinter(Printer):
    """Printer of a JSON array, record by record. The array is closed even after an interrupt."""

    def _bytes(self, record: AnyRecord) -> bytes:
        return (",\n" if self.count else "[\n").encode() + _json(_document(record, self.formats)).encode()

    def end(self) -> None:
        self._out.write(b"\n]\n" if self.count else b"[]\n")
        self.flush()


class JsonLinesPrinter(Printer):
    """Printer of one JSON object per line."""

    def _bytes(self, record: AnyRecord) -> bytes:
        return _json(_line_document(record, self.formats)).encode() + b"\n"


def _json(fields: Mapping[str, str]) -> str:
    """Return a JSON object; the values of `fields` are JSON."""
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in fields.items()) + "}"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _document(r: AnyRecord, formats: Formats) -> dict[str, str]:
    """Return the fields of a record in the array of `--json`. Keys and values that are not UTF-8 are base64
    in fields named `…_base64`, unless they have a format."""
    out = {
        "topic": _dump(r.topic),
        "partition": _dump(r.partition),
        "offset": _dump(r.offset),
        "timestamp_ms": _dump(r.timestamp if r.timestamp >= 0 else None),
    } | _delivery(r)
    for part, form in (("key", formats.key), ("value", formats.value)):
        data = getattr(r, part)
        out |= _text(part, data) if form is None else _decoded(part, form.decode(data))
    headers = (_json({"name": _dump(name), **_text("value", value)}) for name, value in r.headers)
    return out | {"headers": f"[{', '.join(headers)}]"}


def _line_document(r: AnyRecord, formats: Formats) -> dict[str, str]:
    """Return the fields of a record in a line of `--output json`."""
    text = record_format("text")
    has_time = r.timestamp >= 0
    headers = (_json({"key": _dump(key), **_decoded("value", text.decode(data))}) for key, data in r.headers)
    return {
        "topic": _dump(r.topic),
        "partition": _dump(r.partition),
        "offset": _dump(r.offset),
        "timestamp": _dump(r.timestamp if has_time else None),
        "timestamp_type": _dump(r.timestamp_type.label if has_time else None),
        **_delivery(r),
        **_decoded("key", (formats.key or text).decode(r.key)),
        **_decoded("value", (formats.value or text).decode(r.value)),
        "headers": f"[{', '.join(headers)}]",
    }


def _delivery(r: AnyRecord) -> dict[str, str]:
    count = getattr(r, "delivery_count", None)
    return {} if count is None else {"delivery_count": _dump(count)}


def _decoded(name: str, decoded: Decoded) -> dict[str, str]:
    out = {name: decoded.json}
    if decoded.error is not None:
        out[f"{name}_error"] = _dump(decoded.error)
    if decoded.schema_id is not None:
        out[f"{name}_schema_id"] = _dump(decoded.schema_id)
    return out


def _text(name: str, data: bytes | None) -> dict[str, str]:
    try:
        return {name: _dump(None if data is None else data.decode())}
    except UnicodeDecodeError:
        import base64

        assert data is not None
        return {f"{name}_base64": _dump(base64.b64encode(data).decode())}
