"""The simulated event loop: asyncio's API, virtual time, and hosts that crash or pause."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import pytest

from konvene.sim.machine.loop import Deadlock, Order, SimLoop


def run(main: Any, loop: SimLoop | None = None) -> Any:
    with asyncio.Runner(loop_factory=lambda: loop or SimLoop(Random(1))) as runner:
        return runner.run(main)


def running_loop() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


def test_virtual_time_advances_to_the_next_timer() -> None:
    """A day of virtual time passes within a minute of real time."""

    async def main() -> float:
        began = running_loop().now
        await asyncio.sleep(86_400)
        return running_loop().now - began

    began = time.perf_counter()
    assert run(main()) == 86_400
    assert time.perf_counter() - began < 60


def test_asyncio_primitives_work() -> None:
    """Timeouts, gather, wait, events, queues, locks, shields and executors work as in asyncio."""

    async def main() -> list[Any]:
        results: list[Any] = list(await asyncio.gather(asyncio.sleep(2, "b"), asyncio.sleep(1, "a")))
        try:
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        except TimeoutError:
            results.append("timeout")
        try:
            await asyncio.wait_for(asyncio.sleep(10), 1)
        except TimeoutError:
            results.append("waited")
        queue: asyncio.Queue[int] = asyncio.Queue()
        running_loop().call_later(3, queue.put_nowait, 7)
        results.append(await queue.get())
        async with asyncio.Lock():
            results.append(await asyncio.shield(asyncio.sleep(1, "shielded")))
        results.append(await running_loop().run_in_executor(None, lambda: "thread"))
        done, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(i)) for i in (1, 9)], timeout=5)
        return [*results, len(done), len(pending)]

    assert run(main()) == ["b", "a", "timeout", "waited", 7, "shielded", "thread", 1, 1]


def test_loop_without_events_reports_the_waiting_tasks() -> None:
    loop = SimLoop()

    async def forever() -> None:
        await loop.create_future()

    loop.spawn("somewhere", forever(), name="the patient one")
    with pytest.raises(Deadlock, match=r"the patient one \(.*forever\)"):
        loop.run_forever()
    loop.close()


@pytest.mark.parametrize("order", ["fifo", "hosts", "all"])
def test_seed_determines_the_order_of_simultaneous_callbacks(order: Order) -> None:
    """Callbacks run first in first out (`fifo`), so on each host (`hosts`), or shuffled (`all`)."""

    def play(seed: int) -> str:
        loop = SimLoop(Random(seed), order=order)
        seen: list[str] = []

        async def write(letter: str) -> None:
            seen.append(letter)

        async def main() -> None:
            for letter in "abcd":
                loop.spawn("one", write(letter))
                loop.spawn("two", write(letter.upper()))
            await asyncio.sleep(1)

        run(main(), loop)
        return "".join(seen)

    orders = {play(seed) for seed in range(20)}
    assert play(3) == play(3)
    sorted_by_host = all("".join(filter(str.islower, o)) == "abcd" for o in orders)
    assert sorted_by_host is (order != "all")
    assert (len(orders) == 1) is (order == "fifo")


def test_killed_process_never_runs_again() -> None:
    """Its tasks, its timers and its `finally` blocks do not run."""
    loop = SimLoop(Random(1))
    seen: list[str] = []

    async def live() -> None:
        loop.call_later(5, seen.append, "timer")
        try:
            await asyncio.sleep(5)
            seen.append("woke")
        finally:
            seen.append("finally")

    async def main() -> None:
        loop.spawn("one", live())
        await asyncio.sleep(1)
        loop.kill("one")
        await asyncio.sleep(10)
        assert not loop.is_up("one")
        loop.spawn("one", live())
        await asyncio.sleep(10)
        assert loop.is_up("one")
        events = list(seen)
        seen.clear()
        assert sorted(events) == ["finally", "timer", "woke"]

    run(main(), loop)


def test_callback_can_kill_its_own_host() -> None:
    loop = SimLoop(Random(1))
    seen: list[str] = []

    async def live() -> None:
        loop.kill("one")
        loop.call_soon(seen.append, "after")
        await asyncio.sleep(0)
        seen.append("later")

    async def main() -> None:
        loop.spawn("one", live())
        await asyncio.sleep(1)

    run(main(), loop)
    assert seen == []


def test_paused_process_catches_up_when_it_resumes() -> None:
    loop = SimLoop(Random(1))
    seen: list[tuple[float, int]] = []

    async def live() -> None:
        for count in range(3):
            await asyncio.sleep(1)
            seen.append((round(loop.now - loop.began, 3), count))

    async def main() -> None:
        loop.spawn("one", live())
        await asyncio.sleep(1.5)
        loop.pause("one")
        await asyncio.sleep(8.5)
        assert len(seen) == 1
        loop.resume("one")
        await asyncio.sleep(10)

    run(main(), loop)
    assert seen == [(1.0, 0), (10.0, 1), (11.0, 2)]


def test_executor_has_disk_latency_and_ends_with_its_host() -> None:
    loop = SimLoop(Random(1), disk_latency=lambda: 2.0)
    seen: list[str] = []

    async def live() -> None:
        await loop.run_in_executor(None, seen.append, "ran")
        seen.append("returned")

    async def main() -> None:
        loop.spawn("one", live())
        await asyncio.sleep(3)
        assert seen == ["ran"]
        loop.kill("one")
        loop.spawn("two", live())
        await asyncio.sleep(5)

    run(main(), loop)
    assert seen == ["ran", "ran", "returned"]


def test_error_in_a_callback_ends_the_run_unless_it_is_handled() -> None:
    def wrong() -> None:
        raise ValueError("wrong")

    async def main() -> str:
        running_loop().call_soon(wrong)
        await asyncio.sleep(1)
        return "went on"

    with pytest.raises(ValueError, match="wrong"):
        loop = SimLoop()
        loop.run_until_complete(main())
    loop.close()
    loop = SimLoop()
    errors: list[str] = []
    loop.errors = lambda host, context: errors.append(f"{host.name}: {context['exception']}")
    assert run(main(), loop) == "went on"
    assert errors == ["world: wrong"]
