"""Accuracy of the pipeline's causes: random group histories with known causes.

The simulator's coordinator records the cause of each decision. Its log, with and without the audit, is
reduced, and the resulting rows are compared with the decisions, cause by cause and member by member.

    recall              share of the actual causes that are reported
    recall, recorded    the same without causes of members that no record names: they joined and departed
                        while a generation was formed
    precision           share of the reported causes that are actual ones

A result that names two causes, because the log cannot distinguish them, counts as the actual one; the shares
of such results are printed as well, and how often a cause without an alternative was wrong. A row may cover
several generations, of which only the last was stored. Run `python -m bench.truth --rebalances 10000`.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, NamedTuple

from konvene.groups.consumer import targets
from konvene.groups.streams import targets as tasks
from konvene.pipeline.reduce.position import MISSING
from konvene.pipeline.reduce.track import SUPERSEDED
from konvene.pipeline.sweeps.simulated_log import tables_of
from konvene.records.audit import Cause
from konvene.runtime.ports import ExplainedRebalance
from konvene.shard.causes import (
    LEADER_REJOINED,
    MEMBER_JOINED,
    MEMBER_LEFT,
    REGEX_REFRESHED,
    REMOVED_BY_ADMIN,
    SUBSCRIPTION_CHANGED,
    UNKNOWN,
)
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
    """The last record of the decision; -1 if it left none."""
    causes: tuple[Cause, ...]
    ended_ms: int = -1


@dataclass(slots=True)
class Score:
    """Numbers of actual, reported and correctly reported causes."""

    rebalances: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    """Actual causes that were not reported."""
    unrecorded: int = 0
    """Those of them whose member no record of the log names."""
    invented: Counter[str] = field(default_factory=Counter)
    """Reported causes that are not actual ones. `unknown` reports nothing and does not count."""
    alone_wrong: Counter[str] = field(default_factory=Counter)
    """Those of them that are reported without an alternative."""
    unjudged: int = 0
    """Reported causes that are neither right nor wrong: see `_WAITING`."""
    right: int = 0
    ambiguous: int = 0
    """Correctly reported causes that are one of several alternatives."""
    named: Counter[int] = field(default_factory=Counter)
    """Rows by the number of alternatives of their strongest cause; 0 if it is unknown."""
    rows_missing: int = 0
    rows_too_many: int = 0

    def __iadd__(self, other: Score) -> Score:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self

    @property
    def precision(self) -> float:
        return self.right / max(self.right + self.invented.total(), 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.right + self.missed.total(), 1)

    @property
    def recorded_recall(self) -> float:
        """Recall among the causes that records can show: those of members that any record names."""
        return self.right / max(self.right + self.missed.total() - self.unrecorded, 1)


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


def life(run: Run, *observers: Invariant) -> tuple[World, _Listens, _Audits]:
    """Return a random history: its log, the decisions of its coordinator, and its audit.

    `observers` are called after each of its events."""
    options = run.options()
    heavy = targets.OFFLOAD_WEIGHT, tasks.OFFLOAD_WEIGHT
    targets.OFFLOAD_WEIGHT = tasks.OFFLOAD_WEIGHT = options["heavy"]
    listens, audits = _Listens(), _Audits()
    try:
        world = World(
            Random(f"world {run.seed}"), options, kinds=run.kinds, invariants=(listens, *observers),
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
    """Yield the rebalances that left a record in the log, and superseded generations that only the audit
    has."""
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
            yield KnownRebalance(group_id, story.epoch, offset, story.causes, story.ended_ms)


def score(
    known_rebalances: Iterable[KnownRebalance],
    rows: Sequence[dict[str, Any]],
    recorded: Container[bytes] | None = None,
) -> Score:
    """Compare rows of `rebalance` with the known rebalances.

    A row may cover several generations: those between its epochs. `recorded` are all strings in records."""
    found = Score()
    reported: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=_place):
        if row["evidence"] != MISSING:
            reported.setdefault(row["group_id"], []).append(row)
    covered: dict[int, list[KnownRebalance]] = {}
    for each in known_rebalances:
        found.rebalances += 1
        match = _row_of(each, reported.get(each.group_id, ()), covered)
        if match is None:
            found.rows_missing += 1
            _count_missed(found, each.causes, recorded)
        else:
            covered.setdefault(id(match), []).append(each)
    for row in (row for some in reported.values() for row in some):
        stories = covered.get(id(row), [])
        found.rows_too_many += not stories
        kinds = row["causes"][0]["kind"].split("|") if row["causes"] else []
        found.named[0 if kinds in ([], [UNKNOWN]) else len(kinds)] += 1
        actual = [cause for story in stories for cause in story.causes]
        _compare(found, actual, row["causes"], recorded)
    return found


def _place(row: Mapping[str, Any]) -> tuple[int, int]:
    """Return the place of a row in its group's history."""
    return row["last_offset"], -1 if row["end_ms"] is None else row["end_ms"]


def _row_of(
    story: KnownRebalance, rows: Sequence[dict[str, Any]], covered: Mapping[int, Sequence[KnownRebalance]]
) -> dict[str, Any] | None:
    """Return the row that reports a rebalance: that of its record, else a free one of its epoch, else the
    first one after it if that covers its epoch."""
    if story.offset >= 0:
        spans = [
            r
            for r in rows
            if r["last_offset"] == story.offset and r["from_epoch"] < story.epoch < r["to_epoch"]
        ]
        before = [r for r in rows if r["to_epoch"] == story.epoch and r["base_offset"] <= story.offset]
        free = [r for r in before if all(each.epoch != story.epoch for each in covered.get(id(r), ()))]
        return spans[-1] if spans else free[-1] if free else None
    superseded = (r for r in rows if r["to_epoch"] == story.epoch and r["state"] == SUPERSEDED)
    own = next((r for r in superseded if r["end_ms"] == story.ended_ms and id(r) not in covered), None)
    if own is not None:
        return own
    after = next((row for row in rows if row["end_ms"] is None or row["end_ms"] >= story.ended_ms), None)
    return after if after is not None and after["from_epoch"] < story.epoch <= after["to_epoch"] else None


def without_lost(known: Iterable[KnownRebalance]) -> list[KnownRebalance]:
    """Return the rebalances that a crash did not undo.

    A generation without a record is lost if its coordinator crashed: the next one begins at the last record,
    so that the group forms the same generation again."""
    kept: list[KnownRebalance] = []
    next_epoch: dict[str, int] = {}
    for each in sorted(known, key=lambda one: one.ended_ms, reverse=True):
        if each.offset >= 0 or each.epoch < next_epoch.get(each.group_id, sys.maxsize):
            next_epoch[each.group_id] = each.epoch
            kept.append(each)
    return kept[::-1]


ANY = "*"
"""Stands for each member in a reported cause, and matches an actual one without a member."""
Key = tuple[str, str | None]
"""The kind of a cause, and the member: by its instance id if it is static."""


_WAITING = (MEMBER_JOINED, SUBSCRIPTION_CHANGED)
"""Changes of a member whose expression is resolved later. The coordinator bumps the epoch then, and its audit
names only the expression. So whether such a cause is right cannot be decided."""


def _key(cause: Cause) -> Key:
    return cause.kind, cause.instance_id or cause.member_id


def _compare(
    found: Score,
    actual: Sequence[Cause],
    reported: Sequence[dict[str, Any]],
    recorded: Container[bytes] | None,
) -> None:
    left = Counter(map(_key, actual))
    for cause in sorted(reported, key=lambda each: (each["kind"].count("|"), each["member_id"] is None)):
        kinds = cause["kind"].split("|")
        if kinds == [UNKNOWN]:
            continue
        meant = set(_meant(kinds, cause.get("instance_id") or cause["member_id"]))
        match = next((key for key, count in left.items() if count > 0 and _matches(key, meant)), None)
        if match is None and kinds[0] in _WAITING and any(c.kind == REGEX_REFRESHED for c in actual):
            found.unjudged += 1
        elif match is None:
            found.invented[cause["kind"]] += 1
            found.alone_wrong[cause["kind"]] += len(kinds) == 1
        else:
            left[match] -= 1
            found.right += 1
            found.ambiguous += len(kinds) > 1
    _count_missed(found, [c for c in actual if _consume(left, _key(c))], recorded)


def _matches(actual: Key, meant: Container[Key]) -> bool:
    """Return whether a reported cause is an actual one. One of them may name no member."""
    kind, member = actual
    return actual in meant or (kind, None) in meant or (member is None and (kind, ANY) in meant)


def _consume(left: Counter[Key], key: Key) -> bool:
    """Return True, and decrement, if the counter has the key."""
    left[key] -= 1
    return left[key] >= 0


def _count_missed(found: Score, missed: Iterable[Cause], recorded: Container[bytes] | None) -> None:
    for cause in missed:
        found.missed[cause.kind] += 1
        if recorded is not None and cause.member_id is not None:
            found.unrecorded += cause.member_id.encode() not in recorded


def _meant(kinds: Sequence[str], member: str | None) -> Iterator[Key]:
    """Yield the causes that count as correct.

    The leader is implied by the kind. An administrator removes a member by a LeaveGroup with the member's
    id."""
    for kind in kinds:
        yield kind, None if kind == LEADER_REJOINED else member
        yield kind, ANY
        if kind == MEMBER_LEFT:
            yield REMOVED_BY_ADMIN, member


def measure(run: Run) -> tuple[Score, Score]:
    """Score one history, with and without its audit."""
    world, listens, audits = life(run)
    known = list(truth(world, listens, audits))
    parts = (part or b"" for batch in world.log.batches for pair in batch.pairs for part in pair)
    recorded = {text for part in parts for text in re.findall(rb"[\w.-]+", part)}
    scores = []
    for explained in (audits.explanations, ()):
        table = tables_of("sim", world.log.batches, explained).get("rebalance")
        rows = table.to_pylist() if table is not None else []
        scores.append(score(known if explained else without_lost(known), rows, recorded))
    return scores[0], scores[1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.truth", description=__doc__.splitlines()[0])
    parser.add_argument("--rebalances", type=int, default=10_000, help="how many at least, of all kinds")
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/explain.md only")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # The simulated disks fail on purpose.
    each = arguments.rebalances // len(KINDS) + 1
    lines, sums = [], (Score(), Score())
    for kinds in KINDS:
        found = Score(), Score()
        seed = 0
        while found[0].rebalances < each:
            run = Run(seed, kinds, arguments.steps, SETS)
            for total, one in zip(found, measure(run), strict=True):
                total += one
            seed += 1
        lines.append(_line("+".join(kinds), *found))
        for total, one in zip(sums, found, strict=True):
            total += one
    lines.append(_line("all", *sums))
    _print(lines, markdown=arguments.markdown)
    for name, total in zip(("with the audit", "without"), sums, strict=True):
        if not arguments.markdown:
            print(f"{name}: rows missing {total.rows_missing}, too many {total.rows_too_many}")
            print(f"  missed {dict(total.missed.most_common())},")
            print(f"  of them {total.unrecorded} of members that no record names")
            print(f"  invented {dict(total.invented.most_common())}")
    bare = sums[1]
    is_wrong = bool(+bare.alone_wrong) or bare.precision < 0.95 or bare.recall < 0.85
    sys.exit(is_wrong or min(sums[0].precision, sums[0].recall) < 0.99)


COLUMNS = (
    "Groups", "Rebalances", "Precision, audit", "Recall, audit", "Precision", "Recall", "Recall, recorded",
    "One cause", "Two", "Three or more", "None", "One, wrong",
)  # fmt: skip
"""Precision and recall with and without the audit; recall among the causes that records can show; shares of
rows by the number of alternatives that they name; rows whose only cause is wrong."""


def _line(name: str, audit: Score, bare: Score) -> tuple[str, ...]:
    rows = bare.named.total()
    more = sum(count for alternatives, count in bare.named.items() if alternatives > 2)
    return (
        name, f"{audit.rebalances:,}", _percent(audit.precision), _percent(audit.recall),
        _percent(bare.precision), _percent(bare.recall), _percent(bare.recorded_recall),
        *(_percent(count / max(rows, 1)) for count in (bare.named[1], bare.named[2], more, bare.named[0])),
        str(bare.alone_wrong.total()),
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _print(lines: Sequence[tuple[str, ...]], *, markdown: bool) -> None:
    """Print the table, in Markdown or aligned."""
    if markdown:
        for line in (COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1)), *lines):
            print(f"| {' | '.join(line)} |")
        return
    widths = [max(map(len, column)) for column in zip(COLUMNS, *lines, strict=True)]
    for line in (COLUMNS, *lines):
        print("  ".join(f"{text:>{width}}" for text, width in zip(line, widths, strict=True)))


if __name__ == "__main__":
    main()
