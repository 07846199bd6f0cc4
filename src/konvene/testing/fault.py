"""A fault that was asked for: it counts, can be waited for, cancelled, and what it holds can be released.

The test's thread asks for faults and waits; the broker's loop decides and carries out. Only the loop calls
`takes` and `did`; everything else may be called from anywhere.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from konvene.testing.rules import Action, Match, Rule

if TYPE_CHECKING:
    from konvene.testing.faults import Faults


class Matched(Protocol):
    """What a fault can happen to: a message, or an append."""

    @property
    def api_name(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    def is_meant(self, match: Match) -> bool: ...


class Happening(NamedTuple):
    """One thing that a fault did."""

    fault: str
    """The fault, as a sentence."""
    api: str = ""
    client: str = ""
    """The client id of whoever it was done to."""
    detail: str = ""

    def __str__(self) -> str:
        whom = f": {self.api} of client {self.client}" if self.api else ""
        return f"{self.fault}{whom}{f' ({self.detail})' if self.detail else ''}"


class Fault:
    """The handle of a fault. `happened` says how often it was done."""

    def __init__(self, faults: Faults, sentence: str, rule: Rule | None = None) -> None:
        self.sentence = sentence
        self.rule = rule
        self.happened = 0
        self._faults = faults
        self._seen = 0
        self._chance = random.Random(rule.match.seed if rule is not None else 0)
        self._changed = threading.Condition()
        self._over = rule is None
        self._released = False
        self._held: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "cancelled or done" if self._over else "armed"
        return f"<fault {self.sentence!r}: {state}, happened {self.happened} times>"

    @property
    def action(self) -> Action:
        """What it does to a message. Only faults with a rule do something to messages."""
        assert self.rule is not None
        return self.rule.action

    @property
    def armed(self) -> bool:
        """Whether it may still happen."""
        return not self._over

    def wait(self, timeout: float = 10.0, *, times: int = 1) -> None:
        """Return once it has happened that often. Raises TimeoutError, in words."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.happened >= times, timeout):
                raise TimeoutError(
                    f"within {timeout} s it happened {self.happened} times, not {times}: {self.sentence}"
                )

    def cancel(self) -> None:
        """Let it happen no more, and let go what it holds."""
        self._over = True
        self._faults.forget(self)
        self.release()

    def release(self) -> None:
        """Let go what it holds, in the order in which it came, and hold nothing more."""
        with self._changed:
            self._released = True
            held, self._held = self._held, []
        for let_go in held:
            let_go()

    # --- called by the broker's loop ---

    def takes(self, asked: Matched) -> bool:
        """Whether this message is one to which it happens; it is counted, then."""
        rule = self.rule
        if self._over or rule is None or not asked.is_meant(rule.match):
            return False
        self._seen += 1
        if self._seen < rule.match.nth:
            return False
        if rule.match.probability < 1 and self._chance.random() >= rule.match.probability:
            return False
        times = rule.match.times
        if times is not None and self.happened + 1 >= times:
            self._over = True
            self._faults.forget(self)
        self.did(Happening(self.sentence, asked.api_name, asked.client_id))
        return True

    def did(self, happening: Happening) -> None:
        """It happened: count it, write it down, wake who waits."""
        self._faults.write_down(happening)
        with self._changed:
            self.happened += 1
            self._changed.notify_all()

    def keep(self, let_go: Callable[[], None]) -> None:
        """Hold something until `release`."""
        with self._changed:
            if not self._released:
                self._held.append(let_go)
                return
        let_go()
