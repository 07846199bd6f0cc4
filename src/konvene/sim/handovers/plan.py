"""Hand-over scenarios of a streams group, drawn from a seed before they are run.

A scenario is a value, so that the same one can be run with and without warm-ups. `CHANCES` has the relative
frequency of each kind of change. Changes refer only to processes that run when they occur; the coordinator
decides which members get which tasks.

Not drawn: changes of the topology, added partitions, members without offset reports, static members.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

__all__ = ["CHANCES", "SEED", "Change", "Part", "Scenario", "What", "draw", "draw_all"]

SEED: Final = 1071
"""Seed of the first pinned scenario."""

MOST_PROCESSES, MOST_THREADS, MOST_PARTITIONS, MOST_PARTS = 6, 3, 12, 3
MOST_RECORDS = 30_000
"""Maximum size of a changelog at the start of a scenario."""


class What(StrEnum):
    """Enumeration of the kinds of changes in a scenario. The last three change a limit in the configs of the
    group."""

    STARTS = "a process starts, with an empty disk"
    STOPS = "a process stops: its members leave"
    BOUNCES = "a process stops, and returns soon with its disk"
    DIES = "a process dies; its disk stays"
    BURNS = "a process dies and loses its disk"
    RETURNS = "a process returns with its disk"
    GROWS = "a process adds a member"
    SHRINKS = "a process removes a member"
    FAILS_OVER = "the coordinator is loaded again from its log"
    STANDBYS = "standbys"
    WARMUPS = "warm-ups"
    LAG = "acceptable lag"


CHANCES: Final[dict[What, int]] = {
    What.STARTS: 5, What.STOPS: 3, What.BOUNCES: 3, What.DIES: 2, What.BURNS: 1, What.RETURNS: 3,
    What.GROWS: 2, What.SHRINKS: 2, What.FAILS_OVER: 2, What.STANDBYS: 2, What.WARMUPS: 1, What.LAG: 1,
}  # fmt: skip
"""Weights of the changes."""

VALUES: Final[dict[What, tuple[int, ...]]] = {
    What.STANDBYS: (0, 1, 2),
    What.WARMUPS: (1, 2, 4),
    What.LAG: (100, 1_000, 10_000),
}
"""Values of the settings that change."""


class Change(NamedTuple):
    """One change in a scenario: of a process, the coordinator or a setting, and when the next change follows.

    The next change follows `calm` ticks after the group has settled or, if `soon` is not 0, `soon` ticks
    after this one, whether the group has settled or not."""

    what: What
    process: str = ""
    value: int = 0
    """Number of members of a started process, or the new value of a setting."""
    calm: int = 0
    """Number of ticks after the group has settled, before the next change."""
    soon: int = 0
    """If not 0, number of ticks after which the next change follows, settled or not."""

    def __str__(self) -> str:
        if self.what in VALUES:
            return f"{self.what.value}: {self.value}"
        members = f", {self.value} members" if self.what is What.STARTS else ""
        return self.what.value.replace("a process", self.process) + members


class Part(NamedTuple):
    """A subtopology of a drawn scenario: `records` has the initial number of changelog records of each of its
    tasks; `stateful` is whether its tasks have state."""

    records: tuple[int, ...]
    stateful: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    """The description of a run: a streams group at its start, and the changes that follow once it is
    stable."""

    seed: int
    parts: tuple[Part, ...]
    processes: dict[str, int]
    """Number of members of each initial process."""
    restores: int
    """Number of records that a copy restores in a tick."""
    writes: int
    """Number of records that a processing task appends to its changelog in a tick."""
    standbys: int = 0
    warmups: int = 2
    """Maximum number of warm-up tasks, by default Kafka's; ignored in a run without warm-ups."""
    lag: int = 10_000
    changes: tuple[Change, ...] = ()

    @property
    def tasks(self) -> int:
        return sum(len(part.records) for part in self.parts)


PATIENCE: Final = 0.8
"""Share of changes after which the group settles before the next one."""


@dataclass(slots=True)
class _Draw:
    """State of drawing the changes of a scenario: the number of members of each process, in `up` of those
    that run, in `down` of those that are stopped and still have a disk."""

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


def draw(seed: int) -> Scenario:
    """Return the scenario that a seed determines."""
    random = Random(seed)
    state = _Draw(random, {})
    for _ in range(random.randint(1, MOST_PROCESSES)):
        state.starts()
    parts = [_part(random, stateful=random.random() < 0.8) for _ in range(random.randint(1, MOST_PARTS))]
    if not any(part.stateful for part in parts):
        parts[0] = _part(random, stateful=True)
    scenario = Scenario(
        seed, tuple(parts), dict(state.up),
        restores=random.choice((5_000, 10_000, 20_000)), writes=random.choice((0, 10, 100)),
        standbys=random.choice((0, 0, 0, 1, 1, 2)), lag=random.choice(VALUES[What.LAG]),
    )  # fmt: skip
    changes = [each for _ in range(random.randint(3, 6)) for each in state.change()]
    changes = [each if random.random() < PATIENCE else _hurried(random, each) for each in changes]
    return replace(scenario, changes=tuple(changes))


def draw_all(count: int = 100) -> list[Scenario]:
    """Return `count` scenarios, those of the seeds from the constant `SEED` on: the same in every call."""
    return [draw(SEED + number) for number in range(count)]


def _hurried(random: Random, change: Change) -> Change:
    """Return the change with a drawn `soon`, so that the next change follows after 1 to 6 ticks even if the
    group has not settled; a change that has `soon` is returned as it is."""
    return change if change.soon else change._replace(soon=random.randint(1, 6))


def _part(random: Random, *, stateful: bool) -> Part:
    count = random.randint(1, MOST_PARTITIONS)
    return Part(tuple(random.randint(0, MOST_RECORDS) if stateful else 0 for _ in range(count)), stateful)
