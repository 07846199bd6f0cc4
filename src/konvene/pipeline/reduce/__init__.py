"""The reducer: from the records of a `__consumer_offsets` partition to rows of rebalances and ownership.
Pure, and importable without Arrow: `COLUMNS` has the names of the columns of its rows.
"""

from __future__ import annotations

from konvene.pipeline.reduce.columns import COLUMNS
from konvene.pipeline.reduce.diagnosis import missing_evidence
from konvene.pipeline.reduce.reducer import PartitionReducer

__all__ = ["COLUMNS", "PartitionReducer", "missing_evidence"]
