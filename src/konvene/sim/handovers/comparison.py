"""Comparison of task hand-overs with and without warm-up tasks, over a hundred seeded scenarios.

    python -m konvene.sim.handovers                      the table
    python -m konvene.sim.handovers --seed 1075          one scenario, with and without warm-ups
    python -m konvene.sim.handovers --seed 1075 --trace  with the events of each tick

`plan` draws the scenarios, `application` simulates disks and changelogs, `coordinator` runs the production
shard, and `run` defines the figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from konvene.sim.handovers.plan import SEED, Scenario, draw, draw_all
from konvene.sim.handovers.run import Outcome, run

__all__ = ["compare", "format_table", "main"]

ROWS = (
    ("cold hand-overs", "cold"),
    ("cold, no process caught up", "unavoidable"),
    ("all hand-overs", "handovers"),
    ("ticks of tasks not processing", "idle"),
    ("ticks until tasks stay and run", "moving"),
    ("ticks until settled", "ticks"),
    ("targets", "epochs"),
    ("warm-ups", "warmups"),
    ("settled unevenly", "uneven"),
)


def compare(scenarios: Sequence[Scenario]) -> tuple[Outcome, Outcome]:
    """Run each scenario without and with warm-ups; return the sums of the figures, without and with."""
    without, with_warmups = Outcome(), Outcome()
    for scenario in scenarios:
        without.add(run(scenario, warmups=False))
        with_warmups.add(run(scenario))
    return without, with_warmups


def format_table(without: Outcome, with_warmups: Outcome) -> list[str]:
    """Return the lines of a table with each figure without warm-ups, with them, and its change in percent."""
    lines = [f"{'':<32}{'without':>10}{'with':>10}"]
    for label, name in ROWS:
        before, after = getattr(without, name), getattr(with_warmups, name)
        change = f"{after / before - 1:>+9.0%}" if before else ""
        lines.append(f"{label:<32}{before:>10,}{after:>10,}{change}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: print the table; with `--trace`, print the events of each scenario before it."""
    parser = argparse.ArgumentParser(description="Count cold hand-overs, with warm-ups and without.")
    parser.add_argument("--seed", type=int, help="run only the scenario of this seed")
    parser.add_argument(
        "--count", type=int, default=100, help=f"number of scenarios, from seed {SEED} on [%(default)d]"
    )
    parser.add_argument("--trace", action="store_true", help="print the events of each tick")
    options = parser.parse_args(arguments)
    scenarios = draw_all(options.count) if options.seed is None else [draw(options.seed)]
    if options.trace:
        for scenario in scenarios:
            _print(str(scenario))
            for warmups in (False, True):
                _print(f"=== {'with' if warmups else 'without'} warm-ups")
                _print(str(run(scenario, warmups=warmups, trace=_print)))
    _print("\n".join(format_table(*compare(scenarios))))


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
