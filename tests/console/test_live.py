"""Changes of a view, applied by a viewer, lead to the state that was sent."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.client.errors import ConnectionLost
from konvene.console.live import MAX_IDLE, Change, Hub, LiveView, difference, merged
from konvene.console.views.view import Sections, View

VALUES = st.one_of(st.none(), st.integers(0, 3), st.lists(st.integers(0, 2)))
STATES = st.dictionaries(
    st.sampled_from(["facts", "groups", "members"]), st.dictionaries(st.sampled_from("abcd"), VALUES)
)


def applied(state: Sections, change: Change) -> Sections:
    """Return the state after a change, as the page applies it, without empty sections."""
    result = copy.deepcopy(state)
    for name, keys in change.removed.items():
        for key in keys:
            result.get(name, {}).pop(key, None)
    for name, values in change.set.items():
        result.setdefault(name, {}).update(values)
    return {name: values for name, values in result.items() if values}


def without_empty(state: Sections) -> Sections:
    return {name: values for name, values in state.items() if values}


@given(STATES, STATES)
def test_a_difference_leads_from_one_state_to_the_other(before: Sections, after: Sections) -> None:
    assert applied(before, difference(before, after)) == without_empty(after)
    assert bool(difference(before, after)) == (without_empty(before) != without_empty(after))


@given(STATES, STATES, STATES)
def test_merged_changes_have_the_effect_of_both(first: Sections, second: Sections, third: Sections) -> None:
    change = merged(difference(first, second), difference(second, third))
    assert applied(first, change) == without_empty(third)
    assert json.loads(json.dumps(change.set)) == change.set


class FakeWatch:
    """A watch whose logs change when the test calls `change`."""

    def __init__(self) -> None:
        self.changes = 0
        self.event = asyncio.Event()
        self.tail: Any = self
        self.state: Any = type("State", (), {"state": "live", "message": None, "_asdict": lambda _: {}})()
        self.bootstrap = "b:1"
        self.cluster: Any = self
        self.metadata: Any = type("Metadata", (), {"cluster_id": "c"})()

    async def wait(self, changes: int, timeout_s: float) -> None:
        if changes == self.changes:
            await self.event.wait()
        self.event.clear()

    def change(self) -> None:
        self.changes += 1
        self.event.set()


class Counter(View):
    """A view of how often it was built; it fails where `fails` has a number."""

    fails: tuple[int, ...] = ()

    async def build(self) -> Sections:
        watch: Any = self.watch
        if watch.changes in self.fails:
            raise ConnectionLost("no broker")
        return {"facts": self.facts(), "rows": {"changes": watch.changes}}


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (what is awaited has no event)
        await asyncio.sleep(0.01)


def rows(live: LiveView) -> Any:
    return None if live.sections is None else live.sections.get("rows")


def has(live: LiveView, changes: int) -> Callable[[], bool]:
    return lambda: rows(live) == {"changes": changes}


def test_a_slow_viewer_gets_one_change_for_many() -> None:
    async def job() -> None:
        watch: Any = FakeWatch()
        live = LiveView(Counter(watch, {}))
        viewer = live.join()
        await viewer.wakeup.wait()
        viewer.is_new = False
        for n in (1, 2, 3):
            watch.change()
            await until(has(live, n))
        assert viewer.pending == Change({"rows": {"changes": 3}}, {})
        await live.leave(viewer)
        assert live.sections is None

    asyncio.run(asyncio.wait_for(job(), 30))


def test_the_last_views_without_viewers_are_kept() -> None:
    """The next viewer of one is sent its present state."""

    async def job() -> None:
        watch: Any = FakeWatch()
        hub = Hub(watch, {})
        for n in (*range(2 * MAX_IDLE), 0):
            events = hub.open("group", {"group": str(n)})
            assert (await anext(events)).startswith(b"event: reset")
            await events.aclose()
        assert len(hub._views) == MAX_IDLE and ("group", "0") in hub._views
        watch.change()
        events = hub.open("group", {"group": "0"})
        assert b'"changes":1' in await anext(events)
        await events.aclose()

    with pytest.MonkeyPatch.context() as patch:
        kind = type("CounterOfGroup", (Counter,), {"arguments": ("group",)})
        patch.setattr("konvene.console.live.VIEWS", {"group": kind})
        asyncio.run(asyncio.wait_for(job(), 30))


def test_an_error_of_the_cluster_keeps_the_last_state() -> None:
    async def job() -> None:
        watch: Any = FakeWatch()
        view = Counter(watch, {})
        view.fails = (1,)
        live = LiveView(view)
        viewer = live.join()
        await viewer.wakeup.wait()
        viewer.is_new = False
        watch.change()
        await until(lambda: viewer.pending)
        assert viewer.pending == Change({"facts": {"error": "no broker"}}, {})
        watch.change()
        await until(has(live, 2))
        assert live.sections is not None and live.sections["facts"]["error"] is None
        await live.leave(viewer)

    asyncio.run(asyncio.wait_for(job(), 30))
