"""Rebalances with the causes that polled descriptions leave: `Observations([path]).settled(rebalance, gold)`.

A cause that is left without alternatives is still inferred, since no record and no line of a log names it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from konvene.pipeline.answers.evidence import Generations, is_certain, with_causes
from konvene.pipeline.answers.observations.observation import Observation, decode
from konvene.pipeline.answers.observations.rules import settled_cause
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.plurals import counted

__all__ = ["OBSERVATIONS_NAME", "Observations", "observation_files"]

OBSERVATIONS_NAME = "observations.jsonl"
"""Name of the file with observations, in the directory with the logs of a live cluster."""


def observation_files(directories: Iterable[str | Path]) -> list[Path]:
    """Return the files with observations that followers of live clusters left in these directories."""
    paths = (Path(each, OBSERVATIONS_NAME) for each in directories)
    return sorted(path for path in paths if path.is_file())


class Observations:
    """Index of the observations in some files, which a follower may be extending.

    A file that does not exist yet is read when it does."""

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._read = dict.fromkeys(map(Path, paths), 0)
        self._seen: dict[tuple[str, str, int], list[Observation]] = defaultdict(list)
        self.refresh()

    def __repr__(self) -> str:
        count = sum(map(len, self._seen.values()))
        return f"<{counted(count, 'observation')} of {counted(len(self._seen), 'group')}>"

    def refresh(self) -> None:
        """Read what was appended to the files."""
        for path, position in self._read.items():
            if not path.is_file():
                continue
            with path.open("rb") as file:
                file.seek(position)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    position += len(line)
                    found = decode(line)
                    if found is not None:
                        self.add(found)
            self._read[path] = position

    def add(self, observation: Observation) -> None:
        """Add an observation; those of a group in the order of their times."""
        each = observation
        self._seen[each.cluster, each.group_id, each.log_partition].append(each)

    def settled(self, rebalance: Rebalance, generations: Generations) -> Rebalance:
        """Return a rebalance without the alternatives that observations refute; unchanged if there are
        none.

        `by_description` is True if there are any. Its evidence stays `inferred`."""
        if rebalance.evidence != "inferred" or all(map(is_certain, rebalance.all_causes)):
            return rebalance
        seen = self._seen.get((rebalance.cluster, rebalance.group_id, rebalance.log_partition))
        if not seen:
            return rebalance
        generation = generations.previous_generation(rebalance)
        found = [settled_cause(cause, rebalance, seen, generation) for cause in rebalance.all_causes]
        if found == list(rebalance.all_causes):
            return rebalance
        return with_causes(rebalance, found, by_description=True)
