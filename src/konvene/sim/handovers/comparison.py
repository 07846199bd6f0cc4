"""What warm-ups are good for: a hundred scenarios, with them and without, counted side by side.

    python -m konvene.sim.handovers                      the table
    python -m konvene.sim.handovers --seed 1075          one scenario, both ways
    python -m konvene.sim.handovers --seed 1075 --story  and what happened, tick by tick

The scenarios are drawn from their seeds (`handovers_plan`), their members have disks and changelogs
(`handovers_group`), and the coordinator is the one that serves (`handovers_host`). What is counted is told in
`handovers_run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from konvene.sim.handovers.plan import SEED, Scenario, drawn, drawn_all
from konvene.sim.handovers.run import Outcome, run

__all__ = ["compared", "main", "spoken"]

ROWS = (
    ("cold hand-overs", "cold"),
    ("cold, but nobody had a copy", "unavoidable"),
    ("hand-overs in all", "handovers"),
    ("ticks a task is not processing", "idle"),
    ("ticks until tasks stay and run", "moving"),
    ("ticks until all is settled", "ticks"),
    ("targets", "epochs"),
    ("warm-ups", "warmups"),
    ("settled unevenly", "uneven"),
)


def compared(scenarios: Sequence[Scenario]) -> tuple[Outcome, Outcome]:
    """Run the scenarios without and with warm-ups."""
    without, with_warmups = Outcome(), Outcome()
    for scenario in scenarios:
        without.add(run(scenario, warmups=False))
        with_warmups.add(run(scenario))
    return without, with_warmups


def spoken(without: Outcome, with_warmups: Outcome) -> list[str]:
    """Return the table."""
    lines = [f"{'':<32}{'without':>10}{'with':>10}"]
    for what, name in ROWS:
        before, after = getattr(without, name), getattr(with_warmups, name)
        change = f"{after / before - 1:>+9.0%}" if before else ""
        lines.append(f"{what:<32}{before:>10,}{after:>10,}{change}")
    return lines


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Count cold hand-overs, with warm-ups and without.")
    parser.add_argument("--seed", type=int, help="one scenario alone")
    parser.add_argument("--count", type=int, default=100, help=f"how many, from {SEED} on [%(default)d]")
    parser.add_argument("--story", action="store_true", help="tell what happens in it")
    asked = parser.parse_args(words)
    scenarios = drawn_all(asked.count) if asked.seed is None else [drawn(asked.seed)]
    if asked.story:
        for scenario in scenarios:
            _print(str(scenario))
            for warmups in (False, True):
                _print(f"=== {'with' if warmups else 'without'} warm-ups")
                _print(str(run(scenario, warmups=warmups, tell=_print)))
    _print("\n".join(spoken(*compared(scenarios))))


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
