"""How many tasks each process may have, so that no move of one task makes two of them more even.

A process has a weight: its members. Of `count` tasks everybody has a fair share where

    tasks / weight  <=  (tasks + 1) / weight      of any process, and of any other

that is, where giving one away would leave the other with as much for each of its members as the giver had.
So no member has two tasks more than another, if each process shares what it has among its members. Shares are
those of D'Hondt: the tasks go, one after another, to whoever has least with one more. Of processes that are
equal in that some have one more than others, which is why a share has a least and a most.

`Level` counts while tasks move. It lets nobody give or take but where that brings all shares nearer with
fewest moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import lcm

__all__ = ["Level", "shares"]


def shares(count: int, weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """The least and the most that each may have of so many."""
    whole, unit = sum(weights), lcm(*set(weights))
    has = [count * weight // whole for weight in weights]
    load = [unit // weight for weight in weights]
    """What one task weighs."""
    top = max(mine * each for mine, each in zip(has, load, strict=True))
    rest = count - sum(has)
    if rest:
        queue = [((mine + 1) * each, at) for at, (mine, each) in enumerate(zip(has, load, strict=True))]
        heapify(queue)
        for _ in range(rest):
            key, at = queue[0]
            top = max(top, key)
            heapreplace(queue, (key + load[at], at))
    most = [top // each for each in load]
    return [n - (n > 0 and n * each == top) for n, each in zip(most, load, strict=True)], most


class Level:
    """Who has how many, and who may give or take."""

    __slots__ = ("count", "least", "most", "over", "under")

    def __init__(self, count: list[int], weights: Sequence[int]) -> None:
        self.count = count
        self.least, self.most = shares(sum(count), weights)
        self._measure()

    def __repr__(self) -> str:
        return f"<Level {self.over} over, {self.under} under>"

    def _measure(self) -> None:
        self.over = sum(n - most for n, most in zip(self.count, self.most, strict=True) if n > most)
        self.under = sum(least - n for n, least in zip(self.count, self.least, strict=True) if n < least)

    @property
    def is_even(self) -> bool:
        return not self.over and not self.under

    def gives(self, one: int) -> bool:
        has, most = self.count[one], self.most[one]
        return has > most or (has == most > self.least[one] and self.under > self.over)

    def takes(self, one: int) -> bool:
        has, least = self.count[one], self.least[one]
        return has < least or (has == least < self.most[one] and self.over > self.under)

    def move(self, giver: int, taker: int) -> None:
        """One task goes from a giver to a taker."""
        has = self.count[giver]
        self.over -= has > self.most[giver]
        self.under += has <= self.least[giver]
        self.count[giver] = has - 1
        has = self.count[taker]
        self.under -= has < self.least[taker]
        self.over += has >= self.most[taker]
        self.count[taker] = has + 1

    def settle(self, expected: Sequence[int]) -> None:
        """Say who is to have one more than the least, so that from now on there is one answer.

        Who has the most already keeps it, as far as there is so much, and first who is `expected` to have it
        by what is under way; then who is expected to get it.
        """
        rest = sum(self.count) - sum(self.least)
        some = [one for one, most in enumerate(self.most) if most > self.least[one]]
        has, most = self.count, self.most
        some.sort(key=lambda one: (has[one] < most[one], expected[one] < most[one], one))
        target = list(self.least)
        for one in some[:rest]:
            target[one] += 1
        self.least = self.most = target
        self._measure()
