"""Shrink a run that violates an invariant to a minimal one.

First the run: fewer steps, then each parameter at its fault-free value and each kind of fault removed, one by
one, as long as the same invariant is violated. Then, if the invariant concerns the coordinator, its
conversation is recorded as a scenario, and lines are removed: half of them, a quarter, down to single ones.
Invariants that only clients can check (liveness, no skipped records) stay a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from konvene.plurals import counted
from konvene.sim.runs.run import FAULT_PHASE, Report, Run, simulate
from konvene.sim.transcript.recorder import Recorder
from konvene.sim.transcript.scenario import Scenario, ScenarioError, run_file
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.faults import ALL_FAULTS, ALL_PARAMETERS

Progress = Callable[[str], None]


class NothingToShrink(Exception):
    """Raised when the run to be shrunk violates no invariant."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The result of shrinking: the minimal run, and a minimal scenario that violates the same invariant.

    `scenario` is None if no conversation with the coordinator reproduces the violation."""

    invariant: str
    why: str
    run: Run
    scenario: str | None

    def lines(self) -> list[str]:
        lines = [f"{self.invariant} is violated: {self.why}", f"By this run: {self.run.command()}"]
        if self.scenario is None:
            return [*lines, "No conversation with the coordinator alone reproduces it."]
        return [*lines, "By this scenario:", "", *self.scenario.splitlines()]

    def as_dict(self) -> dict[str, object]:
        return {
            "invariant": self.invariant,
            "why": self.why,
            "command": self.run.command(),
            "scenario": self.scenario,
        }


def shrink(run: Run, progress: Progress = lambda line: None) -> Shrunk:
    """Return a minimal run, and if possible a minimal scenario, that violates the same invariant as `run`.

    `progress` receives a line for each success. Raises `NothingToShrink`."""
    report = simulate(run)
    if report.violation is None:
        raise NothingToShrink(f"{run.command()} violates no invariant")
    invariant = report.violation.invariant
    run, report = _smaller_run(run, report, invariant, progress)
    assert report.violation is not None
    scenario = _scenario(run, invariant, progress)
    return Shrunk(invariant, report.violation.why, run, scenario)


# --- the run ---------------------------------------------------------------------------------------


def _smaller_run(run: Run, report: Report, invariant: str, progress: Progress) -> tuple[Run, Report]:
    best = _fewer_steps(run, report, invariant)
    removals = [(parameter.name, str(parameter.fault_free)) for parameter in ALL_PARAMETERS]
    removals += [(f"fault.{fault.name}", "0") for fault in ALL_FAULTS]
    for change in removals:
        name = change[0]
        if f"{name}={change[1]}" in best[0].options().lines() or not _is_drawn(best[0], name):
            continue
        reduced = replace(best[0], sets=(*best[0].sets, change))
        found = simulate(reduced)
        if found.violation is not None and found.violation.invariant == invariant:
            best = _fewer_steps(reduced, found, invariant)
            progress(f"without {name}: {counted(found.violation.step, 'step')}")
    return best


def _is_drawn(run: Run, name: str) -> bool:
    return any(line.startswith(f"{name}=") for line in run.options().lines())


def _fewer_steps(run: Run, report: Report, invariant: str) -> tuple[Run, Report]:
    """Return the run with no more steps than it took to the violation, if that reproduces it, and its report;
    otherwise the run and report given."""
    assert report.violation is not None
    steps = math.ceil((report.violation.step + 1) / FAULT_PHASE)
    if steps >= run.steps:
        return run, report
    reduced = replace(run, steps=steps)
    found = simulate(reduced)
    reproduced = found.violation is not None and found.violation.invariant == invariant
    return (reduced, found) if reproduced else (run, report)


# --- the conversation ------------------------------------------------------------------------------


def _scenario(run: Run, invariant: str, progress: Progress) -> str | None:
    """Record the run as a scenario and return the text of the smallest one found that violates the invariant.

    Return None if the recorded scenario does not violate it."""
    recorded: list[Recorder] = []
    simulate(run, record=recorded.append)
    lines = [line for line in recorded[0].lines if not line.startswith("#")]
    simple = [line for line in lines if line.split()[0] not in ("hold", "durable")]
    for attempt in (simple, lines):
        if _violates(attempt, invariant):
            shortest = _fewer_lines(attempt, invariant, progress)
            shortest = _fewer_options(_fewer_lines(_merge_waits(shortest), invariant, progress), invariant)
            return run_file("\n".join(_in_blocks(shortest, invariant)))
    return None


def _violates(lines: Sequence[str], invariant: str) -> bool:
    scenario = Scenario()
    try:
        scenario.run(lines)
    except ScenarioError:
        return False
    broken = scenario.broken
    return isinstance(broken, InvariantViolation) and broken.invariant == invariant


def _fewer_lines(lines: list[str], invariant: str, progress: Progress) -> list[str]:
    """Return the lines without all blocks of lines that the violation does not need.

    Blocks of half of the lines are tried first, then smaller ones, down to single lines."""
    size = max(1, len(lines) // 2)
    while True:
        index, removed_any = 0, False
        while index < len(lines):
            reduced = lines[:index] + lines[index + size :]
            if _violates(reduced, invariant):
                lines, removed_any = reduced, True
                progress(counted(len(lines), "line"))
            else:
                index += size
        if size == 1 and not removed_any:
            return lines
        size = max(1, size // 2)


def _merge_waits(lines: list[str]) -> list[str]:
    """Return the lines with each sequence of `advance` commands merged into one."""
    merged: list[str] = []
    for line in lines:
        if merged and line.startswith("advance ") and merged[-1].startswith("advance "):
            line = f"advance {int(merged.pop().split()[1]) + int(line.split()[1])}"
        merged.append(line)
    return merged


def _fewer_options(lines: list[str], invariant: str) -> list[str]:
    """Return the lines without those options (`name=value`) that the violation does not need; options
    `protocols` that it needs are replaced by the simplest ones if possible."""
    for index, line in enumerate(lines):
        for word in [w for w in line.split() if "=" in w]:
            for instead in ("", "protocols=range:orders" if word.startswith("protocols=") else ""):
                shorter = " ".join(w if w != word else instead for w in lines[index].split())
                shorter = " ".join(shorter.split())
                reduced = [*lines[:index], shorter, *lines[index + 1 :]]
                if shorter != lines[index] and _violates(reduced, invariant):
                    lines = reduced
                    break
    return lines


def _in_blocks(lines: list[str], invariant: str) -> list[str]:
    """Return the lines of a scenario in two blocks: a comment and the `config` commands, then all others."""
    settings = [line for line in lines if line.startswith("config ")]
    rest = [line for line in lines if not line.startswith("config ")]
    return [f"# Found by the simulator: {invariant}.", *settings, "", *rest]
