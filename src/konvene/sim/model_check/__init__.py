"""Model checking: explore every interleaving of a small group, on the coordinator's production code."""

from __future__ import annotations

from konvene.sim.model_check.search import ModelCheckReport, ModelCheckViolation, check_model

__all__ = ["ModelCheckReport", "ModelCheckViolation", "check_model"]
