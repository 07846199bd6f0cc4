"""Options of the `konvene sim` commands that run seeds: seeds, group types, steps, parameters and settings.

`--groups` lists group types, each in a run of its own. `classic+static` puts both types into one simulated
world; `mixed` puts all types without server-side assignment into one.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.sim.runs.parallel import Job

__all__ = [
    "INTERRUPTED", "RunPlan", "SeedRange", "Seeds", "jobs_option", "last_seed", "pairs_of", "run_options",
    "seeds_option",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., object])

INTERRUPTED = 130
"""Exit code after Ctrl-C, because 1 means a violated invariant."""
STEPS = {1: 5_000, 2: 20_000}
"""Default number of steps by level."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """A range of seeds, both ends included; `last` is None for an endless range."""

    first: int
    last: int | None

    def __iter__(self) -> Iterator[int]:
        if self.last is None:
            return itertools.count(self.first)
        return iter(range(self.first, self.last + 1))

    @property
    def count(self) -> int | None:
        return None if self.last is None else self.last - self.first + 1


class SeedRange(click.ParamType[Seeds]):
    """Converts `7`, `0..99` or `100..` to `Seeds`; one number is an error if it has meant a count."""

    name = "seeds"

    def __init__(self, *, number_was_count: bool = False) -> None:
        self._number_was_count = number_was_count

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Seeds:
        if isinstance(value, Seeds):
            return value
        found = re.fullmatch(r"(\d+)(?:(\.\.)(\d*))?", str(value).strip())
        if found is None:
            self.fail(f"{value}: write A..B (both included) or A.. (no end).", param, ctx)
        first = int(found[1])
        if self._number_was_count and not found[2]:
            range_of_count = f"0..{max(first - 1, 0)}"
            self.fail(f"{value}: write {range_of_count} for {counted(first, 'seed')}.", param, ctx)
        last = first if not found[2] else int(found[3]) if found[3] else None
        if last is not None and last < first:
            self.fail(f"{value}: the last seed is smaller than the first.", param, ctx)
        return Seeds(first, last)


def seeds_option(default: str | None, *, number_was_count: bool = False) -> Callable[[F], F]:
    """Return a decorator that adds --seeds to a command, passed as `seeds`: `Seeds`, or None without a
    default."""
    return click.option(
        "--seeds",
        type=SeedRange(number_was_count=number_was_count),
        default=default,
        show_default=True,
        metavar="A..B",
        help="Seeds from A to B, both included; A.. has no end.",
    )


def last_seed(seeds: Seeds, command: str) -> int:
    """Return the last seed. Raises UsageError if the range has no end."""
    if seeds.last is None:
        raise click.UsageError(f"--seeds {seeds.first}..: a {command} needs a last seed.")
    return seeds.last


def pairs_of(option: str, texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse `NAME=VALUE` options. Raises UsageError."""
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} {text}: write NAME=VALUE.")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


class RunPlan(NamedTuple):
    """The runs to execute for each seed: the level of the simulation, the combinations of group types, the
    number of steps, and the parameters and broker settings to fix."""

    level: int
    kinds: tuple[tuple[str, ...], ...]
    steps: int
    sets: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]

    def jobs(self, seeds: Iterable[int]) -> Iterator[Job]:
        """Yield a job for each seed and combination of group types."""
        from konvene.sim.runs.parallel import Job
        from konvene.sim.runs.run import Run

        for seed in seeds:
            for kinds in self.kinds:
                yield Job(Run(seed, kinds, self.steps, self.sets, self.settings), self.level)

    def only(self, seed: int) -> Job:
        """Return the job of one seed. Raises UsageError if there are several combinations of group types."""
        if len(self.kinds) > 1:
            raise click.UsageError("--groups: give one group type, or several in one world (classic+static).")
        return next(self.jobs([seed]))


def run_options(command: F) -> F:
    """Add --level, --groups, --steps and --set to a command, passed as the parameter `plan`."""

    @click.option("--groups", default="classic", show_default=True, metavar="KIND[,KIND]",
                  help="Group types, each in a run of its own: classic, static, consumer,"
                       " consumer-static, migration, streams, streams-migration, transactional,"
                       " transactional-consumer."
                       " classic+static, or mixed: in one world. At level 2: transactional, share,"
                       " transactional+share, secured (users with ACLs), or none of them.")  # fmt: skip
    @click.option("--steps", type=click.IntRange(1), metavar="N",
                  help="Approximate number of steps [default: 5000; 20000 at level 2].")  # fmt: skip
    @click.option("--level", type=click.IntRange(1, 2), default=1, show_default=True,
                  help="1: coordinators and members; 2: a broker with sockets and files.")  # fmt: skip
    @click.option("--set", "--config", "sets", multiple=True, metavar="NAME=VALUE",
                  help="A broker setting, or a parameter that the seed would draw (`konvene sim faults`); may"
                       " be repeated.")  # fmt: skip
    @functools.wraps(command)
    def wrapped(
        *args: object, groups: str, steps: int | None, level: int, sets: tuple[str, ...], **kwargs: object
    ) -> object:  # fmt: skip
        pairs = pairs_of("--set", sets)
        plan = RunPlan(
            level,
            _kinds(groups) if level == 1 else _client_types(groups),
            steps or STEPS[level],
            tuple(pair for pair in pairs if _is_parameter(pair[0])),
            tuple(pair for pair in pairs if not _is_parameter(pair[0])),
        )
        _check(plan)
        return command(*args, plan=plan, **kwargs)

    return wrapped  # type: ignore[return-value]


def _is_parameter(name: str) -> bool:
    """Return True for a parameter of the simulator or a fault, False for a broker setting."""
    from konvene.sim.world.faults import ALL_PARAMETERS

    return "." not in name or name.startswith("fault.") or any(name == each.name for each in ALL_PARAMETERS)


def _kinds(text: str) -> tuple[tuple[str, ...], ...]:
    from konvene.sim.members import kinds

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise click.UsageError("--groups: give at least one group type.")
    mixed = tuple(name for name, kind in kinds().items() if not kind.assigned and not kind.transacts)
    return tuple(mixed if word == "mixed" else tuple(word.split("+")) for word in words)


def _client_types(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the combinations in --groups that contain a transactional or share type, or `secured`.

    Without any, returns a single empty combination. For level 2, at which the seed draws all other types.
    """
    from konvene.sim.members import shares, transacts
    from konvene.sim.runs.parallel import SECURED

    def matters(kinds: tuple[str, ...]) -> bool:
        return transacts(kinds) or shares(kinds) or SECURED in kinds

    return tuple(filter(matters, _kinds(text))) or ((),)


def _check(plan: RunPlan) -> None:
    from konvene.sim.runs.parallel import check

    if plan.level == 2:
        if plan.sets or plan.settings:
            raise click.UsageError("--set needs --level 1; at level 2 the seed draws all parameters.")
        return
    for job in plan.jobs([0]):
        try:
            check(job)
        except ValueError as error:
            raise click.UsageError(str(error)) from None


def jobs_option(command: F) -> F:
    """Add --jobs to a command, passed as the parameter `workers`; 0 means one process per processor."""
    return click.option(
        "--jobs", "workers", type=click.IntRange(0), default=0, metavar="N",
        help="Number of processes; 0 (default) means one per processor.",
    )(command)  # fmt: skip
