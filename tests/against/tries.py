"""Who is tried once more begins anew: with names of its own, and with plays of its own."""

import os
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import pytest

Name = TypeVar("Name", bound=Hashable)
Played = TypeVar("Played")

WITHIN_S = 600


def tried(request: pytest.FixtureRequest) -> int:
    """How often the test was begun."""
    return int(getattr(request.node, "execution_count", 1))


def own_name(request: pytest.FixtureRequest, most: int = 200) -> str:
    """A name that nothing else has: the test's, with what tells its process and its try from others."""
    words = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_"))
    return f"{words.strip('-')[:most].strip('-')}-{os.getpid()}-{tried(request)}"


class Plays(Generic[Name, Played]):
    """Long plays that many tests ask about: each is played once, some at a time, and what came of it is told
    to all who ask, be it a failure. `play` is told what to play, and what to add to its names."""

    def __init__(self, play: Callable[[Name, str], Played], at_once: int) -> None:
        self._play = play
        self._pool = ThreadPoolExecutor(at_once)
        self._played: dict[Name, Future[Played]] = {}
        self._again: set[tuple[str, int]] = set()
        """For whom something was played again."""

    def begin(self, names: Iterable[Name]) -> None:
        for name in names:
            if name not in self._played:
                self._played[name] = self._pool.submit(self._play, name, "")

    def of(self, name: Name, request: pytest.FixtureRequest) -> Played:
        """What came of it. For a test that failed and is tried once more it is played once more."""
        asks = (request.node.nodeid, tried(request))
        if tried(request) > 1 and asks not in self._again:
            self._again.add(asks)
            self._played[name] = self._pool.submit(self._play, name, f"-again-{len(self._again)}")
        self.begin([name])
        return self._played[name].result(WITHIN_S)

    def end(self) -> None:
        self._pool.shutdown(cancel_futures=True)
