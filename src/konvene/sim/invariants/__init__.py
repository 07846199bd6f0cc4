"""What holds after every event: a class for each invariant, a file for each kind of thing that is promised.

The numbers are those of the catalogue of invariants that the project keeps (G: log and state machine, C:
classic groups, ST: static members, O: offsets, L: liveness, TX: transactions); "ours" are konvene's own. A
class says in the first line of its docstring which it is.

A file of this package says in `KINDS` for which kinds of groups it speaks; `()` is all of them. Every
`Invariant` in it is found by itself, so a new kind is one new file. A file without `KINDS` is no such file.

Invariants are plain `assert`s; `observer` makes `InvariantViolation` of what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from konvene.sim.world.event import Event, Invariant, InvariantViolation


def invariants_of(kinds: Sequence[str] = ()) -> list[Invariant]:
    """All invariants that speak for these kinds of groups, each made anew; no kind is all kinds.

    Raises RuntimeError where Python runs without asserts: nothing would be looked at."""
    if not __debug__:
        raise RuntimeError("invariants are asserts, and this Python runs without them (-O)")
    return [kind() for kind in classes_of(kinds)]


def classes_of(kinds: Sequence[str] = ()) -> list[type[Invariant]]:
    """The classes of `invariants_of`, in the order of their files."""
    return [
        found
        for module in _modules()
        if not module.KINDS or not kinds or set(module.KINDS) & set(kinds)
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, Invariant) and found.__module__ == module.__name__
    ]


def observer(invariants: Sequence[Invariant]) -> Callable[[Event], None]:
    """What holds each event against each invariant. Raises `InvariantViolation`."""
    looks = [invariant.after for invariant in invariants]

    def observe(event: Event) -> None:
        at = 0
        try:
            for at, look in enumerate(looks):  # noqa: B007 - which one it was, where one of them fails
                look(event)
        except AssertionError as wrong:
            raise InvariantViolation(type(invariants[at]).__name__, str(wrong) or "does not hold") from wrong
        except LookupError as missing:
            raise InvariantViolation(
                type(invariants[at]).__name__, f"looks for what is not there: {missing}"
            ) from missing

    return observe


def _modules() -> Iterator[ModuleType]:
    """Every module with `KINDS`, by name; in each package `state` comes first, as the plainest violation."""
    names = (found.name for found in walk_packages(__path__, f"{__name__}."))
    for name in sorted(names, key=lambda name: name.removesuffix(".state")):
        module = import_module(name)
        if hasattr(module, "KINDS"):
            yield module
