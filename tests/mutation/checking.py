"""Run a check on a copy of the source, with or without a planted bug, and read its result.

A check is a command for each level. It runs in its own process, with a copy of `src/konvene` first in its
path. The simulator prints its result as the last line of JSON: the violated invariant, the seed and the step.
For unit tests the result is read from the output of pytest.
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
        1: ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--soak", "tests/groups", "tests/records",
            "tests/runtime"),
        2: ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--soak", "tests/broker", "tests/runtime",
            "tests/log"),
    },
}  # fmt: skip
"""Arguments of Python by name and level. `sim` is the real check; `tests` shows what unit tests detect."""

RANDOM_RUNS = (
    "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:logging", "--soak",
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
"""Level 4, for any check: random runs of the core with the simulator's invariants; and tests of racks,
warm-ups and protocol changes, which those invariants do not cover."""

CLEAN, FOUND = 0, 1
"""Exit codes of a check."""

TIME_FACTOR = 5
"""A run hangs if it takes longer than this multiple of the clean run, plus `GRACE_S`."""
GRACE_S = 30.0

_IMPORT_COPY = "import konvene, konvene.groups.shard, konvene.broker.broker; print(konvene.__file__)"


class Unusable(Exception):
    """The check, or the copy of the source, cannot be run: there is no result."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The selected part of a check."""

    check: str = "sim"
    groups: str = "classic,static"
    seeds: str = "0..99"
    steps: int = 5000
    whole_seeds: str = "0..29"
    """Seeds of runs of whole brokers."""
    consumers: str = "consumer,consumer-static,migration"
    """Group types that show bugs of consumer groups."""
    transactional: str = "transactional"
    """Group types that show bugs of transactions."""
    sharing: str = "share"
    """Group types that show bugs of share groups."""

    def command(self, level: int) -> list[str]:
        if level == 4:
            return [sys.executable, *RANDOM_RUNS]
        if level == 6:
            return [*self.command(2), "--groups", "transactional"]
        if level == 8:
            return [*self.command(2), "--groups", "secured"]
        values = {
            "groups": {3: self.consumers, 5: self.transactional, 7: self.sharing}.get(level, self.groups),
            "seeds": self.seeds,
            "steps": str(self.steps),
            "whole_seeds": self.whole_seeds,
        }
        return [
            sys.executable,
            *(argument.format_map(values) for argument in CHECKS[self.check][2 if level == 2 else 1]),
        ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one mutant, or of the clean copy."""

    name: str
    caught: bool
    by: str = ""
    """The violated invariant; or "hang", or "crash" and the error."""
    level: int = 1
    seed: int | None = None
    step: int | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        where = "" if self.seed is None else f", seed {self.seed}"
        where += "" if self.step is None else f", step {self.step}"
        result = f"caught by {self.by} (level {self.level}{where})" if self.caught else "SURVIVED"
        return f"{result}, {self.seconds:.1f} s"


class Workspace:
    """A copy of the source, in which one bug at a time is planted."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="konvene-mutation-"))
        self.source = self.path / "konvene"
        shutil.copytree(SOURCE, self.source, ignore=shutil.ignore_patterns("__pycache__"))
        # Compiled once; by content, not by time, so that a file with a planted bug is always compiled again.
        self._run(
            [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "."], 300.0
        )
        self._check_import()

    def __repr__(self) -> str:
        return f"<workspace {self.path}>"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def check(self, scope: Scope, mutant: Mutant | None, limits_s: dict[int, float]) -> Verdict:
        """Plant the bug, if there is one, run the check of its level, and remove the bug."""
        if mutant is None:
            return self._run_level("", scope, 1, limits_s)
        text = mutant.apply(self.source)
        try:
            self._check_import()
            return self._run_level(mutant.name, scope, mutant.level, limits_s)
        finally:
            (self.source / mutant.file).write_text(text, "utf-8")

    def clean(self, scope: Scope, level: int) -> float:
        """Run a level on the clean copy and return its seconds. Raises `Unusable` if it fails."""
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

    def _check_import(self) -> None:
        """Check that the copy is imported. Raises `Unusable`."""
        code, output = self._run([sys.executable, "-c", _IMPORT_COPY], 120.0)
        if code != 0 or str(self.source) not in output:
            raise Unusable(f"the copy in {self.path} cannot be run:\n{output[-2000:]}")

    def _run(self, command: list[str], limit_s: float, cwd: Path | None = None) -> tuple[int | None, str]:
        """Return exit code and output; after the time limit, end all processes and return None."""
        environment = os.environ | {
            "PYTHONPATH": str(self.path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "KONVENE_UNSHRUNK": "1",  # A failed test is enough.
            "PYTHONWARNINGS": "ignore",  # A bug may leave resources open.
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
"""What detected the bug, with seed and step."""


def read_sim(output: str) -> Found | None:
    """Read the JSON output of the simulator: return the last object with an invariant, at any depth."""
    for line in (output, *reversed(output.splitlines())):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if (found := _violation(document)) is not None:
            return found
    return None


def _violation(document: Any, seed: int | None = None) -> Found | None:
    """Return the first object with an invariant; its seed may be in an enclosing object."""
    children: Any = document if isinstance(document, list) else ()
    if isinstance(document, dict):
        seed = document.get("seed", seed)
        if document.get("invariant"):
            return str(document["invariant"]), seed, document.get("step")
        children = document.values()
    return next((found for each in children if (found := _violation(each, seed)) is not None), None)


def read_pytest(output: str) -> Found | None:
    """Return the first failed test in the output of pytest."""
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", output, re.MULTILINE)
    return None if failed is None else (failed.group(1), None, None)


def read_crash(output: str) -> Found | None:
    """Return the error of an unhandled exception in the output of Python."""
    if "Traceback (most recent call last)" not in output:
        return None
    errors = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception|Iteration|Exit))\b", output, re.MULTILINE)
    return (f"crash: {errors[-1]}", None, None) if errors else None
