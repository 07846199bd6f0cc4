"""The second level: the whole broker, and our client against it, on a simulated machine."""

from __future__ import annotations

from konvene.sim.whole.promises import Violation
from konvene.sim.whole.run import WholeReport, run_whole

__all__ = ["Violation", "WholeReport", "run_whole"]
