"""The protocol of a broker and its cleaner process: JSON lines.

The broker sends a task, and may send a pause during it. The worker sends the cleaning's results in order; the
last line of a task is its `CleanerStats` or an error. Both ends are the same version of konvene, so nothing
is negotiated; an unreadable line raises `MalformedLine`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, NamedTuple

from konvene.log.cleaner.contract import (
    CleanedSegment,
    CleanerProgress,
    CleanerStats,
    CleaningTask,
    LastProducerRecord,
    SourceSegment,
)
from konvene.log.errors import DamagedLog
from konvene.log.producers import AbortedTransaction

__all__ = [
    "CleanerResult",
    "Failed",
    "MalformedLine",
    "Pause",
    "decode_command",
    "decode_result",
    "encode_line",
]

CLEAN, PAUSE = "clean", "pause"
PROGRESS, GROUP, STATS, DAMAGED, DISK, FAILED = "progress", "group", "stats", "damaged", "disk", "failed"


class Pause(NamedTuple):
    """A command to pause the running cleaning."""

    until_s: float
    """Time to resume at, on `time.monotonic`, which all processes share."""


class Failed(Exception):
    """An unexpected error of a cleaning in the worker, which the message describes."""


class MalformedLine(Exception):
    """A line that is not part of the protocol."""


CleanerResult = CleanerProgress | CleanedSegment | CleanerStats

_TASK = tuple(field.name for field in fields(CleaningTask))
_STATS = tuple(field.name for field in fields(CleanerStats) if field.name != "segments")


def encode_line(message: CleaningTask | Pause | CleanerResult | BaseException) -> bytes:
    """Encode a command, result or error as one line.

    `CleanerStats` are sent without their segments, which were sent before.
    """
    return json.dumps(_fields(message), separators=(",", ":")).encode() + b"\n"


def _fields(message: CleaningTask | Pause | CleanerResult | BaseException) -> list[object]:
    if isinstance(message, CleanerProgress):
        return [PROGRESS, *message]
    if isinstance(message, CleanedSegment):
        return [GROUP, *message]
    if isinstance(message, CleanerStats):
        return [STATS, *(getattr(message, name) for name in _STATS)]
    if isinstance(message, Pause):
        return [PAUSE, message.until_s]
    if isinstance(message, CleaningTask):
        values = {name: getattr(message, name) for name in _TASK}
        values["last_records"] = [(producer, *last) for producer, last in message.last_records.items()]
        return [CLEAN, *values.values()]
    if isinstance(message, DamagedLog):
        return [DAMAGED, message.path, message.position, message.why]
    if isinstance(message, OSError):
        return [DISK, message.errno, message.strerror or str(message), message.filename]
    return [FAILED, f"{type(message).__name__}: {message}"]


def decode_command(line: bytes) -> CleaningTask | Pause:
    """Decode a line that the broker sent. Raises `MalformedLine`."""
    try:
        kind, *values = json.loads(line)
        if kind == PAUSE:
            return Pause(*values)
        if kind == CLEAN:
            return _task(dict(zip(_TASK, values, strict=True)))
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedLine(f"{error}: {line[:200]!r}") from None
    raise MalformedLine(repr(line[:200]))


def _task(values: dict[str, Any]) -> CleaningTask:
    values["sources"] = tuple(SourceSegment(*source) for source in values["sources"])
    values["aborted"] = tuple(AbortedTransaction(*transaction) for transaction in values["aborted"])
    values["last_records"] = {
        producer: LastProducerRecord(offset, epoch) for producer, offset, epoch in values["last_records"]
    }
    return CleaningTask(**values)


def decode_result(line: bytes) -> CleanerResult:
    """Decode a line that the worker sent: return a result, or raise the error that ended the cleaning.

    Raises `DamagedLog`, OSError or `Failed`, as sent, and `MalformedLine` for any other line.
    """
    try:
        kind, *values = json.loads(line)
        if kind == PROGRESS:
            return CleanerProgress(*values)
        if kind == GROUP:
            base, following, replaces, size, modified_ms = values
            return CleanedSegment(base, following, tuple(replaces), size, modified_ms)
        if kind == STATS:
            return CleanerStats(**dict(zip(_STATS, values, strict=True)))
        failure = _failure(kind, values)
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedLine(f"{error}: {line[:200]!r}") from None
    raise failure


def _failure(kind: str, values: list[Any]) -> Exception:
    if kind == DAMAGED:
        return DamagedLog(*values)
    if kind == DISK:
        return OSError(*values)
    if kind == FAILED:
        return Failed(*values)
    return MalformedLine(kind)
