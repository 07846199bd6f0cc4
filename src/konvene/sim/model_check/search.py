"""All that can happen to a small group: breadth-first, on the real core.

Where the seeded simulator draws one history after another, this one takes every step that there is from every
state that there is, until nothing new comes. `model` says what can happen, `core` makes each
step with the code that serves and holds the invariants against it, `names` makes one state of those
that differ by names. So nothing is left to chance, and what is left out is the size: two or three clients, a
handful of partitions, one or two faults.

In every state the clients' own invariants hold as well (`model.check`): no partition has two owners in
one generation, clients have what the group says, each question waits in one place, commits do not go back.
When the search is over, whoever has to settle can: from every state a stable one is reached by what happens
by itself, without a fault and without anybody wanting anything.

With two faults one violation is known, and it is the protocol's: a generation that was told and not stored is
made again after the coordinator died, and what the leader of the first one says late is taken for the second.
Everybody is in then, and somebody has nothing (`tests/sim/model_check/test_classic.py` plays it).

The first violation found has a shortest path, and is told step by step. It is the same on every machine and
under every PYTHONHASHSEED. Still ugly: a path is told by walking it again, because names change on the way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from konvene.sim.model_check.core import Steps, ViolatingStep
from konvene.sim.model_check.kernel import BreadthFirstSearch, Progress
from konvene.sim.model_check.model import Model, Move, check, is_stable
from konvene.sim.model_check.report import EVERYONE_SETTLES
from konvene.sim.model_check.scenario import scenario
from konvene.sim.model_check.symmetry import Names
from konvene.sim.model_check.values import State, hears, is_request
from konvene.sim.world.event import InvariantViolation

PROGRESS_INTERVAL = 5_000
"""Number of states between two calls of `progress`."""


@dataclass(frozen=True, slots=True)
class ModelCheckViolation:
    """An invariant that was violated, and a shortest way there."""

    invariant: str
    why: str
    path: tuple[str, ...]
    scenario: str
    """The same way in the language of `docs/scenarios.md`."""

    def lines(self) -> list[str]:
        steps = [f"  {number:2} {step}" for number, step in enumerate(self.path, 1)]
        played = ["the same as a scenario:", *(f"  {line}" for line in self.scenario.splitlines())]
        return [f"{self.invariant}: {self.why}", f"after {len(self.path)} steps:", *steps, *played]


@dataclass(slots=True)
class ModelCheckReport:
    """What a search found."""

    bounds: dict[str, int]
    states: int = 0
    transitions: int = 0
    known: int = 0
    """Transitions to a state that was known already."""
    renamed: int = 0
    """Of these, those to a state that was known under other names."""
    depth: int = 0
    stable: int = 0
    """States in which everybody has settled."""
    steps: int = 0
    """Steps of the core that differ; each was made once."""
    seconds: float = 0.0
    left: int = 0
    """States that were found and not looked at, because of `limit`."""
    violation: ModelCheckViolation | None = None
    invariants: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Invariants that remember what a search does not: how long something takes, mostly."""
    search: _Search | None = field(default=None, repr=False)

    @property
    def complete(self) -> bool:
        """Whether all was looked at."""
        return self.violation is None and not self.left

    def as_dict(self) -> dict[str, Any]:
        """Everything but the states, for JSON."""
        found = {
            name: getattr(self, name)
            for name in ("states", "transitions", "known", "renamed", "depth", "stable", "steps", "left")
        }
        violation = self.violation
        return {
            "bounds": self.bounds,
            **found,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "states_per_second": self._rate(self.states),
            "transitions_per_second": self._rate(self.transitions),
            "invariants": list(self.invariants),
            "left_out": list(self.left_out),
            "violation": None
            if violation is None
            else {
                "invariant": violation.invariant,
                "why": violation.why,
                "path": list(violation.path),
                "scenario": violation.scenario,
            },
        }

    def _rate(self, number: int) -> int:
        return round(number / self.seconds) if self.seconds else 0

    def lines(self) -> list[str]:
        """For people."""
        bounds = ", ".join(f"{name} {value}" for name, value in self.bounds.items())
        told = [
            bounds,
            f"{self.states} states, {self.transitions} transitions, depth {self.depth}, {self.stable} stable",
            f"{self.known} transitions to known states, {self.renamed} of them under other names",
            f"{self.steps} steps of the core, {len(self.invariants)} invariants checked at each, "
            f"{len(self.left_out)} that are about time left out",
            f"{self.seconds:.1f} s, {self._rate(self.states)} states/s, "
            f"{self._rate(self.transitions)} transitions/s",
        ]
        if self.left:
            told.append(f"not complete: {self.left} states were found and not looked at")
        return told + (self.violation.lines() if self.violation else ["all invariants held"])

    def export(self, path: str | Path) -> int:
        """Write states and transitions as JSON lines; how many lines.

        The first line has the bounds. Then each state in the order in which it was found, followed by its
        transitions:

            {"state": 3, "depth": 2, "stable": false, "faults": 1, "coordinator": {...}, "clients": [...],
             "late": [...]}
            {"from": 3, "to": 7, "move": "...", "who": 1, "fault": false,
             "spontaneous": true}

        Fields are those of `words`, without abbreviation; generations are relative to the group's,
        which is called 10; clients and members have the numbers of the one state that stands for all alike.
        """
        assert self.search is not None
        with Path(path).open("w", encoding="utf-8") as file:
            count = 0
            for line in self.search.written(self.bounds):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
                count += 1
        return count

    def dot(self) -> str:
        """The graph for Graphviz; of use for tiny models only."""
        assert self.search is not None
        lines = ["digraph model_check {"]
        for at, move, to in self.search.edges():
            style = " style=dashed" if move.fault else ""
            lines.append(f'  {at} -> {to} [label="{move.what} {move.who or ""}"{style}];')
        return "\n".join([*lines, "}"])


def check_model(
    members: int = 2,
    partitions: int = 2,
    faults: int = 1,
    static: int = 0,
    *,
    starts: int = 1,
    records: int = 1,
    limit: int | None = None,
    progress: Progress | None = None,
) -> ModelCheckReport:
    """Look at all that can happen to `members` clients, of whom `static` have an instance id.

    Each client is started at most `starts` times, a static one once more, and once more for each time that it
    died by a fault; each partition is read and committed up to `records`. `limit` bounds the states that are
    looked at. Raises ValueError for bounds that make no model.
    """
    bounds = {
        "members": members, "partitions": partitions, "faults": faults, "static": static, "starts": starts,
        "records": records,
    }  # fmt: skip
    if not 0 <= static <= members or members < 1 or partitions not in range(1, 9) or min(faults, records) < 0:
        raise ValueError(f"there is no such model: {bounds}")
    report = ModelCheckReport(bounds)
    model = Model(members, partitions, faults, static, starts, records, Steps(partitions))
    search = report.search = _Search(model, report)
    began_s = time.perf_counter()
    try:
        search.run(limit, progress)
    except _Found as found:
        report.violation = found.violation
    report.seconds = time.perf_counter() - began_s
    report.states, report.steps = len(search.states), len(model.steps)
    report.invariants = tuple(made.__name__ for made in model.steps.invariants)
    report.left_out = tuple(made.__name__ for made in model.steps.left_out)
    return report


class _Found(Exception):
    def __init__(self, violation: ModelCheckViolation) -> None:
        super().__init__(violation.invariant)
        self.violation = violation


class _Search:
    """The states that were found, in canonical names, and the graph between them."""

    def __init__(self, model: Model, report: ModelCheckReport) -> None:
        self.model, self.report = model, report
        self.names = Names(model.static)
        first = self.names.canonical(model.first())
        self.states = [first]
        self.graph = BreadthFirstSearch(first, first)

    def run(self, limit: int | None, progress: Progress | None) -> None:
        """Expand every state, then check that each can settle. Raises `_Found`."""
        graph = self.graph
        graph.run(self._expand, limit=limit, progress=progress, progress_interval=PROGRESS_INTERVAL)
        self.report.left = graph.left
        self.report.depth = graph.depths[-1]
        self._settle()

    def _expand(self, number: int, state: State) -> None:
        report, graph = self.report, self.graph
        try:
            for move in self.model.moves(state):
                report.transitions += 1
                after = self.names.canonical(move.state)
                is_new = graph.visit(number, after, after, spontaneous=move.spontaneous and not move.fault)[1]
                if is_new:
                    self.states.append(after)
                    check(after)
                else:
                    report.known += 1
                    report.renamed += after != move.state
        except ViolatingStep as violation:
            raise _Found(self._violation(violation, number)) from violation
        except InvariantViolation as violation:
            last = len(self.states) - 1
            at = last if graph.parents[last] == number else number
            raise _Found(self._violation(violation, at)) from violation

    # --- whether everyone can settle ---

    def _settle(self) -> None:
        """Check that every state leads to a stable one. States that were not expanded count as if they
        did."""
        partitions, graph = self.model.partitions, self.graph
        stable = [n for n, state in enumerate(self.states) if is_stable(state, partitions)]
        self.report.stable = len(stable)
        leads = graph.leading_to([*stable, *range(graph.expanded, len(graph))])
        stuck = leads.find(0)
        if stuck >= 0:
            continuing = {source for source, target in graph.spontaneous() if source != target}
            ends = (n for n in range(stuck, len(leads)) if not leads[n] and n not in continuing)
            stuck = next(ends, stuck)
            example = _short(self.states[stuck])
            why = f"{leads.count(0)} states lead to no stable one by themselves, such as {example}"
            raise _Found(self._violation(InvariantViolation(EVERYONE_SETTLES, why), stuck))

    # --- the path to a violation ---

    def _violation(self, violation: InvariantViolation, at: int) -> ModelCheckViolation:
        moves, state = self._moves_to(at)
        path = [sentence(move) for _, move in moves]
        step = self._repeat(state, violation) if isinstance(violation, ViolatingStep) else None
        if step is not None:
            violation = step
            path.append(step.step)
        labelled = ((before, move, sentence(move)) for before, move in moves)
        return ModelCheckViolation(
            violation.invariant, violation.why, tuple(path), scenario(self.model, labelled, state, step)
        )

    def _repeat(self, state: State, violation: ViolatingStep) -> ViolatingStep:
        """Return the violating step of `state`, taken again under the names of its path."""
        try:
            for _ in self.model.moves(state):
                continue
        except ViolatingStep as again:
            return again
        return violation

    def _moves_to(self, at: int) -> tuple[list[tuple[State, Move]], State]:
        """Return each state on the path to `at` with the move that leaves it, and the last state. Clients and
        members keep their names on the path, unlike in the canonical states."""
        state, moves = self.model.first(), []
        for number in self.graph.path_to(at)[1:]:
            move = self._move(state, self.states[number])
            moves.append((state, move))
            state = move.state
        return moves, state

    def _move(self, state: State, target: State) -> Move:
        for move in self.model.moves(state):
            if self.names.canonical(move.state) == target:
                return move
        raise RuntimeError("a move of the search cannot be repeated")

    # --- export ---

    def edges(self) -> Iterator[tuple[int, Move, int]]:
        """Yield all transitions of the expanded states, which are taken again."""
        for at in range(len(self.states) - self.report.left):
            for move in self.model.moves(self.states[at]):
                yield at, move, self.graph.number_of(self.names.canonical(move.state))

    def written(self, bounds: dict[str, int]) -> Iterator[dict[str, Any]]:
        yield {"model": bounds, "states": len(self.states)}
        last = -1
        for at, move, to in self.edges():
            for number in range(last + 1, at + 1):
                yield self._written(number)
            last = max(last, at)
            yield {
                "from": at, "to": to, "move": move.what, "who": move.who, "said": move.said,
                "fault": move.fault, "spontaneous": move.spontaneous,
            }  # fmt: skip
        for number in range(last + 1, len(self.states)):
            yield self._written(number)

    def _written(self, number: int) -> dict[str, Any]:
        state = self.states[number]
        coordinator = state.coordinator
        group = coordinator.group
        told = coordinator._asdict()
        if group:
            told["group"] = group._asdict() | {"seats": [seat._asdict() for seat in group.seats]}
        if coordinator.stored:
            told["stored"] = coordinator.stored._asdict()
        return {
            "state": number,
            "depth": self.graph.depths[number],
            "stable": is_stable(state, self.model.partitions),
            "faults": state.faults,
            "coordinator": told,
            "clients": [client._asdict() for client in state.clients],
            "late": list(state.late),
        }


def sentence(move: Move) -> str:
    """A step in words, such as `client 1 hears: JoinGroup MEMBER_ID_REQUIRED member=1`."""
    if "timer" in move.what:
        return f"{move.what} (member {move.who})" if move.who else move.what
    what = f"client {move.who} {move.what}" if move.who else move.what
    if not move.said:
        return what
    said = hears(move.said) if move.what in ("hears", "does not hear") else is_request(move.said)
    return f"{what}: {said}"


def _short(state: State) -> str:
    group = state.coordinator.group
    clients = ", ".join(
        f"client {n} {c.phase}" + (f" {c.slot[0]}" if c.slot else "") for n, c in enumerate(state.clients, 1)
    )
    return f"{group.state if group else 'no group'}; {clients}"
