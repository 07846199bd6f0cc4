"""Report of a model check of a group with server-side assignment: counts, and a path to the violation."""

from __future__ import annotations

from dataclasses import dataclass, field

from konvene.sim.world.event import InvariantViolation

EVERYONE_SETTLES = "EveryoneSettles"


@dataclass(slots=True)
class SearchReport:
    """The result of a search: its counts, and the first violation."""

    bounds: dict[str, int] = field(default_factory=dict)
    invariants: tuple[str, ...] = ()
    states: int = 0
    """States expanded."""
    steps: int = 0
    """Transitions taken."""
    settled: int = 0
    """States in which every member has its target."""
    depth: int = 0
    """Depth of the last state expanded."""
    left: int = 0
    """States that were found and not expanded, because of a limit."""
    violated: InvariantViolation | None = None
    """The first violation of an invariant."""
    path: tuple[str, ...] = ()
    """Labels of a shortest path to the state whose transition violated it."""
    stuck: tuple[str, ...] = field(default=())
    """Labels of a shortest path to a state from which the group does not settle."""
    seconds: float = field(default=0.0, compare=False)

    @property
    def violation(self) -> InvariantViolation | None:
        """Return the violation: of an invariant, or of `EveryoneSettles` if the group cannot settle from some
        state; None if all invariants held."""
        if self.stuck:
            return InvariantViolation(EVERYONE_SETTLES, "the group never settles from here")
        return self.violated

    def as_dict(self) -> dict[str, object]:
        """Return the report as a document for JSON."""
        violation = self.violation
        return {
            "bounds": self.bounds,
            "states": self.states,
            "transitions": self.steps,
            "depth": self.depth,
            "stable": self.settled,
            "left": self.left,
            "complete": violation is None and not self.left,
            "seconds": round(self.seconds, 3),
            "states_per_second": round(self.states / self.seconds) if self.seconds else 0,
            "invariants": list(self.invariants),
            "violation": None
            if violation is None
            else {
                "invariant": violation.invariant,
                "why": violation.why,
                "path": list(self.stuck or self.path),
            },
        }

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        document = self.as_dict()
        lines = [
            ", ".join(f"{name} {value}" for name, value in self.bounds.items()),
            f"{self.states} states, {self.steps} transitions, depth {self.depth}, {self.settled} stable",
            f"{len(self.invariants)} invariants checked at each step; {self.seconds:.1f} s, "
            f"{document['states_per_second']} states/s",
        ]
        if self.left:
            lines.append(f"not complete: {self.left} states were found and not expanded")
        violation = self.violation
        if violation is None:
            return [*lines, "all invariants held"]
        path = self.stuck or self.path
        steps = [f"  {number:2} {step}" for number, step in enumerate(path, 1)]
        return [*lines, f"{violation.invariant}: {violation.why}", f"after {len(path)} steps:", *steps]
