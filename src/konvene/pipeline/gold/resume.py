"""What is kept of a log's reduction, so that the next one need not begin at the log's beginning.

Beside the warehouse's tables stands, for each log, the reducer as it was in front of the last file that it
was given, and how many rows it had made by then. These rows are the first ones of the gold files that were
written at the end. To go on is to copy them and to give the reducer the files that came since; the same files
come of it as of all of the log at one go.

The last file is given again because a log and its audit do not arrive in the same moment: rows about records
that have just been read may be a step behind. Rows that come later than that, topics that get another name,
spans that are filled, files that are others: then nothing is kept, and all is reduced anew. That is slower
and says the same. So what stands here is never needed, and may be deleted.

It was pickled by the code that reads it and is not read by any other; nothing is read of it but the values
that reducers are made of (`unpack`).
"""

# Paths are text here, and each file is placed at one stroke:
# ruff: noqa: PTH103, PTH105, PTH108, PTH208

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import konvene
from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.reduce.unpickler import unpickled
from konvene.pipeline.warehouse.warehouse import DataFile

if TYPE_CHECKING:
    from konvene.pipeline.gold.worker import Task

__all__ = ["HOME", "Kept", "Reached", "before_last", "keep", "kept", "packed"]

HOME = "_reducers"
_SUFFIX = ".pickle"
_CODE = ("codec", "groups", "pipeline", "records", "shard")


@dataclass(slots=True)
class Reached:
    """How far a reducer was fed."""

    begins: int = -1
    ends: int = -1
    """The first and the last offset of the last batch."""
    ms: int = -1
    """The latest time up to there."""


@dataclass(slots=True)
class Kept:
    """See the top of this file. Files go by their paths, which say what is in them."""

    packed: bytes
    """The reducer."""
    reached: Reached
    rows: dict[str, int]
    """How many rows of each table were made."""
    groups: list[str]
    commits: list[str]
    audit: list[str]
    """Files that were read."""
    spans: list[tuple[int, int, str]]
    gold: list[DataFile] = field(default_factory=list)
    """The files that begin with these rows."""
    times: frozenset[str] = frozenset()
    until_ms: int | None = None
    """The latest time in some files."""

    def __repr__(self) -> str:
        return f"<what was reduced up to offset {self.reached.ends}>"

    def reducer(self, names: Mapping[str, str], audit: Iterable[Any]) -> PartitionReducer | None:
        """The reducer with what came since, or None where it would have told otherwise with that."""
        reducer: PartitionReducer = unpickled(self.packed)
        return reducer if reducer.learn(audit, names, self.reached.ends, self.reached.ms) else None


def packed(task: Task, reducer: PartitionReducer, reached: Reached, rows: Mapping[str, int]) -> Kept:
    """A reducer in front of the last file of a task."""
    groups, end = task.inputs["groups"], reached.ends
    return Kept(
        pickle.dumps(reducer, pickle.HIGHEST_PROTOCOL), replace(reached), dict(rows),
        [file.path for file in groups[: before_last(groups)]], _commits_before(task, end),
        [file.path for file in task.inputs["audit_event"]], _spans_before(task, end),
    )  # fmt: skip


def keep(task: Task, found: Kept) -> None:
    """For the task that comes after `found.gold`. Where it cannot be written it is not kept."""
    folder = _folder(task)
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        handle, draft = tempfile.mkstemp(".part", ".", folder)
        with os.fdopen(handle, "wb") as file:
            pickle.dump(found, file, pickle.HIGHEST_PROTOCOL)
        os.replace(draft, os.path.join(folder, _name(found.gold)))
        used = {_name(found.gold), _name(task.before)}
        for name in os.listdir(folder):
            if name not in used:
                os.unlink(os.path.join(folder, name))


def kept(task: Task) -> Kept | None:
    """What the task can go on with, if there is anything."""
    try:
        with open(os.path.join(_folder(task), _name(task.before)), "rb") as file:
            found = unpickled(file.read())
    except (OSError, EOFError, pickle.UnpicklingError):  # None, or one that a crash cut off.
        return None
    return found if isinstance(found, Kept) and _follows(task, found) else None


def before_last(groups: Sequence[DataFile]) -> int:
    """How many files stand before the last one, and wholly so; else none."""
    count = max(len(groups) - 1, 0)
    return count if all(file.last_offset < groups[-1].first_offset for file in groups[:count]) else 0


def _follows(task: Task, found: Kept) -> bool:
    """Whether what was read is still the beginning of what there is to read."""
    groups, count, end = task.inputs["groups"], len(found.groups), found.reached.ends
    return (
        [file.path for file in groups[:count]] == found.groups
        and all(file.first_offset > end for file in groups[count:])
        and _commits_before(task, end) == found.commits
        and _spans_before(task, end) == found.spans
        and set(found.audit) <= {file.path for file in task.inputs["audit_event"]}
    )


def _commits_before(task: Task, end: int) -> list[str]:
    """Files in which the offsets of commits were looked up."""
    return [file.path for file in task.inputs["commits"] if file.first_offset <= end]


def _spans_before(task: Task, end: int) -> list[tuple[int, int, str]]:
    """What was known of the log's holes."""
    return [(s.first, min(s.last, end), s.kind) for s in task.spans if s.first <= end]


def _folder(task: Task) -> str:
    of = task.of
    return os.path.join(task.warehouse, HOME, quote(of.cluster, safe=""), f"{of.topic}-{of.partition}")


def _name(gold: Sequence[DataFile]) -> str:
    said = repr((_code(), sorted(file.path for file in gold)))
    return hashlib.sha256(said.encode()).hexdigest()[:32] + _SUFFIX


@functools.cache
def _code() -> str:
    """What this code is: another one may understand what was pickled otherwise."""
    home = Path(konvene.__file__).parent
    digest = hashlib.sha256(konvene.__version__.encode())
    for package in _CODE:
        for path in sorted((home / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
