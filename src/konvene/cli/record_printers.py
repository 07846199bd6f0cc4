"""Output of consumed records: as lines, as Kafka's formatter prints them, or as a JSON array."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from konvene.cli.output import note

if TYPE_CHECKING:
    from konvene.client.consumer.consumer import Consumed
    from konvene.client.share.consumer import ShareRecord

__all__ = ["PROPERTIES", "JsonPrinter", "LinePrinter", "Printer"]

PROPERTIES = {
    "print.timestamp": "false", "print.partition": "false", "print.offset": "false",
    "print.delivery": "false", "print.headers": "false", "print.key": "false", "print.value": "true",
    "key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null",
}  # fmt: skip
"""The properties of Kafka's formatter with their defaults."""


class LinePrinter:
    """Printer of one record per line, as Kafka's console consumer formats it: the selected fields, with
    separators."""

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
    """Printer of a JSON array, record by record. The array is closed even after an interrupt."""

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


Printer: TypeAlias = LinePrinter | JsonPrinter


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
"""Printable fields of a record, in their order."""


def _document(r: Consumed | ShareRecord) -> dict[str, object]:
    """Return a record as a JSON document. Keys and values that are not UTF-8 are base64 in fields named
    `…_base64`."""
    out: dict[str, object] = {
        "topic": r.topic,
        "partition": r.partition,
        "offset": r.offset,
        "timestamp_ms": r.timestamp if r.timestamp >= 0 else None,
    }
    delivery_count = getattr(r, "delivery_count", None)
    if delivery_count is not None:
        out["delivery_count"] = delivery_count
    out |= _text("key", r.key) | _text("value", r.value)
    out["headers"] = [{"name": name, **_text("value", value)} for name, value in r.headers]
    return out


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(data).decode()}
