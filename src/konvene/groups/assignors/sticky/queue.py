"""A queue of those who wait for tasks, the least loaded first, and among equals who is first with Java's.

Java's `PriorityQueue` is a binary heap. What is as heavy as another stays where it is, and of two children
that weigh the same the left one goes up. Taking the first and adding it again, heavier by one, costs a way
down the heap; that is slow here, and often not needed. Where all weigh `low` or `low + 1`, the light ones are
a tree at the top of the heap, of which each step takes the root, moves up along the left, and puts the one
served before into the node that came free. So the light ones are served

    in preorder                 a node, then what is left below it, then what is right below it
    and fill in postorder       what is left below a node, then what is right below it, then the node

and the whole row of those to be served is known at once, and so is the heap after any number of them. The
last place of the heap is no node of the tree: it holds the one served last. If a light one is there when the
row begins, it changes places with the root in the first step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

__all__ = ["Queue"]

MANY = 16
"""After somebody was passed over, a part of the queue is served singly: one in so many. If somebody is passed
over all the time, looking for rows is not worth it."""


class Queue:
    """Numbers by load. The load of the first may go up between `first` and `served`, or while it is not
    in the queue.

    Where the queue is `even`, loads are whole numbers and go up by 1.
    """

    __slots__ = ("at", "even", "heap", "load", "nodes", "row", "singly", "top")

    def __init__(self, numbers: Iterable[int], load: Sequence[float], *, even: bool = True) -> None:
        self.load, self.even = load, even
        self.heap: list[int] = []
        """As it was before the row began."""
        self.row: Sequence[int] = ()
        """Who is served, one after another, as far as it is known."""
        self.at = 0
        """How many of the row were served."""
        self.nodes: tuple[Sequence[int], Sequence[int]] = ((), ())
        """The places of the light ones in preorder and in postorder, but for the last place of the heap."""
        self.singly = 0
        """How many are to be served before a row is looked for."""
        self.top: float = 0
        """The largest load."""
        for number in numbers:
            self.push(number)

    def __len__(self) -> int:
        return len(self.heap)

    def __repr__(self) -> str:
        return f"Queue({len(self)} numbers, {len(self.row) - self.at} of them in a row)"

    def first(self) -> int:
        """Who is served next."""
        if self.at < len(self.row):
            return self.row[self.at]
        if self.row:
            self._settle()
        if self.even and not self.singly and len(self.heap) > 1:
            low = self.load[self.heap[0]]
            if self.top - low <= 1:
                self._line_up(low)
                return self.row[0]
        return self.heap[0]

    def served(self) -> None:
        """The first was served."""
        if self.row:
            self.at += 1
        else:
            self.push(self.pop())
            self.singly -= self.singly > 0

    def skip(self) -> int:
        """Take the first out. Whoever is not the last one to be taken out is pushed again after those
        that follow."""
        if self.row:
            self._settle()
        self.singly = len(self.heap) // MANY
        return self.pop()

    def _line_up(self, low: float) -> None:
        """Set the members that are served before any is served twice."""
        heap, load = self.heap, self.load
        preorder: Sequence[int]
        postorder: Sequence[int]
        preorder, postorder = _orders(len(heap) - 1)
        if low < self.top:
            is_light = [load[number] == low for number in heap]
            preorder = [place for place in preorder if is_light[place]]
            postorder = [place for place in postorder if is_light[place]]
        row = [heap[place] for place in preorder]
        if load[heap[-1]] == low:
            row[:1] = heap[0], heap[-1]
        self.row, self.at, self.nodes = row, 0, (preorder, postorder)

    def _settle(self) -> None:
        """Make the heap what it is after those that were served, and forget the row."""
        heap, row, count = self.heap, self.row, self.at
        preorder, postorder = self.nodes
        self.row, self.at = (), 0
        if not count:
            return
        self.top = max(self.top, self.load[row[0]])
        if len(row) > len(preorder):  # the last one was light, and is in the place of the root now
            heap[-1], row, count = row[0], row[1:], count - 1
            heap[0] = row[0]
        filled = postorder[:count]
        served = [heap[-1], *row[:count]]
        for place, number in zip(filled, served, strict=False):
            heap[place] = number
        heap[-1] = served[-1]
        if count < len(preorder):
            closed = set(filled)
            light = (place for place in preorder if place not in closed)
            for place, number in zip(light, row[count:], strict=True):
                heap[place] = number

    def push(self, number: int) -> None:
        """Add one: it goes up past what is heavier."""
        heap, load = self.heap, self.load
        own = load[number]
        if own > self.top:
            self.top = own
        at = len(heap)
        heap.append(number)
        while at:
            above = (at - 1) >> 1
            other = heap[above]
            if own >= load[other]:
                break
            heap[at] = other
            at = above
        heap[at] = number

    def pop(self) -> int:
        """Take the first: the last one takes its place, and goes down past what is lighter."""
        heap, load = self.heap, self.load
        number = heap.pop()
        if not heap:
            return number
        first, own, end = heap[0], load[number], len(heap)
        at, left = 0, 1
        while left < end:
            other, right = heap[left], left + 1
            weight = load[other]
            if right < end and weight > load[heap[right]]:
                left, other = right, heap[right]
                weight = load[other]
            if own <= weight:
                break
            heap[at] = other
            at = left
            left = 2 * at + 1
        heap[at] = number
        return first


@lru_cache(maxsize=32)
def _orders(size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The nodes of a heap of this size in preorder and in postorder."""
    return tuple(_preorder(size, 1, 2)), tuple(_preorder(size, 2, 1))[::-1]


def _preorder(size: int, first: int, then: int) -> Iterator[int]:
    """A node, then what is below its first child, then what is below the other; 1 is left and 2 is right."""
    waiting = [0]
    while waiting:
        place = waiting.pop()
        if place < size:
            yield place
            waiting += (2 * place + then, 2 * place + first)
