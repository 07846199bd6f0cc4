"""Everything that can happen to a small group: a search, breadth first, of all interleavings on the real core."""

from __future__ import annotations

from konvene.sim.exhaust.search import ExhaustReport, ExhaustViolation, exhaust

__all__ = ["ExhaustReport", "ExhaustViolation", "exhaust"]
