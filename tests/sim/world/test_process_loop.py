"""The event loop of a simulated process: work that has not started is dropped when the process ends."""

from __future__ import annotations

import gc
import warnings

from konvene.sim.event_queue import EventQueue
from konvene.sim.world.process_loop import ProcessLoop


def test_scheduled_work_ends_with_its_process() -> None:
    """Tasks that have not started never run, and no coroutine is reported as never awaited."""
    event_queue, done = EventQueue(), list[str]()

    async def work(name: str) -> None:
        done.append(name)

    loop = ProcessLoop(event_queue, lambda: 10, lambda: None)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        loop.create_task(work("one"))
        loop.create_task(work("two"))
        loop.end()
        event_queue.step()
        event_queue.step()
        gc.collect()
    assert (done, warned) == ([], [])


def test_started_work_completes_before_its_process_ends() -> None:
    event_queue, done = EventQueue(), list[str]()

    async def work(name: str) -> None:
        done.append(name)

    loop = ProcessLoop(event_queue, lambda: 10, lambda: None)
    tasks = [loop.create_task(work(name)) for name in ("one", "two")]
    event_queue.step()
    event_queue.step()
    loop.end()
    assert (done, [task.done for task in tasks]) == (["one", "two"], [True, True])
