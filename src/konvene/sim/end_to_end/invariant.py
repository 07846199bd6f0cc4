"""Base class of the invariants of an end-to-end run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.sim.end_to_end.run import EndToEndRun

__all__ = ["Invariant", "Violation"]


class Violation(Exception):
    """The error that the invariant named `invariant` was violated; `message` describes how."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message


class Invariant:
    """Base class of the invariants of an end-to-end run. An instance belongs to one run."""

    def __init__(self, run: EndToEndRun) -> None:
        self.run = run

    def __repr__(self) -> str:
        return f"<invariant {type(self).__name__}>"

    def broken(self, message: str) -> None:
        """Raise a violation of this invariant."""
        raise Violation(type(self).__name__, message)
