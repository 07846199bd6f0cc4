"""A priority queue of members or processes by load, with the order of Java's PriorityQueue among equals.

Java's `PriorityQueue` is a binary heap: elements of equal load do not swap, and of two equal children the
left one moves up. To serve an element is to remove the first one and to add it again with a load higher by
one, which sifts through the heap and is slow in Python. It is avoided while all loads are `min_load` or
`min_load + 1`. The elements with `min_load` then form a tree at the top of the heap. Each step takes the
root, moves elements up along the left, and puts the element that was served before into the node that became
free. Hence elements with `min_load` are

    served in preorder          a node, then its left subtree, then its right subtree
    put back in postorder       the left subtree of a node, then its right subtree, then the node

so the whole sequence, and the heap after each step, are known in advance. The last position of the heap is
not part of the tree: it holds the element served last. If an element with `min_load` is there at the start,
it changes places with the root in the first step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

__all__ = ["Queue"]

SINGLE_FRACTION = 16
"""After an element was skipped, this fraction of the queue (1/16) is served one by one before a row is
planned again: with frequent skips, planning does not pay."""


class Queue:
    """A priority queue of member or process numbers, the least loaded first.

    `load`: the loads by number, which the caller changes: that of the first element between `first` and
    `on_served`, that of others only while they are not in the queue. `has_unit_steps`: all loads are integers
    and rise by 1, so that serving can be planned.
    """

    __slots__ = (
        "has_unit_steps",
        "heap",
        "light_nodes",
        "load",
        "max_load",
        "row",
        "served_count",
        "singles_left",
    )

    def __init__(self, numbers: Iterable[int], load: Sequence[float], *, has_unit_steps: bool = True) -> None:
        self.load, self.has_unit_steps = load, has_unit_steps
        self.heap: list[int] = []
        """The heap before the row was begun."""
        self.row: Sequence[int] = ()
        """The planned sequence of elements to serve; empty if there is none."""
        self.served_count = 0
        """Number of elements of the row that were served."""
        self.light_nodes: tuple[Sequence[int], Sequence[int]] = ((), ())
        """Positions of elements with the minimal load in preorder and in postorder, without the last one."""
        self.singles_left = 0
        """Number of elements to serve one by one before the next row is planned."""
        self.max_load: float = 0
        """Largest load."""
        for number in numbers:
            self.push(number)

    def __len__(self) -> int:
        return len(self.heap)

    def __repr__(self) -> str:
        return f"Queue({len(self)} numbers, {len(self.row) - self.served_count} of them in a row)"

    def first(self) -> int:
        """Return the least loaded element, which is served next; it stays in the queue."""
        if self.served_count < len(self.row):
            return self.row[self.served_count]
        if self.row:
            self._materialize()
        if self.has_unit_steps and not self.singles_left and len(self.heap) > 1:
            min_load = self.load[self.heap[0]]
            if self.max_load - min_load <= 1:
                self._plan_row(min_load)
                return self.row[0]
        return self.heap[0]

    def on_served(self) -> None:
        """Reorder the queue after the first element was served: the caller has raised its load."""
        if self.row:
            self.served_count += 1
        else:
            self.push(self.pop())
            self.singles_left -= self.singles_left > 0

    def skip(self) -> int:
        """Remove and return the first element, whose load stays as it is.

        The caller has to push skipped elements again, the last one first.
        """
        if self.row:
            self._materialize()
        self.singles_left = len(self.heap) // SINGLE_FRACTION
        return self.pop()

    def _plan_row(self, min_load: float) -> None:
        """Plan the row: the sequence in which all elements with the minimal load are served."""
        heap, load = self.heap, self.load
        preorder: Sequence[int]
        postorder: Sequence[int]
        preorder, postorder = _orders(len(heap) - 1)
        if min_load < self.max_load:
            is_light = [load[number] == min_load for number in heap]
            preorder = [node for node in preorder if is_light[node]]
            postorder = [node for node in postorder if is_light[node]]
        row = [heap[node] for node in preorder]
        if load[heap[-1]] == min_load:
            row[:1] = heap[0], heap[-1]
        self.row, self.served_count, self.light_nodes = row, 0, (preorder, postorder)

    def _materialize(self) -> None:
        """Update the heap as if the served elements of the row had been served one by one; drop the row."""
        heap, row, count = self.heap, self.row, self.served_count
        preorder, postorder = self.light_nodes
        self.row, self.served_count = (), 0
        if not count:
            return
        self.max_load = max(self.max_load, self.load[row[0]])
        if len(row) > len(preorder):  # The last element had the minimal load, and is the root now.
            heap[-1], row, count = row[0], row[1:], count - 1
            heap[0] = row[0]
        filled = postorder[:count]
        served = [heap[-1], *row[:count]]
        for node, number in zip(filled, served, strict=False):
            heap[node] = number
        heap[-1] = served[-1]
        if count < len(preorder):
            closed = set(filled)
            unserved = (node for node in preorder if node not in closed)
            for node, number in zip(unserved, row[count:], strict=True):
                heap[node] = number

    def push(self, number: int) -> None:
        """Add an element to the heap."""
        heap, load = self.heap, self.load
        load_of_number = load[number]
        if load_of_number > self.max_load:
            self.max_load = load_of_number
        node = len(heap)
        heap.append(number)
        while node:
            parent = (node - 1) >> 1
            other = heap[parent]
            if load_of_number >= load[other]:
                break
            heap[node] = other
            node = parent
        heap[node] = number

    def pop(self) -> int:
        """Remove and return the first element of the heap."""
        heap, load = self.heap, self.load
        number = heap.pop()
        if not heap:
            return number
        first, own_load, end = heap[0], load[number], len(heap)
        node, left = 0, 1
        while left < end:
            other, right = heap[left], left + 1
            weight = load[other]
            if right < end and weight > load[heap[right]]:
                left, other = right, heap[right]
                weight = load[other]
            if own_load <= weight:
                break
            heap[node] = other
            node = left
            left = 2 * node + 1
        heap[node] = number
        return first


@lru_cache(maxsize=32)
def _orders(size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the nodes of a heap of this size in preorder and in postorder."""
    return tuple(_preorder(size, 1, 2)), tuple(_preorder(size, 2, 1))[::-1]


def _preorder(size: int, first: int, second: int) -> Iterator[int]:
    """Yield the nodes of a heap in preorder. `first`, `second`: order of the children; 1 is left, 2 right."""
    stack = [0]
    while stack:
        node = stack.pop()
        if node < size:
            yield node
            stack += (2 * node + second, 2 * node + first)
