"""Which alerts are new and which have ended, kept across restarts.

`changes` compares the alerts that apply with those that were firing. `Firing` keeps them, and the messages
that a target has not received yet, in a file of the warehouse, which is replaced atomically. So a follower
that is killed and started again sends each message to each target at least once; one that was killed right
after a delivery repeats it with the same id.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from konvene.pipeline.monitoring.alerts import ADVICE, Alert, AlertKey

__all__ = ["Fired", "Firing", "Message", "changes"]

FIRING, RESOLVED = "firing", "resolved"
_FILE = "_alerts.json"
MAX_PENDING = 1000
"""Number of messages that are kept for a target that receives none: the newest ones."""

Message = dict[str, Any]
"""What a target receives, as JSON."""


class Fired(NamedTuple):
    """An alert that is firing: since when, its text, and whether targets were informed."""

    since_ms: int
    text: str
    informed: bool = True


def changes(
    before: Mapping[AlertKey, Fired], now: Iterable[Alert], now_ms: int, *, is_first: bool = False
) -> tuple[list[Message], dict[AlertKey, Fired]]:
    """Return the messages about alerts that are new or have ended, and the alerts that are firing.

    At the first poll of all, advice that already applies is not new."""
    after: dict[AlertKey, Fired] = {}
    messages: list[Message] = []
    for alert in now:
        if alert.key in after:
            continue
        known = before.get(alert.key)
        if known is None:
            known = Fired(now_ms, alert.text, not (is_first and alert.rule == ADVICE))
            if known.informed:
                messages.append(_message(FIRING, alert.key, known, now_ms, alert.numbers))
        after[alert.key] = known
    for key, fired in before.items():
        if key not in after and fired.informed:
            messages.append(_message(RESOLVED, key, fired, now_ms, {}))
    return messages, after


def _message(status: str, key: AlertKey, fired: Fired, now_ms: int, numbers: dict[str, Any]) -> Message:
    rule, cluster, group, detail = key
    return {
        "id": "/".join((rule, cluster, group, detail, str(fired.since_ms), status)), "status": status,
        "rule": rule, "cluster": cluster, "group": group, "detail": detail, "text": fired.text,
        "since_ms": fired.since_ms, "at_ms": now_ms, "numbers": numbers,
    }  # fmt: skip


class Firing:
    """The alerts that are firing, and the messages that targets have not received, in a file.

    `targets` are names, not addresses: the file has no secrets."""

    def __init__(self, folder: Path, targets: Iterable[str]) -> None:
        self._path = folder / _FILE
        self._targets = tuple(targets)
        self._lock = threading.Lock()
        self._fired: dict[AlertKey, Fired] = {}
        self._pending: dict[str, list[Message]] = {target: [] for target in self._targets}
        self._is_first = True
        self._load()

    def __repr__(self) -> str:
        return f"<{len(self._fired)} alerts firing>"

    @property
    def keys(self) -> list[AlertKey]:
        return sorted(self._fired)

    def pending(self, target: str) -> list[Message]:
        """Return the messages that a target has not received."""
        with self._lock:
            return list(self._pending[target])

    def update(self, alerts: Iterable[Alert], now_ms: int) -> list[Message]:
        """Record the alerts that apply now; return the messages to deliver to each target."""
        with self._lock:
            messages, after = changes(self._fired, alerts, now_ms, is_first=self._is_first)
            changed = self._is_first or after.keys() != self._fired.keys()
            self._fired, self._is_first = after, False
            for pending in self._pending.values():
                pending.extend(messages)
                del pending[:-MAX_PENDING]
            if changed:
                self._save()
        return messages

    def delivered(self, target: str, message: Message) -> None:
        """Record that a target received a message, or will never receive it."""
        with self._lock:
            pending = self._pending[target]
            self._pending[target] = [each for each in pending if each["id"] != message["id"]]
            self._save()

    def _load(self) -> None:
        try:
            state = json.loads(self._path.read_text("utf-8"))
            self._fired = {tuple(key): Fired(*fired) for key, fired in state["firing"]}
            for target in self._targets:
                self._pending[target] = list(state["pending"].get(target, ()))
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError):  # Written by another version: begin anew.
            self._fired = {}
            return
        self._is_first = False

    def _save(self) -> None:
        state = {"firing": [[list(key), list(f)] for key, f in self._fired.items()], "pending": self._pending}
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(state), "utf-8")
        unfinished.replace(self._path)
