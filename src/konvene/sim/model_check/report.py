"""What a search through a small consumer group found, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from konvene.sim.world.event import InvariantViolation

EVERYONE_SETTLES = "EveryoneSettles"


@dataclass(slots=True)
class Found:
    """What a search found."""

    bounds: dict[str, int] = field(default_factory=dict)
    invariants: tuple[str, ...] = ()
    states: int = 0
    steps: int = 0
    settled: int = 0
    depth: int = 0
    left: int = 0
    """States that were found and not looked at, because of a limit."""
    broken: InvariantViolation | None = None
    path: tuple[str, ...] = ()
    stuck: tuple[str, ...] = field(default=())
    """A shortest way to a state from which nobody settles by themselves."""
    seconds: float = field(default=0.0, compare=False)

    @property
    def violation(self) -> InvariantViolation | None:
        """The invariant that was violated."""
        if self.stuck:
            return InvariantViolation(EVERYONE_SETTLES, "from here nobody settles by themselves")
        return self.broken

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        broken = self.violation
        return {
            "bounds": self.bounds,
            "states": self.states,
            "transitions": self.steps,
            "depth": self.depth,
            "stable": self.settled,
            "left": self.left,
            "complete": broken is None and not self.left,
            "seconds": round(self.seconds, 3),
            "states_per_second": round(self.states / self.seconds) if self.seconds else 0,
            "invariants": list(self.invariants),
            "violation": None
            if broken is None
            else {"invariant": broken.invariant, "why": broken.why, "path": list(self.stuck or self.path)},
        }

    def lines(self) -> list[str]:
        """For people."""
        told = self.as_dict()
        lines = [
            ", ".join(f"{name} {value}" for name, value in self.bounds.items()),
            f"{self.states} states, {self.steps} transitions, depth {self.depth}, {self.settled} stable",
            f"{len(self.invariants)} invariants checked at each step; {self.seconds:.1f} s, "
            f"{told['states_per_second']} states/s",
        ]
        if self.left:
            lines.append(f"not complete: {self.left} states were found and not looked at")
        broken = self.violation
        if broken is None:
            return [*lines, "all invariants held"]
        path = self.stuck or self.path
        steps = [f"  {number:2} {step}" for number, step in enumerate(path, 1)]
        return [*lines, f"{broken.invariant}: {broken.why}", f"after {len(path)} steps:", *steps]
