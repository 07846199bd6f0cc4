"""Accuracy of the pipeline's causes: random group histories with known causes.

The simulator's coordinator records the cause of each decision. Its log, with and without the audit, is
reduced, and the resulting rows are compared with the decisions, cause by cause and member by member.

    recall       share of the actual causes that are reported
    precision    share of the reported causes that are actual ones

A result that names two causes, because the log cannot distinguish them, counts as the actual one; the number
of such results is printed separately. Run `python -m bench.truth --rebalances 10000`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from konvene.groups.consumer import targets
from konvene.groups.streams import targets as tasks
from konvene.pipeline.sweeps.simulated_log import tables_of
from konvene.records.audit import Cause
from konvene.runtime.ports import ExplainedRebalance
from konvene.shard.contract import Rebalance
from konvene.sim.invariants.liveness import check_liveness
from konvene.sim.journal import Batch
from konvene.sim.runs.run import Run
from konvene.sim.world.event import Event, Invariant
from konvene.sim.world.world import MembershipListener, World

KINDS: tuple[tuple[str, ...], ...] = (
    ("classic",), ("static",), ("consumer",), ("consumer-static",), ("migration",), ("streams",), ("share",),
)  # fmt: skip


SETS = (("compaction", "0"), ("fault.clock_step", "0"))
"""Histories with the complete log and one clock: compaction is measured elsewhere, and clocks set back make
timeouts ambiguous."""


class KnownRebalance(NamedTuple):
    """A rebalance as its coordinator decided it."""

    group_id: str
    epoch: int
    offset: int
    """The last record of the decision."""
    causes: tuple[Cause, ...]


@dataclass(slots=True)
class Score:
    """Numbers of actual, reported and correctly reported causes."""

    rebalances: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    """Actual causes that were not reported."""
    invented: Counter[str] = field(default_factory=Counter)
    """Reported causes that are not actual ones."""
    right: int = 0
    ambiguous: int = 0
    """Correctly reported causes that are one of several alternatives."""
    rows_missing: int = 0
    rows_too_many: int = 0

    def __iadd__(self, other: Score) -> Score:
        self.missed += other.missed
        self.invented += other.invented
        for name in ("rebalances", "right", "ambiguous", "rows_missing", "rows_too_many"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    @property
    def precision(self) -> float:
        return self.right / max(self.right + self.invented.total(), 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.right + self.missed.total(), 1)


class _Listens(Invariant):
    """A recorder of each decision, including those that a crash keeps from the audit."""

    def __init__(self) -> None:
        self.decisions: list[tuple[Batch, tuple[Rebalance, ...]]] = []

    def after(self, event: Event) -> None:
        if event.batch is not None and event.outcome is not None and event.outcome.why:
            self.decisions.append((event.batch, event.outcome.why))


class _Audits(MembershipListener):
    def __init__(self) -> None:
        self.explanations: list[ExplainedRebalance] = []

    def explained(self, explained: ExplainedRebalance) -> None:
        self.explanations.append(explained)


def life(run: Run) -> tuple[World, _Listens, _Audits]:
    """Return a random history: its log, the decisions of its coordinator, and its audit."""
    options = run.options()
    heavy = targets.OFFLOAD_WEIGHT, tasks.OFFLOAD_WEIGHT
    targets.OFFLOAD_WEIGHT = tasks.OFFLOAD_WEIGHT = options["heavy"]
    listens, audits = _Listens(), _Audits()
    try:
        world = World(
            Random(f"world {run.seed}"), options, kinds=run.kinds, invariants=(listens,),
            settings=run.settings,
            measure=audits,
        )  # fmt: skip
        world.begin()
        world.chaos(round(run.steps * 0.8))
        check_liveness(world)
    finally:
        targets.OFFLOAD_WEIGHT, tasks.OFFLOAD_WEIGHT = heavy
    return world, listens, audits


def truth(world: World, listens: _Listens, audits: _Audits) -> Iterator[KnownRebalance]:
    """Yield the rebalances that left a record in the log, and superseded generations that only the audit has.
    Rebalances lost in a crash do not count."""
    ends: dict[int, int] = {}
    offset = 0
    for batch in world.log.batches:
        offset += batch.size
        ends[id(batch)] = offset - 1
    unwritten = [((story.rebalance,), -1) for story in audits.explanations if story.base_offset < 0]
    written = [(why, ends[id(batch)]) for batch, why in listens.decisions if id(batch) in ends]
    for why, offset in (*written, *unwritten):
        for group_id, story in why:
            if story.group_type != "classic" and story.state not in ("Assigning", "Empty"):
                continue  # The end of a rebalance repeats the causes of its epochs.
            yield KnownRebalance(group_id, story.epoch, offset, story.causes)


def score(known_rebalances: Iterable[KnownRebalance], rows: Sequence[dict[str, Any]]) -> Score:
    """Compare rows of `rebalance` with the known rebalances."""
    found = Score()
    of_epoch: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        of_epoch.setdefault((row["group_id"], row["to_epoch"]), []).append(row)
    known: dict[tuple[str, int], list[KnownRebalance]] = {}
    for each in known_rebalances:
        known.setdefault((each.group_id, each.epoch), []).append(each)
    for key in sorted({*of_epoch, *known}):
        reported = [row for row in of_epoch.get(key, []) if row["evidence"] != "missing"]
        stories = known.get(key, [])
        found.rebalances += len(stories)
        found.rows_missing += max(len(stories) - len(reported), 0)
        found.rows_too_many += max(len(reported) - len(stories), 0)
        _compare(found, stories, reported)
    return found


def _compare(found: Score, stories: Sequence[KnownRebalance], reported: Sequence[dict[str, Any]]) -> None:
    there = Counter((c.kind, c.member_id) for story in stories for c in story.causes)
    for cause in (cause for row in reported for cause in row["causes"]):
        kinds = cause["kind"].split("|")
        match = next((each for each in _meant(kinds, cause["member_id"]) if there[each] > 0), None)
        if match is None:
            found.invented[cause["kind"]] += 1
            continue
        there[match] -= 1
        found.right += 1
        found.ambiguous += len(kinds) > 1
    for (kind, _), count in there.items():
        found.missed[kind] += count


def _meant(kinds: Sequence[str], member_id: str | None) -> Iterator[tuple[str, str | None]]:
    """Return the causes that count as correct. An administrator removes a member by a LeaveGroup with the
    member's id."""
    for kind in kinds:
        yield kind, member_id
        if kind == "member-left":
            yield "removed-by-admin", member_id


def measure(run: Run) -> tuple[Score, Score]:
    """Score one history, with and without its audit."""
    world, listens, audits = life(run)
    known = list(truth(world, listens, audits))
    scores = []
    for explained in (audits.explanations, ()):
        table = tables_of("sim", world.log.batches, explained).get("rebalance")
        scores.append(score(known, table.to_pylist() if table is not None else []))
    return scores[0], scores[1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.truth", description=__doc__.splitlines()[0])
    parser.add_argument("--rebalances", type=int, default=10_000, help="how many at least, of all kinds")
    parser.add_argument("--steps", type=int, default=5_000)
    arguments = parser.parse_args()
    each = arguments.rebalances // len(KINDS) + 1
    print(
        f"{'':18}{'rebalances':>11} | {'audit: precision':>17}{'recall':>9} | "
        f"{'without: precision':>19}{'recall':>9}{'ambiguous':>11}"
    )
    sums = Score(), Score()
    for kinds in KINDS:
        found = Score(), Score()
        seed = 0
        while found[0].rebalances < each:
            run = Run(seed, kinds, arguments.steps, SETS)
            for total, one in zip(found, measure(run), strict=True):
                total += one
            seed += 1
        _line("+".join(kinds), *found)
        for total, one in zip(sums, found, strict=True):
            total += one
    _line("all", *sums)
    for name, total in zip(("with the audit", "without"), sums, strict=True):
        print(f"{name}: rows missing {total.rows_missing}, too many {total.rows_too_many}")
        print(f"  missed {dict(total.missed.most_common())}, invented {dict(total.invented.most_common())}")
    sys.exit(min(sums[0].precision, sums[0].recall) < 0.99)


def _line(name: str, audit: Score, bare: Score) -> None:
    print(
        f"{name:18}{audit.rebalances:>11,} | {audit.precision:>17.2%}{audit.recall:>9.2%} | "
        f"{bare.precision:>19.2%}{bare.recall:>9.2%}{bare.ambiguous / max(bare.right, 1):>11.1%}"
    )


if __name__ == "__main__":
    main()
