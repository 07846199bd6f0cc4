"""Handle of an injected fault: it counts, can be awaited and cancelled, and releases what it holds.

The broker's thread calls `applies_to` and `record`; everything else may be called from any thread.
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
    """What a fault can be applied to: a message or an append."""

    @property
    def api_name(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    def matches(self, match: Match) -> bool: ...


class Happening(NamedTuple):
    """One application of a fault."""

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
    """The handle of a fault. `happened` counts how often it was applied."""

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
        """Return what it does to a message; only faults with a rule have an action."""
        assert self.rule is not None
        return self.rule.action

    @property
    def armed(self) -> bool:
        """Whether it may still be applied."""
        return not self._over

    def wait(self, timeout: float = 10.0, *, times: int = 1) -> None:
        """Wait until it was applied that often. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.happened >= times, timeout):
                raise TimeoutError(
                    f"within {timeout} s it happened {self.happened} times, not {times}: {self.sentence}"
                )

    def cancel(self) -> None:
        """Disarm the fault and release what it holds."""
        self._over = True
        self._faults.forget(self)
        self.release()

    def release(self) -> None:
        """Release held messages in order, and hold nothing more."""
        with self._changed:
            self._released = True
            held, self._held = self._held, []
        for resume in held:
            resume()

    # --- called by the broker's loop ---

    def applies_to(self, matched: Matched) -> bool:
        """Return True if the fault applies to this message, which is counted then."""
        rule = self.rule
        if self._over or rule is None or not matched.matches(rule.match):
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
        self.record(Happening(self.sentence, matched.api_name, matched.client_id))
        return True

    def record(self, happening: Happening) -> None:
        """Count and log an application, and wake waiting callers."""
        self._faults.append_to_log(happening)
        with self._changed:
            self.happened += 1
            self._changed.notify_all()

    def hold(self, resume: Callable[[], None]) -> None:
        """Hold a message until `release`."""
        with self._changed:
            if not self._released:
                self._held.append(resume)
                return
        resume()
