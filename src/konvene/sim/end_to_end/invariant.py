"""What a promise about a whole run is, and how it is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.sim.end_to_end.run import Whole

__all__ = ["Promise", "Violation"]


class Violation(Exception):
    """A promise was broken."""

    def __init__(self, promise: str, message: str) -> None:
        super().__init__(f"{promise}: {message}")
        self.promise = promise
        self.message = message


class Promise:
    """One promise about one run."""

    def __init__(self, run: Whole) -> None:
        self.run = run

    def __repr__(self) -> str:
        return f"<promise {type(self).__name__}>"

    def broken(self, message: str) -> None:
        raise Violation(type(self).__name__, message)
