"""Rebalances can be reduced and phrased without Arrow and NumPy, as `konvene console` does."""

from __future__ import annotations

import subprocess
import sys

from konvene.pipeline.reduce import COLUMNS
from konvene.pipeline.tables import TABLES

_IMPORTS = """
import sys

for name in ("pyarrow", "numpy", "pyspark"):
    sys.modules[name] = None  # Importing it fails.
from konvene.pipeline.answers import Cost, Ends, Rebalance, Selection, caveats, costs, find_rebalances
from konvene.pipeline.answers import note, sentence, summarise, timeline, title, trace
from konvene.pipeline.answers.cost import costs
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.answers.sentences import sentence
from konvene.pipeline.answers.timeline import timeline
from konvene.pipeline.answers.trace import trace
from konvene.pipeline.reduce import COLUMNS, PartitionReducer, missing_evidence

assert callable(trace) and callable(timeline)
reducer = PartitionReducer("here", 0)
assert reducer.drain().keys() == COLUMNS.keys()
"""


def test_reducer_and_sentences_need_no_arrow() -> None:
    ran = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_columns_are_those_of_the_tables() -> None:
    assert {name: tuple(TABLES[name].schema.names) for name in COLUMNS} == dict(COLUMNS)
