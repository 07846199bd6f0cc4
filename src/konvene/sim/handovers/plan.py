"""What happens to a streams group in a scenario of hand-overs: drawn from a seed, before anything is run.

A scenario is a value: the same one is run with warm-ups and without, so that the two differ by nothing else.
What can happen is the table `CHANCES`. Draws know which processes there are, and nothing of tasks: where
those are is the coordinator's to say.

Not drawn: changes of the topology, partitions that are added, members that send no offsets or are static.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

__all__ = ["CHANCES", "SEED", "Change", "Part", "Scenario", "What", "drawn", "drawn_all"]

SEED: Final = 1071
"""The pinned scenarios begin here."""

MOST_PROCESSES, MOST_THREADS, MOST_PARTITIONS, MOST_PARTS = 6, 3, 12, 3
MOST_RECORDS = 30_000
"""In the changelogs of one task, when a scenario begins."""


class What(StrEnum):
    """Kinds of changes."""

    STARTS = "a process starts, with an empty disk"
    STOPS = "a process stops: its members leave"
    BOUNCES = "a process stops, and comes back soon with its disk"
    DIES = "a process dies without a word; its disk stays"
    BURNS = "a process dies without a word, and its disk with it"
    RETURNS = "a process is back, with its disk"
    GROWS = "a process has one member more"
    SHRINKS = "a process has one member less"
    FAILS_OVER = "the coordinator is loaded anew from its log"
    STANDBYS = "standbys"
    WARMUPS = "warm-ups"
    LAG = "acceptable lag"


CHANCES: Final[dict[What, int]] = {
    What.STARTS: 5, What.STOPS: 3, What.BOUNCES: 3, What.DIES: 2, What.BURNS: 1, What.RETURNS: 3,
    What.GROWS: 2, What.SHRINKS: 2, What.FAILS_OVER: 2, What.STANDBYS: 2, What.WARMUPS: 1, What.LAG: 1,
}  # fmt: skip
"""How often each is drawn, where it can happen."""

VALUES: Final[dict[What, tuple[int, ...]]] = {
    What.STANDBYS: (0, 1, 2),
    What.WARMUPS: (1, 2, 4),
    What.LAG: (100, 1_000, 10_000),
}
"""What settings are set to."""


class Change(NamedTuple):
    """A change. The next one follows when the group is stable and some ticks have passed."""

    what: What
    process: str = ""
    value: int = 0
    """How many members a process starts with, or what is set."""
    calm: int = 0
    soon: int = 0
    """If not 0: the next one comes after so many ticks, settled or not."""

    def __str__(self) -> str:
        if self.what in VALUES:
            return f"{self.what.value}: {self.value} from now on"
        members = f", {self.value} members" if self.what is What.STARTS else ""
        return self.what.value.replace("a process", self.process) + members


class Part(NamedTuple):
    """A subtopology: the number of changelog records of each of its tasks."""

    records: tuple[int, ...]
    stateful: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group, and the changes after it has become stable."""

    seed: int
    parts: tuple[Part, ...]
    processes: dict[str, int]
    """Those that there are at first, with so many members each."""
    restores: int
    """How many records each copy restores in a tick."""
    writes: int
    """How many records a task appends to its changelogs in a tick in which it is processing."""
    standbys: int = 0
    warmups: int = 2
    """Kafka's default; a run without warm-ups has none, whatever changes."""
    lag: int = 10_000
    changes: tuple[Change, ...] = ()

    @property
    def tasks(self) -> int:
        return sum(len(part.records) for part in self.parts)


PATIENCE: Final = 0.8
"""After so many of all changes the group is left to settle."""


@dataclass(slots=True)
class _Draw:
    """The processes that exist while changes are drawn."""

    random: Random
    up: dict[str, int]
    down: dict[str, int] = field(default_factory=dict)
    started: int = 0

    def possible(self) -> list[What]:
        grows = [name for name, threads in self.up.items() if threads < MOST_THREADS]
        shrinks = [name for name, threads in self.up.items() if threads > 1]
        cannot = {
            What.STARTS: len(self.up) >= MOST_PROCESSES,
            What.STOPS: len(self.up) < 2,
            What.BOUNCES: len(self.up) < 2,
            What.DIES: len(self.up) < 2,
            What.BURNS: len(self.up) < 2,
            What.RETURNS: not self.down or len(self.up) >= MOST_PROCESSES,
            What.GROWS: not grows,
            What.SHRINKS: not shrinks,
        }
        return [what for what in CHANCES if not cannot.get(what, False)]

    def change(self) -> list[Change]:
        can, random = self.possible(), self.random
        what = random.choices(can, [CHANCES[each] for each in can])[0]
        calm = random.randint(3, 20)
        if what in VALUES:
            return [Change(what, value=random.choice(VALUES[what]), calm=calm)]
        if what is What.FAILS_OVER:
            return [Change(what, calm=calm)]
        if what is What.STARTS:
            return [Change(what, self.starts(), self.up[f"p{self.started}"], calm)]
        if what is What.RETURNS:
            name = random.choice(sorted(self.down))
            self.up[name] = self.down.pop(name)
            return [Change(what, name, self.up[name], calm)]
        if what in (What.GROWS, What.SHRINKS):
            by = 1 if what is What.GROWS else -1
            name = random.choice([n for n, t in self.up.items() if 1 <= t + by <= MOST_THREADS])
            self.up[name] += by
            return [Change(what, name, calm=calm)]
        name = random.choice(list(self.up))
        if what is What.BOUNCES:
            stops = Change(What.STOPS, name, soon=random.randint(1, 4))
            return [stops, Change(What.RETURNS, name, self.up[name], calm)]
        threads = self.up.pop(name)
        if what is not What.BURNS:
            self.down[name] = threads
        return [Change(what, name, calm=calm)]

    def starts(self) -> str:
        self.started += 1
        name = f"p{self.started}"
        self.up[name] = self.random.choice((1, 1, 2))
        return name


def drawn(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    random = Random(seed)
    draw = _Draw(random, {})
    for _ in range(random.randint(1, MOST_PROCESSES)):
        draw.starts()
    parts = [_part(random, stateful=random.random() < 0.8) for _ in range(random.randint(1, MOST_PARTS))]
    if not any(part.stateful for part in parts):
        parts[0] = _part(random, stateful=True)
    scenario = Scenario(
        seed, tuple(parts), dict(draw.up),
        restores=random.choice((5_000, 10_000, 20_000)), writes=random.choice((0, 10, 100)),
        standbys=random.choice((0, 0, 0, 1, 1, 2)), lag=random.choice(VALUES[What.LAG]),
    )  # fmt: skip
    changes = [each for _ in range(random.randint(3, 6)) for each in draw.change()]
    changes = [each if random.random() < PATIENCE else _hurried(random, each) for each in changes]
    return replace(scenario, changes=tuple(changes))


def drawn_all(count: int = 100) -> list[Scenario]:
    """Return the pinned scenarios."""
    return [drawn(SEED + number) for number in range(count)]


def _hurried(random: Random, change: Change) -> Change:
    """Return the change with the next one following at once."""
    return change if change.soon else change._replace(soon=random.randint(1, 6))


def _part(random: Random, *, stateful: bool) -> Part:
    count = random.randint(1, MOST_PARTITIONS)
    return Part(tuple(random.randint(0, MOST_RECORDS) if stateful else 0 for _ in range(count)), stateful)
