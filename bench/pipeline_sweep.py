"""Speed-up of a sweep on two cores: the same simulator runs sequentially and on Spark.

`python -m bench.pipeline_sweep`; the start of the Spark session and one warm-up task are not counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from konvene.pipeline.engine import Engine, Local, Spark
from konvene.pipeline.spark.session import build
from konvene.pipeline.sweeps.sweep import grid, read, sweep
from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_REBALANCE, SIM_RUN
from konvene.sim.runs.what_if import Plan

PLAN = Plan(members=20, rolling_restart=True, minutes=20)
VARY = [("protocol", ["classic", "consumer"])]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_sweep", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="of each of two plans")
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    session = build(f"local[{arguments.cores}]")
    try:
        with tempfile.TemporaryDirectory() as name:
            home = Path(name)
            _played(home / "warm", Spark(session), arguments.cores, arguments.cores)
            one_s = _played(home / "one", Local(), 1, arguments.seeds)
            many_s = _played(home / "many", Spark(session), arguments.cores, arguments.seeds)
            for table in (SIM_RUN, SIM_METRIC, SIM_REBALANCE):
                assert read(home / "one", table).equals(read(home / "many", table)), table
    finally:
        session.stop()
    runs = arguments.seeds * 2
    print(f"{runs} runs: one process {one_s:.1f} s, Spark on {arguments.cores} cores {many_s:.1f} s: "
          f"{one_s / many_s:.2f} times as fast, same rows")  # fmt: skip


def _played(folder: Path, engine: Engine, slots: int, seeds: int) -> float:
    began_s = time.perf_counter()
    sweep(folder, grid(PLAN, VARY), range(seeds), engine, slots=slots)
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()
