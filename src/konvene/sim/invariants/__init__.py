"""Invariants that hold after every event: one class for each, one module for each theme.

The numbers are those of the project's catalogue of invariants (G: log and state machine, C: classic groups,
ST: static members, M: consumer groups, MG: migrations, T: streams groups, SH: share groups, O: offsets,
L: liveness, TX: transactions); "ours" are konvene's own. The docstring of a class begins with its number.

A module of this package lists in `KINDS` the group types it applies to; `()` is all of them. Every
`Invariant` in it is discovered, so a new group type is one new module. A module without `KINDS` has no
invariants of its own: `modern` holds the rules that modern group types share.

Invariants are plain `assert`s; `observer` turns a failed one into an `InvariantViolation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from konvene.sim.world.event import Event, Invariant, InvariantViolation


def invariants_of(kinds: Sequence[str] = ()) -> list[Invariant]:
    """Return new instances of all invariants of these group types; without arguments, of all types.

    Raises RuntimeError if Python runs without asserts: nothing would be checked."""
    if not __debug__:
        raise RuntimeError("invariants are asserts, which Python -O removes: run without -O")
    return [kind() for kind in classes_of(kinds)]


def classes_of(kinds: Sequence[str] = ()) -> list[type[Invariant]]:
    """Return the invariant classes of these group types, in the order of their modules; without arguments, of
    all types."""
    return [
        found
        for module in _modules()
        if not module.KINDS or not kinds or set(module.KINDS) & set(kinds)
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, Invariant) and found.__module__ == module.__name__
    ]


def observer(invariants: Sequence[Invariant]) -> Callable[[Event], None]:
    """Return a function that checks one event against every invariant, in order, and raises
    `InvariantViolation` for the first that fails."""
    checks = [invariant.after for invariant in invariants]

    def observe(event: Event) -> None:
        index = 0
        try:
            for index, check in enumerate(checks):  # noqa: B007 - the index of the violated invariant
                check(event)
        except AssertionError as error:
            name = type(invariants[index]).__name__
            raise InvariantViolation(name, str(error) or "does not hold") from error
        except LookupError as error:
            name = type(invariants[index]).__name__
            raise InvariantViolation(name, f"a group, member or topic does not exist: {error}") from error

    return observe


def _modules() -> Iterator[ModuleType]:
    """Yield every module that has `KINDS`, sorted by name; in each package the module `state` comes first, so
    that a fault is reported by the simplest invariant that detects it."""
    names = (found.name for found in walk_packages(__path__, f"{__name__}."))
    for name in sorted(names, key=lambda name: name.removesuffix(".state")):
        module = import_module(name)
        if hasattr(module, "KINDS"):
            yield module
