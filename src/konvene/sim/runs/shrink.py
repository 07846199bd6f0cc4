"""From a run in which an invariant was violated to the least that still breaks it.

First the run: fewer steps, then each knob at its calm value and each kind of fault left out, one by one, as
long as the same invariant is violated. Then, where the invariant is about what a coordinator did, its
conversation is written down as a scenario, and lines are taken away: half of them, a quarter, and so on down
to single ones. What clients alone can see (that the group settles in the end, that nothing is skipped) stays
a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from konvene.sim.runs.run import CHAOS, Report, Run, simulate
from konvene.sim.transcript.recorder import Recorder
from konvene.sim.transcript.scenario import Scenario, ScenarioError, run_file
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.faults import ALL_FAULTS, ALL_PARAMETERS

Progress = Callable[[str], None]


class NothingToShrink(Exception):
    """The run violates no invariant."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left of a run. `scenario` is None where no conversation with the coordinator shows it."""

    invariant: str
    why: str
    run: Run
    scenario: str | None

    def lines(self) -> list[str]:
        told = [f"{self.invariant} is broken: {self.why}", f"By this run: {self.run.command()}"]
        if self.scenario is None:
            return [*told, "No conversation with the coordinator alone shows it."]
        return [*told, "By this scenario:", "", *self.scenario.splitlines()]

    def as_dict(self) -> dict[str, Any]:
        return {
            "invariant": self.invariant,
            "why": self.why,
            "command": self.run.command(),
            "scenario": self.scenario,
        }


def shrink(run: Run, progress: Progress = lambda line: None) -> Shrunk:
    """The least that violates the invariant which this run breaks. Raises `NothingToShrink`."""
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
    calm = [(parameter.name, str(parameter.fault_free)) for parameter in ALL_PARAMETERS]
    calm += [(f"fault.{fault.name}", "0") for fault in ALL_FAULTS]
    for change in calm:
        name = change[0]
        if f"{name}={change[1]}" in best[0].options().lines() or not _is_drawn(best[0], name):
            continue
        fewer = replace(best[0], sets=(*best[0].sets, change))
        found = simulate(fewer)
        if found.violation is not None and found.violation.invariant == invariant:
            best = _fewer_steps(fewer, found, invariant)
            progress(f"without {name}: {found.violation.step} steps")
    return best


def _is_drawn(run: Run, name: str) -> bool:
    return any(line.startswith(f"{name}=") for line in run.options().lines())


def _fewer_steps(run: Run, report: Report, invariant: str) -> tuple[Run, Report]:
    """As many as it takes to get there."""
    assert report.violation is not None
    steps = math.ceil((report.violation.step + 1) / CHAOS)
    if steps >= run.steps:
        return run, report
    fewer = replace(run, steps=steps)
    found = simulate(fewer)
    same = found.violation is not None and found.violation.invariant == invariant
    return (fewer, found) if same else (run, report)


# --- the conversation ------------------------------------------------------------------------------


def _scenario(run: Run, invariant: str, progress: Progress) -> str | None:
    """The shortest conversation found; None if the recorded one does not violates the invariant."""
    recorded: list[Recorder] = []
    simulate(run, record=recorded.append)
    lines = [line for line in recorded[0].lines if not line.startswith("#")]
    simple = [line for line in lines if line.split()[0] not in ("hold", "durable")]
    for attempt in (simple, lines):
        if _breaks(attempt, invariant):
            shortest = _fewer_lines(attempt, invariant, progress)
            shortest = _fewer_words(_fewer_lines(_waiting_once(shortest), invariant, progress), invariant)
            return run_file("\n".join(_in_blocks(shortest, invariant)))
    return None


def _breaks(lines: Sequence[str], invariant: str) -> bool:
    scenario = Scenario()
    try:
        scenario.run(lines)
    except ScenarioError:
        return False
    broken = scenario.broken
    return isinstance(broken, InvariantViolation) and broken.invariant == invariant


def _fewer_lines(lines: list[str], invariant: str, progress: Progress) -> list[str]:
    """Take away runs of lines, shorter and shorter ones, as long as the invariant stays violated."""
    size = max(1, len(lines) // 2)
    while True:
        at, went = 0, False
        while at < len(lines):
            fewer = lines[:at] + lines[at + size :]
            if _breaks(fewer, invariant):
                lines, went = fewer, True
                progress(f"{len(lines)} lines")
            else:
                at += size
        if size == 1 and not went:
            return lines
        size = max(1, size // 2)


def _waiting_once(lines: list[str]) -> list[str]:
    """Where nothing is left between two times to wait, they are one."""
    once: list[str] = []
    for line in lines:
        if once and line.startswith("advance ") and once[-1].startswith("advance "):
            line = f"advance {int(once.pop().split()[1]) + int(line.split()[1])}"
        once.append(line)
    return once


def _fewer_words(lines: list[str], invariant: str) -> list[str]:
    """Of each line what it takes: without an option, or with the plainest protocols."""
    for at, line in enumerate(lines):
        for word in [w for w in line.split() if "=" in w]:
            for instead in ("", "protocols=range:orders" if word.startswith("protocols=") else ""):
                said = " ".join(w if w != word else instead for w in lines[at].split())
                said = " ".join(said.split())
                fewer = [*lines[:at], said, *lines[at + 1 :]]
                if said != lines[at] and _breaks(fewer, invariant):
                    lines = fewer
                    break
    return lines


def _in_blocks(lines: list[str], invariant: str) -> list[str]:
    """Settings first, then the conversation as one block."""
    settings = [line for line in lines if line.startswith("config ")]
    rest = [line for line in lines if not line.startswith("config ")]
    return [f"# Found by the simulator: {invariant}.", *settings, "", *rest]
