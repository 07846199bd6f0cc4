"""`python -m tests.mutation`: plants each bug of the table in a copy of the source, and simulates it.

The source without any bug goes first, and has to be clean: else nothing is proved, and nothing is run. Then
one bug at a time. It is caught where the run violates an invariant, where it ends with an error, or where it
does not end. What is printed is by what, at which seed and step; the survivors come last, with what would
find them. The exit status is 1 where fewer than 95 of 100 are caught, 2 where nothing could be proved.

`--check tests` runs the unit tests instead, to see what they alone find.
"""

# A command prints.
# ruff: noqa: T201

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.mutation.checking import CHECKS, GRACE_S, TIME_FACTOR, Scope, Unusable, Verdict, Workspace
from tests.mutation.mutant import Mutant
from tests.mutation.mutants import MUTANTS

ENOUGH = 0.95


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    usual = Scope()
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description="Plants small bugs, and counts those that are caught."
    )
    parser.add_argument("--only", metavar="NAME,…", help="these bugs [default: all]")
    parser.add_argument(
        "--level", type=int, choices=(1, 2, 3, 4, 5, 6, 7, 8), help="bugs of this level [default: all]"
    )
    parser.add_argument("--check", choices=CHECKS, default=usual.check, help="what is run [%(default)s]")
    parser.add_argument("--groups", default=usual.groups, help="kinds of groups [%(default)s]")
    parser.add_argument("--seeds", default=usual.seeds, help="seeds of each run [%(default)s]")
    parser.add_argument("--steps", type=int, default=usual.steps, help="steps of each seed [%(default)s]")
    parser.add_argument(
        "--whole-seeds", default=usual.whole_seeds, help="seeds of whole brokers [%(default)s]"
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time [%(default)s]")
    parser.add_argument("--json", action="store_true", help="print one JSON document and no table")
    return parser.parse_args(words)


def selected_mutants(only: str | None, level: int | None) -> list[Mutant]:
    """Return the selected rows. Raises `Unusable` for an unknown name."""
    rows = {mutant.name: mutant for mutant in MUTANTS if level in (None, mutant.level)}
    if only is None:
        return list(rows.values())
    names = [name.strip() for name in only.split(",")]
    if unknown := [name for name in names if name not in rows]:
        raise Unusable(f"no such bug: {', '.join(unknown)}")
    return [rows[name] for name in names]


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def baseline(spaces: list[Workspace], scope: Scope, levels: set[int]) -> dict[int, float]:
    """Return the time limit of each level: a multiple of the time of clean copies that run concurrently."""
    limits_s = {}
    for level in sorted(levels):
        with ThreadPoolExecutor(len(spaces)) as pool:
            seconds = max(pool.map(lambda space: space.clean(scope, level), spaces))  # noqa: B023
        log(f"without any bug: level {level} is clean, {seconds:.1f} s")
        limits_s[level] = seconds * TIME_FACTOR + GRACE_S
    return limits_s


def check_all(mutants: list[Mutant], scope: Scope, jobs: int) -> list[Verdict]:
    """Check all mutants, `jobs` at a time. Raises `Unusable`."""
    spaces = [Workspace() for _ in range(min(jobs, len(mutants)))]
    free: queue.SimpleQueue[Workspace] = queue.SimpleQueue()
    stop = threading.Event()
    try:
        limits_s = baseline(spaces, scope, {mutant.level for mutant in mutants})
        for space in spaces:
            free.put(space)

        def check(mutant: Mutant) -> Verdict | None:
            if stop.is_set():
                return None
            space = free.get()
            try:
                return space.check(scope, mutant, limits_s)
            finally:
                free.put(space)

        verdicts_by_name: dict[str, Verdict] = {}
        with ThreadPoolExecutor(len(spaces)) as pool:
            tasks = [pool.submit(check, mutant) for mutant in mutants]
            try:
                for done in as_completed(tasks):
                    verdict = done.result()
                    assert verdict is not None
                    verdicts_by_name[verdict.name] = verdict
                    log(f"[{len(verdicts_by_name)}/{len(mutants)}] {verdict.name}: {verdict}")
            except BaseException:
                stop.set()
                raise
        return [verdicts_by_name[mutant.name] for mutant in mutants]
    finally:
        for space in spaces:
            space.remove()


# --- what is printed -----------------------------------------------------------------------------


def report(mutants: list[Mutant], verdicts: list[Verdict]) -> str:
    """A table, the totals, and the survivors."""
    width = max(len(mutant.name) for mutant in mutants)
    lines = [f"{'BUG':{width}}  {'BREAKS':24}  {'CAUGHT BY':44}  SEED   STEP  SECONDS"]
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        by = verdict.by if verdict.caught else "- survived -"
        seed, step = ("-" if n is None else n for n in (verdict.seed, verdict.step))
        ids = ", ".join(mutant.ids) or "-"
        lines.append(
            f"{mutant.name:{width}}  {ids:24}  {by:44}  {seed:>4}  {step:>5}  {verdict.seconds:7.1f}"
        )
    lines.append("")
    for level in sorted({mutant.level for mutant in mutants}):
        of_level = [v for m, v in zip(mutants, verdicts, strict=True) if m.level == level]
        lines.append(f"bugs of level {level}: {_share(of_level)}")
    lines.append(f"all: {_share(verdicts)}, {sum(v.seconds for v in verdicts):.0f} s of runs")
    lines += ["", "caught by:"]
    by_what = Counter(v.by for v in verdicts if v.caught)
    lines += [
        f"  {count:4}  {by}" for by, count in sorted(by_what.items(), key=lambda row: (-row[1], row[0]))
    ]
    survivors = [m for m, v in zip(mutants, verdicts, strict=True) if not v.caught]
    if survivors:
        lines += ["", "survivors:"]
    for mutant in survivors:
        lines.append(f"  {mutant.name} ({mutant.file}): {mutant.breaks}")
        lines.append(f"      would be caught by: {mutant.would_be_caught_by or 'not known yet'}")
    return "\n".join(lines)


def _share(verdicts: list[Verdict]) -> str:
    caught = sum(verdict.caught for verdict in verdicts)
    return f"{caught} of {len(verdicts)} caught ({caught / len(verdicts):.1%})"


def document(mutants: list[Mutant], verdicts: list[Verdict], scope: Scope) -> str:
    rows = [
        {
            "name": mutant.name,
            "file": mutant.file,
            "ids": list(mutant.ids),
            "breaks": mutant.breaks,
            "level": mutant.level,
            "caught": verdict.caught,
            "caught_by": verdict.by or None,
            "caught_at_level": verdict.level if verdict.caught else None,
            "seed": verdict.seed,
            "step": verdict.step,
            "seconds": round(verdict.seconds, 2),
            "would_be_caught_by": mutant.would_be_caught_by or None,
        }
        for mutant, verdict in zip(mutants, verdicts, strict=True)
    ]
    caught = sum(verdict.caught for verdict in verdicts)
    result = {
        "check": scope.check,
        "groups": scope.groups,
        "seeds": scope.seeds,
        "whole_seeds": scope.whole_seeds,
        "steps": scope.steps,
        "caught": caught,
        "total": len(verdicts),
        "mutants": rows,
    }
    return json.dumps(result, indent=2, ensure_ascii=False)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    scope = Scope(options.check, options.groups, options.seeds, options.steps, options.whole_seeds)
    began = time.monotonic()
    try:
        mutants = selected_mutants(options.only, options.level)
        verdicts = check_all(mutants, scope, options.jobs)
    except Unusable as error:
        log(f"the check cannot be run: {error}")
        return 2
    print(document(mutants, verdicts, scope) if options.json else report(mutants, verdicts))
    log(f"{time.monotonic() - began:.0f} s")
    return int(sum(verdict.caught for verdict in verdicts) < ENOUGH * len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
