"""Run many simulations in parallel processes, and yield each result as it completes.

A run and its result are values. A process gets one run at a time. A process that dies or exceeds the time
limit is replaced, and its run is reported as lost, with its seed. Results do not depend on the number of
processes or on the order of completion; totals are sums.

With one process everything runs in the caller, and the time limit is not enforced.
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
from konvene.runtime.signals import sigint_blocked
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
    "run_parallel",
]

J = TypeVar("J")
R = TypeVar("R")

LONGEST_S = 300.0
SECURED = "secured"
"""At level 2: users of a broker with an authorizer, instead of all other clients."""
"""Default time limit of a run, in seconds."""


class Lost(NamedTuple):
    """The reason why a job has no result: it raised an exception, its process died, or it exceeded the time
    limit."""

    why: str


# --- processes -----------------------------------------------------------------------------------


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_parallel(
    work: Callable[[J], R], jobs: Iterable[J], *, workers: int = 0, longest_s: float = LONGEST_S
) -> Iterator[tuple[J, R | Lost]]:
    """Apply `work` to each job in `workers` processes (0: one per processor); yield each job with its result
    as it completes.

    Jobs may be an endless iterator: they are taken when a worker is idle. `work` must be a module-level
    function, jobs and results must be picklable. Call it under `if __name__ == "__main__"`, as workers import
    the module."""
    workers = workers or processors()
    if workers == 1:
        with quiet():
            for job in jobs:
                yield job, _run_one(work, job)
        return
    pool: _Pool[J, R] = _Pool(work, workers, longest_s)
    try:
        for job in jobs:
            while not pool.has_capacity():
                yield from pool.completed()
            pool.give(job)
        while pool.busy():
            yield from pool.completed()
    finally:
        pool.close()


def _run_one(work: Callable[[J], R], job: J) -> R | Lost:
    """Return the result of a job, or `Lost` with the traceback if it raises an exception."""
    try:
        return work(job)
    except Exception:
        return Lost(traceback.format_exc().strip())


@dataclass(slots=True)
class _Worker(Generic[J]):
    """A worker process, the pipe to it, and the job that it runs."""

    process: BaseProcess
    pipe: Connection
    job: list[J] = field(default_factory=list)
    since_s: float = 0.0


class _Pool(Generic[J, R]):
    """A pool of worker processes, each of which runs one job at a time."""

    def __init__(self, work: Callable[[J], R], workers: int, longest_s: float) -> None:
        self._work = work
        self._max_workers = workers
        self._longest_s = longest_s
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker[J]] = []

    def has_capacity(self) -> bool:
        """Return True if a worker is idle or can be started."""
        return len(self._workers) < self._max_workers or any(not w.job for w in self._workers)

    def busy(self) -> bool:
        return any(w.job for w in self._workers)

    def give(self, job: J) -> None:
        worker = next((w for w in self._workers if not w.job), None) or self._start_worker()
        worker.job, worker.since_s = [job], time.monotonic()
        worker.pipe.send(job)

    def _start_worker(self) -> _Worker[J]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._work), daemon=True)
        with sigint_blocked():
            process.start()
        theirs.close()
        worker: _Worker[J] = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def completed(self) -> Iterator[tuple[J, R | Lost]]:
        """Wait until at least one job completes or times out; yield each that did, with its result."""
        at_work = [w for w in self._workers if w.job]
        first_s = min(w.since_s for w in at_work) + self._longest_s
        ready = wait([w.pipe for w in at_work], timeout=max(0.0, first_s - time.monotonic()))
        for worker in at_work:
            (job,) = worker.job
            if worker.pipe in ready:
                yield job, self._receive(worker)
            elif time.monotonic() - worker.since_s >= self._longest_s:
                self._stop_worker(worker)
                yield job, Lost(f"timed out after {self._longest_s:g} s")

    def _receive(self, worker: _Worker[J]) -> R | Lost:
        try:
            result: R | Lost = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(5)
            code = worker.process.exitcode
            self._stop_worker(worker)
            return Lost(f"the process died, {_exit_reason(code)}")
        worker.job = []
        return result

    def _stop_worker(self, worker: _Worker[J]) -> None:
        self._workers.remove(worker)
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()

    def close(self) -> None:
        """Stop all workers."""
        for worker in list(self._workers):
            self._stop_worker(worker)


def _exit_reason(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"by {signal.Signals(-code).name}"


def _serve(pipe: Connection, work: Callable[[J], R]) -> None:
    """Main function of a worker process: run the jobs that arrive in the pipe, and send back each result,
    until the pipe is closed."""
    with quiet():
        while True:
            try:
                job = pipe.recv()
            except EOFError:
                return
            pipe.send(_run_one(work, job))


@contextmanager
def quiet() -> Iterator[None]:
    """Context manager that disables the coordinator's log, which reports every injected append failure."""
    log = logging.getLogger("konvene.coordinator")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


# --- runs ----------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A run to be simulated, with its level: 1 for coordinators' shards, 2 for a whole broker and clients."""

    run: Run
    level: int = 1

    @property
    def groups(self) -> str:
        if self.level == 2:
            return ", ".join(("whole broker", *_level_2_kinds(self.run.kinds)))
        return "+".join(self.run.kinds)

    def command(self) -> str:
        """Return the `konvene sim run` command line that reproduces the run."""
        if self.level == 2:
            groups = (
                " --groups " + "+".join(candidates) if (candidates := _level_2_kinds(self.run.kinds)) else ""
            )
            return f"konvene sim run --level 2 --seed {self.run.seed} --steps {self.run.steps}{groups}"
        return self.run.command()


def _level_2_kinds(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return which kinds of clients ("transactional", "share", "secured") a level 2 run has for these kinds
    of members.

    Its other clients do not depend on the kinds."""
    candidates = (("transactional", transacts(names)), ("share", shares(names)), (SECURED, SECURED in names))
    return tuple(kind for kind, is_requested in candidates if is_requested)


def check(job: Job) -> None:
    """Check a job before it is run. Raises ValueError for an unknown kind of members, assignor, parameter or
    broker config."""
    known_kinds = kinds()
    for kind in job.run.kinds:
        if kind not in known_kinds and not (kind == SECURED and job.level == 2):
            raise ValueError(f"unknown kind of group {kind}; known kinds: {', '.join(known_kinds)}")
    assignor, assignors = job.run.options()["assignor"], (*ASSIGNORS, "mixed")
    if assignor not in assignors:
        raise ValueError(f"unknown assignor {assignor}; known assignors: {', '.join(assignors)}")
    BrokerConfig.load(overrides=list(job.run.settings))


class Result(NamedTuple):
    """The result of a simulated run, of coordinators' shards (level 1) or of a broker with clients (level 2).

    `violation` describes the violated invariant, None if there is none; `document` is the report as a JSON
    object, which includes it. At level 2 `checking_s` is always 0; after a violation there, `steps` is the
    planned number, `simulated_s` is 0 and `counts` is empty."""

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
    """Simulate the run of a job at its level; `trace` receives a line for each event."""
    if job.level == 2:
        return _run_end_to_end(job, trace)
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


def _run_end_to_end(job: Job, trace: Callable[[str], None] | None) -> Result:
    from konvene.sim.end_to_end import Violation, run_end_to_end

    seed, steps, names = job.run.seed, job.run.steps, job.run.kinds
    began = time.perf_counter()
    try:
        report = run_end_to_end(
            seed, steps, trace=trace, transactions=transacts(names), share=shares(names),
            secured=SECURED in names,
        )  # fmt: skip
    except Violation as violated:
        message_lines = str(violated.message).splitlines()
        found = {"invariant": violated.invariant, "why": message_lines[0], "step": None, "at_ms": None,
                 "recent": message_lines[1:], "command": job.command()}  # fmt: skip
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
    """Simulate all runs in parallel processes, and yield each with its result as it completes.

    See `run_parallel`."""
    return run_parallel(run_job, jobs, workers=workers, longest_s=longest_s)


@dataclass(slots=True)
class Totals:
    """Sums of the results of many runs."""

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

    def as_dict(self) -> dict[str, object]:
        """Return the totals as a JSON object. Wall time is the sum over all runs, also parallel ones."""
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
