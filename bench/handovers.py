"""Scaling out a large streams group by one process: time until tasks have moved, and CPU cost.

The size is that of the largest of Kafka's own scenarios for this: 1,000 members in 20 processes, 10,000
tasks. No broker is needed: the coordinator, its members and their disks are those of
`konvene.sim.handovers.comparison`. Twenty tasks warm up at a time, the maximum of the group setting. Time is
counted in ticks, in which each member sends one heartbeat; CPU is measured.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping

from bench.figures import Figure, less
from bench.systems import Lab
from bench.wire import BadAnswer
from konvene.groups.assignors.tasks.contract import (
    GroupAssignment,
    GroupSpec,
    TaskAssignor,
    TopologyDescriber,
)
from konvene.groups.streams.assignors import TASK_ASSIGNORS
from konvene.sim.handovers.coordinator import Host
from konvene.sim.handovers.plan import Change, Part, Scenario, What
from konvene.sim.handovers.run import Run

PROCESSES, MEMBERS = 20, 1_000
SUBTOPOLOGIES, PARTITIONS = 100, 100
WARMUPS = 20
RECORDS, RESTORES = 20_000, 10_000


def figures(lab: Lab) -> list[Figure]:
    """Measure from the join of one more process until it has its share of the tasks. No hand-over may be
    cold."""
    members = max(1, lab.of(MEMBERS) // PROCESSES)
    scenario = Scenario(
        seed=1,
        parts=(Part((RECORDS,) * PARTITIONS, stateful=True),) * lab.of(SUBTOPOLOGIES),
        processes={f"p{n}": members for n in range(1, PROCESSES + 1)},
        restores=RESTORES,
        writes=10,
        warmups=WARMUPS,
        lag=1_000,
        changes=(Change(What.STARTS, f"p{PROCESSES + 1}", members),),
    )
    took: list[float] = []
    began = time.process_time()
    run = Run(scenario, host=lambda settings: Host(settings, _timed(took)))
    outcome = run.play()
    if outcome.cold or outcome.uneven:
        raise BadAnswer(f"{outcome.cold} cold hand-overs, uneven: {outcome.uneven}")
    steps = took[-outcome.epochs :]
    return [
        less("ticks until settled", [outcome.ticks]),
        less("tasks moved", [outcome.handovers]),
        less("steps", [outcome.epochs]),
        less("a step of the assignor, CPU ms", steps),
        less("longest step, CPU ms", [max(steps)]),
        less("all of it, CPU s", [time.process_time() - began]),
    ]


def _timed(took: list[float]) -> Mapping[str, TaskAssignor]:
    """Return the assignors, wrapped to record the CPU time of each assignment."""

    def timed(of: TaskAssignor) -> TaskAssignor:
        def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
            gc.disable()  # What there is to collect is the simulator's.
            began = time.process_time()
            try:
                return of.assign(spec, topology)
            finally:
                took.append(1000 * (time.process_time() - began))
                gc.enable()

        return TaskAssignor(of.name, assign)

    return {name: timed(of) for name, of in TASK_ASSIGNORS.items()}
