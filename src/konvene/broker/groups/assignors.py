"""Loads the server-side assignors that the settings list. Each entry of the list has one of these forms:

    uniform               a built-in assignor of `konvene.groups.assignors.ASSIGNORS`
    my.package:function   an attribute of a module; the whole entry is the assignor's name
    another-name          an entry point of an installed package, in the group `konvene.assignors`

Task assignors of streams groups are loaded in the same way, from
`konvene.groups.streams.assignors.TASK_ASSIGNORS` and the entry points `konvene.task_assignors`. Such a
function takes a `GroupSpec` and a `TopologyDescriber`. It may assign warm-up tasks. Two kinds of them are
removed from its result: those that have caught up, since KIP-1071 has no such tasks, and those of processes
that report no offsets, since the group would never learn that they have caught up.

A loaded object is a function from a `GroupSpec` to a `GroupAssignment`, or an `Assignor` (`TaskAssignor`)
that holds such a function and has a name of its own. The function's result is validated (`checked`), and any
exception counts as a failure of the assignor: the group keeps its assignment. Results of built-in assignors
are not validated, and no other assignor may have their names.

This is part of the broker because it imports modules that a config names. Group shards receive functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

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

A = TypeVar("A", Assignor, TaskAssignor)

TaskFunction = Callable[[contract.GroupSpec, contract.TopologyDescriber], contract.GroupAssignment]

ENTRY_POINTS = "konvene.assignors"
"""Entry point group of partition assignors."""
TASK_ENTRY_POINTS = "konvene.task_assignors"
"""Entry point group of task assignors."""
SETTING = "group.consumer.assignors"
TASK_SETTING = "group.streams.assignors"


class _Kind(NamedTuple):
    """The sources of partition assignors or of task assignors, and the config that lists those to load."""

    setting: str
    entry_points: str
    built_in: Mapping[str, object]


CONSUMER = _Kind(SETTING, ENTRY_POINTS, ASSIGNORS)
STREAMS = _Kind(TASK_SETTING, TASK_ENTRY_POINTS, TASK_ASSIGNORS)


def load_assignors(texts: Iterable[str]) -> Mapping[str, Assignor]:
    """Return the assignors of config entries by name; the first is the default. Raises `InvalidValue`."""
    return _load_all(texts, load_assignor, SETTING)


def load_assignor(text: str) -> Assignor:
    """Return the assignor of a config entry. Raises `InvalidValue`, a `ConfigError`, if it is unusable."""
    if text in ASSIGNORS:
        return ASSIGNORS[text]
    loaded = _load(text, CONSUMER)
    name, assign = loaded if isinstance(loaded, Assignor) else (text, loaded)
    return Assignor(name, _guarded(name, _check_function(text, name, assign, CONSUMER)))


def load_task_assignors(texts: Iterable[str]) -> Mapping[str, TaskAssignor]:
    """Return the task assignors of config entries by name, the default first. Raises `InvalidValue`."""
    return _load_all(texts, load_task_assignor, TASK_SETTING)


def offered_task_assignors(config: BrokerConfig) -> Mapping[str, TaskAssignor]:
    """Return the configured task assignors, by default all built-in ones. Raises `InvalidValue`."""
    return load_task_assignors(config[TASK_SETTING]) if has_task_assignors(config) else TASK_ASSIGNORS


def load_task_assignor(text: str) -> TaskAssignor:
    """Return the task assignor of a config entry. Raises `InvalidValue` as `load_assignor`."""
    if text in TASK_ASSIGNORS:
        return TASK_ASSIGNORS[text]
    loaded = _load(text, STREAMS)
    name, assign = loaded if isinstance(loaded, TaskAssignor) else (text, loaded)
    return TaskAssignor(name, _guarded_tasks(name, _check_function(text, name, assign, STREAMS)))


def _load_all(texts: Iterable[str], load: Callable[[str], A], setting: str) -> dict[str, A]:
    assignors: dict[str, A] = {}
    for text in texts:
        assignor = load(text)
        if assignor.name in assignors:
            raise InvalidValue(setting, text, f"another assignor has the name {assignor.name}.")
        assignors[assignor.name] = assignor
    return assignors


def _load(text: str, kind: _Kind) -> object:
    return _load_attribute(text, kind.setting) if ":" in text else _load_entry_point(text, kind)


def _check_function(text: str, name: str, assign: object, kind: _Kind) -> Callable[..., Any]:
    if not callable(assign):
        raise InvalidValue(kind.setting, text, f"it is a {type(assign).__name__}, which cannot be called.")
    if name in kind.built_in:
        raise InvalidValue(kind.setting, text, f"{name} is built in.")
    return assign


def _load_attribute(text: str, setting: str) -> object:
    from importlib import import_module

    module, _, path = text.partition(":")
    try:
        value: object = import_module(module)
    except Exception as error:
        why = f"module {module} cannot be imported: {type(error).__name__}: {error}"
        raise InvalidValue(setting, text, why) from error
    for name in path.split("."):
        if not hasattr(value, name):
            raise InvalidValue(setting, text, f"module {module} has no {path}.")
        value = getattr(value, name)
    return value


def _load_entry_point(name: str, kind: _Kind) -> object:
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
    """Wrap an assignor: validate its result, and raise only `PartitionAssignorError`."""

    def guarded(spec: GroupSpec) -> GroupAssignment:
        try:
            return checked(spec, assign(spec))
        except PartitionAssignorError:
            raise
        except Exception as error:
            raise PartitionAssignorError(f"Assignor {name}: {type(error).__name__}: {error}") from error

    return guarded


def _guarded_tasks(name: str, assign: TaskFunction) -> TaskFunction:
    """Wrap a task assignor: validate its result, and raise only `TaskAssignorError`."""

    def guarded(spec: contract.GroupSpec, topology: contract.TopologyDescriber) -> contract.GroupAssignment:
        try:
            return _without_idle_warmups(spec, contract.checked(spec, topology, assign(spec, topology)))
        except TaskAssignorError:
            raise
        except Exception as error:
            raise TaskAssignorError(f"Assignor {name}: {type(error).__name__}: {error}") from error

    return guarded


def _without_idle_warmups(
    spec: contract.GroupSpec, assignment: contract.GroupAssignment
) -> contract.GroupAssignment:
    """Return the assignment without warm-up tasks that have caught up or whose process reports no offsets."""
    if not any(member.warmup for member in assignment.values()):
        return assignment
    progress, lag = Progress.of(spec.members.values()), spec.configs.acceptable_recovery_lag
    reporting = {member.process_id for member in spec.members.values() if member.reports_offsets}

    def drop_idle(process_id: str, member: MemberAssignment) -> MemberAssignment:
        warmup = {
            name: tuple(p for p in partitions if not progress.has_caught_up(process_id, (name, p), lag))
            for name, partitions in member.warmup.items()
            if process_id in reporting
        }
        return replace(
            member, warmup={name: partitions for name, partitions in warmup.items() if partitions} or NO_TASKS
        )

    return {name: drop_idle(spec.members[name].process_id, member) for name, member in assignment.items()}
