"""Resumable runs of very many seeds.

Each completed run is a line of JSON in a file. Results are valid for exactly this code: the file is named
after a fingerprint of it, so any change starts over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import konvene
from konvene.sim.runs.parallel import Job, Lost, Result

__all__ = ["CompletedRuns", "fingerprint"]


def fingerprint() -> str:
    """Return twelve hex digits of a hash of konvene's source files."""
    root = Path(konvene.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


class CompletedRuns:
    """The results of all completed runs, in a file in `folder` that holds only those of this version of the
    code."""

    def __init__(self, folder: Path, code: str | None = None) -> None:
        self.path = folder / f"{code or fingerprint()}.jsonl"
        self.rows: dict[str, dict[str, Any]] = {}
        """Rows by the command that reproduces the run."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            for row in self._read():
                self.rows[row["command"]] = row
        self._file = self.path.open("a", encoding="utf-8")

    def __repr__(self) -> str:
        return f"<done: {len(self.rows)} runs in {self.path}>"

    def _read(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the file, then cut off an incomplete last line, which a killed process has
        left."""
        complete_bytes = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                complete_bytes += len(line)
                yield json.loads(line)
        with self.path.open("rb+") as file:
            file.truncate(complete_bytes)

    def close(self) -> None:
        self._file.close()

    def remaining(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield those of `jobs` that are not completed yet."""
        return (job for job in jobs if job.command() not in self.rows)

    def add(self, job: Job, result: Result | Lost) -> dict[str, Any]:
        """Store the result of a job as a row, in memory and in the file, and return the row."""
        row: dict[str, Any] = {"command": job.command(), "seed": job.run.seed, "groups": job.groups}
        if isinstance(result, Lost):
            row["lost"] = result.why
        else:
            row |= {"steps": result.steps, "simulated_s": round(result.simulated_s, 3),
                    "wall_s": round(result.wall_s, 3), "violation": result.violation}  # fmt: skip
        self.rows[row["command"]] = row
        self._file.write(json.dumps(row, ensure_ascii=True) + "\n")
        self._file.flush()
        return row
