"""Stored reducer state, so that the next build need not start at the beginning of a log.

Beside the warehouse's tables there is, for each log (each of its buckets), the reducer as it was before the
last file that it read, and the number of rows that it had emitted by then. These rows are the first ones of
the gold files written at the end. To resume is to copy them and to feed the reducer the files that came
since; the result is the same as reducing the whole log at once.

The last file is read again because a log and its audit do not arrive at the same moment: audit rows about the
newest records may arrive one step later. If rows arrive later than that, topics get another name, spans are
filled or files are replaced, nothing is resumed and the log is reduced again. That is slower and yields the
same rows, so the stored state is never needed and may be deleted.

The state is a pickle, read only by the code that wrote it, and only values that reducers consist of are
unpickled (`konvene.pipeline.reduce.unpickler`).
"""

# Paths are strings here, and each file is renamed into place atomically:
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
from urllib.parse import quote

import konvene
from konvene.pipeline.gold.task import Task
from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.reduce.diagnosis import AuditRow
from konvene.pipeline.reduce.unpickler import unpickled
from konvene.pipeline.warehouse.warehouse import DataFile

__all__ = ["HOME", "Reached", "StoredState", "before_last", "load", "pickled", "store"]

HOME = "_reducers"
_SUFFIX = ".pickle"
_CODE = ("codec", "groups", "pipeline", "records", "shard")


@dataclass(slots=True)
class Reached:
    """The position in the log up to which a reducer was fed."""

    begins: int = -1
    ends: int = -1
    """The first and the last offset of the last batch."""
    ms: int = -1
    """The largest timestamp so far."""
    transitions: int = 0
    """Number of transitions applied so far."""


@dataclass(slots=True)
class StoredState:
    """A reducer's state and what it was made from. Files are identified by paths, which name their
    contents."""

    pickled: bytes
    """The pickled reducer."""
    reached: Reached
    rows: dict[str, int]
    """Number of rows emitted for each table."""
    groups: list[str]
    commits: list[str]
    audit: list[str]
    """Paths of the files that were read; of `commits`, only offsets were looked up."""
    spans: list[tuple[int, int, str]]
    gold: list[DataFile] = field(default_factory=list)
    """The gold files, which begin with the rows that the reducer had emitted."""
    times: frozenset[str] = frozenset()
    until_ms: int | None = None
    """The largest timestamp in the files `times`."""

    def __repr__(self) -> str:
        return f"<state up to offset {self.reached.ends}>"

    def reducer(self, names: Mapping[str, str], audit: Iterable[AuditRow]) -> PartitionReducer | None:
        """Unpickle the reducer and add new audit rows and names; return None if they change rows that it has
        emitted."""
        reducer: PartitionReducer = unpickled(self.pickled)
        return reducer if reducer.learn(audit, names, self.reached.ends, self.reached.ms) else None


def pickled(task: Task, reducer: PartitionReducer, reached: Reached, rows: Mapping[str, int]) -> StoredState:
    """Return the state of a reducer that has read all but the last file of a task.

    `rows` is the number of rows that it has emitted for each table."""
    groups, end = task.inputs["groups"], reached.ends
    return StoredState(
        pickle.dumps(reducer, pickle.HIGHEST_PROTOCOL), replace(reached), dict(rows),
        [file.path for file in groups[: before_last(groups)]], _commits_before(task, end),
        [file.path for file in task.inputs["audit_event"]], _spans_before(task, end),
    )  # fmt: skip


def store(task: Task, state: StoredState) -> None:
    """Write a state to disk and delete older ones. Failures to write are ignored.

    The next task finds it by the gold files `state.gold`, which this task wrote."""
    folder = _folder(task)
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        handle, draft = tempfile.mkstemp(".part", ".", folder)
        with os.fdopen(handle, "wb") as file:
            pickle.dump(state, file, pickle.HIGHEST_PROTOCOL)
        os.replace(draft, os.path.join(folder, _name(state.gold)))
        used = {_name(state.gold), _name(task.before)}
        for name in os.listdir(folder):
            if name not in used:
                os.unlink(os.path.join(folder, name))


def load(task: Task) -> StoredState | None:
    """Return the state that the task can resume from, or None."""
    try:
        with open(os.path.join(_folder(task), _name(task.before)), "rb") as file:
            state = unpickled(file.read())
    except (OSError, EOFError, pickle.UnpicklingError):  # Absent, or truncated by a crash.
        return None
    return state if isinstance(state, StoredState) and _can_resume(task, state) else None


def before_last(groups: Sequence[DataFile]) -> int:
    """Return how many of these files can be read before storing the state: all but the last.

    Returns 0 if the offsets of another one reach into the last."""
    count = max(len(groups) - 1, 0)
    return count if all(file.last_offset < groups[-1].first_offset for file in groups[:count]) else 0


def _can_resume(task: Task, state: StoredState) -> bool:
    """Return True if the inputs that the stored reducer read are unchanged."""
    groups, count, end = task.inputs["groups"], len(state.groups), state.reached.ends
    return (
        [file.path for file in groups[:count]] == state.groups
        and all(file.first_offset > end for file in groups[count:])
        and _commits_before(task, end) == state.commits
        and _spans_before(task, end) == state.spans
        and set(state.audit) <= {file.path for file in task.inputs["audit_event"]}
    )


def _commits_before(task: Task, end: int) -> list[str]:
    """Return the paths of the files of commits that begin at or before the offset `end`."""
    return [file.path for file in task.inputs["commits"] if file.first_offset <= end]


def _spans_before(task: Task, end: int) -> list[tuple[int, int, str]]:
    """Return the spans of the log up to offset `end`, as the reducer saw them."""
    return [(s.first, min(s.last, end), s.kind) for s in task.spans if s.first <= end]


def _folder(task: Task) -> str:
    log, bucket = task.of, task.bucket.name
    name = f"{log.topic}-{log.partition}" + (f"-{bucket}" if bucket else "")
    return os.path.join(task.warehouse, HOME, quote(log.cluster, safe=""), name)


def _name(gold: Sequence[DataFile]) -> str:
    identity = repr((_code_digest(), sorted(file.path for file in gold)))
    return hashlib.sha256(identity.encode()).hexdigest()[:32] + _SUFFIX


@functools.cache
def _code_digest() -> str:
    """Return a digest of the code that reducers consist of: other code may interpret the pickle
    differently."""
    home = Path(konvene.__file__).parent
    digest = hashlib.sha256(konvene.__version__.encode())
    for package in _CODE:
        for path in sorted((home / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
