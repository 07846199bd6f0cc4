"""Sends a view to its viewers: the whole first, then what changes.

All viewers of the same view with the same arguments share one `LiveView`, which builds the view while it
has viewers: when the logs change, and at the view's interval. A viewer that reads slowly gets fewer, larger
changes: what it has not been sent yet is merged, so it never takes more memory than one copy of the view."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from konvene.client.errors import ClientError
from konvene.console.tail import wall_clock_ms
from konvene.console.views import VIEWS, Sections, UnknownView, View
from konvene.console.watch import ClusterWatch

__all__ = ["Change", "Hub", "difference", "merged"]

LEAST_S = 0.1
"""Shortest time between two changes."""
KEEP_ALIVE_S = 15.0
RETRY_S = 1.0
MAX_IDLE = 16
"""Views that are kept after their last viewer has left."""


class Change(NamedTuple):
    """What differs between two states of a view: new values, and removed keys, by section and key."""

    set: Sections
    removed: dict[str, list[str]]

    def __bool__(self) -> bool:
        return bool(self.set or self.removed)


def difference(before: Sections, after: Sections) -> Change:
    """Return the change from one state to another; a section that is missing counts as empty."""
    changed: Sections = {}
    removed: dict[str, list[str]] = {}
    for name in before.keys() | after.keys():
        old, new = before.get(name, {}), after.get(name, {})
        if old is new:
            continue
        values = {key: value for key, value in new.items() if key not in old or old[key] != value}
        if values:
            changed[name] = values
        keys = [key for key in old if key not in new]
        if keys:
            removed[name] = keys
    return Change(changed, removed)


def merged(first: Change, second: Change) -> Change:
    """Return the change that has the effect of two successive ones."""
    changed = {name: dict(values) for name, values in first.set.items()}
    removed = {name: dict.fromkeys(keys) for name, keys in first.removed.items()}
    for name, values in second.set.items():
        changed.setdefault(name, {}).update(values)
        for key in values:
            removed.get(name, {}).pop(key, None)
    for name, keys in second.removed.items():
        removed.setdefault(name, {}).update(dict.fromkeys(keys))
        for key in keys:
            changed.get(name, {}).pop(key, None)
    return Change(
        {name: values for name, values in changed.items() if values},
        {name: list(keys) for name, keys in removed.items() if keys},
    )


NO_CHANGE = Change({}, {})


class _Viewer:
    """A connection that receives a view."""

    def __init__(self) -> None:
        self.pending = NO_CHANGE
        self.is_new = True
        """Whether it has not been sent the whole view yet."""
        self.wakeup = asyncio.Event()

    def add(self, change: Change) -> None:
        if not self.is_new:
            self.pending = merged(self.pending, change) if self.pending else change
        self.wakeup.set()


class LiveView:
    """A view and its viewers."""

    def __init__(self, view: View) -> None:
        self.sections: Sections | None = None
        """The view as it was built last; None until then."""
        self.viewers: set[_Viewer] = set()
        self._view = view
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<live {self._view!r}, {len(self.viewers)} viewers>"

    def join(self) -> _Viewer:
        viewer = _Viewer()
        self.viewers.add(viewer)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        elif self.sections is not None:
            viewer.wakeup.set()
        return viewer

    async def leave(self, viewer: _Viewer) -> None:
        self.viewers.discard(viewer)
        if not self.viewers and self._task is not None:
            task, self._task, self.sections = self._task, None, None
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        watch = self._view.watch
        state = watch.tail.state
        if state.state == "unavailable":
            self._publish(self._with_error(state.message or "the cluster does not answer"))
        while True:
            changes, began_s = watch.changes, time.monotonic()
            try:
                self._publish(await self._view.build())
                wait_s = self._view.interval_s
            except ClientError as error:
                self._publish(self._with_error(str(error)))
                wait_s = RETRY_S
            await asyncio.sleep(max(LEAST_S - (time.monotonic() - began_s), 0))
            await watch.wait(changes, wait_s)

    def _with_error(self, error: str) -> Sections:
        """Return the last state with an error among the facts."""
        facts = self._view.facts(error=error)
        before = self.sections or {}
        return {**before, "facts": before.get("facts", {}) | facts}

    def _publish(self, sections: Sections) -> None:
        """Send what has changed."""
        before, self.sections = self.sections, sections
        if before is None:
            for viewer in self.viewers:
                viewer.wakeup.set()
            return
        change = difference(before, sections)
        if not change:
            return
        for viewer in self.viewers:
            viewer.add(change)


class Hub:
    """All live views, by name and arguments."""

    def __init__(self, watch: ClusterWatch, facts: Mapping[str, object]) -> None:
        """`facts` are added to the facts of each view."""
        self._watch = watch
        self._facts = dict(facts)
        self._views: dict[tuple[str, ...], LiveView] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<hub of {len(self._views)} views>"

    def open(self, name: str, arguments: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Return the events of a view for a new viewer. Raises `UnknownView` if the request is wrong."""
        kind = VIEWS.get(name)
        if kind is None:
            raise UnknownView(f"there is no view {name!r}; views are {', '.join(VIEWS)}")
        missing = [each for each in kind.arguments if each not in arguments]
        if missing:
            raise UnknownView(f"the view {name} needs {' and '.join(missing)}")
        key = (name, *(arguments[each] for each in kind.arguments))
        if key not in self._views:
            self._views[key] = LiveView(kind(self._watch, arguments))
        self._views[key] = live = self._views.pop(key)  # in the order of their use
        return self._events(live)

    def close(self) -> None:
        """End the events of all viewers."""
        self._closed = True
        for live in self._views.values():
            for viewer in live.viewers:
                viewer.wakeup.set()

    async def _events(self, live: LiveView) -> AsyncIterator[bytes]:
        viewer = live.join()
        try:
            while not self._closed:
                try:
                    await asyncio.wait_for(viewer.wakeup.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b":\n\n"
                    continue
                viewer.wakeup.clear()
                if live.sections is None or self._closed:
                    continue
                if viewer.is_new:
                    viewer.is_new = False
                    facts = live.sections.get("facts", {}) | self._facts | {"now_ms": wall_clock_ms()}
                    sections = {**live.sections, "facts": facts}
                    yield _event("reset", {"sections": sections})
                elif viewer.pending:
                    change, viewer.pending = viewer.pending, NO_CHANGE
                    change.set.setdefault("facts", {})["now_ms"] = wall_clock_ms()
                    yield _event("change", {"set": change.set, "remove": change.removed})
        finally:
            await live.leave(viewer)
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Keep the last views without viewers: a page that is loaded again is built from what they cache."""
        idle = [key for key, live in self._views.items() if not live.viewers]
        for key in idle[:-MAX_IDLE]:
            del self._views[key]


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    """Return a server-sent event; JSON has no line breaks, so one `data` line holds it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode("utf-8", "replace")
