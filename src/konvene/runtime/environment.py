"""A broker's clock and source of randomness: nothing else in `broker` asks the system for either.

A broker is given its environment when it is made. The default reads the system's clock and randomness. A
simulator passes a clock of its own and a seeded generator, so that two runs of one seed are identical to the
byte. Durations (sessions, idle connections) are measured with the event loop's clock, not with this one.
"""

from __future__ import annotations

import base64
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["SYSTEM", "Environment"]


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Environment:
    """A wall clock and sources of random numbers and ids."""

    wall_clock_ms: Callable[[], int] = _system_ms
    random_int: Callable[[int, int], int] = random.randint
    """Return a random number between two numbers, both included. Not for secrets."""
    fresh_uuid: Callable[[], uuid.UUID] = uuid.uuid4
    processing_clock_ns: Callable[[], int] = time.perf_counter_ns
    """A clock that measures how long the event loop works on a request."""

    @classmethod
    def seeded(cls, wall_clock_ms: Callable[[], int], generator: random.Random) -> Environment:
        """Return an environment with this clock, whose random numbers and ids come from `generator`."""

        def fresh_uuid() -> uuid.UUID:
            return uuid.UUID(int=generator.getrandbits(128), version=4)

        return cls(wall_clock_ms, generator.randint, fresh_uuid, lambda: wall_clock_ms() * 1_000_000)

    def fresh_ids(self, count: int) -> tuple[str, ...]:
        """Return random ids as Kafka's `Uuid.randomUuid` makes them.

        None of them starts with a dash, which command line tools would read as an option."""
        ids: list[str] = []
        while len(ids) < count:
            text = base64.urlsafe_b64encode(self.fresh_uuid().bytes).rstrip(b"=").decode()
            if not text.startswith("-"):
                ids.append(text)
        return tuple(ids)


SYSTEM = Environment()
"""The environment of a real broker: the system's clock and randomness."""
