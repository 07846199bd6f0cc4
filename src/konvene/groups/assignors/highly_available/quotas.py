"""Quotas of tasks per process, such that no move of a single task improves the balance.

The weight of a process is its number of members. A distribution is fair if for any two processes a and b

    tasks(a) / weight(a)  <=  (tasks(b) + 1) / weight(b)

A move from a to b would then leave b with at least the load per member that a had. It follows that no member
has two tasks more than another, if each process divides its tasks evenly among its members. The quotas are
those of the D'Hondt method: tasks go one by one to the process that has the lowest load with one more. At a
tie some processes get one task more than others, so a quota has a minimum and a maximum.

`Balance` tracks the counts while tasks move, and permits only moves on a shortest path to the quotas.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import lcm

__all__ = ["Balance", "fair_quotas"]


def fair_quotas(count: int, weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the minimum and the maximum quota of each process, for `count` tasks in total.

    `weights`: the number of members of each process. The two quotas of a process differ by at most one.
    """
    total_weight, unit = sum(weights), lcm(*set(weights))
    tasks = [count * weight // total_weight for weight in weights]
    load = [unit // weight for weight in weights]
    """Load per member that one task adds to a process, in integer units."""
    max_load = max(n * each for n, each in zip(tasks, load, strict=True))
    remaining = count - sum(tasks)
    if remaining:
        heap = [((n + 1) * each, process) for process, (n, each) in enumerate(zip(tasks, load, strict=True))]
        heapify(heap)
        for _ in range(remaining):
            key, process = heap[0]
            max_load = max(max_load, key)
            heapreplace(heap, (key + load[process], process))
    most = [max_load // each for each in load]
    return [n - (n > 0 and n * each == max_load) for n, each in zip(most, load, strict=True)], most


class Balance:
    """A counter of tasks per process, which permits only moves of tasks towards fair quotas."""

    __slots__ = ("counts", "max_quota", "min_quota", "over", "under")

    def __init__(self, counts: list[int], weights: Sequence[int]) -> None:
        self.counts = counts
        self.min_quota, self.max_quota = fair_quotas(sum(counts), weights)
        self._count_imbalance()

    def __repr__(self) -> str:
        return f"<Balance {self.over} over, {self.under} under>"

    def _count_imbalance(self) -> None:
        self.over = sum(n - quota for n, quota in zip(self.counts, self.max_quota, strict=True) if n > quota)
        self.under = sum(quota - n for n, quota in zip(self.counts, self.min_quota, strict=True) if n < quota)

    @property
    def is_even(self) -> bool:
        return not self.over and not self.under

    def may_give(self, process: int) -> bool:
        """Return whether the process may give a task away.

        It may if it has more tasks than its maximum quota; also if it has exactly that many, as long as the
        processes with too few tasks lack more than those with too many can give.
        """
        tasks, max_quota = self.counts[process], self.max_quota[process]
        return tasks > max_quota or (tasks == max_quota > self.min_quota[process] and self.under > self.over)

    def may_take(self, process: int) -> bool:
        """Return whether the process may take another task.

        It may if it has fewer tasks than its minimum quota; also if it has exactly that many, as long as the
        processes with too many tasks have more to give than those with too few lack.
        """
        tasks, min_quota = self.counts[process], self.min_quota[process]
        return tasks < min_quota or (tasks == min_quota < self.max_quota[process] and self.over > self.under)

    def move(self, source: int, target: int) -> None:
        """Update the counts for the move of a task from `source`, which may give one, to `target`."""
        tasks = self.counts[source]
        self.over -= tasks > self.max_quota[source]
        self.under += tasks <= self.min_quota[source]
        self.counts[source] = tasks - 1
        tasks = self.counts[target]
        self.under -= tasks < self.min_quota[target]
        self.over += tasks >= self.max_quota[target]
        self.counts[target] = tasks + 1

    def fix_quotas(self, expected: Sequence[int]) -> None:
        """Set the quota of each process to its minimum or maximum, such that all tasks are assigned.

        The maximum goes first to processes that have that many tasks already, then to those that will have
        according to `expected`: the numbers of tasks when the ongoing warm-ups have ended.
        """
        remaining = sum(self.counts) - sum(self.min_quota)
        counts, most = self.counts, self.max_quota
        candidates = [p for p, quota in enumerate(most) if quota > self.min_quota[p]]
        candidates.sort(key=lambda p: (counts[p] < most[p], expected[p] < most[p], p))
        quotas = list(self.min_quota)
        for process in candidates[:remaining]:
            quotas[process] += 1
        self.min_quota = self.max_quota = quotas
        self._count_imbalance()
