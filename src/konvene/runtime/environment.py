"""Where a broker gets time and chance from: the only place in `broker` that asks the system for either.

A broker is given its doors when it is made. The system's are the default; a simulator gives a clock of its
own and chance from a seed, and then two runs of one seed do not differ in a byte. What is measured in
distances (sessions, idle connections) is the event loop's time and does not pass here.
"""

from __future__ import annotations

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
    """What a broker may not invent."""

    wall_clock_ms: Callable[[], int] = _system_ms
    random_int: Callable[[int, int], int] = random.randint
    """A number between two others, both included: for what nobody has to guess."""
    fresh_uuid: Callable[[], uuid.UUID] = uuid.uuid4

    @classmethod
    def seeded(cls, wall_clock_ms: Callable[[], int], chance: random.Random) -> Environment:
        """Doors to a clock and to chance that can be played again."""

        def fresh_uuid() -> uuid.UUID:
            return uuid.UUID(int=chance.getrandbits(128), version=4)

        return cls(wall_clock_ms, chance.randint, fresh_uuid)


SYSTEM = Environment()
"""The system's clock and its chance."""
