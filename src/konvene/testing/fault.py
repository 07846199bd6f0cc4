"""Handle of an injected fault: it counts applications, waits for them, cancels, and releases held messages.

The broker's thread calls `applies_to`, `record` and `hold`; any thread may call the other methods.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from konvene.plurals import counted
from konvene.testing.rules import Action, Match, Rule

if TYPE_CHECKING:
    from konvene.testing.faults import Faults


class Matchable(Protocol):
    """The interface of what a fault can apply to: a request, a response or a log append."""

    @property
    def api_name(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    def matches(self, match: Match) -> bool: ...


class FaultEvent(NamedTuple):
    """One application of a fault to a message, an append, a coordinator or the broker."""

    fault: str
    """The fault as a sentence of the fault script."""
    api: str = ""
    """Kafka's name of the affected API; empty if the fault is not about a message."""
    client: str = ""
    """Client id of the affected request."""
    detail: str = ""
    """Further data, such as the id of the member whose session expired."""

    def __str__(self) -> str:
        target = f": {self.api} of client {self.client}" if self.api else ""
        return f"{self.fault}{target}{f' ({self.detail})' if self.detail else ''}"


class Fault:
    """The handle of a fault. `applied` counts its applications, `sentence` describes it."""

    def __init__(
        self,
        faults: Faults,
        sentence: str,
        rule: Rule | None = None,
        undo: Callable[[], None] | None = None,
    ) -> None:
        """`undo` ends a fault that lasts until it is cancelled, such as a right that a user has lost."""
        self.sentence = sentence
        self.rule = rule
        self.applied = 0
        self._faults = faults
        self._matched = 0
        self._random = random.Random(rule.match.seed if rule is not None else 0)
        self._changed = threading.Condition()
        self._undo = undo
        self._disarmed = rule is None and undo is None
        self._released = False
        self._blocked: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "cancelled or done" if self._disarmed else "armed"
        return f"<fault {self.sentence!r}: {state}, applied {self.applied} times>"

    @property
    def action(self) -> Action:
        """What the fault does to a message or append. Other faults take effect at once and have no action."""
        assert self.rule is not None
        return self.rule.action

    @property
    def armed(self) -> bool:
        """True while the fault can still be applied."""
        return not self._disarmed

    def wait(self, timeout: float = 10.0, *, times: int = 1) -> None:
        """Wait until the fault was applied `times` times. Raises TimeoutError after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.applied >= times, timeout):
                applied = counted(self.applied, "time")
                raise TimeoutError(f"applied {applied} within {timeout} s, not {times}: {self.sentence}")

    def cancel(self) -> None:
        """Disarm the fault, undo its lasting effect, and release the messages that it holds."""
        self._disarmed = True
        self._faults.remove(self)
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
        self.release()

    def release(self) -> None:
        """Release the held messages in order; later messages pass without being held."""
        with self._changed:
            self._released = True
            held, self._blocked = self._blocked, []
        for resume in held:
            resume()

    # --- called by the broker's loop ---

    def applies_to(self, target: Matchable) -> bool:
        """Return True if the fault applies to this message or append, and record the application.

        Each call with a match counts for `nth`. After the last of `times` applications the fault is
        disarmed."""
        rule = self.rule
        if self._disarmed or rule is None or not target.matches(rule.match):
            return False
        self._matched += 1
        if self._matched < rule.match.nth:
            return False
        if rule.match.probability < 1 and self._random.random() >= rule.match.probability:
            return False
        times = rule.match.times
        if times is not None and self.applied + 1 >= times:
            self._disarmed = True
            self._faults.remove(self)
        self.record(FaultEvent(self.sentence, target.api_name, target.client_id))
        return True

    def record(self, event: FaultEvent) -> None:
        """Count an application, add it to the log of faults, and wake callers of `wait`."""
        self._faults.append_to_log(event)
        with self._changed:
            self.applied += 1
            self._changed.notify_all()

    def hold(self, resume: Callable[[], None]) -> None:
        """Hold a message until the fault is released: call `resume`, which delivers it, then, or at once if
        that was before."""
        with self._changed:
            if not self._released:
                self._blocked.append(resume)
                return
        resume()
