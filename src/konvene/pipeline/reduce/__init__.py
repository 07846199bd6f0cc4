"""The reducer: from the records of a `__consumer_offsets` partition to rows of rebalances and ownership.
Pure.
"""

from __future__ import annotations

from konvene.pipeline.reduce.diagnosis import missing_evidence
from konvene.pipeline.reduce.reducer import PartitionReducer

__all__ = ["PartitionReducer", "missing_evidence"]
