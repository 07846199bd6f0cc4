"""Fault injection of an end-to-end run: faults are chosen by weight, start at drawn times, and end later.

A fault that needs a live host does nothing without one. Whatever a fault stopped starts again after a drawn
time; a broker whose disk failed is killed or stopped by an operator within seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.sim.end_to_end.broker import BROKER, STOPS_WITHIN_S
from konvene.sim.end_to_end.invariants import Violation
from konvene.sim.machine.disk import DiskFaults

if TYPE_CHECKING:
    from konvene.sim.end_to_end.run import EndToEndRun

__all__ = ["Chaos"]

POLL_INTERVAL_S = 2.0
HOUR_MS = 3_600_000


class Chaos:
    """The fault injector of a run; it also ends each fault that lasts, such as a pause or a partition."""

    def __init__(self, run: EndToEndRun) -> None:
        self.run_ = run
        self.loop = run.loop
        self.chance = run.chance
        self._ended = False
        self._actions: dict[str, Callable[[], bool]] = {
            "broker-kill": self._kill,
            "broker-kill-at-disk": lambda: self._die_soon(power=False),
            "power-cut": self._cut_power,
            "power-cut-at-disk": lambda: self._die_soon(power=True),
            "broker-stop": self._stop,
            "broker-pause": lambda: self._pause(BROKER),
            "disk-errors": self._break_disk,
            "client-crash": self._crash,
            "client-leave": self._leave,
            "client-pause": lambda: self._pause(self._client()),
            "partition": lambda: self._partition(one_way=False),
            "partition-one-way": lambda: self._partition(one_way=True),
            "reset": self._reset,
            "deaf": self._stop_reading,
            "clock-step": self._step_clock,
        }

    def __repr__(self) -> str:
        return f"<chaos: {len(self.run_.parameters.faults)} kinds{', over' if self._ended else ''}>"

    async def run(self) -> None:
        """Inject faults until the run has taken its number of steps; replace a broker whose disk has
        failed."""
        run, parameters = self.run_, self.run_.parameters
        names = sorted(parameters.faults)
        weights = [parameters.faults[name] for name in names]
        due_s = self.loop.now if names else float("inf")
        while self.loop.steps < run.steps:
            await asyncio.sleep(min(POLL_INTERVAL_S, max(0.0, due_s - self.loop.now)))
            if run.host.disk_is_offline:
                self._replace()
            if self.loop.now >= due_s:
                due_s = self.loop.now + self.chance.expovariate(1.0) * parameters.gap_s
                self.do(self.chance.choices(names, weights)[0])
        self._ended = True

    def do(self, name: str) -> None:
        """Inject the fault with this name; count it only if it had an effect."""
        if self._actions[name]():
            self.run_.count_fault(name)

    def _schedule(self, delay_s: float, what: str, call: Callable[[], None]) -> None:
        self.loop.schedule(delay_s, "fault", lambda: what, call)

    def _trace(self, what: str) -> None:
        if self.loop.note is not None:
            self.loop.note("fault", what)

    def _duration_s(self, low: float, high: float) -> float:
        """Draw a duration in seconds, whose logarithm is uniform between those of `low` and `high`."""
        return float(low * (high / low) ** self.chance.random())

    @property
    def _session_s(self) -> float:
        return self.run_.timeouts.session_ms / 1000

    # --- the broker ---

    def broker_ended(self, why: str) -> None:
        """Schedule the restart of the broker, which has stopped or died: after a drawn time, or after 1 s if
        faults have ended."""
        delay = 1.0 if self._ended else self._duration_s(0.01, 2 * self._session_s)
        self._schedule(delay, "the broker starts", self.run_.host.start)

    def _replace(self) -> None:
        """Kill or stop the broker with equal probability, as an operator does when its disk has failed."""
        self._trace("the operator replaces the broker")
        if self.chance.random() < 0.5:
            self.run_.host.kill()
        else:
            self.run_.host.stop()

    def _kill(self) -> bool:
        if not self.run_.host.is_up:
            return False
        self._trace("kill -9 of the broker")
        self.run_.host.kill()
        return True

    def _die_soon(self, *, power: bool) -> bool:
        if not self.run_.host.is_up:
            return False
        operations = 1 + int(self._duration_s(1, 300))
        self._trace(f"the broker dies at the {operations}th operation of its disk")
        self.run_.host.die_soon(operations, power=power)
        return True

    def _cut_power(self) -> bool:
        if not self.run_.host.is_up:
            return False
        self._trace("power cut")
        self.run_.host.cut_power()
        return True

    def _stop(self) -> bool:
        host = self.run_.host
        if not host.ready or host.host is None or host.host.paused:
            return False
        life = host.lives
        self._trace("the broker begins a shutdown")
        host.stop()
        self._schedule(STOPS_WITHIN_S, "check that the broker stopped", lambda: self._has_stopped(life))
        return True

    def _has_stopped(self, life: int) -> None:
        host = self.run_.host
        if (
            host.lives == life
            and host.is_up
            and not self.run_.was_paused(BROKER, self.loop.now - STOPS_WITHIN_S)
        ):
            self.loop.halt(
                Violation("StopsWhenTold", f"the broker did not stop within {STOPS_WITHIN_S:.0f} s")
            )

    def _break_disk(self) -> bool:
        disk = self.run_.host.disk
        disk.faults = self.run_.parameters.disk
        self._trace("the disk begins to fail")
        self._schedule(self._duration_s(0.1, 20.0), "the disk is sound again", self.repair_disk)
        return True

    def repair_disk(self) -> None:
        """Set all rates of disk errors to 0, except that a power cut may still leave garbage at the end of a
        file."""
        self.run_.host.disk.faults = DiskFaults(garbage=self.run_.parameters.disk.garbage)

    def _step_clock(self) -> bool:
        self.run_.host.skew_ms = self.chance.randint(-HOUR_MS, HOUR_MS)
        self._trace(f"the wall clock is off by {self.run_.host.skew_ms} ms")
        return True

    # --- clients ---

    def _client(self) -> str:
        return self.chance.choice(sorted(self.run_.clients))

    def _crash(self) -> bool:
        name = self._client()
        if not self.loop.is_up(name):
            return False
        self._trace(f"{name} crashes")
        self.run_.kill_client(name, silently=self.chance.random() < 0.3)
        self._schedule_restart(name)
        return True

    def _schedule_restart(self, name: str) -> None:
        delay = self._duration_s(0.01, 3 * self._session_s)
        self._schedule(delay, f"{name} starts", lambda: self.run_.start_client(name))

    def _leave(self) -> bool:
        name = self._client()
        client = self.run_.clients[name]
        if not self.loop.is_up(name) or client.leaving:
            return False
        self._trace(f"{name} begins to leave")
        client.leaving = True
        life = client.life

        def kill_if_left() -> None:
            if client.life == life and self.loop.is_up(name):
                self.run_.kill_client(name)
                self._schedule_restart(name)

        self._schedule(self._duration_s(1.0, 2 * self._session_s), f"{name} is killed", kill_if_left)
        return True

    def _pause(self, name: str) -> bool:
        host = self.loop.host(name) if self.loop.is_up(name) else None
        if host is None or host.paused:
            return False
        delay = self._duration_s(1.0, 2 * self._session_s)
        self._trace(f"{name} is paused for {delay:.3f} s")
        self.run_.paused_since[name] = self.loop.now
        self.loop.pause(name)
        self._schedule(delay, f"{name} wakes", lambda: self.end_pause(name))
        return True

    def end_pause(self, name: str) -> None:
        """End the pause of the host `name`, if it is paused."""
        if self.run_.paused_since.pop(name, None) is not None:
            self.run_.resumed_at[name] = self.loop.now
            if self.loop.is_up(name):
                self.loop.resume(name)

    # --- the network ---

    def _partition(self, *, one_way: bool) -> bool:
        name = self._client()
        directions = [(name, BROKER), (BROKER, name)]
        one, other = self.chance.choice(directions) if one_way else directions[0]
        self._trace(f"partition from {one} to {other}{'' if one_way else ' and back'}")
        self.loop.network.partition(one, other, one_way=one_way)
        delay = self._duration_s(0.2, 3 * self._session_s)
        self._schedule(
            delay, f"{one} and {other} are reconnected", lambda: self.loop.network.heal(one, other)
        )
        return True

    def _reset(self) -> bool:
        endpoints = list(self.loop.network.endpoints)
        if not endpoints:
            return False
        endpoint = self.chance.choice(endpoints)
        self._trace(f"{endpoint.label} is reset")
        self.loop.network.reset(endpoint)
        return True

    def _stop_reading(self) -> bool:
        endpoints = list(self.loop.network.endpoints)
        if not endpoints:
            return False
        endpoint = self.chance.choice(endpoints)
        self._trace(f"{endpoint.label} is not read from")
        self.loop.network.stop_reading(endpoint)
        delay = self._duration_s(0.5, 2 * self._session_s)
        self._schedule(
            delay, f"{endpoint.label} is read again", lambda: self.loop.network.resume_reading(endpoint)
        )
        return True
