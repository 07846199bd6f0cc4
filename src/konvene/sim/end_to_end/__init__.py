"""The second level: the whole broker, and our client against it, on a simulated machine."""

from __future__ import annotations

from konvene.sim.end_to_end.invariants import Violation
from konvene.sim.end_to_end.run import WholeReport, run_whole

__all__ = ["Violation", "WholeReport", "run_whole"]
