"""Retries of a test start from scratch: with names of their own, and with shared scenarios played anew."""

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
    """Return a unique name: the test's name with its process id and attempt number."""
    words = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_"))
    return f"{words.strip('-')[:most].strip('-')}-{os.getpid()}-{tried(request)}"


class Plays(Generic[Name, Played]):
    """Long scenarios shared by many tests: each is played once, a few at a time, and its result or failure is
    returned to every test. `play` takes the scenario and a suffix for its names."""

    def __init__(self, play: Callable[[Name, str], Played], at_once: int) -> None:
        self._play = play
        self._pool = ThreadPoolExecutor(at_once)
        self._played: dict[Name, Future[Played]] = {}
        self._again: set[tuple[str, int]] = set()
        """(test, attempt) pairs for which a scenario was played again."""

    def begin(self, names: Iterable[Name]) -> None:
        for name in names:
            if name not in self._played:
                self._played[name] = self._pool.submit(self._play, name, "")

    def of(self, name: Name, request: pytest.FixtureRequest) -> Played:
        """Return the scenario's result. A retried test has it played again."""
        asks = (request.node.nodeid, tried(request))
        if tried(request) > 1 and asks not in self._again:
            self._again.add(asks)
            self._played[name] = self._pool.submit(self._play, name, f"-again-{len(self._again)}")
        self.begin([name])
        return self._played[name].result(WITHIN_S)

    def end(self) -> None:
        self._pool.shutdown(cancel_futures=True)
