"""What a sweep makes: a row for each run, its figures, and the rebalances that it was made of."""

import pyarrow as pa

from konvene.pipeline.tables import rebalance
from konvene.pipeline.tables.table import Column, Table

__all__ = ["SIM_METRIC", "SIM_REBALANCE", "SIM_RUN"]

PLAY = (
    Column("plan", pa.string(), "What differs between the plans of the sweep, such as `static=true`."),
    Column("seed", pa.int64(), "The seed."),
)

SIM_RUN = Table(
    "sim_run",
    "gold",
    "One row for each seed of each plan of a sweep: what happened and what it came to.",
    (
        *PLAY,
        Column("params", pa.map_(pa.string(), pa.string()), "The whole plan, by the names of its options."),
        Column("outcome", pa.string(), "`played`, or `never stable` where the group did not come together."),
        Column("stable_after_s", pa.float64(), "How long it took until all were in at first."),
        Column("killed", pa.int32(), "Members that died."),
        Column("restarted", pa.int32(), "Members that were restarted."),
        Column("failovers", pa.int32(), "How often another coordinator took over."),
        Column("stopped", pa.int32(), "Members that gave up by themselves."),
        Column("rebalances", pa.int32(), "Rebalances from then on."),
        Column("steps", pa.int64(), "Steps of the simulator."),
    ),
    key=("plan", "seed"),
)

SIM_METRIC = Table(
    "sim_metric",
    "gold",
    "The figures of each run. They are measured by what members had, not by what the coordinator thought.",
    (
        *PLAY,
        Column("metric", pa.string(), "What was measured, such as `partition-seconds unavailable`."),
        Column("unit", pa.string(), "`s`, `%`, or empty for a number."),
        Column("value", pa.float64(), "The run's figure."),
    ),
    key=("plan", "seed", "metric"),
)

SIM_REBALANCE = Table(
    "sim_rebalance",
    "gold",
    "The rebalances of all runs, told as those of a real log: `cluster` is the plan and the seed.",
    rebalance.TABLE.columns,
    rebalance.TABLE.key,
)
