"""Parallel runs: every job has a result, including lost jobs; totals do not depend on the workers."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from konvene.sim.runs.parallel import Job, Lost, Result, Totals, check, quiet, run_job, run_many, run_parallel
from konvene.sim.runs.run import Run
from konvene.sim.runs.soak import CompletedRuns, fingerprint

FEW_STEPS = 300
"""Steps of a run of a fraction of a second."""

JOBS = [Job(Run(seed, (kind,), FEW_STEPS)) for seed in range(3) for kind in ("classic", "static")]


def double_or_fail(number: int) -> int:
    """Return the double of a number, except: 1 exits the process, 2 hangs, 3 raises."""
    if number == 1:
        os._exit(7)
    if number == 2:
        time.sleep(60)
    if number == 3:
        raise KeyError("a mistake")
    return 2 * number


def test_only_jobs_that_exit_hang_or_raise_are_lost() -> None:
    """The other jobs complete, in new processes if necessary."""
    results = dict(run_parallel(double_or_fail, range(8), workers=2, longest_s=20))
    assert {job: found for job, found in results.items() if not isinstance(found, Lost)} == {
        0: 0, 4: 8, 5: 10, 6: 12, 7: 14,
    }  # fmt: skip
    lost = {job: found.why for job, found in results.items() if isinstance(found, Lost)}
    assert lost[1] == "the process died, exit code 7"
    assert lost[2] == "timed out after 20 s"
    assert lost[3].endswith("KeyError: 'a mistake'")


def test_closing_the_iterator_ends_all_processes() -> None:
    """The iterator of jobs may be infinite."""
    for _, found in run_parallel(double_or_fail, itertools.count(4), workers=2):
        assert isinstance(found, int)
        if found > 10:
            break
    assert multiprocessing.active_children() == []


def deterministic_fields(
    results: list[tuple[Job, Result | Lost]],
) -> list[tuple[int, str, int, float, dict[str, int]]]:
    """Return the fields of the results that do not depend on the machine, sorted by seed."""
    rows = []
    for _, found in results:
        assert isinstance(found, Result)
        rows.append((found.seed, found.groups, found.steps, found.simulated_s, found.counts))
    return sorted(rows, key=lambda row: row[:2])


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    """Results are equal in one process and in two, which have other hash seeds."""
    serial, parallel = list(run_many(JOBS, workers=1)), list(run_many(JOBS, workers=2))
    assert deterministic_fields(serial) == deterministic_fields(parallel)
    assert len(deterministic_fields(serial)) == len(JOBS)


def test_totals_are_sums() -> None:
    totals = Totals()
    totals.add(Result(1, "classic", 10, 2.0, 0.5, 0.25, {"request": 3, "state Stable": 1}, None, {}))
    totals.add(Result(2, "classic", 20, 3.0, 0.5, 0.25, {"request": 4}, {"invariant": "X"}, {}))
    totals.add(Lost("it hung"))
    assert totals.as_dict() == {
        "runs": 3, "lost": 1, "violations": 1, "steps": 30, "simulated_s": 5.0, "wall_s": 1.0,
        "checking_s": 0.5, "counts": {"request": 7, "state Stable": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (Run(0, ("shares",)), "unknown kind of group shares; known kinds: classic, static"),
        (Run(0, sets=(("assignor", "sticky"),)), "unknown assignor sticky"),
        (Run(0, sets=(("losses", "1"),)), "unknown simulator parameter losses"),
        (Run(0, sets=(("members", "many"),)), "not a number"),
        (Run(0, settings=(("group.max.sise", "1"),)), "group.max.sise"),
    ],
)
def test_invalid_run_is_rejected_before_it_starts(run: Run, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check(Job(run))


def test_coordinator_log_is_disabled_only_during_simulation() -> None:
    """A program that embeds the simulator keeps its log of failed appends."""
    log = logging.getLogger("konvene.coordinator")
    with quiet():
        assert log.disabled
    assert not log.disabled


# --- soaking -------------------------------------------------------------------------------------


def test_completed_runs_are_stored_and_a_partial_line_is_ignored(tmp_path: Path) -> None:
    """A run whose line was only partly written when the process was killed is repeated."""
    done = CompletedRuns(tmp_path, "code")
    for job in JOBS[:2]:
        done.add(job, run_job(job))
    done.add(JOBS[2], Lost("it hung"))
    done.close()
    with done.path.open("a") as file:
        file.write('{"command": "konvene sim r')
    again = CompletedRuns(tmp_path, "code")
    assert list(again.remaining(JOBS)) == JOBS[3:]
    assert again.rows[JOBS[2].command()]["lost"] == "it hung"
    again.add(JOBS[3], run_job(JOBS[3]))
    again.close()
    assert list(CompletedRuns(tmp_path, "code").remaining(JOBS)) == JOBS[4:]


def test_completed_runs_belong_to_a_fingerprint_of_the_code(tmp_path: Path) -> None:
    """With other code every run remains to be done."""
    done = CompletedRuns(tmp_path, "code")
    done.add(JOBS[0], run_job(JOBS[0]))
    assert list(CompletedRuns(tmp_path, "other").remaining(JOBS)) == JOBS
    assert fingerprint() == fingerprint() and len(fingerprint()) == 12
