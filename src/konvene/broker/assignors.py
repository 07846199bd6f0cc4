"""Finds the server-side assignors that a broker is told to offer: built-in ones, installed ones, functions.

    uniform               a row of `konvene.groups.assignors.ASSIGNORS`
    my.package:function   an attribute of a module; it is then called by this text
    another-name          an entry point of an installed package, in the group `konvene.assignors`

What is found is a function from a `GroupSpec` to a `GroupAssignment`, or a row that holds one under a name
of its own. What it answers is looked at (`checked`), and whatever it raises is an assignor's failure: a group
never breaks for it, and stays as it was. What is built in is trusted, and cannot be replaced under its name.

This is the broker's because it imports modules that a setting names: cores take functions, and find none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from konvene.configs.errors import InvalidValue
from konvene.groups.assignors import (
    ASSIGNORS,
    Assignor,
    GroupAssignment,
    GroupSpec,
    PartitionAssignorError,
    checked,
)

__all__ = ["ENTRY_POINTS", "load_assignor", "load_assignors"]

ENTRY_POINTS = "konvene.assignors"
"""The group of entry points under which packages offer assignors."""
SETTING = "group.consumer.assignors"


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
    found = _imported(text) if ":" in text else _installed(text)
    name, assign = found if isinstance(found, Assignor) else (text, found)
    if not callable(assign):
        raise InvalidValue(SETTING, text, f"it is a {type(assign).__name__}, which cannot be called.")
    if name in ASSIGNORS:
        raise InvalidValue(SETTING, text, f"{name} is built in.")
    return Assignor(name, _guarded(name, assign))


def _imported(text: str) -> object:
    from importlib import import_module

    module, _, path = text.partition(":")
    try:
        found: object = import_module(module)
    except Exception as error:
        why = f"module {module} cannot be imported: {type(error).__name__}: {error}"
        raise InvalidValue(SETTING, text, why) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise InvalidValue(SETTING, text, f"module {module} has no {path}.")
        found = getattr(found, name)
    return found


def _installed(name: str) -> object:
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        known = ", ".join([*ASSIGNORS, *sorted(points)])
        why = f"no such assignor; there are {known}, and functions as module:function."
        raise InvalidValue(SETTING, name, why)
    try:
        return points[name].load()
    except Exception as error:
        why = f"{points[name].value} cannot be loaded: {type(error).__name__}: {error}"
        raise InvalidValue(SETTING, name, why) from error


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
