"""Defines the tables of a simulation sweep: its runs, their metrics, and their rebalances."""

import pyarrow as pa

from konvene.pipeline.tables import rebalance
from konvene.pipeline.tables.table import Column, Table

__all__ = ["SIM_METRIC", "SIM_REBALANCE", "SIM_RUN"]

PLAY = (
    Column("plan", pa.string(), "How the plan differs from the others of the sweep, such as `static=true`."),
    Column("seed", pa.int64(), "The seed."),
)

SIM_RUN = Table(
    "sim_run",
    "gold",
    "One row for each seed of each plan of a sweep, with its outcome.",
    (
        *PLAY,
        Column("params", pa.map_(pa.string(), pa.string()), "The whole plan, by option name."),
        Column("outcome", pa.string(), "`played`, or `never stable` if the group never stabilised."),
        Column("stable_after_s", pa.float64(), "Time until all members had first converged."),
        Column("killed", pa.int32(), "Members that were killed."),
        Column("restarted", pa.int32(), "Members that were restarted."),
        Column("failovers", pa.int32(), "Number of coordinator failovers."),
        Column("stopped", pa.int32(), "Members that stopped by themselves."),
        Column("rebalances", pa.int32(), "Rebalances after that."),
        Column("steps", pa.int64(), "Steps of the simulator."),
    ),
    key=("plan", "seed"),
)

SIM_METRIC = Table(
    "sim_metric",
    "gold",
    "The figures of each run, measured by what members owned, not by the coordinator's view.",
    (
        *PLAY,
        Column("metric", pa.string(), "The metric, such as `partition-seconds unavailable`."),
        Column("unit", pa.string(), "`s`, `%`, or empty for a number."),
        Column("value", pa.float64(), "The run's figure."),
    ),
    key=("plan", "seed", "metric"),
)

SIM_REBALANCE = Table(
    "sim_rebalance",
    "gold",
    "The rebalances of all runs, as for a real log: `cluster` is the plan and the seed.",
    rebalance.TABLE.columns,
    rebalance.TABLE.key,
)
