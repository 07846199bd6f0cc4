"""Everything that can happen to a small group: all interleavings on the real core, breadth first."""

from __future__ import annotations

from konvene.sim.model_check.search import ModelCheckReport, ModelCheckViolation, check_model

__all__ = ["ModelCheckReport", "ModelCheckViolation", "check_model"]
