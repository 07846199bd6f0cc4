"""Breadth-first search: every state that can be reached, in the order in which it is found.

States are numbered from 0. Two states with the same key are one. The kernel stores keys, parents, depths and
spontaneous transitions (those that need no fault and no decision of a client). The caller defines states and
their checks; its `expand` visits each successor.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

S = TypeVar("S")

Progress = Callable[[int, int, int], None]
"""Called with the number of states expanded, the number found, and the current depth."""

Stop = Callable[[], bool]
"""Called before each state; returns True to end the search there, as at its limit."""


class BreadthFirstSearch(Generic[S]):
    """A breadth-first search from one state. `expanded` is how many states were expanded, `left` how many
    were found and not expanded yet."""

    def __init__(self, first: S, key: Hashable) -> None:
        self._numbers: dict[Hashable, int] = {key: 0}
        self._queue = deque([first])
        self._sources, self._targets = array("q"), array("q")
        self.parents = array("q", [-1])
        self.depths = array("i", [0])
        self.expanded = 0

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def left(self) -> int:
        return len(self._queue)

    def run(
        self,
        expand: Callable[[int, S], None],
        *,
        limit: int | None = None,
        depth: int | None = None,
        stop: Stop | None = None,
        progress: Progress | None = None,
        progress_interval: int = 2_000,
    ) -> None:
        """Call `expand(number, state)` for each state in the order of discovery, until none is left, `limit`
        states are expanded, the next state is at `depth`, or `stop` returns True."""
        queue = self._queue
        while queue:
            number = self.expanded
            if number == limit or self.depths[number] == depth or (stop is not None and stop()):
                break
            state = queue.popleft()
            self.expanded += 1
            expand(number, state)
            if progress is not None and self.expanded % progress_interval == 0:
                progress(self.expanded, len(self), self.depths[number])

    def visit(self, source: int, state: S, key: Hashable, *, spontaneous: bool) -> tuple[int, bool]:
        """Record a transition from state number `source` to `state`; return the number of the latter, and
        whether it is new."""
        number = self._numbers.get(key)
        is_new = number is None
        if number is None:
            number = self._numbers[key] = len(self.parents)
            self.parents.append(source)
            self.depths.append(self.depths[source] + 1)
            self._queue.append(state)
        if spontaneous:
            self._sources.append(source)
            self._targets.append(number)
        return number, is_new

    def number_of(self, key: Hashable) -> int:
        return self._numbers[key]

    def path_to(self, number: int) -> list[int]:
        """Return the numbers of the states on a shortest path, from the first state on."""
        path = []
        while number >= 0:
            path.append(number)
            number = self.parents[number]
        return path[::-1]

    def spontaneous(self) -> Iterator[tuple[int, int]]:
        """Yield the source and the target of each spontaneous transition."""
        return zip(self._sources, self._targets, strict=True)

    def leading_to(self, settled: Iterable[int]) -> bytearray:
        """Return a byte for each state, by number: 1 if spontaneous transitions lead from it to one of
        `settled`."""
        predecessors: list[list[int]] = [[] for _ in range(len(self))]
        for source, target in self.spontaneous():
            predecessors[target].append(source)
        leads = bytearray(len(self))
        pending = list(settled)
        for number in pending:
            leads[number] = 1
        while pending:
            for source in predecessors[pending.pop()]:
                if not leads[source]:
                    leads[source] = 1
                    pending.append(source)
        return leads
