"""Model check of a small classic group: search of all reachable states, on the production code.

The seeded simulator samples histories; the model checker takes every move from every reachable state. `model`
enumerates the moves, `core` takes each step with the production code and checks the invariants, `symmetry`
merges states that differ in names only. The search is exhaustive within its bounds: two or three clients, a
few partitions, one or two faults.

Each state is also checked against the invariants of clients (`model.check`): a partition has one owner per
generation, clients own what the group assigned, each pending request has one waiter, commits do not go back.
After a complete search every state must lead to a stable one by spontaneous moves, without another fault.

With two faults one violation is known, which the protocol permits: a generation was sent to members but not
stored, the coordinator crashes and creates the same generation again, and a late SyncGroup of the first
leader is accepted for the second one. All members are in the group then, and one of them has no partitions
(`tests/sim/model_check/test_classic.py` replays it).

The first violation is reported with a shortest path. It does not depend on the machine or PYTHONHASHSEED. The
path is replayed for the report, because canonical states rename clients and members.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from konvene.sim.model_check.core import StepCache, ViolatingStep
from konvene.sim.model_check.kernel import BreadthFirstSearch, Progress, Stop
from konvene.sim.model_check.model import RECEIVES, RESPONSE_LOST, Model, Move, check, is_stable, is_timer
from konvene.sim.model_check.report import EVERYONE_SETTLES
from konvene.sim.model_check.scenario import scenario
from konvene.sim.model_check.symmetry import Canonicalizer
from konvene.sim.model_check.values import State, format_request, format_response
from konvene.sim.world.event import InvariantViolation

PROGRESS_INTERVAL = 5_000
"""Number of states between two calls of `progress`."""


@dataclass(frozen=True, slots=True)
class ModelCheckViolation:
    """A violated invariant, and a shortest path to the violation."""

    invariant: str
    why: str
    path: tuple[str, ...]
    scenario: str
    """The path as a scenario (`docs/scenarios.md`)."""

    def lines(self) -> list[str]:
        """Return the violation as lines of text."""
        steps = [f"  {number:2} {step}" for number, step in enumerate(self.path, 1)]
        commands = ["as a scenario:", *(f"  {line}" for line in self.scenario.splitlines())]
        return [f"{self.invariant}: {self.why}", f"after {len(self.path)} steps:", *steps, *commands]


@dataclass(slots=True)
class ModelCheckReport:
    """The result of a model check: its counts, and the first violation."""

    bounds: dict[str, int]
    states: int = 0
    transitions: int = 0
    known: int = 0
    """Transitions to a state that had been found before."""
    renamed: int = 0
    """Those of `known` whose state had been found under other names."""
    depth: int = 0
    stable: int = 0
    """Stable states: see `model.is_stable`."""
    steps: int = 0
    """Distinct steps of the core."""
    seconds: float = 0.0
    left: int = 0
    """States that were found and not expanded, because of `limit`."""
    violation: ModelCheckViolation | None = None
    invariants: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Invariants that the search cannot check, mostly about durations."""
    search: _Search | None = field(default=None, repr=False)

    @property
    def complete(self) -> bool:
        """Return True if all reachable states were expanded."""
        return self.violation is None and not self.left

    def as_dict(self) -> dict[str, object]:
        """Return the report as a document for JSON, without the states."""
        counts = {
            name: getattr(self, name)
            for name in ("states", "transitions", "known", "renamed", "depth", "stable", "steps", "left")
        }
        violation = self.violation
        return {
            "bounds": self.bounds,
            **counts,
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
        """Return the report as lines of text."""
        bounds = ", ".join(f"{name} {value}" for name, value in self.bounds.items())
        lines = [
            bounds,
            f"{self.states} states, {self.transitions} transitions, depth {self.depth}, {self.stable} stable",
            f"{self.known} transitions to known states, {self.renamed} of them under other names",
            f"{self.steps} steps of the core, {len(self.invariants)} invariants checked at each, "
            f"{len(self.left_out)} about durations left out",
            f"{self.seconds:.1f} s, {self._rate(self.states)} states/s, "
            f"{self._rate(self.transitions)} transitions/s",
        ]
        if self.left:
            lines.append(f"not complete: {self.left} states were found and not expanded")
        return lines + (self.violation.lines() if self.violation else ["all invariants held"])

    def export(self, path: str | Path) -> int:
        """Write states and transitions as JSON lines; return the number of lines.

        The first line has the bounds. Then each state follows in the order of its discovery, with its
        transitions:

            {"state": 3, "depth": 2, "stable": false, "faults": 1, "coordinator": {...}, "clients": [...],
             "delayed": [...]}
            {"from": 3, "to": 7, "move": "request arrives", "number": 1, "message": [...], "fault": false,
             "spontaneous": true}

        The fields are those of the classes of `values`. The states are canonical: the group has generation
        10, and clients and members are numbered as `symmetry` describes.
        """
        assert self.search is not None
        with Path(path).open("w", encoding="utf-8") as file:
            count = 0
            for line in self.search.export_lines(self.bounds):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
                count += 1
        return count

    def dot(self) -> str:
        """Return the graph of all states in Graphviz's language; useful for tiny models."""
        assert self.search is not None
        lines = ["digraph model_check {"]
        for source, move, target in self.search.edges():
            style = " style=dashed" if move.fault else ""
            lines.append(f'  {source} -> {target} [label="{move.label} {move.number or ""}"{style}];')
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
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> ModelCheckReport:
    """Check all reachable states of a classic group of `members` clients, of which `static` are static.

    A client is started at most `starts` times, plus once if it is static and once per fault that killed it.
    Each partition is consumed and committed up to offset `records`. At most `limit` states are expanded,
    and none after `stop` has returned True. Raises ValueError for impossible bounds.
    """
    bounds = {
        "members": members, "partitions": partitions, "faults": faults, "static": static, "starts": starts,
        "records": records,
    }  # fmt: skip
    if not 0 <= static <= members or members < 1 or partitions not in range(1, 9) or min(faults, records) < 0:
        raise ValueError(f"no such model: {bounds}")
    report = ModelCheckReport(bounds)
    model = Model(members, partitions, faults, static, starts, records, StepCache(partitions))
    search = report.search = _Search(model, report)
    began_s = time.perf_counter()
    try:
        search.run(limit, stop, progress)
    except _ViolationFound as error:
        report.violation = error.violation
    report.seconds = time.perf_counter() - began_s
    report.states, report.steps = len(search.states), len(model.steps)
    report.invariants = tuple(invariant.__name__ for invariant in model.steps.invariants)
    report.left_out = tuple(invariant.__name__ for invariant in model.steps.left_out)
    return report


class _ViolationFound(Exception):
    def __init__(self, violation: ModelCheckViolation) -> None:
        super().__init__(violation.invariant)
        self.violation = violation


class _Search:
    """The canonical states found so far, and the graph between them."""

    def __init__(self, model: Model, report: ModelCheckReport) -> None:
        self.model, self.report = model, report
        self.symmetry = Canonicalizer(model.static)
        first = self.symmetry.canonical(model.first())
        self.states = [first]
        self.graph = BreadthFirstSearch(first, first)

    def run(self, limit: int | None, stop: Stop | None, progress: Progress | None) -> None:
        """Expand every state, then check that each can settle. Raises `_Found`."""
        graph = self.graph
        graph.run(
            self._expand, limit=limit, stop=stop, progress=progress, progress_interval=PROGRESS_INTERVAL
        )
        self.report.left = graph.left
        self.report.depth = graph.depths[-1]
        self._settle()

    def _expand(self, number: int, state: State) -> None:
        report, graph = self.report, self.graph
        try:
            for move in self.model.moves(state):
                report.transitions += 1
                after = self.symmetry.canonical(move.state)
                is_new = graph.visit(number, after, after, spontaneous=move.spontaneous and not move.fault)[1]
                if is_new:
                    self.states.append(after)
                    check(after)
                else:
                    report.known += 1
                    report.renamed += after != move.state
        except ViolatingStep as violation:
            raise _ViolationFound(self._violation(violation, number)) from violation
        except InvariantViolation as violation:
            last = len(self.states) - 1
            failing = last if graph.parents[last] == number else number
            raise _ViolationFound(self._violation(violation, failing)) from violation

    # --- whether everyone can settle ---

    def _settle(self) -> None:
        """Check that spontaneous moves lead from every state to a stable one. States that were not expanded
        are assumed to lead there."""
        partitions, graph = self.model.partitions, self.graph
        stable = [n for n, state in enumerate(self.states) if is_stable(state, partitions)]
        self.report.stable = len(stable)
        leads = graph.leading_to([*stable, *range(graph.expanded, len(graph))])
        stuck = leads.find(0)
        if stuck >= 0:
            continuing = {source for source, target in graph.spontaneous() if source != target}
            ends = (n for n in range(stuck, len(leads)) if not leads[n] and n not in continuing)
            stuck = next(ends, stuck)
            example = _summary(self.states[stuck])
            why = f"{leads.count(0)} states lead to no stable one by themselves, such as {example}"
            raise _ViolationFound(self._violation(InvariantViolation(EVERYONE_SETTLES, why), stuck))

    # --- the path to a violation ---

    def _violation(self, violation: InvariantViolation, number: int) -> ModelCheckViolation:
        moves, state = self._moves_to(number)
        path = [describe_move(move) for _, move in moves]
        step = self._repeat(state, violation) if isinstance(violation, ViolatingStep) else None
        if step is not None:
            violation = step
            path.append(step.step)
        labelled = ((before, move, describe_move(move)) for before, move in moves)
        return ModelCheckViolation(
            violation.invariant, violation.why, tuple(path), scenario(self.model, labelled, state, step)
        )

    def _repeat(self, state: State, violation: ViolatingStep) -> ViolatingStep:
        """Return the violation that occurs when the moves of `state` are taken again, or else `violation`.

        The new violation has the names of members and clients that the path to `state` uses."""
        try:
            for _ in self.model.moves(state):
                continue
        except ViolatingStep as again:
            return again
        return violation

    def _moves_to(self, number: int) -> tuple[list[tuple[State, Move]], State]:
        """Return each state on the path to state `number` with the move that leaves it, and the last state.
        Clients and members keep their names on the path, unlike in the canonical states."""
        state, moves = self.model.first(), []
        for successor in self.graph.path_to(number)[1:]:
            move = self._move(state, self.states[successor])
            moves.append((state, move))
            state = move.state
        return moves, state

    def _move(self, state: State, target: State) -> Move:
        for move in self.model.moves(state):
            if self.symmetry.canonical(move.state) == target:
                return move
        raise RuntimeError("a move of the search cannot be repeated")

    # --- export ---

    def edges(self) -> Iterator[tuple[int, Move, int]]:
        """Yield each transition of the expanded states, computed anew: number of the source, move, number of
        the target."""
        for source in range(len(self.states) - self.report.left):
            for move in self.model.moves(self.states[source]):
                yield source, move, self.graph.number_of(self.symmetry.canonical(move.state))

    def export_lines(self, bounds: dict[str, int]) -> Iterator[dict[str, object]]:
        """Yield the JSON documents that `ModelCheckReport.export` describes, one for each line."""
        yield {"model": bounds, "states": len(self.states)}
        last = -1
        for source, move, target in self.edges():
            for number in range(last + 1, source + 1):
                yield self._exported_state(number)
            last = max(last, source)
            yield {
                "from": source, "to": target, "move": move.label, "number": move.number,
                "message": move.message, "fault": move.fault, "spontaneous": move.spontaneous,
            }  # fmt: skip
        for number in range(last + 1, len(self.states)):
            yield self._exported_state(number)

    def _exported_state(self, number: int) -> dict[str, object]:
        state = self.states[number]
        coordinator = state.coordinator
        group = coordinator.group
        fields = coordinator._asdict()
        if group:
            fields["group"] = group._asdict() | {"members": [member._asdict() for member in group.members]}
        if coordinator.stored:
            fields["stored"] = coordinator.stored._asdict()
        return {
            "state": number,
            "depth": self.graph.depths[number],
            "stable": is_stable(state, self.model.partitions),
            "faults": state.faults,
            "coordinator": fields,
            "clients": [client._asdict() for client in state.clients],
            "delayed": list(state.delayed),
        }


def describe_move(move: Move) -> str:
    """Return a move as text, such as `client 1: receives response: JoinGroup MEMBER_ID_REQUIRED member=1`."""
    if is_timer(move):
        return f"{move.label} (member {move.number})" if move.number else move.label
    text = f"client {move.number}: {move.label}" if move.number else move.label
    if not move.message:
        return text
    is_response = move.label in (RECEIVES, RESPONSE_LOST)
    message = format_response(move.message) if is_response else format_request(move.message)
    return f"{text}: {message}"


def _summary(state: State) -> str:
    group = state.coordinator.group
    clients = ", ".join(
        f"client {n} {c.phase}" + (f" {c.exchange[0]}" if c.exchange else "")
        for n, c in enumerate(state.clients, 1)
    )
    return f"{group.state if group else 'no group'}; {clients}"
