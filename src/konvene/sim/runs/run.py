"""One simulated run at level 1: its parameters from a seed, the simulation, and the report.

The same seed, kinds, steps and settings on the same commit give the same run, to the byte of its trace.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from konvene.groups.consumer import targets
from konvene.groups.streams import targets as tasks
from konvene.sim.invariants import invariants_of
from konvene.sim.invariants.liveness import check_liveness
from konvene.sim.members import assigns, runs_applications, shares, transacts
from konvene.sim.transcript.recorder import Recorder
from konvene.sim.world.compaction import assert_compaction_changes_nothing
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.faults import Options
from konvene.sim.world.world import AUDIT_INTERVAL, World, line

FAULT_PHASE = 0.8
"""Fraction of the steps with faults; the liveness phase takes as many as it needs."""


@dataclass(frozen=True, slots=True)
class Run:
    """The inputs of a run: the seed, the kinds of members, and the number of steps.

    `sets` overrides drawn parameters of `sim.world.faults`, `settings` configs of the broker."""

    seed: int
    kinds: tuple[str, ...] = ("classic",)
    steps: int = 5_000
    sets: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    def options(self) -> Options:
        """Return the parameters that the seed draws, with the overrides of `sets`.

        Raises ValueError for an unknown parameter."""
        drawn = Options.drawn(
            Random(f"options {self.seed}"), consumers=assigns(self.kinds),
            streams=runs_applications(self.kinds), transactions=transacts(self.kinds),
            share=shares(self.kinds), streams_migration="streams-migration" in self.kinds,
        )  # fmt: skip
        return drawn.with_set(self.sets)

    def command(self) -> str:
        """Return the `konvene sim run` command line that reproduces the run."""
        words = ["konvene", "sim", "run", "--seed", str(self.seed), "--steps", str(self.steps)]
        words += ["--groups", "+".join(self.kinds)]
        for name, value in (*self.sets, *self.settings):
            words += ["--set", f"{name}={value}"]
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Violation:
    """How a run violated an invariant: reason, step, time, the last events and the command to reproduce
    it."""

    invariant: str
    why: str
    step: int
    at_ms: int
    recent: tuple[str, ...]
    command: str

    def lines(self) -> list[str]:
        lines = [f"{self.invariant} was violated at step {self.step}: {self.why}", "", "Preceding events:"]
        return [*lines, *(f"  {entry}" for entry in self.recent), "", f"To reproduce: {self.command}"]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run. `options` are its drawn parameters, `counts` the numbers of its events."""

    run: Run
    options: tuple[str, ...]
    steps: int
    simulated_ms: int
    counts: dict[str, int]
    violation: Violation | None = None
    wall_s: float = 0.0
    checking_s: float = 0.0
    audit_interval: int = field(default=AUDIT_INTERVAL)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        found = self.violation
        return {
            "seed": self.run.seed,
            "groups": list(self.run.kinds),
            "options": list(self.options),
            "steps": self.steps,
            "simulated_ms": self.simulated_ms,
            "wall_s": round(self.wall_s, 3),
            "checking_s": round(self.checking_s, 3),
            "look_every": self.audit_interval,
            "counts": self.counts,
            "violation": None
            if found is None
            else {
                "invariant": found.invariant,
                "why": found.why,
                "step": found.step,
                "at_ms": found.at_ms,
                "recent": list(found.recent),
                "command": found.command,
            },
        }


def simulate(
    run: Run,
    *,
    trace: Callable[[str], None] | None = None,
    stopwatch: Callable[[], float] | None = None,
    record: Callable[[Recorder], None] | None = None,
) -> Report:
    """Run a simulation and return its report; a violated invariant ends it and is in the report.

    `trace` receives a line for each event; `stopwatch` returns seconds of real time, for the report only;
    `record` receives, before the run, the recorder that will write it as a scenario."""
    options = run.options()
    defaults = targets.OFFLOAD_WEIGHT, tasks.OFFLOAD_WEIGHT
    targets.OFFLOAD_WEIGHT = tasks.OFFLOAD_WEIGHT = options["heavy"]
    try:
        return _simulate(run, options, trace, stopwatch, record)
    finally:
        targets.OFFLOAD_WEIGHT, tasks.OFFLOAD_WEIGHT = defaults


def _simulate(
    run: Run,
    options: Options,
    trace: Callable[[str], None] | None,
    stopwatch: Callable[[], float] | None,
    record: Callable[[Recorder], None] | None,
) -> Report:
    began = stopwatch() if stopwatch is not None else 0.0
    world = World(
        Random(f"world {run.seed}"),
        options,
        kinds=run.kinds,
        invariants=invariants_of(run.kinds),
        settings=run.settings,
        trace=trace,
        stopwatch=stopwatch,
    )
    started_ms = world.event_queue.now_ms
    if record is not None:
        record(world.record())
    violation = None
    try:
        world.begin()
        world.chaos(round(run.steps * FAULT_PHASE))
        _check_compaction(world, Random(f"log {run.seed}"))
        check_liveness(world)
        _check_compaction(world, Random(world.random.random()))
    except InvariantViolation as violated:
        violation = _violation(world, run, violated.invariant, violated.why)
    except Exception as error:  # Any exception is reported with the seed that reproduces it.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
        violation = _violation(world, run, "NothingIsRaised", why)
    return Report(
        run,
        tuple(options.lines()),
        world.steps,
        world.event_queue.now_ms - started_ms,
        dict(sorted(world.counts.items())),
        violation,
        (stopwatch() - began) if stopwatch is not None else 0.0,
        world.checking_s,
    )


def _violation(world: World, run: Run, invariant: str, why: str) -> Violation:
    recent = tuple(line(entry) for entry in world.recent)
    return Violation(invariant, why, world.steps, world.event_queue.now_ms, recent, run.command())


def _check_compaction(world: World, random: Random) -> None:
    """G2: check that compaction of the group coordinator's log does not change the state that a load
    restores."""
    try:
        assert_compaction_changes_nothing(world.runtime, random)
    except AssertionError as error:
        raise InvariantViolation("CompactionChangesNothing", str(error)) from error
