"""Many runs at once: all are told of, also those that come to no end; sums do not depend on who ran what."""

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

FEW = 300
"""Steps that take no time."""

JOBS = [Job(Run(seed, (kind,), FEW)) for seed in range(3) for kind in ("classic", "static")]


def doubled(number: int) -> int:
    """Does what its number says: 1 dies, 2 hangs, 3 has a mistake in it."""
    if number == 1:
        os._exit(7)
    if number == 2:
        time.sleep(60)
    if number == 3:
        raise KeyError("a mistake")
    return 2 * number


def test_a_job_that_dies_hangs_or_fails_is_lost_and_no_other() -> None:
    """The rest is done, by other processes if need be."""
    results = dict(run_parallel(doubled, range(8), workers=2, longest_s=6))
    assert {job: found for job, found in results.items() if not isinstance(found, Lost)} == {
        0: 0, 4: 8, 5: 10, 6: 12, 7: 14,
    }  # fmt: skip
    lost = {job: found.why for job, found in results.items() if isinstance(found, Lost)}
    assert lost[1] == "the process died, exit code 7"
    assert lost[2] == "timed out after 6 s"
    assert lost[3].endswith("KeyError: 'a mistake'")


def test_whoever_stops_listening_leaves_no_process_behind() -> None:
    """Jobs without an end are no trouble."""
    for _, found in run_parallel(doubled, itertools.count(4), workers=2):
        assert isinstance(found, int)
        if found > 10:
            break
    assert multiprocessing.active_children() == []


def plain(results: list[tuple[Job, Result | Lost]]) -> list[tuple[int, str, int, float, dict[str, int]]]:
    """What of the results is the same each time."""
    rows = []
    for _, found in results:
        assert isinstance(found, Result)
        rows.append((found.seed, found.groups, found.steps, found.simulated_s, found.counts))
    return sorted(rows, key=lambda row: row[:2])


def test_what_comes_of_a_run_does_not_depend_on_where_it_ran() -> None:
    """In one process or in two, and under any PYTHONHASHSEED: other processes have another one."""
    here, elsewhere = list(run_many(JOBS, workers=1)), list(run_many(JOBS, workers=2))
    assert plain(here) == plain(elsewhere)
    assert len(plain(here)) == len(JOBS)


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
def test_what_cannot_be_run_is_said_before_it_is_run(run: Run, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check(Job(run))


def test_the_coordinator_is_quiet_only_while_it_is_simulated() -> None:
    """Somebody's program goes on to hear of appends that fail."""
    log = logging.getLogger("konvene.coordinator")
    with quiet():
        assert log.disabled
    assert not log.disabled


# --- soaking -------------------------------------------------------------------------------------


def test_what_is_done_is_remembered_and_a_torn_line_is_not(tmp_path: Path) -> None:
    """Whoever is killed while he writes does that run once more."""
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


def test_other_code_begins_anew(tmp_path: Path) -> None:
    """What is known of a seed is known of this very code."""
    done = CompletedRuns(tmp_path, "code")
    done.add(JOBS[0], run_job(JOBS[0]))
    assert list(CompletedRuns(tmp_path, "other").remaining(JOBS)) == JOBS
    assert fingerprint() == fingerprint() and len(fingerprint()) == 12
