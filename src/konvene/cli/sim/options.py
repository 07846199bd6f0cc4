"""What the commands of `konvene sim` share: which runs are meant, and in how many processes.

A seed is a number. `--groups classic,static` are runs of their own, one for each kind; `classic+static` is
one run in which both kinds share a world, and `mixed` is another word for it.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from konvene.sim.runs.parallel import Job

__all__ = ["Asked", "Seeds", "jobs_option", "pairs_of", "run_options", "seeds_of"]

F = TypeVar("F", bound=Callable[..., Any])

STEPS = {1: 5_000, 2: 20_000}
"""By level."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds from one to another, both included; no last one: all that there are."""

    first: int
    last: int | None

    def __iter__(self) -> Iterator[int]:
        if self.last is None:
            return itertools.count(self.first)
        return iter(range(self.first, self.last + 1))

    @property
    def count(self) -> int | None:
        return None if self.last is None else self.last - self.first + 1


def seeds_of(text: str) -> Seeds:
    """`7`, `0..99` or `100..`. Raises UsageError."""
    found = re.fullmatch(r"(\d+)(?:(\.\.)(\d*))?", text.strip())
    if found is None:
        raise click.UsageError(f"--seeds {text}: write A..B (both included) or A.. for all from A on.")
    first = int(found[1])
    last = first if not found[2] else int(found[3]) if found[3] else None
    if last is not None and last < first:
        raise click.UsageError(f"--seeds {text}: the last one comes before the first.")
    return Seeds(first, last)


def pairs_of(option: str, texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """`NAME=VALUE` each. Raises UsageError."""
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} {text}: write NAME=VALUE.")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


class Asked(NamedTuple):
    """What is to be run, but for the seed."""

    level: int
    kinds: tuple[tuple[str, ...], ...]
    steps: int
    sets: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]

    def jobs(self, seeds: Iterable[int]) -> Iterator[Job]:
        """Each seed with each kind."""
        from konvene.sim.runs.parallel import Job
        from konvene.sim.runs.run import Run

        for seed in seeds:
            for kinds in self.kinds:
                yield Job(Run(seed, kinds, self.steps, self.sets, self.settings), self.level)

    def only(self, seed: int) -> Job:
        """The one run of this seed. Raises UsageError where several kinds were asked for."""
        if len(self.kinds) > 1:
            raise click.UsageError(
                "--groups: one kind at a time here, or several in one world (classic+static)."
            )
        return next(self.jobs([seed]))


def run_options(command: F) -> F:
    """--level, --groups, --steps, --set, --config: as the parameter `asked`."""

    @click.option("--groups", default="classic", show_default=True, metavar="KIND[,KIND]",
                  help="Kinds of groups, each in a run of its own: classic, static, consumer,"
                       " consumer-static, migration, streams, streams-migration, transactional,"
                       " transactional-consumer."
                       " classic+static, or mixed: in one world. At level 2: transactional, share,"
                       " both with a plus, or the others.")  # fmt: skip
    @click.option("--steps", type=click.IntRange(1), metavar="N",
                  help="Steps before it becomes calm, about [default: 5000; 20000 at level 2].")  # fmt: skip
    @click.option("--level", type=click.IntRange(1, 2), default=1, show_default=True,
                  help="1: coordinators and members; 2: a whole broker, its sockets and files.")  # fmt: skip
    @click.option("--set", "sets", multiple=True, metavar="KNOB=VALUE",
                  help="A knob, instead of what the seed draws; fault.NAME=WEIGHT for a fault. Repeatable."
                       " `konvene sim faults` lists them.")  # fmt: skip
    @click.option("--config", "settings", multiple=True, metavar="NAME=VALUE",
                  help="A setting of the broker. Repeatable.")  # fmt: skip
    @functools.wraps(command)
    def wrapped(
        *args: Any, groups: str, steps: int | None, level: int, sets: tuple[str, ...],
        settings: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        asked = Asked(
            level,
            _kinds(groups) if level == 1 else _of_whole_brokers(groups),
            steps or STEPS[level],
            pairs_of("--set", sets),
            pairs_of("--config", settings),
        )
        _check(asked)
        return command(*args, asked=asked, **kwargs)

    return wrapped  # type: ignore[return-value]


def _kinds(text: str) -> tuple[tuple[str, ...], ...]:
    from konvene.sim.members import kinds

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise click.UsageError("--groups: name at least one kind.")
    mixed = tuple(name for name, kind in kinds().items() if not kind.assigned and not kind.transacts)
    return tuple(mixed if word == "mixed" else tuple(word.split("+")) for word in words)


def _of_whole_brokers(text: str) -> tuple[tuple[str, ...], ...]:
    """Clients of a whole broker are as the seed says, but that some transact or share where that is asked
    for."""
    from konvene.sim.members import shares, transacts

    return tuple(kinds for kinds in _kinds(text) if transacts(kinds) or shares(kinds)) or ((),)


def _check(asked: Asked) -> None:
    from konvene.sim.runs.parallel import check

    if asked.level == 2:
        if asked.sets or asked.settings:
            raise click.UsageError("--set and --config belong to level 1; at level 2 the seed decides.")
        return
    for job in asked.jobs([0]):
        try:
            check(job)
        except ValueError as error:
            raise click.UsageError(str(error)) from None


def jobs_option(command: F) -> F:
    """--jobs, as the parameter `workers`; 0 means one a processor."""
    return click.option(
        "--jobs", "workers", type=click.IntRange(0), default=0, metavar="N",
        help="Processes at a time; 0, the default, is one for each processor.",
    )(command)  # fmt: skip
