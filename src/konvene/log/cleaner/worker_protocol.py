"""A cleaning as lines of JSON: what a broker and a worker process say to each other.

To the worker goes a task, then perhaps until when it has to pause. From it come what the cleaning tells, in
its order, and as the last line of a task its `Stats`, or why it failed. Both ends are one version of this
program: there is nothing to negotiate, and a line that cannot be read is a `Confused`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, NamedTuple

from konvene.log.cleaner.contract import Group, LastRecord, Progress, Source, Stats, Task
from konvene.log.errors import DamagedLog
from konvene.log.producers import AbortedTransaction

__all__ = ["Confused", "Failed", "Pause", "Told", "line_of", "read_order", "read_told"]

CLEAN, PAUSE = "clean", "pause"
PROGRESS, GROUP, STATS, DAMAGED, DISK, FAILED = "progress", "group", "stats", "damaged", "disk", "failed"


class Pause(NamedTuple):
    """Do nothing until then."""

    until_s: float
    """On the clock of all processes (`time.monotonic`)."""


class Failed(Exception):
    """A cleaning failed for a reason that nobody has foreseen."""


class Confused(Exception):
    """A line that neither end writes."""


Told = Progress | Group | Stats

_TASK = tuple(field.name for field in fields(Task))
_STATS = tuple(field.name for field in fields(Stats) if field.name != "segments")


def line_of(said: Task | Pause | Told | BaseException) -> bytes:
    """One line, its end included. The groups of a `Stats` are not repeated."""
    return json.dumps(_words(said), separators=(",", ":")).encode() + b"\n"


def _words(said: Task | Pause | Told | BaseException) -> list[Any]:
    if isinstance(said, Progress):
        return [PROGRESS, *said]
    if isinstance(said, Group):
        return [GROUP, *said]
    if isinstance(said, Stats):
        return [STATS, *(getattr(said, name) for name in _STATS)]
    if isinstance(said, Pause):
        return [PAUSE, said.until_s]
    if isinstance(said, Task):
        values = {name: getattr(said, name) for name in _TASK}
        values["last_records"] = [(producer, *last) for producer, last in said.last_records.items()]
        return [CLEAN, *values.values()]
    if isinstance(said, DamagedLog):
        return [DAMAGED, said.path, said.position, said.why]
    if isinstance(said, OSError):
        return [DISK, said.errno, said.strerror or str(said), said.filename]
    return [FAILED, f"{type(said).__name__}: {said}"]


def read_order(line: bytes) -> Task | Pause:
    """What a broker says. Raises `Confused`."""
    try:
        kind, *words = json.loads(line)
        if kind == PAUSE:
            return Pause(*words)
        if kind == CLEAN:
            return _task(dict(zip(_TASK, words, strict=True)))
    except (ValueError, TypeError, KeyError) as error:
        raise Confused(f"{error}: {line[:200]!r}") from None
    raise Confused(repr(line[:200]))


def _task(values: dict[str, Any]) -> Task:
    values["sources"] = tuple(Source(*source) for source in values["sources"])
    values["aborted"] = tuple(AbortedTransaction(*gone) for gone in values["aborted"])
    values["last_records"] = {
        producer: LastRecord(offset, epoch) for producer, offset, epoch in values["last_records"]
    }
    return Task(**values)


def read_told(line: bytes) -> Told:
    """What a worker says. Raises what the cleaning raised there (or `Failed` for it), and `Confused`."""
    try:
        kind, *words = json.loads(line)
        if kind == PROGRESS:
            return Progress(*words)
        if kind == GROUP:
            base, following, replaces, size, modified_ms = words
            return Group(base, following, tuple(replaces), size, modified_ms)
        if kind == STATS:
            return Stats(**dict(zip(_STATS, words, strict=True)))
        failure = _failure(kind, words)
    except (ValueError, TypeError, KeyError) as error:
        raise Confused(f"{error}: {line[:200]!r}") from None
    raise failure


def _failure(kind: str, words: list[Any]) -> Exception:
    if kind == DAMAGED:
        return DamagedLog(*words)
    if kind == DISK:
        return OSError(*words)
    if kind == FAILED:
        return Failed(*words)
    return Confused(kind)
