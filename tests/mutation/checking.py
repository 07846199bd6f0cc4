"""Holding one copy of the source, mutated or not, against a check, and reading what the check found.

A check is a command for each level. It runs in a process of its own, on a copy of `src/konvene` that stands
first in its path; whoever runs it sees to that. What it finds it says as its last line of JSON: the invariant
that was broken, the seed and the step. A check of unit tests says it in pytest's words.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.mutant import Mutant

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "konvene"

CHECKS: dict[str, dict[int, tuple[str, ...]]] = {
    "sim": {
        1: (
            "-m", "konvene", "sim", "run", "--groups", "{groups}", "--seeds", "{seeds}", "--steps", "{steps}",
            "--jobs", "1", "--until-violation", "--json",
        ),
        2: (
            "-m", "konvene", "sim", "run", "--level", "2", "--seeds", "{whole_seeds}", "--steps", "{steps}",
            "--jobs", "1", "--until-violation", "--json",
        ),
    },
    "tests": {
        1: ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/groups", "tests/records",
            "tests/runtime"),
        2: ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/broker", "tests/runtime",
            "tests/log"),
    },
}  # fmt: skip
"""By name and level: what Python is called with. `sim` is the proof, `tests` what unit tests find."""

LIVES = (
    "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:logging",
    "tests/groups/streams/test_invariants.py", "tests/groups/streams/test_nothing_is_stranded.py",
    "tests/groups/streams/test_racks.py", "tests/groups/assignors/tasks/test_racks.py",
    "tests/groups/assignors/tasks/test_spread.py", "tests/groups/assignors/highly_available/test_assignor.py",
    "tests/groups/assignors/highly_available/test_invariants.py", "tests/groups/assignors/tasks/test_lags.py",
    "tests/groups/streams/test_warmups.py", "tests/groups/streams/test_reports.py",
    "tests/groups/streams/topology/test_updates.py", "tests/groups/streams/topology/test_rolls.py",
    "tests/groups/streams/classic/test_migration_example.py",
    "tests/groups/streams/classic/test_back_to_classic.py",
    "tests/groups/streams/classic/test_conversion_midway.py",
    "tests/groups/streams/classic/test_changelog_ends.py",
)  # fmt: skip
"""Level 4, whatever the check: random lives of the core, held against the simulator's invariants; and tests
of racks, warm-ups and changes of the protocol, which no invariant of these looks at."""

CLEAN, FOUND = 0, 1
"""What a check exits with."""

PATIENCE = 5
"""A run that takes so many times as long as that of the clean copy, and `GRACE_S` more, hangs."""
GRACE_S = 30.0

_SEES_THE_COPY = "import konvene, konvene.groups.shard, konvene.broker.broker; print(konvene.__file__)"


class Unusable(Exception):
    """The check cannot be run, or the copy cannot: nothing is proved either way."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How much of a check is run."""

    check: str = "sim"
    groups: str = "classic,static"
    seeds: str = "0..99"
    steps: int = 5000
    whole_seeds: str = "0..29"
    """Of whole brokers."""
    consumers: str = "consumer,consumer-static,migration"
    """The kinds of groups that show the bugs of consumer groups."""
    transactional: str = "transactional"
    """Those that show the bugs of transactions."""
    sharing: str = "share"
    """Those that show the bugs of share groups."""

    def command(self, level: int) -> list[str]:
        if level == 4:
            return [sys.executable, *LIVES]
        if level == 6:
            return [*self.command(2), "--groups", "transactional"]
        told = {
            "groups": {3: self.consumers, 5: self.transactional, 7: self.sharing}.get(level, self.groups),
            "seeds": self.seeds,
            "steps": str(self.steps),
            "whole_seeds": self.whole_seeds,
        }
        return [
            sys.executable,
            *(word.format_map(told) for word in CHECKS[self.check][2 if level == 2 else 1]),
        ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one mutant, or of the clean copy."""

    name: str
    caught: bool
    by: str = ""
    """The invariant that was violated; "hang", or "crash" and the error, where it came to no invariant."""
    level: int = 1
    seed: int | None = None
    step: int | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        where = "" if self.seed is None else f", seed {self.seed}"
        where += "" if self.step is None else f", step {self.step}"
        told = f"caught by {self.by} (level {self.level}{where})" if self.caught else "SURVIVED"
        return f"{told}, {self.seconds:.1f} s"


class Workspace:
    """A copy of the source, in which one bug at a time is planted."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="konvene-mutation-"))
        self.source = self.path / "konvene"
        shutil.copytree(SOURCE, self.source, ignore=shutil.ignore_patterns("__pycache__"))
        # Compiled once. By content, not by time, so that a file with a bug in it is always read anew.
        self._run(
            [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "."], 300.0
        )
        self._must_be_seen()

    def __repr__(self) -> str:
        return f"<workspace {self.path}>"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def check(self, scope: Scope, mutant: Mutant | None, limits_s: dict[int, float]) -> Verdict:
        """Plant the bug, if there is one, run the check of its level, and take it out again."""
        if mutant is None:
            return self._run_level("", scope, 1, limits_s)
        text = mutant.apply(self.source)
        try:
            self._must_be_seen()
            return self._run_level(mutant.name, scope, mutant.level, limits_s)
        finally:
            (self.source / mutant.file).write_text(text, "utf-8")

    def clean(self, scope: Scope, level: int) -> float:
        """Run a level on the clean copy; how long it took. Raises `Unusable` where it is not clean."""
        verdict = self._run_level("", scope, level, {level: 3600.0})
        if verdict.caught:
            raise Unusable(f"level {level}: the source without any bug is {verdict}")
        return verdict.seconds

    def _run_level(self, name: str, scope: Scope, level: int, limits_s: dict[int, float]) -> Verdict:
        began = time.monotonic()
        code, output = self._run(scope.command(level), limits_s[level], cwd=ROOT)
        seconds = time.monotonic() - began
        if code is None:
            return Verdict(name, True, "hang", level, seconds=seconds)
        if code == CLEAN:
            return Verdict(name, False, level=level, seconds=seconds)
        simulated = scope.check == "sim" and level != 4
        found = read_sim(output) if simulated else read_pytest(output)
        if found is None and code == FOUND:
            found = read_crash(output)
        if found is None:
            raise Unusable(f"{' '.join(scope.command(level))} exits with {code}:\n{output[-2000:]}")
        by, seed, step = found
        return Verdict(name, True, by, level, seed, step, seconds)

    def _must_be_seen(self) -> None:
        """What is checked is the copy, and it can be imported."""
        code, output = self._run([sys.executable, "-c", _SEES_THE_COPY], 120.0)
        if code != 0 or str(self.source) not in output:
            raise Unusable(f"the copy in {self.path} cannot be run:\n{output[-2000:]}")

    def _run(self, command: list[str], limit_s: float, cwd: Path | None = None) -> tuple[int | None, str]:
        """Exit status and output; None where the time was up, and then all of it is ended."""
        environment = os.environ | {
            "PYTHONPATH": str(self.path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "KONVENE_UNSHRUNK": "1",  # That a test fails is enough.
            "PYTHONWARNINGS": "ignore",  # What a bug leaves unfinished is told at the very end.
        }
        with subprocess.Popen(
            command,
            cwd=cwd or self.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return None, ""
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, output


Found = tuple[str, int | None, int | None]
"""By what, at which seed and step."""


def read_sim(output: str) -> Found | None:
    """What the simulator says in JSON: the last object that names an invariant, however deep."""
    for line in (output, *reversed(output.splitlines())):
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if (found := _violation(told)) is not None:
            return found
    return None


def _violation(told: Any, seed: int | None = None) -> Found | None:
    """The first object that names an invariant; the seed may stand around it."""
    if isinstance(told, dict):
        seed = told.get("seed", seed)
        if told.get("invariant"):
            return str(told["invariant"]), seed, told.get("step")
    inside = told.values() if isinstance(told, dict) else told if isinstance(told, list) else ()
    return next((found for each in inside if (found := _violation(each, seed)) is not None), None)


def read_pytest(output: str) -> Found | None:
    """The first test that failed."""
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", output, re.MULTILINE)
    return None if failed is None else (failed.group(1), None, None)


def read_crash(output: str) -> Found | None:
    """The error with which Python ended."""
    if "Traceback (most recent call last)" not in output:
        return None
    errors = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception|Iteration|Exit))\b", output, re.MULTILINE)
    return (f"crash: {errors[-1]}", None, None) if errors else None
