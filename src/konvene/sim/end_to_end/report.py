"""The report of an end-to-end run."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["EndToEndReport"]


@dataclass(frozen=True, slots=True)
class EndToEndReport:
    """The result of a run. Times are seconds; a `speed` is simulated time divided by real time."""

    seed: int
    steps: int
    simulated_s: float
    wall_s: float
    steps_per_s: float
    speed: float
    idle_speed: float
    """Speed while there were only heartbeats."""
    idle_wall_s: float
    empty_speed: float
    """Speed without clients."""
    broker_lives: int
    records_acknowledged: int
    records_read: int
    records_shared: int
    """Deliveries to share consumers."""
    commits_acknowledged: int
    checks: int
    faults: dict[str, int]
    answers: dict[str, int]
    parameters: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return asdict(self) | {"knobs": dict(self.parameters)}

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        return [
            f"seed {self.seed}: {self.steps} steps, {self.simulated_s:.0f} s in {self.wall_s:.1f} s:"
            f" {self.steps_per_s:.0f} steps/s, {self.speed:.0f} x real time"
            f" ({self.idle_speed:.0f} x while members only waited, {self.empty_speed:.0f} x without them)",
            f"  {self.broker_lives} lives of the broker; {self.records_acknowledged} records acknowledged,"
            f" {self.records_read} read, {self.records_shared} shared; {self.commits_acknowledged} commits"
            f" acknowledged;"
            f" {self.checks} checks",
            f"  faults: {_counted(self.faults)}",
            f"  answers: {_counted(self.answers)}",
            *(f"  {name}: {value}" for name, value in self.parameters),
        ]


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
