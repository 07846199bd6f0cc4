"""A run of very many seeds that can be broken off and goes on later where it was.

What is done is written down in a file, a line of JSON for each run. What is known of a run is known of this
very code: the file is named after what the code says, so with the next change everything begins anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import konvene
from konvene.sim.runs.parallel import Job, Lost, Result

__all__ = ["Done", "fingerprint"]


def fingerprint() -> str:
    """Twelve hex digits that are other ones with each change of the code."""
    root = Path(konvene.__file__).parent
    said = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        said.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return said.hexdigest()[:12]


class Done:
    """What is done, in a file of this folder."""

    def __init__(self, folder: Path, code: str | None = None) -> None:
        self.path = folder / f"{code or fingerprint()}.jsonl"
        self.rows: dict[str, dict[str, Any]] = {}
        """By the command that runs it again."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            for row in self._read():
                self.rows[row["command"]] = row
        self._file = self.path.open("a", encoding="utf-8")

    def __repr__(self) -> str:
        return f"<done: {len(self.rows)} runs in {self.path}>"

    def _read(self) -> Iterator[dict[str, Any]]:
        """The rows; a torn one at the end, as of somebody who was killed while he wrote, is cut off."""
        whole = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                yield json.loads(line)
        with self.path.open("rb+") as file:
            file.truncate(whole)

    def close(self) -> None:
        self._file.close()

    def left(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Those that are not done yet."""
        return (job for job in jobs if job.command() not in self.rows)

    def add(self, job: Job, result: Result | Lost) -> dict[str, Any]:
        """Write it down, before anything else is done."""
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
