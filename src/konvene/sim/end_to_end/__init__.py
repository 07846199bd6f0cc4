"""End-to-end simulation: the whole broker and konvene.client on a simulated machine."""

from __future__ import annotations

from konvene.sim.end_to_end.invariants import Violation
from konvene.sim.end_to_end.run import EndToEndReport, run_end_to_end

__all__ = ["EndToEndReport", "Violation", "run_end_to_end"]
