"""Finds the server-side assignors that a broker is told to offer: built-in ones, installed ones, functions.

    uniform               a row of `konvene.groups.assignors.ASSIGNORS`
    my.package:function   an attribute of a module; it is then called by this text
    another-name          an entry point of an installed package, in the group `konvene.assignors`

Task assignors of streams groups are found in the same way: the rows are those of
`konvene.groups.streams.assignors.TASK_ASSIGNORS`, the group is `konvene.task_assignors`, and a function takes
a `GroupSpec` and a `TopologyDescriber`. It may hand out warm-ups. Those that have caught up are taken out of
its answer, for KIP-1071 has none, and so are those in processes that report no offsets: nobody would ever
hear that they have.

What is found is a function from a `GroupSpec` to a `GroupAssignment`, or a row that holds one under a name
of its own. What it answers is looked at (`checked`), and whatever it raises is an assignor's failure: a group
never breaks for it, and stays as it was. What is built in is trusted, and cannot be replaced under its name.

This is the broker's because it imports modules that a setting names: cores take functions, and find none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from konvene.configs.config import BrokerConfig
from konvene.configs.effective import has_task_assignors
from konvene.configs.errors import InvalidValue
from konvene.groups.assignors import (
    ASSIGNORS,
    Assignor,
    GroupAssignment,
    GroupSpec,
    PartitionAssignorError,
    checked,
)
from konvene.groups.assignors.tasks import contract
from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    MemberAssignment,
    TaskAssignor,
    TaskAssignorError,
)
from konvene.groups.assignors.tasks.lags import Progress
from konvene.groups.streams.assignors import TASK_ASSIGNORS

__all__ = [
    "ENTRY_POINTS",
    "TASK_ENTRY_POINTS",
    "load_assignor",
    "load_assignors",
    "load_task_assignor",
    "load_task_assignors",
    "offered_task_assignors",
]

TaskFunction = Callable[[contract.GroupSpec, contract.TopologyDescriber], contract.GroupAssignment]

ENTRY_POINTS = "konvene.assignors"
"""The group of entry points under which packages offer assignors."""
TASK_ENTRY_POINTS = "konvene.task_assignors"
"""The same for task assignors."""
SETTING = "group.consumer.assignors"
TASK_SETTING = "group.streams.assignors"


class _Kind(NamedTuple):
    """What there is to find: who asks for it, where packages offer it, what is built in."""

    setting: str
    entry_points: str
    built_in: Mapping[str, object]


CONSUMER = _Kind(SETTING, ENTRY_POINTS, ASSIGNORS)
STREAMS = _Kind(TASK_SETTING, TASK_ENTRY_POINTS, TASK_ASSIGNORS)


def load_assignors(texts: Iterable[str]) -> Mapping[str, Assignor]:
    """The assignors of these names, in this order: the first is the default. Raises `InvalidValue`."""
    found: dict[str, Assignor] = {}
    for text in texts:
        assignor = load_assignor(text)
        if assignor.name in found:
            raise InvalidValue(SETTING, text, f"another assignor is called {assignor.name} already.")
        found[assignor.name] = assignor
    return found


def load_assignor(text: str) -> Assignor:
    """The assignor of this name. Raises `InvalidValue`, a `ConfigError`, where there is none."""
    if text in ASSIGNORS:
        return ASSIGNORS[text]
    found = _found(text, CONSUMER)
    name, assign = found if isinstance(found, Assignor) else (text, found)
    return Assignor(name, _guarded(name, _function(text, name, assign, CONSUMER)))


def load_task_assignors(texts: Iterable[str]) -> Mapping[str, TaskAssignor]:
    """The task assignors of these names, in this order: the first is the default. Raises `InvalidValue`."""
    found: dict[str, TaskAssignor] = {}
    for text in texts:
        assignor = load_task_assignor(text)
        if assignor.name in found:
            raise InvalidValue(TASK_SETTING, text, f"another assignor is called {assignor.name} already.")
        found[assignor.name] = assignor
    return found


def offered_task_assignors(config: BrokerConfig) -> Mapping[str, TaskAssignor]:
    """What a broker offers: what it is told to, else all that is built in. Raises `InvalidValue`."""
    return load_task_assignors(config[TASK_SETTING]) if has_task_assignors(config) else TASK_ASSIGNORS


def load_task_assignor(text: str) -> TaskAssignor:
    """The task assignor of this name. Raises `InvalidValue`, a `ConfigError`, where there is none."""
    if text in TASK_ASSIGNORS:
        return TASK_ASSIGNORS[text]
    found = _found(text, STREAMS)
    name, assign = found if isinstance(found, TaskAssignor) else (text, found)
    return TaskAssignor(name, _guarded_tasks(name, _function(text, name, assign, STREAMS)))


def _found(text: str, kind: _Kind) -> object:
    return _imported(text, kind.setting) if ":" in text else _installed(text, kind)


def _function(text: str, name: str, assign: object, kind: _Kind) -> Callable[..., Any]:
    if not callable(assign):
        raise InvalidValue(kind.setting, text, f"it is a {type(assign).__name__}, which cannot be called.")
    if name in kind.built_in:
        raise InvalidValue(kind.setting, text, f"{name} is built in.")
    return assign


def _imported(text: str, setting: str) -> object:
    from importlib import import_module

    module, _, path = text.partition(":")
    try:
        found: object = import_module(module)
    except Exception as error:
        why = f"module {module} cannot be imported: {type(error).__name__}: {error}"
        raise InvalidValue(setting, text, why) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise InvalidValue(setting, text, f"module {module} has no {path}.")
        found = getattr(found, name)
    return found


def _installed(name: str, kind: _Kind) -> object:
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=kind.entry_points)}
    if name not in points:
        known = ", ".join([*kind.built_in, *sorted(points)])
        why = f"no such assignor; there are {known}, and functions as module:function."
        raise InvalidValue(kind.setting, name, why)
    try:
        return points[name].load()
    except Exception as error:
        why = f"{points[name].value} cannot be loaded: {type(error).__name__}: {error}"
        raise InvalidValue(kind.setting, name, why) from error


def _guarded(
    name: str, assign: Callable[[GroupSpec], GroupAssignment]
) -> Callable[[GroupSpec], GroupAssignment]:
    """The same function; it fails in one way only, and what it answers is possible."""

    def guarded(spec: GroupSpec) -> GroupAssignment:
        try:
            return checked(spec, assign(spec))
        except PartitionAssignorError:
            raise
        except Exception as error:
            raise PartitionAssignorError(f"Assignor {name}: {type(error).__name__}: {error}") from error

    return guarded


def _guarded_tasks(name: str, assign: TaskFunction) -> TaskFunction:
    """The same for tasks."""

    def guarded(spec: contract.GroupSpec, topology: contract.TopologyDescriber) -> contract.GroupAssignment:
        try:
            return _awaited(spec, contract.checked(spec, topology, assign(spec, topology)))
        except TaskAssignorError:
            raise
        except Exception as error:
            raise TaskAssignorError(f"Assignor {name}: {type(error).__name__}: {error}") from error

    return guarded


def _awaited(spec: contract.GroupSpec, given: contract.GroupAssignment) -> contract.GroupAssignment:
    """The same, but for warm-ups that have caught up, or of which nobody would hear that they have."""
    if not any(mine.warmup for mine in given.values()):
        return given
    progress, lag = Progress.of(spec.members.values()), spec.configs.acceptable_recovery_lag
    heard = {member.process_id for member in spec.members.values() if member.reports_offsets}

    def kept(process_id: str, mine: MemberAssignment) -> MemberAssignment:
        warmup = {
            name: tuple(p for p in some if not progress.has_caught_up(process_id, (name, p), lag))
            for name, some in mine.warmup.items()
            if process_id in heard
        }
        return replace(mine, warmup={name: some for name, some in warmup.items() if some} or NO_TASKS)

    return {name: kept(spec.members[name].process_id, mine) for name, mine in given.items()}
