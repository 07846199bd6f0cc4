"""The reducer: what a partition of `__consumer_offsets` says, as rows of rebalances and ownership. Pure."""

from __future__ import annotations

from konvene.pipeline.reduce.reducer import PartitionReducer
from konvene.pipeline.reduce.why import what_would_settle

__all__ = ["PartitionReducer", "what_would_settle"]
