"""Many runs at once: each in one of several processes, told of as they end.

A run is a value and so is what comes of it; a process is given one at a time. A process that dies, or that is
at one run for longer than it may be, is replaced, and its run is told of as lost, with its seed: nothing is
left out in silence. What came of a run does not depend on how many processes there were, nor on the order in
which they ended; totals are sums.

With one process everything runs right here, and nobody can tell whether a run hangs.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, TypeVar

from konvene.client.consumer.assignors import ASSIGNORS
from konvene.configs import BrokerConfig
from konvene.sim.members import kinds, shares, transacts
from konvene.sim.runs.run import Report, Run, simulate

__all__ = [
    "LONGEST_S",
    "Job",
    "Lost",
    "Result",
    "Totals",
    "check",
    "processors",
    "quiet",
    "run_job",
    "run_many",
    "spread",
]

J = TypeVar("J")
R = TypeVar("R")

LONGEST_S = 300.0
"""A run that takes longer than this is said to hang."""


class Lost(NamedTuple):
    """A run that came to no end."""

    why: str


# --- processes -----------------------------------------------------------------------------------


def processors() -> int:
    """How many processes make sense here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    work: Callable[[J], R], jobs: Iterable[J], *, workers: int = 0, longest_s: float = LONGEST_S
) -> Iterator[tuple[J, R | Lost]]:
    """Do the work for each job; yield each with what came of it, as they end. 0 workers: one a processor.

    Jobs may be without end: they are taken when somebody is free. `work` has a name in its module, jobs and
    results can be pickled: other processes are sent them. A program that calls this does so under
    `if __name__ == "__main__"`: they import it."""
    workers = workers or processors()
    if workers == 1:
        with quiet():
            for job in jobs:
                yield job, _done(work, job)
        return
    pool: _Pool[J, R] = _Pool(work, workers, longest_s)
    try:
        for job in jobs:
            while not pool.takes():
                yield from pool.ended()
            pool.give(job)
        while pool.busy():
            yield from pool.ended()
    finally:
        pool.close()


def _done(work: Callable[[J], R], job: J) -> R | Lost:
    """What came of it. A mistake in the simulator loses one run and not all."""
    try:
        return work(job)
    except Exception:
        return Lost(traceback.format_exc().strip())


@dataclass(slots=True)
class _Worker(Generic[J]):
    """A process, the line to it, and what it is at."""

    process: BaseProcess
    line: Connection
    job: list[J] = field(default_factory=list)
    since_s: float = 0.0


class _Pool(Generic[J, R]):
    """Processes that do one job at a time."""

    def __init__(self, work: Callable[[J], R], workers: int, longest_s: float) -> None:
        self._work = work
        self._most = workers
        self._longest_s = longest_s
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker[J]] = []

    def takes(self) -> bool:
        """Whether somebody is free."""
        return len(self._workers) < self._most or any(not w.job for w in self._workers)

    def busy(self) -> bool:
        return any(w.job for w in self._workers)

    def give(self, job: J) -> None:
        worker = next((w for w in self._workers if not w.job), None) or self._hired()
        worker.job, worker.since_s = [job], time.monotonic()
        worker.line.send(job)

    def _hired(self) -> _Worker[J]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._work), daemon=True)
        process.start()
        theirs.close()
        worker: _Worker[J] = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def ended(self) -> Iterator[tuple[J, R | Lost]]:
        """Wait until something ends, or hangs; what it was."""
        at_work = [w for w in self._workers if w.job]
        first_s = min(w.since_s for w in at_work) + self._longest_s
        ready = wait([w.line for w in at_work], timeout=max(0.0, first_s - time.monotonic()))
        for worker in at_work:
            (job,) = worker.job
            if worker.line in ready:
                yield job, self._heard(worker)
            elif time.monotonic() - worker.since_s >= self._longest_s:
                self._dismiss(worker)
                yield job, Lost(f"it had not ended after {self._longest_s:g} s")

    def _heard(self, worker: _Worker[J]) -> R | Lost:
        try:
            result: R | Lost = worker.line.recv()
        except (EOFError, OSError):
            worker.process.join(5)
            code = worker.process.exitcode
            self._dismiss(worker)
            return Lost(f"its process died, {_ending(code)}")
        worker.job = []
        return result

    def _dismiss(self, worker: _Worker[J]) -> None:
        self._workers.remove(worker)
        worker.process.kill()
        worker.process.join()
        worker.line.close()

    def close(self) -> None:
        """Whoever is still at something is stopped."""
        for worker in list(self._workers):
            self._dismiss(worker)


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"by {signal.Signals(-code).name}"


def _serve(line: Connection, work: Callable[[Any], Any]) -> None:
    """What a process does: jobs, until there is nobody to send them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with quiet():
        while True:
            try:
                job = line.recv()
            except EOFError:
                return
            line.send(_done(work, job))


@contextmanager
def quiet() -> Iterator[None]:
    """The coordinator logs each append that fails. Here they fail because a seed says so."""
    log = logging.getLogger("konvene.coordinator")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


# --- runs ----------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A run of the first level or of the second."""

    run: Run
    level: int = 1

    @property
    def groups(self) -> str:
        if self.level == 2:
            return ", ".join(("whole broker", *_of_whole(self.run.kinds)))
        return "+".join(self.run.kinds)

    def command(self) -> str:
        """The one command that runs it again."""
        if self.level == 2:
            groups = " --groups " + "+".join(asked) if (asked := _of_whole(self.run.kinds)) else ""
            return f"konvene sim run --level 2 --seed {self.run.seed} --steps {self.run.steps}{groups}"
        return self.run.command()


def _of_whole(names: tuple[str, ...]) -> tuple[str, ...]:
    """What of these kinds there is at level 2."""
    asked = (("transactional", transacts(names)), ("share", shares(names)))
    return tuple(kind for kind, is_asked in asked if is_asked)


def check(job: Job) -> None:
    """Whether it can be run as it is. Raises ValueError that says what is wrong."""
    known = kinds()
    for kind in job.run.kinds:
        if kind not in known:
            raise ValueError(f"there are no groups of the kind {kind}; there are {', '.join(known)}")
    assignor, assignors = job.run.options()["assignor"], (*ASSIGNORS, "mixed")
    if assignor not in assignors:
        raise ValueError(f"{assignor} is no assignor; there are {', '.join(assignors)}")
    BrokerConfig.load(overrides=list(job.run.settings))


class Result(NamedTuple):
    """What came of a run, of whichever level, as far as they are alike. `document` is all of it, for JSON."""

    seed: int
    groups: str
    steps: int
    simulated_s: float
    wall_s: float
    checking_s: float
    counts: dict[str, int]
    violation: dict[str, Any] | None
    document: dict[str, Any]


def run_job(job: Job, trace: Callable[[str], None] | None = None) -> Result:
    """Run it; `trace` is given a line for each thing that happens."""
    if job.level == 2:
        return _run_whole(job, trace)
    return result_of(simulate(job.run, trace=trace, stopwatch=time.perf_counter))


def result_of(report: Report) -> Result:
    document = report.as_dict()
    return Result(
        report.run.seed,
        "+".join(report.run.kinds),
        report.steps,
        report.simulated_ms / 1000,
        report.wall_s,
        report.checking_s,
        report.counts,
        document["violation"],
        document,
    )


def _run_whole(job: Job, trace: Callable[[str], None] | None) -> Result:
    from konvene.sim.end_to_end import Violation, run_whole

    seed, steps, names = job.run.seed, job.run.steps, job.run.kinds
    began = time.perf_counter()
    try:
        report = run_whole(seed, steps, trace=trace, transactions=transacts(names), share=shares(names))
    except Violation as broken:
        story = str(broken.message).splitlines()
        found = {"invariant": broken.invariant, "why": story[0], "step": None, "at_ms": None,
                 "recent": story[1:], "command": job.command()}  # fmt: skip
        document = {"seed": seed, "level": 2, "violation": found}
        return Result(seed, job.groups, steps, 0.0, time.perf_counter() - began, 0.0, {}, found, document)
    document = {**report.as_dict(), "level": 2, "violation": None}
    counts = {f"fault {name}": count for name, count in report.faults.items()} | report.answers
    return Result(
        seed, job.groups, report.steps, report.simulated_s, report.wall_s, 0.0, counts, None, document
    )


def run_many(
    jobs: Iterable[Job], *, workers: int = 0, longest_s: float = LONGEST_S
) -> Iterator[tuple[Job, Result | Lost]]:
    """Run them all, and yield each as it ends."""
    return spread(run_job, jobs, workers=workers, longest_s=longest_s)


@dataclass(slots=True)
class Totals:
    """Sums over runs."""

    runs: int = 0
    lost: int = 0
    violations: int = 0
    steps: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    checking_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result | Lost) -> None:
        self.runs += 1
        if isinstance(result, Lost):
            self.lost += 1
            return
        self.violations += result.violation is not None
        self.steps += result.steps
        self.simulated_s += result.simulated_s
        self.wall_s += result.wall_s
        self.checking_s += result.checking_s
        self.counts.update(result.counts)

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Seconds of real time are summed over the processes."""
        return {
            "runs": self.runs,
            "lost": self.lost,
            "violations": self.violations,
            "steps": self.steps,
            "simulated_s": round(self.simulated_s, 3),
            "wall_s": round(self.wall_s, 3),
            "checking_s": round(self.checking_s, 3),
            "counts": dict(sorted(self.counts.items())),
        }
